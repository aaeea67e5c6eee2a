//! JSON strings: read and spelled.

use std::borrow::Cow;
use std::ops::Range;

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

/// Finds the strings of a text that has been scanned, names of members among them, each with its quotation marks.
pub fn texts(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + memchr::memchr(b'"', text.get(at..)?)?;
        let mut end = start + 1;
        loop {
            end += memchr::memchr2(b'"', b'\\', text.get(end..)?)? + 1;
            match text.get(end - 1) {
                Some(b'"') => break,
                // What is escaped is no end.
                _ => end += 1,
            }
        }
        at = end;
        Some(start..end)
    })
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
    use super::{quoted, texts};

    #[test]
    fn strings_are_found_with_their_marks() {
        let text = br#"{"a":"b\"c\\","n":1.10,"":["","\u0022"]}"#;
        let found: Vec<&str> = texts(text).map(|at| std::str::from_utf8(&text[at]).unwrap()).collect();
        assert_eq!(found, [r#""a""#, r#""b\"c\\""#, r#""n""#, r#""""#, r#""""#, r#""\u0022""#]);
        assert_eq!(texts(b"1").chain(texts(br#""cut\"#)).count(), 0);
    }

    #[test]
    fn strings_are_spelled_as_serde_json_does() {
        for text in ["", "plain é", "a\"b", "a\\b", "a\nb", "\u{7f}\u{1}"] {
            assert_eq!(quoted(text), serde_json::to_string(text).unwrap());
        }
    }
}
