//! One thing that is kept: a text as it is spelled in an answer, the same in a file, or base64.
//!
//! Not for: who may read it and how long (`shelf`). Invariants: nothing is decoded before it is asked for, and then only
//! the part that is; the parts of a text joined are the text.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;

use crate::wire::json::Spelled;
use crate::wire::mcp::Base64;

/// So many characters lie between two places that are remembered.
const MARK_CHARS: usize = 64 << 10;

/// Something that is kept.
#[derive(Debug)]
pub struct Sheet {
    body: Body,
    pub(super) mime: String,
    /// How many characters a text has, or bytes anything else.
    pub(super) total: u64,
}

#[derive(Debug)]
enum Body {
    /// Base64 as it stands in a JSON string.
    Base64(Bytes),
    /// A file without a name, in UTF-8, and where every so many characters begin.
    File(File, Vec<u64>),
    /// Texts, with a line break between two.
    Text(Vec<Text>, Vec<Place>),
}

/// One text.
#[derive(Debug)]
struct Text {
    bytes: Bytes,
    kind: TextKind,
}

/// How a text is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    /// As a JSON string, without its quotes.
    Json,
    /// As it is: a JSON value that is no string.
    Plain,
}

/// A place between two characters of texts.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    text: usize,
    byte: usize,
}

impl Text {
    fn spelled(&self) -> Spelled<'_> {
        match self.kind {
            TextKind::Json => Spelled::escaped(&self.bytes),
            TextKind::Plain => Spelled::plain(&self.bytes),
        }
    }
}

// === impl Sheet ===

impl Sheet {
    /// Keeps texts, the contents of JSON strings, one line break apart.
    #[must_use]
    pub fn texts(texts: Vec<Bytes>) -> Self {
        let kind =
            |bytes: &Bytes| if memchr::memchr(b'\\', bytes).is_some() { TextKind::Json } else { TextKind::Plain };
        let texts = texts.into_iter().map(|bytes| Text { kind: kind(&bytes), bytes }).collect();
        Self::of_texts(texts, "text/plain")
    }

    /// Keeps a JSON value as it is spelled.
    #[must_use]
    pub fn json(value: Bytes) -> Self {
        Self::of_texts(vec![Text { bytes: value, kind: TextKind::Plain }], "application/json")
    }

    fn of_texts(texts: Vec<Text>, mime: &str) -> Self {
        let (mut marks, mut total) = (Vec::new(), 0);
        let mut place = Place::default();
        marks.push(place);
        loop {
            let (next, walked) = advance(&texts, place, MARK_CHARS);
            total += walked as u64;
            if walked < MARK_CHARS {
                break;
            }
            place = next;
            marks.push(place);
        }
        Self { body: Body::Text(texts, marks), mime: mime.to_owned(), total }
    }

    /// Keeps base64, the content of a JSON string, which decodes to so many bytes.
    #[must_use]
    pub fn base64(spelled: Bytes, mime: String, bytes: u64) -> Self {
        Self { body: Body::Base64(spelled), mime, total: bytes }
    }

