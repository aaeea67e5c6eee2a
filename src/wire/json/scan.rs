//! One pass over a JSON text: checks its grammar (RFC 8259) and tells where things lie.
//!
//! Not for: decoding values. Written for its speed: the envelope of every message goes through here, and `serde_json` costs
//! four times as much on the way to the same answer. Invariant: no recursion, so depth is a count and not a stack.

use std::ops::Range;

use super::skim::Skim;

/// The deepest nesting that can be asked for.
pub(super) const DEPTH_MAX: usize = 512;

/// So many bytes of a string are looked at by eight before larger blocks are.
const SHORT: usize = 64;
/// Keys that may hold base64, as eight bytes: no string holds a zero.
const MARKS: [u64; 2] = [u64::from_le_bytes(*b"blob\0\0\0\0"), u64::from_le_bytes(*b"data\0\0\0\0")];
/// The end of a key that may carry a URI.
const URI_END: u64 = u16::from_le_bytes(*b"ri") as u64;
/// The highest bit, and the lowest, of each of eight bytes.
const HIGH: u64 = 0x8080_8080_8080_8080;
const LOW: u64 = 0x0101_0101_0101_0101;

/// Why a text is not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Something else stands where this is wanted.
    #[error("expected {0} at byte {1}")]
    Expected(&'static str, usize),
    /// Nested too deep.
    #[error("nests deeper than {0}")]
    Depth(usize),
}

/// Something is wrong; [`Scanner::error`] says what. Without a size, so that every step returns in a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault;

/// A place in a text that is read from its beginning.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth_max: usize,
    depth: usize,
    /// One bit for each open bracket: set for an object.
    objects: [u64; DEPTH_MAX / 64],
    /// All bits of all that has been read in strings; elsewhere nothing but ASCII is let through.
    bits: u64,
    /// A key that may hold base64 has been read.
    marked: bool,
    /// A key that may carry a URI was read.
    uris: bool,
    /// Parts of the text that are known to be plain, in order.
    plain: &'a [Range<usize>],
    error: ScanError,
}

/// A key, as it is spelled.
#[derive(Debug)]
pub(super) struct Key {
    /// Where the text between its quotes lies.
    pub(super) at: Range<usize>,
    /// It holds a backslash.
    pub(super) escaped: bool,
}

