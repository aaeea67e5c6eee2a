//! Messages as lines of a pipe: one line each, and the id of one whose middle is missing [R69].
//!
//! Not for: reading lines (`net::LineReader`) or whole messages (`decode`).

use bytes::Bytes;
use serde_json::value::RawValue;

use super::RequestId;
use crate::wire::json;

/// The outermost members that the begin of a message shows: each key as it is spelled, and all that follows its colon.
#[derive(Clone, Debug)]
pub struct HeadMembers<'a> {
    head: &'a [u8],
    at: usize,
    depth: usize,
}

// === impl HeadMembers ===

impl<'a> HeadMembers<'a> {
    /// Walks the begin of a message.
    #[must_use]
    pub const fn of(head: &'a [u8]) -> Self {
        Self { head, at: 0, depth: 0 }
    }
}

impl<'a> Iterator for HeadMembers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&byte) = self.head.get(self.at) {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b'"' => {
                    let start = self.at + 1;
                    let end = string_end(self.head, start)?;
                    self.at = end + 1;
                    if self.depth == 1
                        && let Some(value) = after_colon(self.head.get(self.at..).unwrap_or_default())
                    {
                        return Some((self.head.get(start..end)?, value));
                    }
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        None
    }
}

/// Reads an id at the begin of a text. A number at the very end may be cut: something must follow it.
#[must_use]
pub fn id_at(value: &[u8]) -> Option<RequestId> {
    let end = if value.first() == Some(&b'"') {
        string_end(value, 1)? + 1
    } else {
        value.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n'))?
    };
    let text = value.get(..end)?;
    serde_json::from_slice::<&RawValue>(text).ok()?;
    RequestId::from_raw(Bytes::copy_from_slice(text))
}

/// Looks for the id among the outermost members at the end of a message: what follows it must close the message.
#[must_use]
pub fn id_in_tail(tail: &[u8]) -> Option<RequestId> {
    memchr::memmem::rfind_iter(tail, b"\"id\"").find_map(|at| {
        let mut text = b"{".to_vec();
        text.extend_from_slice(tail.get(at..).unwrap_or_default());
        let members = json::members(&text).ok()?;
        RequestId::from_raw(Bytes::copy_from_slice(members.get("id").ok()??.get()))
    })
}

/// Makes one line of a message: a raw line break in JSON is white space, and a space does as well [R69].
#[must_use]
pub fn one_line(text: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &text).is_none() {
        return text;
    }
    text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Returns a line without the white space around it.
#[must_use]
pub fn trimmed(line: Bytes) -> Bytes {
    let inner = line.trim_ascii();
    if inner.len() == line.len() { line } else { line.slice_ref(inner) }
}

/// Returns where the string that begins at `start` has its closing quote.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

fn after_colon(text: &[u8]) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{HeadMembers, id_at, id_in_tail, one_line, trimmed};

    fn head_id(head: &[u8]) -> Option<Bytes> {
        let (_, value) = HeadMembers::of(head).find(|(key, _)| *key == b"id")?;
        id_at(value).map(|id| id.raw().clone())
    }

    /// [IDS]: any string or number, whole.
    #[test]
    fn a_cut_message_still_shows_its_id() {
        for (head, id) in [
            (&br#"{"method":"x","id" : 12 ,"params":{"a"#[..], Some(&b"12"[..])),
            (br#"{"params":{"id":3},"id":"a\"}","#, Some(br#""a\"}""#)),
            (br#"{"id":-1.5e3}"#, Some(b"-1.5e3")),
            (br#"{"params":{"x":"\"id\":5,","id":3,"#, None),
            (br#"{"id":12"#, None),
            (br#"{"id":"12"#, None),
            (br#"{"id":{"a":1},"#, None),
            (br#"{"id":1x,"#, None),
        ] {
            assert_eq!(head_id(head).as_deref(), id, "{}", String::from_utf8_lossy(head));
        }
        let tail = |text: &[u8]| id_in_tail(text).map(|id| id.raw().clone());
        assert_eq!(tail(br#"xxx"}]},"id":"q","jsonrpc":"2.0"}"#).as_deref(), Some(&b"\"q\""[..]));
        assert_eq!(tail(br#"xxx","id":8}}"#), None);
    }

    #[test]
    fn a_message_becomes_one_line() {
        assert_eq!(one_line(Bytes::from_static(b"{\r\n \"a\":\n1}")), "{   \"a\": 1}");
        assert_eq!(trimmed(Bytes::from_static(b" {}\r")), "{}");
    }
}
