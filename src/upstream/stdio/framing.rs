//! Lines of a pipe as bytes, within a cap [LIM-1].
//!
//! Not for: what a line means. Invariants: never more than the cap and one buffer is held; what has been read lives in
//! the reader, so that dropping [`LineReader::next`] loses nothing.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::wire::json;

/// How much of the begin and of the end of a line over the cap is kept.
pub(super) const KEPT: usize = 4096;
/// How much is read at once.
pub(super) const CHUNK: usize = 64 * 1024;
/// After this many caps without a newline there is no hope for one.
const HOPELESS: usize = 4;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The pipe has ended.
    End,
    /// The line has no end: nothing more is read.
    Endless(Ends),
    /// A line without its newline.
    Line(Bytes),
    /// A line over the cap, skipped to its end.
    TooLong(Ends),
}

/// The begin and the end of a line over the cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The first bytes.
    pub(super) head: Vec<u8>,
    /// The last bytes.
    pub(super) tail: Vec<u8>,
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    inner: R,
    cap: usize,
    chunk: Box<[u8]>,
    /// What of `chunk` has not been looked at.
    rest: std::ops::Range<usize>,
    line: Vec<u8>,
    /// The length of the present line, kept or not.
    bytes: usize,
    skipped: Option<Ends>,
}

// === impl LineReader ===

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `cap` bytes.
    pub(super) fn new(inner: R, cap: usize) -> Self {
        Self {
            inner,
            cap,
            chunk: vec![0; CHUNK].into_boxed_slice(),
            rest: 0..0,
            line: Vec::new(),
            bytes: 0,
            skipped: None,
        }
    }

    /// Returns the next line.
    ///
    /// # Cancel safety
    /// Nothing that was read is lost.
    pub(super) async fn next(&mut self) -> std::io::Result<Frame> {
        loop {
            if let Some(frame) = self.scan() {
                return Ok(frame);
            }
            let read = self.inner.read(&mut self.chunk).await?;
            self.rest = 0..read;
            if read == 0 {
                return Ok(if self.bytes == 0 { Frame::End } else { self.finish() });
            }
        }
    }

    /// Returns how many bytes are held for lines.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let ends = self.skipped.as_ref().map_or(0, |ends| ends.head.capacity() + ends.tail.capacity());
        self.line.capacity() + self.chunk.len() + ends
    }

    /// Takes bytes from the chunk up to a newline, if there is one.
    fn scan(&mut self) -> Option<Frame> {
        let chunk = std::mem::take(&mut self.chunk);
        let part = chunk.get(self.rest.clone()).unwrap_or_default();
        let newline = memchr::memchr(b'\n', part);
        let taken = newline.unwrap_or(part.len());
        self.take(part.get(..taken).unwrap_or_default());
        self.rest.start += taken + usize::from(newline.is_some());
        self.chunk = chunk;
        if self.bytes > self.cap.saturating_mul(HOPELESS) {
            self.rest = 0..0;
            self.bytes = 0;
            return Some(Frame::Endless(self.skipped.take().unwrap_or_default()));
        }
        newline.map(|_| self.finish())
    }

    fn take(&mut self, part: &[u8]) {
        self.bytes += part.len();
        if let Some(ends) = &mut self.skipped {
            ends.push(part);
        } else if self.bytes > self.cap {
            let line = std::mem::take(&mut self.line);
            let mut ends = Ends { head: line.iter().chain(part).take(KEPT).copied().collect(), tail: Vec::new() };
            ends.push(&line);
            ends.push(part);
            self.skipped = Some(ends);
        } else {
            let wanted = self.bytes;
            if self.line.capacity() < wanted {
                // Doubles like a vector would, but never past the cap.
                let grown = self.line.capacity().saturating_mul(2).clamp(wanted, self.cap);
                self.line.reserve_exact(grown - self.line.len());
            }
            self.line.extend_from_slice(part);
        }
    }

    fn finish(&mut self) -> Frame {
        self.bytes = 0;
        let line = std::mem::take(&mut self.line);
        self.skipped.take().map_or_else(|| Frame::Line(Bytes::from(line)), Frame::TooLong)
    }
}

// === impl Ends ===

impl Ends {
    fn push(&mut self, part: &[u8]) {
        let part = part.get(part.len().saturating_sub(KEPT)..).unwrap_or_default();
        let surplus = (self.tail.len() + part.len()).saturating_sub(KEPT);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend_from_slice(part);
    }

    /// Says whose line this is, as far as its ends tell.
    pub(super) fn whose(&self) -> Whose {
        match in_head(&self.head) {
            Whose::Unknown => in_tail(&self.tail),
            known @ (Whose::Ours(_) | Whose::Server) => known,
        }
    }
}

/// Whose line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A request or notification of the server.
    Server,
    /// The answer to this request.
    Ours(u64),
    /// Neither could be seen.
    Unknown,
}

/// Looks for `"id":N` or `"method":` among the outermost members at the begin of a message.
pub(super) fn in_head(head: &[u8]) -> Whose {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = head.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at + 1;
                let Some(end) = string_end(head, start) else { return Whose::Unknown };
                at = end;
                if depth == 1
                    && let Some(value) = after_colon(head.get(end + 1..).unwrap_or_default())
                {
                    match head.get(start..end) {
                        Some(b"method") => return Whose::Server,
                        Some(b"id") => return number(value).map_or(Whose::Unknown, Whose::Ours),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        at += 1;
    }
    Whose::Unknown
}

/// Looks for `"id":N` among the outermost members at the end of a message: what follows it must close the message.
fn in_tail(tail: &[u8]) -> Whose {
    for at in memchr::memmem::rfind_iter(tail, b"\"id\"") {
        let mut text = b"{".to_vec();
        text.extend_from_slice(tail.get(at..).unwrap_or_default());
        let Ok(members) = json::members(&text) else { continue };
        if let Ok(Some(id)) = members.get("id")
            && let Some(id) = id.parse()
        {
            return Whose::Ours(id);
        }
    }
    Whose::Unknown
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

/// Reads a number that something follows: one at the very end may be cut.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}
