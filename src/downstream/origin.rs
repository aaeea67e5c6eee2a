//! Host and Origin: against pages that reach a local listener by a name of their own [TRN-6, FC-SEC-01, R1, R2, R30].
//!
//! Not for: credentials. Invariant: this is asked first, on every path and verb.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::{HeaderValue, Uri, Version};

use super::DownstreamSettings;
use super::headers::{Headers, Known};
use super::respond::{Fault, Refusal};

/// How much of what a client has sent is written into the log, in characters.
const SENT_CHARS: usize = 200;

/// Which names a listener takes for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Loopback names, and what is configured.
    Loopback,
    /// What is configured; any name if nothing is.
    Network,
}

/// A name or an origin that is not allowed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// The `Host`.
    Host,
    /// The `Origin`.
    Origin,
}

// === impl Foreign ===

impl Foreign {
    /// Makes the refusal: the log also has what was sent, and the key that would allow it.
    pub(super) fn refusal(self, uri: &Uri, headers: &Headers) -> Refusal {
        let (words, known, key) = match self {
            Self::Host => ("Host is not allowed here", Known::Host, "allowed_hosts"),
            Self::Origin => ("Origin is not allowed here", Known::Origin, "allowed_origins"),
        };
        let sent = headers.single(known).ok().flatten().and_then(|value| value.to_str().ok());
        let sent = sent.or_else(|| uri.authority().map(http::uri::Authority::as_str)).unwrap_or("none, or two");
        let sent: String = sent.chars().take(SENT_CHARS).collect();
        Refusal { detail: format!("{words}: {sent}; [listen] {key} says what is"), ..Fault::Foreign(words).into() }
    }
}

/// Checks both; returns the origin that answers must name, if there is one.
pub(super) fn check(
    (uri, version, headers): (&Uri, Version, &Headers),
    reach: Reach,
    settings: &DownstreamSettings,
) -> Result<Option<HeaderValue>, Foreign> {
    let target = uri.authority().map(http::uri::Authority::as_str);
    let host = headers.single(Known::Host).map_err(|_| Foreign::Host)?;
    let local = target.is_none() && host.is_some_and(|host| is_plain_loopback(host.as_bytes()));
    if !(local && reach == Reach::Loopback) {
        let host = host.map(|host| host.to_str().map_err(|_| Foreign::Host)).transpose()?;
        // HTTP/2 says it in `:authority`; a `Host` beside it is judged too.
        let host = if version == Version::HTTP_2 { host.or(target) } else { host };
        if !host_allowed(host, reach, settings) || !target.is_none_or(|_| host_allowed(target, reach, settings)) {
            return Err(Foreign::Host);
        }
    }
    let Some(origin) = headers.single(Known::Origin).map_err(|_| Foreign::Origin)? else { return Ok(None) };
    let text = origin.to_str().map_err(|_| Foreign::Origin)?;
    if origin_allowed(text, reach, settings) { Ok(Some(origin.clone())) } else { Err(Foreign::Origin) }
}

fn host_allowed(host: Option<&str>, reach: Reach, settings: &DownstreamSettings) -> bool {
    if reach == Reach::Network && settings.allowed_hosts.is_empty() {
        return true;
    }
    let Some(name) = host.and_then(name_of) else { return false };
    (reach == Reach::Loopback && is_loopback(name))
        || settings.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn origin_allowed(origin: &str, reach: Reach, settings: &DownstreamSettings) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return settings.allowed_origins.iter().any(|allowed| allowed == origin);
    }
    (reach == Reach::Loopback && name_of(authority).is_some_and(is_loopback))
        || settings.allowed_origins.iter().any(|allowed| plain(allowed) == plain(origin))
}

/// Spells an origin in lower case and without a default port.
fn plain(origin: &str) -> String {
    let lower = origin.to_ascii_lowercase();
    let default = if lower.starts_with("https:") { ":443" } else { ":80" };
    lower.strip_suffix(default).map_or_else(|| lower.clone(), str::to_owned)
}

/// Takes the port off; `None` if what is left is no name, or the port no number.
fn name_of(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        memchr::memchr(b':', authority.as_bytes()).unwrap_or(authority.len())
    };
    let (name, rest) = authority.split_at_checked(end)?;
    let port = rest.strip_prefix(':');
    let good = rest.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_ok());
    let odd = |name: &str| memchr::memchr3(b'@', b'/', b' ', name.as_bytes()).is_some();
    (good && !name.is_empty() && !odd(name)).then_some(name)
}

