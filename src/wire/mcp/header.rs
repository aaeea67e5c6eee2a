//! The standard headers of 2026-07-28 and the encoding of their values (spec: Streamable HTTP, "Value Encoding").

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Header names.
pub mod name {
    use http::HeaderName;

    /// Carries the method's name.
    pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
    /// Carries the target's name or URI.
    pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
    /// Begins the headers that mirror annotated arguments, in lower case.
    pub const PARAM_PREFIX: &str = "mcp-param-";
    /// Carries the protocol version.
    pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    /// Carries the trace that a request is part of (W3C Trace Context).
    pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    /// Carries what vendors add to it.
    pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
    /// Carries a legacy session's id.
    pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    /// Carries the last event id of a broken stream (legacy).
    pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
}

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A value that has the wrapper of an encoded one, but cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header value between '=?base64?' and '?=' is not base64 of UTF-8")]
pub struct HeaderError;

/// Reads a value: trims the whitespace of RFC 9110 and unwraps `=?base64?…?=` [R9, R10].
///
/// # Errors
/// [`HeaderError`] if a well-formed wrapper holds no base64 of UTF-8.
pub fn decode_value(value: &str) -> Result<Cow<'_, str>, HeaderError> {
    let value = value.trim_matches([' ', '\t']);
    let Some(inner) = value.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(inner).map_err(|_| HeaderError)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| HeaderError)
}

/// Writes a value, wrapped where it would not travel as it is [R48].
#[must_use]
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with(PREFIX) && value.ends_with(SUFFIX));
    if plain { Cow::Borrowed(value) } else { Cow::Owned(format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value))) }
}

#[cfg(test)]
mod tests {
    use super::{HeaderError, decode_value, encode_value};
    use proptest::prelude::*;

    /// [R9, R10]
    #[test]
    fn wrapped_values_are_read_and_others_are_literal() {
        assert_eq!(decode_value("  a b\t").unwrap(), "a b");
        assert_eq!(decode_value("=?base64?w6k=?=").unwrap(), "é");
        for literal in ["=?BASE64?w6k=?=", "=?base64?w6k=", "w6k=?="] {
            assert_eq!(decode_value(literal).unwrap(), literal);
        }
        for bad in ["=?base64?!?=", "=?base64?/w==?=", "=?base64?w6k?="] {
            assert_eq!(decode_value(bad), Err(HeaderError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_visible_ascii_and_comes_back(text in any::<String>()) {
            let encoded = encode_value(&text).into_owned();
            prop_assert!(encoded.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(decode_value(&encoded).unwrap(), text);
        }
    }
}
