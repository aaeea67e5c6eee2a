//! The URI under which a server's resource is shown, and the way back [NAM-4].
//!
//! Invariants: what is shown is a valid URI of RFC 3986 that names the server; the way back needs no table, so that a URI
//! which was never listed can be read too.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The longest URI that a client may make up of a resource that is not listed, and that is remembered of one that has
/// changed; as RFC 9110, section 4.1 has it.
pub const URI_BYTES_MAX: usize = 8_000;

/// What a URI of an app begins with; hosts know apps by it, so it stays in front.
const UI: &str = "ui://";
/// The scheme of what is no URI.
const RAW: &str = "raw";
/// The scheme of templates that have no scheme of their own, or none that is known before they are expanded.
const AS_IS: &str = "as-is";

/// Returns the URI that is shown for a server's own: `<slug>+<uri>`, `ui://<slug>/…` for an app, `<slug>+raw:<base64url>`
/// for what is no valid URI, or would be read back as another.
#[must_use]
pub fn shown_uri(slug: &str, uri: &str) -> String {
    wrapped(slug, uri, is_plain)
}

/// Returns the URI template that is shown for a server's own. What it expands to leads back to the expansion of the server's
/// own, and is what [`shown_uri`] makes of that; where the template's own scheme is not known, `<slug>+as-is:<template>`, it
/// is a second spelling.
#[must_use]
pub fn shown_template(slug: &str, template: &str) -> String {
    let plain = |template: &str| {
        let Some(sample) = sample(template) else { return false };
        // An expression that gives the whole URI is the one that may stand in the scheme's place.
        template.starts_with("{+") || (is_plain(&sample) && scheme_is_literal(template))
    };
    if !plain(template) && sample(template).is_some_and(|sample| is_uri(&format!("{AS_IS}:{sample}"))) {
        return format!("{slug}+{AS_IS}:{template}");
    }
    wrapped(slug, template, plain)
}

fn wrapped(slug: &str, uri: &str, plain: impl Fn(&str) -> bool) -> String {
    if let Some(rest) = uri.strip_prefix(UI) {
        let app = format!("{UI}{slug}/{rest}");
        if plain(uri) && plain(&app) {
            return app;
        }
    }
    if plain(uri) { format!("{slug}+{uri}") } else { format!("{slug}+{RAW}:{}", URL_SAFE_NO_PAD.encode(uri)) }
}

/// Returns the slug of the server and its own URI or template; `None` for what no server is named in.
#[must_use]
pub fn own_uri(shown: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some(rest) = shown.strip_prefix(UI) {
        let (slug, rest) = rest.split_once('/')?;
        return is_slug(slug).then(|| (slug, Cow::Owned(format!("{UI}{rest}"))));
    }
    let (slug, uri) = shown.split_once('+').filter(|(slug, _)| is_slug(slug))?;
    match uri.strip_prefix(RAW).and_then(|rest| rest.strip_prefix(':')) {
        Some(encoded) => {
            let text = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
            Some((slug, Cow::Owned(text)))
        }
        None => {
            let as_is = uri.strip_prefix(AS_IS).and_then(|rest| rest.strip_prefix(':'));
            Some((slug, Cow::Borrowed(as_is.unwrap_or(uri))))
        }
    }
}

/// Says whether a URI can stand behind its server's name: not if its scheme is one that says how the rest is spelled.
fn is_plain(uri: &str) -> bool {
    is_uri(uri) && !has_scheme(uri, RAW) && !has_scheme(uri, AS_IS)
}

fn is_slug(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn has_scheme(uri: &str, scheme: &str) -> bool {
    uri.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(scheme))
}

/// Returns a template with a letter in place of each expression; `None` if a brace has no partner.
fn sample(template: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(template.len()), template);
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}')?;
        if literal.contains('}') || expression.is_empty() || expression.contains('{') {
            return None;
        }
        out.push_str(literal);
        out.push('x');
        rest = after;
    }
    if rest.contains('}') {
        return None;
    }
    out.push_str(rest);
    Some(out)
}

fn scheme_is_literal(template: &str) -> bool {
    let colon = template.find(':');
    colon.is_some_and(|colon| template.find('{').is_none_or(|brace| colon < brace))
}

/// Says whether a text is a URI of RFC 3986, section 3.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.bytes();
    if !letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        || !letters.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    {
        return false;
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (hierarchy, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match hierarchy.strip_prefix("//") {
        None => hierarchy,
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            if !is_authority(authority) {
                return false;
            }
            path
        }
    };
    is_made_of(path, b":@/") && is_made_of(query, b":@/?") && is_made_of(fragment, b":@/?")
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.split_once('@').unwrap_or(("", text));
    if !is_made_of(user, b":") {
        return false;
    }
    let (host, port) = match host.strip_prefix('[') {
        Some(literal) => {
            let Some((address, port)) = literal.split_once(']') else { return false };
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_~!$&'()*+,;=".contains(&byte);
            if address.is_empty() || !address.bytes().all(inside) {
                return false;
            }
            ("", port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = port.strip_prefix(':').or_else(|| port.is_empty().then_some(""));
    is_made_of(host, b"") && port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Says whether a text holds unreserved characters, percent-encoded ones, sub-delimiters, and `more` alone.
fn is_made_of(text: &str, more: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
                if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return false;
                }
                3
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte) || more.contains(byte) => 1,
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
