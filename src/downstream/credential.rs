//! What a client presents, from its headers alone [AUT-1, POL-16].
//!
//! Not for: judging it (`identity`). Invariant: present but malformed is never taken for absent.

use http::HeaderValue;

use crate::identity::Credential;
use crate::secret::Lent;

use super::headers::{Headers, Known, trimmed};

/// Reads `Authorization: Bearer` and `x-api-key`; both may be there if they say the same.
pub(super) fn read(headers: &Headers) -> Credential<'_> {
    let bearer = one(headers, Known::Authorization).map(|value| value.map(bearer));
    let key = one(headers, Known::ApiKey);
    let api_key = |token| Credential::ApiKey(Lent::new(token));
    match (bearer, key) {
        (Ok(None), Ok(None)) => Credential::None,
        (Ok(Some(Some(token))), Ok(None)) | (Ok(None), Ok(Some(token))) => api_key(token),
        (Ok(Some(Some(token))), Ok(Some(key))) if token == key => api_key(token),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => Credential::Malformed,
    }
}

struct Unreadable;

fn one(headers: &Headers, known: Known) -> Result<Option<&str>, Unreadable> {
    let Some(value) = headers.single(known).map_err(|_| Unreadable)? else { return Ok(None) };
    text(value).filter(|text| !text.is_empty()).map(Some).ok_or(Unreadable)
}

fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok().map(trimmed)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_at_checked("bearer".len())?;
    let token = trimmed(token.strip_prefix(' ')?);
    let one = memchr::memchr3(b' ', b'\t', b',', token.as_bytes()).is_none();
    let good = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && one;
    good.then_some(token)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::{Headers, read};
    use crate::identity::Credential;
    use crate::secret::Lent;

    #[test]
    fn present_but_malformed_is_not_absent() {
        let key = |text| Credential::ApiKey(Lent::new(text));
        let (auth, api) = ("authorization", "x-api-key");
        let cases: [(&[(&str, &str)], Credential<'_>); 16] = [
            (&[], Credential::None),
            (&[(auth, "Bearer k")], key("k")),
            (&[(auth, "bEARER   k ")], key("k")),
            (&[(api, "k 1")], key("k 1")),
            (&[(auth, "Bearer k"), (api, "k")], key("k")),
            (&[(auth, "Bearer k"), (api, "l")], Credential::Malformed),
            (&[(auth, "Bearer k"), (api, "")], Credential::Malformed),
            (&[(auth, "Bearer k"), (auth, "Bearer k")], Credential::Malformed),
            (&[(api, "k"), (api, "k")], Credential::Malformed),
            (&[(auth, "")], Credential::Malformed),
            (&[(auth, "Bearer")], Credential::Malformed),
            (&[(auth, "Bearer ")], Credential::Malformed),
            (&[(auth, "Bearer a b")], Credential::Malformed),
            (&[(auth, "Basic YTpi")], Credential::Malformed),
            (&[(auth, "Basic YTpi"), (api, "k")], Credential::Malformed),
            (&[(api, "")], Credential::Malformed),
        ];
        for (fields, expected) in cases {
            let line = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let headers: Headers = fields.iter().map(line).collect();
            assert_eq!(read(&headers), expected, "{fields:?}");
        }
    }
}