// === impl Scanner ===

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8], depth_max: usize) -> Self {
        let depth_max = depth_max.min(DEPTH_MAX);
        let error = ScanError::Expected("JSON", 0);
        Self {
            text,
            at: 0,
            depth_max,
            depth: 0,
            objects: [0; DEPTH_MAX / 64],
            bits: 0,
            marked: false,
            uris: false,
            plain: &[],
            error,
        }
    }

    /// Passes over the parts of the same text that were seen to be plain.
    pub(super) fn skimmed(self, skim: &'a Skim) -> Self {
        Self { plain: skim.parts(), ..self }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[cold]
    const fn expected(&mut self, what: &'static str) -> Fault {
        self.error = ScanError::Expected(what, self.at);
        Fault
    }

    /// Says what is wrong, after a [`Fault`].
    pub(super) const fn error(&self) -> ScanError {
        self.error
    }

    /// Says whether a key that may carry a URI was read: one that ends as `uri` and `resourceUri` do.
    pub(super) const fn has_uris(&self) -> bool {
        self.uris
    }

    /// Says whether a key `blob` or `data` was read, or one with an escape that may spell either.
    pub(super) const fn has_mark(&self) -> bool {
        self.marked
    }

    /// Returns how many bytes have been read.
    pub(super) const fn place(&self) -> usize {
        self.at
    }

    #[cold]
    fn white(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes one byte; says whether it was there.
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Returns the next byte that is no white space, without taking it.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u8> {
        match self.peek() {
            Some(byte) if byte > b' ' => Some(byte),
            _ => {
                self.white();
                self.peek()
            }
        }
    }

    /// Opens an object or array whose bracket is next; says whether it is empty, and closes it again then.
    #[inline]
    pub(super) fn open(&mut self, bracket: u8) -> Result<bool, Fault> {
        if self.next() != Some(bracket) {
            return Err(self.expected(if bracket == b'{' { "an object" } else { "an array" }));
        }
        if self.depth >= self.depth_max {
            self.error = ScanError::Depth(self.depth_max);
            return Err(Fault);
        }
        self.at += 1;
        if let Some(word) = self.objects.get_mut(self.depth / 64) {
            let bit = 1 << (self.depth % 64);
            *word = if bracket == b'{' { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
        let empty = self.next() == Some(bracket + 2);
        if empty {
            self.at += 1;
            self.depth -= 1;
        }
        Ok(empty)
    }

    /// Goes from the end of an element to the next; `false` if its object or array has ended.
    pub(super) fn more(&mut self) -> Result<bool, Fault> {
        match (self.next(), self.in_object()) {
            (Some(b','), _) => {
                self.at += 1;
                Ok(true)
            }
            (Some(b'}'), true) | (Some(b']'), false) => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            (_, true) => Err(self.expected("',' or '}'")),
            (_, false) => Err(self.expected("',' or ']'")),
        }
    }

    /// The same where it is known to be an object.
    #[inline]
    pub(super) fn more_members(&mut self) -> Result<bool, Fault> {
        let more = match self.next() {
            Some(b',') => true,
            Some(b'}') => false,
            _ => return Err(self.expected("',' or '}'")),
        };
        self.at += 1;
        self.depth -= usize::from(!more);
        Ok(more)
    }

    fn in_object(&self) -> bool {
        let top = self.depth.saturating_sub(1);
        self.objects.get(top / 64).is_some_and(|word| word & (1 << (top % 64)) != 0)
    }

    /// Reads a key and its colon.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Key, Fault> {
        if self.next() != Some(b'"') {
            return Err(self.expected("a key"));
        }
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        if let Some((word, bits)) = self.short_string() {
            self.marked |= MARKS.contains(&word);
            self.uris |= word.rotate_right(bits) >> 48 == URI_END;
        } else {
            escaped = self.rest_of_string()?;
            let key = self.text.get(start..self.at - 1).unwrap_or_default();
            self.marked |= escaped || matches!(key, b"blob" | b"data");
            // An escape may stand for any letter.
            self.uris |= escaped || key.ends_with(b"ri");
        }
        let at = start..self.at - 1;
        if self.next() != Some(b':') {
            return Err(self.expected("':'"));
        }
        self.at += 1;
        Ok(Key { at, escaped })
    }

    /// Reads a value of any kind; returns where it lies.
    pub(super) fn value(&mut self) -> Result<Range<usize>, Fault> {
        self.next();
        let start = self.at;
        self.pass_value()?;
        Ok(start..self.at)
    }

    /// Reads a value of any kind.
    pub(super) fn pass_value(&mut self) -> Result<(), Fault> {
        match self.next() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.nested(),
            first => self.scalar(first),
        }
    }

    /// Reads an object or array to its end.
    fn nested(&mut self) -> Result<(), Fault> {
        let floor = self.depth;
        loop {
            match self.next() {
                Some(b'"') => drop(self.string()?),
                Some(b'{') => {
                    if !self.open(b'{')? {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    if !self.open(b'[')? {
                        continue;
                    }
                }
                first => self.scalar(first)?,
            }
            loop {
                if self.depth == floor {
                    return Ok(());
                }
                if self.more()? {
                    if self.in_object() {
                        self.key()?;
                    }
                    break;
                }
            }
        }
    }

    fn scalar(&mut self, first: Option<u8>) -> Result<(), Fault> {
        match first {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(self.expected("a value")),
        }
    }

    /// Reads what must be the end: white space alone.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        if self.next().is_some() {
            return Err(self.expected("the end"));
        }
        if self.bits & HIGH != 0
            && let Err(err) = std::str::from_utf8(self.text)
        {
            self.error = ScanError::Expected("UTF-8", err.valid_up_to());
            return Err(Fault);
        }
        Ok(())
    }

    /// Reads a string whose opening quote is next; says whether it holds a backslash.
    #[inline]
    fn string(&mut self) -> Result<bool, Fault> {
        self.at += 1;
        if self.short_string().is_some() { Ok(false) } else { self.rest_of_string() }
    }

    /// Reads on to the end of a string that ends within eight bytes, as most keys and many values do; returns its text, with
    /// zeros behind it, and how many bits that has.
    #[inline]
    fn short_string(&mut self) -> Option<(u64, u32)> {
        let word = u64::from_le_bytes(*self.text.get(self.at..)?.first_chunk::<8>()?);
        let stops = stops(word);
        if stops == 0 {
            return None;
        }
        let bits = stops.trailing_zeros() - 7;
        if (word >> bits) & 0xFF != u64::from(b'"') {
            return None;
        }
        let word = word & !(u64::MAX << bits);
        self.bits |= word;
        self.at += bits as usize / 8 + 1;
        Some((word, bits))
    }

    /// Reads on in a string that is longer, or holds more than plain text; says whether it holds a backslash.
    #[inline(never)]
    fn rest_of_string(&mut self) -> Result<bool, Fault> {
        let mut escaped = false;
        loop {
            self.plain()?;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.expected("the end of a string")),
            }
        }
    }

    /// Reads on to the next quote, backslash, or control character (which is an error).
    fn plain(&mut self) -> Result<(), Fault> {
        let text = self.text;
        // By eight at first: larger blocks need a start.
        let (start, mut bits) = (self.at, self.bits);
        let (words, _) = text.get(start..).unwrap_or_default().as_chunks::<8>();
        let mut read = 0;
        for word in words.iter().take(SHORT / 8) {
            let word = u64::from_le_bytes(*word);
            let stops = stops(word);
            if stops != 0 {
                self.bits = bits | (word & (stops & stops.wrapping_neg()).wrapping_sub(1));
                self.at = start + read + stops.trailing_zeros() as usize / 8;
                return self.no_control();
            }
            bits |= word;
            read += 8;
        }
        (self.at, self.bits) = (start + read, bits);
        loop {
            let (next, behind) = self.next_plain();
            let rest = text.get(self.at..next).unwrap_or_default();
            let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            let block = rest.get(..end).unwrap_or_default();
            let (least, all) = extremes(block);
            self.bits |= u64::from(all);
            if least < b' ' {
                self.at += block.iter().position(|byte| *byte < b' ').unwrap_or(0);
                return self.no_control();
            }
            self.at += end;
            if self.at < next || next == behind {
                return Ok(());
            }
            self.at = behind;
        }
    }

    /// Returns where the next part that is known to be plain begins and ends; at the end of the text if there is none.
    fn next_plain(&mut self) -> (usize, usize) {
        while let Some((first, rest)) = self.plain.split_first() {
            if first.end > self.at {
                return (first.start.max(self.at), first.end);
            }
            self.plain = rest;
        }
        (self.text.len(), self.text.len())
    }

    fn no_control(&mut self) -> Result<(), Fault> {
        if self.peek().is_some_and(|byte| byte < b' ') {
            return Err(self.expected("no control character in a string"));
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Fault> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
                if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(self.expected("four hexadecimal digits"));
                }
                self.at += 5;
            }
            _ => return Err(self.expected("an escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), Fault> {
        if self.text.get(self.at..).unwrap_or_default().starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.expected("a value"))
        }
    }
}

