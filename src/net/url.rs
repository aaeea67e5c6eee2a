//! Where a relative URL leads, and whether two URLs have one origin.
//!
//! Not for: dialling. Invariant: a URL with a user or a password in it is none.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// Finds where a reference of a server at `base` leads (RFC 3986 §5.2); `None` if it is none, or of another kind than http.
#[must_use]
pub fn resolve(base: &Uri, reference: &[u8]) -> Option<Uri> {
    let text = std::str::from_utf8(reference).ok()?.trim_matches([' ', '\t']);
    let text = text.split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme()?, base.authority()?);
    if let Some((head, _)) = text.split_once(':')
        && head.starts_with(|first: char| first.is_ascii_alphabetic())
        && head.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    {
        let uri: Uri = text.parse().ok()?;
        let known = uri.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        return Some(uri).filter(|uri| known && uri.authority().is_some_and(is_plain));
    }
    if let Some(rest) = text.strip_prefix("//") {
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority: Authority = authority.parse().ok().filter(is_plain)?;
        return made(scheme, &authority, path);
    }
    let path = base.path();
    let whole = match text.chars().next() {
        None => base.path_and_query().map_or("/", PathAndQuery::as_str).to_owned(),
        Some('/') => text.to_owned(),
        Some('?') => format!("{path}{text}"),
        Some(_) => format!("{}/{text}", path.rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    made(scheme, authority, &whole)
}

/// Says whether two URLs have scheme, host and port in common.
#[must_use]
pub fn same_origin(one: &Uri, two: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().or_else(|| default_port(uri));
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    one.scheme().is_some() && one.scheme() == two.scheme() && host(one) == host(two) && port(one) == port(two)
}

fn default_port(uri: &Uri) -> Option<u16> {
    uri.scheme().map(|scheme| if *scheme == Scheme::HTTPS { 443 } else { 80 })
}

fn is_plain(authority: &Authority) -> bool {
    !authority.as_str().contains('@') && !authority.host().is_empty()
}

fn made(scheme: &Scheme, authority: &Authority, path: &str) -> Option<Uri> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let path = without_dots(path);
    let whole = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
    Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query(whole).build().ok()
}

/// Takes `.` and `..` out of a path (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut folder = false;
    for part in path.split('/').skip(1) {
        folder = matches!(part, "." | "..");
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    if folder {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::{resolve, same_origin};

    /// [TRN-6]: references as RFC 3986 reads them; what has a user in it, or another scheme, leads nowhere.
    #[test]
    fn references_lead_where_they_say() {
        let base: Uri = "http://a.example:8080/b/mcp?q=1".parse().unwrap();
        for (reference, whole) in [
            ("/mcp/", "http://a.example:8080/mcp/"),
            ("mcp/", "http://a.example:8080/b/mcp/"),
            ("../x?y=1", "http://a.example:8080/x?y=1"),
            ("./x/./y/../z", "http://a.example:8080/b/x/z"),
            ("../../../..", "http://a.example:8080/"),
            ("?r=2", "http://a.example:8080/b/mcp?r=2"),
            ("", "http://a.example:8080/b/mcp?q=1"),
            ("#part", "http://a.example:8080/b/mcp?q=1"),
            ("//other.example/x?u=http://b", "http://other.example/x?u=http://b"),
            ("//other.example", "http://other.example/"),
            ("https://other.example", "https://other.example/"),
            (" HTTPS://Other.Example:444/x#part ", "https://Other.Example:444/x"),
            ("x?a:b", "http://a.example:8080/b/x?a:b"),
        ] {
            let found = resolve(&base, reference.as_bytes()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), Some(whole), "{reference}");
        }
        for reference in
            ["ftp://a/", "javascript:x", "file:///etc/passwd", "http://u:p@b/", "//u@b/", "http://", "/\u{e9} x"]
        {
            assert_eq!(resolve(&base, reference.as_bytes()), None, "{reference}");
        }
        assert_eq!(resolve(&base, b"/\xff"), None);
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |one: &str, two: &str| same_origin(&one.parse().unwrap(), &two.parse().unwrap());
        assert!(same("http://a/x", "http://A:80/y?z"));
        assert!(same("https://a:443/", "https://a/"));
        for other in ["https://a/", "http://a:81/", "http://b/", "http://a./"] {
            assert!(!same("http://a/", other), "{other}");
        }
    }
}
