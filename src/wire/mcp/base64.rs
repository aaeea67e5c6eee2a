//! Base64 in a JSON string, decoded in blocks: what is decoded is never held whole.
//!
//! Not for: headers (`header`). Taken are both alphabets, white space, a missing padding and the head of a `data:` URL;
//! whatever else is wrong ends the decoding.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::wire::json::Spelled;

/// How many characters are decoded at once.
const BLOCK: usize = 16 << 10;
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A JSON string that should be base64.
#[derive(Clone, Copy, Debug)]
pub struct Base64<'a>(Spelled<'a>);

/// Why the decoding ended early.
#[derive(Debug, thiserror::Error)]
pub enum Base64Error<E> {
    /// It is no base64.
    #[error("not base64")]
    Malformed,
    /// Whoever takes the bytes takes no more.
    #[error(transparent)]
    Sink(E),
}

/// The characters that wait to be decoded.
struct Block<F> {
    chars: Vec<u8>,
    bytes: Vec<u8>,
    padded: bool,
    sink: F,
}

// === impl Base64 ===

impl<'a> Base64<'a> {
    /// Takes a string.
    #[must_use]
    pub fn of(text: Spelled<'a>) -> Self {
        const HEAD_MAX: usize = 200;
        let raw = text.get();
        let head = raw.get(..raw.len().min(HEAD_MAX)).unwrap_or_default();
        if head.starts_with(b"data:")
            && let Some(comma) = memchr::memmem::find(head, b";base64,")
            && let Some(rest) = raw.get(comma + 8..)
        {
            return Self(Spelled::inner(rest));
        }
        Self(text)
    }

    /// Returns the text, as it is spelled.
    #[must_use]
    pub const fn spelled(self) -> &'a [u8] {
        self.0.get()
    }

    /// Returns how many bytes it decodes to, by its length and without its padding; exact for base64 of the common form
    /// [LIM-2].
    #[must_use]
    pub fn decoded_len(self) -> usize {
        let text = self.0.get();
        let (chars, padding) = if self.0.has_escapes() {
            self.significant()
        } else {
            (text.len(), text.iter().rev().take(2).filter(|byte| **byte == b'=').count())
        };
        chars.saturating_sub(padding) / 4 * 3 + (chars.saturating_sub(padding) % 4) * 3 / 4
    }

    /// Counts the characters but white space, and the padding at their end, which a line break may stand within.
    fn significant(self) -> (usize, usize) {
        let (mut count, mut padding) = (0, 0);
        self.each_run(|run| {
            for byte in run.iter().filter(|byte| !byte.is_ascii_whitespace()) {
                count += 1;
                padding = if *byte == b'=' { padding + 1 } else { 0 };
            }
        });
        (count, padding)
    }

    /// Hands out the text in runs; an escape is decoded.
    fn each_run(self, mut take: impl FnMut(&[u8])) {
        let text = self.0;
        if !text.has_escapes() {
            return take(text.get());
        }
        let (mut at, mut char) = (0, String::new());
        while at < text.get().len() {
            let rest = text.get().get(at..).unwrap_or_default();
            let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
            take(rest.get(..run).unwrap_or_default());
            at += run;
            let (next, _) = text.walk(at, 1);
            char.clear();
            text.decode(at..next, &mut char);
            if run < rest.len() {
                take(char.as_bytes());
                at = next;
            }
        }
    }

    /// Decodes it in blocks into `sink`.
    ///
    /// # Errors
    /// [`Base64Error`]; what was decoded before has been handed on.
    pub fn decode<E>(self, sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), Base64Error<E>> {
        let mut block =
            Block { chars: Vec::with_capacity(BLOCK), bytes: Vec::with_capacity(BLOCK / 4 * 3), padded: false, sink };
        let mut done = Ok(());
        self.each_run(|run| {
            if done.is_ok() {
                done = block.take(run);
            }
        });
        done.and_then(|()| block.flush())
    }
}

// === impl Block ===

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Block<F> {
    fn take(&mut self, run: &[u8]) -> Result<(), Base64Error<E>> {
        for &byte in run {
            let char = match byte {
                b'-' => b'+',
                b'_' => b'/',
                white if white.is_ascii_whitespace() => continue,
                other => other,
            };
            if self.chars.len() == BLOCK {
                self.flush()?;
            }
            self.chars.push(char);
        }
        Ok(())
    }

    /// Decodes what waits. Padding ends the text.
    fn flush(&mut self) -> Result<(), Base64Error<E>> {
        if self.chars.is_empty() {
            return Ok(());
        }
        if self.padded {
            return Err(Base64Error::Malformed);
        }
        self.padded = self.chars.last() == Some(&b'=');
        self.bytes.clear();
        LENIENT.decode_vec(&self.chars, &mut self.bytes).map_err(|_| Base64Error::Malformed)?;
        self.chars.clear();
        (self.sink)(&self.bytes).map_err(Base64Error::Sink)
    }
}

#[cfg(test)]
#[path = "base64_tests.rs"]
mod tests;
