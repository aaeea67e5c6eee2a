//! A JSON string as it is spelled, by its characters: counted, cut and decoded without being decoded whole.
//!
//! Not for: short strings (`text`). Invariants: the text has been scanned, so every escape in it is whole; a character is
//! a Unicode scalar value, an escaped pair of surrogates is one, and a lone half is one, read as U+FFFD.

use std::ops::Range;

use super::Raw;

/// How many bytes are counted at once where a place within them is looked for.
const BLOCK: usize = 1024;

/// What stands between the quotes of a JSON string, or a text without escapes.
#[derive(Clone, Copy, Debug)]
pub struct Spelled<'a> {
    text: &'a [u8],
    escapes: bool,
}

/// One escape: what it spells, and how many bytes it takes.
#[derive(Clone, Copy, Debug)]
struct Escape {
    char: char,
    bytes: usize,
}

// === impl Spelled ===

impl<'a> Spelled<'a> {
    /// Takes what a JSON string spells; `None` if the value is no string.
    #[must_use]
    pub fn of(value: Raw<'a>) -> Option<Self> {
        let text = value.get().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(Self::inner(text))
    }

    /// Takes what stands between the quotes of a JSON string that has been scanned.
    #[must_use]
    pub fn inner(text: &'a [u8]) -> Self {
        Self { text, escapes: memchr::memchr(b'\\', text).is_some() }
    }

    /// Takes the same where escapes have been seen.
    #[must_use]
    pub const fn escaped(text: &'a [u8]) -> Self {
        Self { text, escapes: true }
    }

    /// Takes a text that is no JSON string: a backslash in it is a character like others.
    #[must_use]
    pub const fn plain(text: &'a [u8]) -> Self {
        Self { text, escapes: false }
    }

    /// Returns the text as it is spelled.
    #[must_use]
    pub const fn get(self) -> &'a [u8] {
        self.text
    }

    /// Says whether it holds escapes.
    #[must_use]
    pub const fn has_escapes(self) -> bool {
        self.escapes
    }

    /// Counts the characters.
    #[must_use]
    pub fn count(self) -> usize {
        self.walk(0, usize::MAX).1
    }

    /// Goes on from a place by so many characters; returns the place, and how many there were.
    ///
    /// `from` is a place between characters.
    #[must_use]
    pub fn walk(self, from: usize, chars: usize) -> (usize, usize) {
        let (mut at, mut done) = (from.min(self.text.len()), 0);
        while at < self.text.len() && done < chars {
            let run = self.run(at);
            if run.is_empty() {
                at += escape(self.rest(at)).bytes;
                done += 1;
                continue;
            }
            let (bytes, count) = skip(self.text.get(run).unwrap_or_default(), chars - done);
            at += bytes;
            done += count;
        }
        (at, done)
    }

    /// Decodes what lies between two places between characters, onto the end of `out`.
    pub fn decode(self, between: Range<usize>, out: &mut String) {
        let mut at = between.start;
        while at < between.end {
            let run = self.run(at);
            if run.is_empty() {
                let escape = escape(self.rest(at));
                out.push(escape.char);
                at += escape.bytes;
                continue;
            }
            let end = run.end.min(between.end);
            out.push_str(&String::from_utf8_lossy(self.text.get(at..end).unwrap_or_default()));
            at = end;
        }
    }

    fn rest(self, at: usize) -> &'a [u8] {
        self.text.get(at..).unwrap_or_default()
    }

    /// Returns what follows up to the next escape.
    fn run(self, at: usize) -> Range<usize> {
        let rest = self.rest(at);
        let end = if self.escapes { memchr::memchr(b'\\', rest).unwrap_or(rest.len()) } else { rest.len() };
        at..at + end
    }
}

/// Reads the escape that a text begins with.
fn escape(text: &[u8]) -> Escape {
    let short = |char| Escape { char, bytes: 2 };
    match text.get(1) {
        Some(b'b') => short('\u{8}'),
        Some(b'f') => short('\u{c}'),
        Some(b'n') => short('\n'),
        Some(b'r') => short('\r'),
        Some(b't') => short('\t'),
        Some(b'u') => unicode(text),
        Some(other) => short(char::from(*other)),
        // Not in a scanned text; the walk must end all the same.
        None => Escape { char: char::REPLACEMENT_CHARACTER, bytes: 1 },
    }
}

fn unicode(text: &[u8]) -> Escape {
    let one = |char| Escape { char, bytes: 6 };
    let Some(first) = unit(text) else { return one(char::REPLACEMENT_CHARACTER) };
    if let Some(char) = char::from_u32(first) {
        return one(char);
    }
    let second = text.get(6..).and_then(unit).filter(|second| (0xdc00..0xe000).contains(second));
    match second.filter(|_| first < 0xdc00) {
        Some(second) => {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            Escape { char: char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), bytes: 12 }
        }
        None => one(char::REPLACEMENT_CHARACTER),
    }
}

/// Reads `\uXXXX`.
fn unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Goes on by so many characters of a text without escapes; returns the bytes, and how many characters there were.
fn skip(text: &[u8], chars: usize) -> (usize, usize) {
    let begins = |byte: &&u8| **byte & 0xc0 != 0x80;
    let (mut bytes, mut done) = (0, 0);
    for block in text.chunks(BLOCK) {
        let count = block.iter().filter(begins).count();
        if done + count > chars {
            // The place of the character after the last one wanted.
            let mut seen = 0;
            let end = block.iter().position(|byte| {
                seen += usize::from(begins(&byte));
                seen > chars - done
            });
            return (bytes + end.unwrap_or(block.len()), chars);
        }
        done += count;
        bytes += block.len();
    }
    (bytes, done)
}

#[cfg(test)]
#[path = "spelled_tests.rs"]
mod tests;
