//! Lines of a pipe as bytes, within a cap [LIM-1].
//!
//! Not for: what a line means (`wire::jsonrpc`). Invariants: never more than the cap and one buffer is held; what has
//! been read lives in the reader, so that dropping [`LineReader::next`] loses nothing.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much of the begin and of the end of a line over the cap is kept.
const KEPT: usize = 4096;
/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// After this many caps without a newline there is no hope for one.
const HOPELESS: usize = 4;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
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
pub struct Ends {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes.
    pub tail: Vec<u8>,
}

/// Reads lines.
#[derive(Debug)]
pub struct LineReader<R> {
    inner: R,
    cap: usize,
    /// After so many bytes without a newline there is no hope for one.
    hopeless: usize,
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
    /// Reads lines of at most `cap` bytes; one of four times that is given up.
    pub fn new(inner: R, cap: usize) -> Self {
        Self {
            inner,
            cap,
            hopeless: cap.saturating_mul(HOPELESS),
            chunk: vec![0; CHUNK].into_boxed_slice(),
            rest: 0..0,
            line: Vec::new(),
            bytes: 0,
            skipped: None,
        }
    }

    /// Reads lines of at most `cap` bytes; a longer one is skipped, however long it is.
    pub fn patient(inner: R, cap: usize) -> Self {
        Self { hopeless: usize::MAX, ..Self::new(inner, cap) }
    }