/// Says at a glance what is true of nearly every local client's `Host`: a name of this machine, and a port or none. What it does
/// not see is looked at in full.
fn is_plain_loopback(host: &[u8]) -> bool {
    let port = host.strip_prefix(b"127.0.0.1").or_else(|| host.strip_prefix(b"localhost"));
    match port {
        Some([]) => true,
        Some([b':', digits @ ..]) => {
            let fits = matches!(digits.len(), 1..=4) || (digits.len() == 5 && *digits <= b"65535"[..]);
            fits && digits.iter().all(u8::is_ascii_digit)
        }
        Some(_) | None => false,
    }
}

/// An address cannot be pointed elsewhere by a name server, so any loopback one will do.
fn is_loopback(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    // The one that nearly every client names needs no parser.
    name == "127.0.0.1"
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::{Foreign, Reach};
    use crate::downstream::DownstreamSettings;
    use crate::downstream::headers::Headers;

    fn check(
        head: http::request::Parts,
        reach: Reach,
        settings: &DownstreamSettings,
    ) -> Result<Option<http::HeaderValue>, Foreign> {
        super::check((&head.uri, head.version, &Headers::new(head.headers)), reach, settings)
    }

    fn ask(reach: Reach, settings: &DownstreamSettings, fields: &[(&str, &str)]) -> Result<bool, Foreign> {
        let mut request = Request::builder().uri("/mcp");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(request.body(()).unwrap().into_parts().0, reach, settings).map(|origin| origin.is_some())
    }

    /// [FC-SEC-01]
    #[test]
    fn a_loopback_listener_takes_loopback_names_alone() {
        let settings = DownstreamSettings::default();
        let ask = |fields: &[(&str, &str)]| ask(Reach::Loopback, &settings, fields);
        for host in ["localhost", "LOCALHOST:7800", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:7800"] {
            assert_eq!(ask(&[("host", host)]), Ok(false), "{host}");
            for scheme in ["http", "https"] {
                assert_eq!(ask(&[("host", host), ("origin", &format!("{scheme}://{host}"))]), Ok(true), "{host}");
            }
        }
        for host in [
            "evil.example",
            "evil.example:7800",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
            "localhost:x",
            "x@localhost",
            "10.0.0.1",
            "[::2]",
        ] {
            assert_eq!(ask(&[("host", host)]), Err(Foreign::Host), "{host}");
        }
        for origin in ["https://evil.example", "null", "", "file://", "localhost", "http://localhost.evil.example"] {
            assert_eq!(ask(&[("host", "localhost"), ("origin", origin)]), Err(Foreign::Origin), "{origin}");
        }
        assert_eq!(ask(&[]), Err(Foreign::Host));
        assert_eq!(ask(&[("host", "localhost"), ("host", "localhost")]), Err(Foreign::Host));
    }

    #[test]
    fn http2_may_say_the_host_in_the_authority() {
        let settings = DownstreamSettings::default();
        let ask = |uri: &str, host: Option<&str>| {
            let mut request = Request::builder().version(http::Version::HTTP_2).uri(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            check(request.body(()).unwrap().into_parts().0, Reach::Loopback, &settings).map(|origin| origin.is_some())
        };
        assert_eq!(ask("https://localhost:7800/mcp", None), Ok(false));
        assert_eq!(ask("https://localhost:7800/mcp", Some("127.0.0.1")), Ok(false));
        assert_eq!(ask("https://evil.example/mcp", None), Err(Foreign::Host));
        assert_eq!(ask("https://localhost/mcp", Some("evil.example")), Err(Foreign::Host));
        assert_eq!(ask("https://evil.example/mcp", Some("localhost")), Err(Foreign::Host));
        assert_eq!(ask("/mcp", None), Err(Foreign::Host));
    }

    #[test]
    fn what_is_configured_is_taken_elsewhere() {
        let open = DownstreamSettings::default();
        assert_eq!(ask(Reach::Network, &open, &[("host", "any.example")]), Ok(false));
        assert_eq!(ask(Reach::Network, &open, &[("host", "a"), ("origin", "http://localhost")]), Err(Foreign::Origin));
        let settings = DownstreamSettings {
            allowed_hosts: vec!["mcp.example".to_owned()],
            allowed_origins: vec!["https://app.example".to_owned()],
            ..open
        };
        for reach in [Reach::Network, Reach::Loopback] {
            let ask = |fields: &[(&str, &str)]| ask(reach, &settings, fields);
            assert_eq!(ask(&[("host", "MCP.example:443"), ("origin", "https://app.example:443")]), Ok(true));
            assert_eq!(ask(&[("host", "other.example")]), Err(Foreign::Host));
            assert_eq!(ask(&[("host", "mcp.example"), ("origin", "http://app.example")]), Err(Foreign::Origin));
        }
        assert_eq!(ask(Reach::Network, &settings, &[("host", "localhost")]), Err(Foreign::Host));
    }
}
