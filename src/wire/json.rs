//! Looks into a JSON object without changing it: its members as borrowed raw texts.
//!
//! Not for: building values or reading a payload whole. Invariant: every slice returned lies inside the text given, so
//! that its place can be computed and spliced.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

/// Why a text cannot be looked into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// One key of interest stands twice: two readers could see two messages.
    #[error("key '{0}' appears twice")]
    Duplicate(&'static str),
    /// The text is not one JSON object.
    #[error("not a JSON object: {0}")]
    NotObject(String),
}

/// The members of one object, in the order written.
#[derive(Debug, Default)]
pub struct Members<'a>(SmallVec<[(Cow<'a, str>, &'a RawValue); 8]>);

/// Reads the members of the object that `text` holds. The values are checked to be JSON, but not decoded.
///
/// # Errors
/// [`JsonError::NotObject`] if `text` is anything but one JSON object.
pub fn members(text: &[u8]) -> Result<Members<'_>, JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let members =
        (&mut deserializer).deserialize_map(MembersVisitor).map_err(|err| JsonError::NotObject(err.to_string()))?;
    deserializer.end().map_err(|err| JsonError::NotObject(err.to_string()))?;
    Ok(members)
}

// === impl Members ===

impl<'a> Members<'a> {
    /// Returns the raw value of `key`, `None` if it is absent. `null` is a value.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn get(&self, key: &'static str) -> Result<Option<&'a RawValue>, JsonError> {
        let mut found = self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| *value);
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(JsonError::Duplicate(key)),
        }
    }

    /// Walks the members in the order written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// Says whether the object is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns where `part`, a slice of `whole`, lies in it.
#[must_use]
pub fn range_in(whole: &[u8], part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(start <= whole.len() && start + part.len() <= whole.len(), "part lies outside of whole");
    start..start.saturating_add(part.len())
}

/// Returns the string that a raw JSON string spells, `None` if the value is no string (or holds a lone surrogate).
#[must_use]
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// Spells a string as JSON.
#[must_use]
pub fn quoted(text: &str) -> Bytes {
    Bytes::from(serde_json::Value::from(text).to_string())
}

/// Says whether brackets nest at most `depth_max` deep; brackets inside strings do not count.
#[must_use]
pub fn depth_within(text: &[u8], depth_max: usize) -> bool {
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return false;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(rest),
            _ => {}
        }
    }
    true
}

/// Returns what follows the string whose opening quote has been read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let escaped = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + if escaped { 2 } else { 1 }..).unwrap_or_default();
        if !escaped {
            return rest;
        }
    }
    &[]
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = SmallVec::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            members.push((key.0, map.next_value::<&'de RawValue>()?));
        }
        Ok(Members(members))
    }
}

/// A key, borrowed where it holds no escape.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonError, depth_within, members, range_in, text};

    #[test]
    fn members_borrow_from_the_text() {
        let whole = br#" {"a": 1e2, "\u0062" :null,"c":"\ud800"} "#;
        let read = members(whole).unwrap();
        assert_eq!(read.get("a").unwrap().unwrap().get(), "1e2");
        let null = read.get("b").unwrap().unwrap();
        assert_eq!(null.get(), "null");
        assert_eq!(&whole[range_in(whole, null.get())], b"null");
        assert!(text(read.get("c").unwrap().unwrap()).is_none());
        assert!(read.get("d").unwrap().is_none());
    }

    #[test]
    fn duplicates_and_other_kinds_are_refused() {
        let twice = members(br#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(twice.get("a").err(), Some(JsonError::Duplicate("a")));
        for bad in ["", "[]", "1", "{} x", "{\"a\":}", "{\"a\":\"\n\"}"] {
            assert!(members(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn depth_is_counted_outside_of_strings() {
        assert!(depth_within(br#"{"a":"[[[[\"[["}"#, 1));
        assert!(depth_within(b"[[]]", 2));
        assert!(!depth_within(b"[[[", 2));
    }
}