/// Returns the least of all bytes, and the union of their bits. Written so that the compiler makes vector instructions of it.
pub(super) fn extremes(block: &[u8]) -> (u8, u8) {
    let (wide, rest) = block.as_chunks::<256>();
    let mut least = [u8::MAX; 32];
    let mut union = [0; 32];
    for chunk in wide {
        let (lanes, _) = chunk.as_chunks::<32>();
        for lane in lanes {
            for ((least, union), byte) in least.iter_mut().zip(&mut union).zip(lane) {
                *least = (*least).min(*byte);
                *union |= byte;
            }
        }
    }
    let of_rest = rest.iter().fold((u8::MAX, 0), |(least, union), &byte| (least.min(byte), union | byte));
    let of_wide = least.iter().zip(&union).fold(of_rest, |(low, all), (least, union)| (low.min(*least), all | union));
    if wide.is_empty() { of_rest } else { of_wide }
}

/// Sets the highest bit of the first byte that is a quote, a backslash or a control character; bits after it mean nothing.
///
/// The classic tests for a zero byte and for a small one, of eight bytes at once, exact up to the first hit. With its second
/// bit turned, a quote is 0x20 and a space 0x22: then one test finds quotes and control characters.
const fn stops(word: u64) -> u64 {
    let turned = word ^ (LOW * 2);
    let backslash = word ^ (LOW * b'\\' as u64);
    let is_quote_or_control = turned.wrapping_sub(LOW * 0x21) & !turned;
    let is_backslash = backslash.wrapping_sub(LOW) & !backslash;
    (is_quote_or_control | is_backslash) & HIGH
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