    /// Returns the next line.
    ///
    /// # Errors
    /// The pipe broke.
    ///
    /// # Cancel safety
    /// Nothing that was read is lost.
    pub async fn next(&mut self) -> std::io::Result<Frame> {
        // A chunk may hold thousands of lines: without this their reader would keep its thread to itself.
        tokio::task::coop::consume_budget().await;
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
    fn held(&self) -> usize {
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
        if self.bytes > self.hopeless {
            self.rest = 0..0;
            self.bytes = 0;
            return Some(Frame::Endless(self.skipped.take().unwrap_or_default()));
        }
        newline.map(|_| self.finish())
    }

    fn take(&mut self, part: &[u8]) {
        self.bytes = self.bytes.saturating_add(part.len());
        if let Some(ends) = &mut self.skipped {
            ends.push(part);
        } else if self.bytes > self.cap {
            let line = std::mem::take(&mut self.line);
            let mut ends = Ends::default();
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
        let room = KEPT.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(part.get(..room).unwrap_or_default());
        let part = part.get(part.len().saturating_sub(KEPT)..).unwrap_or_default();
        let surplus = (self.tail.len() + part.len()).saturating_sub(KEPT);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::{CHUNK, Ends, Frame, KEPT, LineReader};
    use crate::net::Pieces;

    /// What lines by themselves are.
    fn expected(input: &[u8], cap: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        // What stands behind the last line break is a line only if it is something.
        lines.pop_if(|last| last.is_empty());
        for line in lines {
            let ends = Ends { head: line.to_vec(), tail: line.to_vec() };
            if line.len() > 4 * cap {
                frames.push(Frame::Endless(Ends::default()));
                return frames;
            }
            frames.push(if line.len() > cap { Frame::TooLong(ends) } else { Frame::Line(line.to_vec().into()) });
        }
        frames.push(Frame::End);
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// [LIM-1]: any bytes, cut anywhere, are the same lines, and what is held is bounded.
        #[test]
        fn any_bytes_cut_anywhere_are_the_same_lines(
            input in prop::collection::vec(prop_oneof![1 => Just(b'\n'), 6 => any::<u8>()], 0..400),
            pieces in prop::collection::vec(1..50_usize, 0..80),
            cap in 1..30_usize,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut reader = LineReader::new(Pieces::new(&input, pieces), cap);
            for expected in expected(&input, cap) {
                let frame = runtime.block_on(reader.next()).unwrap();
                prop_assert!(reader.held() <= cap + CHUNK + 4 * KEPT);
                match (&frame, &expected) {
                    // How much was read by then depends on the cuts.
                    (Frame::Endless(_), Frame::Endless(_)) => {}
                    _ => prop_assert_eq!(&frame, &expected),
                }
            }
        }
    }

    async fn frames(input: &[u8], cap: usize) -> Vec<Frame> {
        let mut reader = LineReader::new(input, cap);
        let mut frames = Vec::new();
        loop {
            let frame = reader.next().await.unwrap();
            let over = matches!(frame, Frame::End | Frame::Endless(_));
            frames.push(frame);
            if over {
                return frames;
            }
        }
    }

    #[tokio::test]
    async fn the_cap_is_exact_and_reading_goes_on_after_it() {
        let read = frames(b"12345\n123456\n\nlast", 5).await;
        let ends = |text: &[u8]| Ends { head: text.to_vec(), tail: text.to_vec() };
        let line = |text: &'static [u8]| Frame::Line(Bytes::from_static(text));
        assert_eq!(read, [line(b"12345"), Frame::TooLong(ends(b"123456")), line(b""), line(b"last"), Frame::End]);
    }

    #[tokio::test]
    async fn a_long_line_keeps_its_ends() {
        let mut input = vec![b'a'; 3 * CHUNK];
        input[..2].copy_from_slice(b"<<");
        input.extend_from_slice(b">>\nnext\n");
        let read = frames(&input, CHUNK).await;
        let Frame::TooLong(ends) = &read[0] else { panic!("{read:?}") };
        assert_eq!((ends.head.len(), ends.tail.len()), (KEPT, KEPT));
        assert!(ends.head.starts_with(b"<<a") && ends.tail.ends_with(b"a>>"));
        assert_eq!(read[1], Frame::Line(Bytes::from_static(b"next")));
    }

    /// [LIM-1]: an endless line is given up after four caps; never more than the cap and one buffer is held.
    #[tokio::test]
    async fn an_endless_line_needs_bounded_memory() {
        const CAP: usize = 1_000_000;
        let mut reader = LineReader::new(tokio::io::repeat(b'x').take(u64::MAX), CAP);
        let mut most = 0;
        let frame = loop {
            // Each poll reads one chunk and is dropped then: the state lives in the reader.
            let mut next = Box::pin(reader.next());
            let frame = futures_util::poll!(&mut next);
            drop(next);
            most = most.max(reader.held());
            match frame {
                std::task::Poll::Ready(frame) => break frame.unwrap(),
                std::task::Poll::Pending => tokio::task::yield_now().await,
            }
        };
        assert!(matches!(frame, Frame::Endless(_)));
        assert!(most <= CAP + CHUNK + 4 * KEPT, "{most}");
    }

    /// [promise 2]: whoever reads a chunk full of short lines lets others have their turn.
    #[tokio::test]
    async fn a_flood_of_lines_takes_turns() {
        let input = vec![b'\n'; CHUNK];
        let mut reader = LineReader::new(&input[..], CHUNK);
        let mut turns = 0;
        let mut reading = std::pin::pin!(async {
            let mut lines = 0;
            while reader.next().await.unwrap() != Frame::End {
                lines += 1;
            }
            lines
        });
        let lines = loop {
            match futures_util::poll!(&mut reading) {
                std::task::Poll::Ready(lines) => break lines,
                std::task::Poll::Pending => turns += 1,
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(lines, CHUNK);
        assert!(turns > CHUNK / 1000, "{turns}");
    }

    /// A client's line over the cap costs its own request, never the conversation.
    #[tokio::test]
    async fn a_patient_reader_skips_any_length() {
        let mut input = vec![b'a'; 40 * CHUNK];
        input.extend_from_slice(b"\nnext");
        let mut reader = LineReader::patient(&input[..], CHUNK);
        assert!(matches!(reader.next().await.unwrap(), Frame::TooLong(_)));
        assert_eq!(reader.next().await.unwrap(), Frame::Line(Bytes::from_static(b"next")));
    }
}
