//! JSON strings: read and spelled.

use std::borrow::Cow;

use bytes::Bytes;

use super::Raw;

/// Returns the string that a JSON text spells, `None` if the value is no string (or holds a lone surrogate).
#[must_use]
pub fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    // A short text is searched before a call for it would have begun.
    let escaped = if inner.len() < 32 { inner.contains(&b'\\') } else { memchr::memchr(b'\\', inner).is_some() };
    if escaped {
        serde_json::from_slice::<String>(raw.get()).ok().map(Cow::Owned)
    } else {
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }
}

/// The same for a part of a text that has been scanned.
#[must_use]
pub fn text_of(part: &[u8]) -> Option<Cow<'_, str>> {
    text(Raw::new(part))
}

/// Spells a string as JSON.
#[must_use]
pub fn quoted(text: &str) -> Bytes {
    let plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if plain {
        let mut out = Vec::with_capacity(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return Bytes::from(out);
    }
    Bytes::from(serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_spelled_as_serde_json_does() {
        for text in ["", "plain é", "a\"b", "a\\b", "a\nb", "\u{7f}\u{1}"] {
            assert_eq!(quoted(text), serde_json::to_string(text).unwrap());
        }
    }
}