    /// Says whether it is a text.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        !matches!(self.body, Body::Base64(_))
    }

    /// Returns how many bytes of the answer it refers to.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Base64(bytes) => bytes.len(),
            Body::File(..) => usize::try_from(self.total).unwrap_or(usize::MAX),
            Body::Text(texts, _) => texts.iter().map(|text| text.bytes.len()).sum(),
        }
    }

    /// Returns the same with memory of its own, so that the answer it came in can go.
    #[must_use]
    pub fn detached(self) -> Self {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let body = match self.body {
            Body::Base64(bytes) => Body::Base64(own(&bytes)),
            Body::File(file, marks) => Body::File(file, marks),
            Body::Text(texts, marks) => {
                let texts = texts.into_iter().map(|text| Text { bytes: own(&text.bytes), kind: text.kind }).collect();
                Body::Text(texts, marks)
            }
        };
        Self { body, ..self }
    }

    /// Writes a text to a file, and keeps that. Base64 stays where it is. Blocks.
    ///
    /// # Errors
    /// The file cannot be written; the text is lost.
    pub(super) fn in_file(self, mut file: File) -> io::Result<Self> {
        let Body::Text(texts, _) = &self.body else { return Ok(self) };
        let (mut marks, mut written, mut place) = (Vec::new(), 0u64, Place::default());
        let mut part = String::new();
        loop {
            part.clear();
            let (next, walked) = read(texts, place, MARK_CHARS, &mut part);
            marks.push(written);
            file.write_all(part.as_bytes())?;
            written += part.len() as u64;
            if walked < MARK_CHARS {
                break;
            }
            place = next;
        }
        Ok(Self { body: Body::File(file, marks), ..self })
    }

    /// Reads so many characters of a text from an offset on; fewer where it ends. May block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn text(&self, offset: u64, chars: usize) -> io::Result<String> {
        let offset = usize::try_from(offset.min(self.total)).unwrap_or(usize::MAX);
        let (mark, skip) = (offset / MARK_CHARS, offset % MARK_CHARS);
        let mut out = String::new();
        match &self.body {
            Body::Base64(_) => {}
            Body::Text(texts, marks) => {
                let place = marks.get(mark).copied().unwrap_or_default();
                let (place, _) = advance(texts, place, skip);
                read(texts, place, chars, &mut out);
            }
            Body::File(file, marks) => {
                let start = marks.get(mark).copied().unwrap_or_default();
                // A character has four bytes at most.
                let mut bytes = vec![0; skip.saturating_add(chars).saturating_mul(4)];
                let filled = fill(file, &mut bytes, start)?;
                let text = Spelled::plain(bytes.get(..filled).unwrap_or_default());
                let (from, _) = text.walk(0, skip);
                let (to, _) = text.walk(from, chars);
                text.decode(from..to, &mut out);
            }
        }
        Ok(out)
    }

    /// Decodes so many bytes from an offset on; fewer where it ends, or where the base64 is none.
    #[must_use]
    pub fn blob(&self, offset: u64, length: usize) -> Vec<u8> {
        let Body::Base64(spelled) = &self.body else { return Vec::new() };
        let (mut skip, mut out) = (usize::try_from(offset).unwrap_or(usize::MAX), Vec::new());
        let read = Base64::of(Spelled::inner(spelled)).decode(|block| {
            let part = block.get(skip.min(block.len())..).unwrap_or_default();
            skip = skip.saturating_sub(block.len());
            out.extend_from_slice(part.get(..part.len().min(length - out.len())).unwrap_or_default());
            if out.len() < length { Ok(()) } else { Err(()) }
        });
        tracing::trace!(ok = read.is_ok(), bytes = out.len(), "part of an attachment");
        out
    }
}

/// Goes on by so many characters, line breaks between texts included; returns how many there were.
fn advance(texts: &[Text], from: Place, chars: usize) -> (Place, usize) {
    each(texts, from, chars, |_, _| {}, || {})
}

/// Decodes so many characters onto the end of `out`.
fn read(texts: &[Text], from: Place, chars: usize, out: &mut String) -> (Place, usize) {
    let out = std::cell::RefCell::new(out);
    each(texts, from, chars, |text, at| text.decode(at, &mut out.borrow_mut()), || out.borrow_mut().push('\n'))
}

fn each(
    texts: &[Text],
    from: Place,
    chars: usize,
    mut part: impl FnMut(Spelled<'_>, std::ops::Range<usize>),
    mut line_break: impl FnMut(),
) -> (Place, usize) {
    let (mut at, mut left) = (from, chars);
    while let Some(text) = texts.get(at.text) {
        let spelled = text.spelled();
        let (end, walked) = spelled.walk(at.byte, left);
        part(spelled, at.byte..end);
        left -= walked;
        at.byte = end;
        if left == 0 || at.text + 1 == texts.len() {
            break;
        }
        line_break();
        left -= 1;
        at = Place { text: at.text + 1, byte: 0 };
        if left == 0 {
            break;
        }
    }
    (at, chars - left)
}

/// Reads from a place on, as much as there is.
fn fill(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        let rest = buffer.get_mut(filled..).unwrap_or_default();
        match file.read_at(rest, start + filled as u64) {
            Ok(0) => return Ok(filled),
            Ok(read) => filled += read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
}

#[cfg(test)]
#[path = "sheet_tests.rs"]
mod tests;
