//! Event-stream bytes to raw blocks, under byte limits and without copying a payload that came in one piece.
//!
//! Not for the browser's state machine (ids are not inherited, nothing reconnects) and not for pass-through of comments
//! or unknown fields: both are skipped. `eventsource-stream` is fenced into this file: it panics on a leading byte order
//! mark, has no limits and is quadratic on raw chunks, so it only ever sees the whole `data` lines of one finished block.
//!
//! Invariants:
//! - at most one unfinished block and one chunk are held, and the block holds at most `event_bytes_max` wire bytes (a
//!   payload slice keeps the chunk it lies in alive);
//! - each byte is searched for a line end once;
//! - the yielded blocks and the error that ends them are the same for every way of cutting the stream into chunks;
//! - no input reaches a panic.

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt, iter, mem,
    pin::{Pin, pin},
    str,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use eventsource_stream::EventStream;
use futures_core::Stream;
use memchr::{memchr, memchr2};

use super::skip::{Ends, Skipping};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const DATA_PREFIX: &[u8] = b"data: ";
const MESSAGE_LINE: &[u8] = b"event: message\n";

/// One raw block of an event stream: exactly what its own lines say.
///
/// Nothing is inherited from earlier blocks, and a block of metadata alone (`id` or `retry`) is a block too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The value of the last `event` line.
    pub event: Option<Cow<'static, str>>,
    /// The `data` lines joined with LF, valid UTF-8; `None` when the block has no such line.
    pub data: Option<Bytes>,
    /// The value of the last `id` line without a NUL; an empty id is one.
    pub id: Option<String>,
    /// The value of the last `retry` line that is digits only.
    pub retry_ms: Option<u64>,
    /// The block was over the limit: nothing else of it is there (only of [`Decoder::skipping`]).
    pub too_large: Option<Box<Ends>>,
}

/// What a peer may make a [`Decoder`] read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one block on the wire, from its first line to its blank line, field names included. A line end counts as
    /// one byte. Comments and unknown fields in front of the block count only while they are read, so that keep-alives
    /// never add up.
    pub event_bytes_max: usize,
    /// Bytes of the whole stream, everything included; `usize::MAX` for a stream that may live for ever.
    pub stream_bytes_max: usize,
}

/// Why a [`Decoder`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A chunk was pushed before the one before was read to its end: the caller's mistake.
    #[error("a chunk was pushed while the previous one was unread")]
    ChunkPending,
    /// A block is longer than [`Limits::event_bytes_max`].
    #[error("an event is larger than {limit} bytes")]
    EventTooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// The value of a known field is not UTF-8.
    #[error("invalid utf-8 in the field `{field}` of an event")]
    InvalidUtf8 {
        /// The field: `data`, `event` or `id`.
        field: &'static str,
    },
    /// The stream is longer than [`Limits::stream_bytes_max`].
    #[error("the event stream is larger than {limit} bytes")]
    StreamTooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// The assembler returned no event for a block of several `data` lines: our mistake, not the peer's.
    #[error("the data lines of an event could not be joined")]
    Unjoined,
}

/// Turns chunks of an event stream into [`Event`]s.
///
/// Push a chunk, then call [`next_event`](Self::next_event) until it returns `None`. When the stream ends, drop the
/// decoder: by the standard, a block without its blank line is no event.
///
/// ```
/// # use portcullis::wire::sse::{DecodeError, Decoder, Limits};
/// let mut decoder = Decoder::new(Limits { event_bytes_max: 1024, stream_bytes_max: usize::MAX });
/// let mut data = Vec::new();
/// for chunk in ["data: {}\r\n\r", "\ndata: []\n\n"] {
///     decoder.push(chunk.into())?;
///     while let Some(event) = decoder.next_event()? {
///         data.extend(event.data);
///     }
/// }
/// assert_eq!(data, ["{}", "[]"]);
/// # Ok::<(), DecodeError>(())
/// ```
pub struct Decoder {
    limits: Limits,
    chunk: Bytes,
    position: usize,
    /// The stream limit lies inside the current chunk, of which only the part below it is kept.
    chunk_cut: bool,
    stream_bytes: usize,
    block_bytes: usize,
    first_line: bool,
    /// The last line ended with CR, so that an LF now is its second half.
    after_cr: bool,
    unfinished: Unfinished,
    block: Block,
    oversize: Oversize,
    failed: Option<DecodeError>,
}

/// What a block over the limit does.
enum Oversize {
    /// It ends the stream.
    Ends,
    /// It is skipped; perhaps one is at this moment.
    Skipped(Option<Skipping>),
}

/// What the current chunk's predecessors hold of the current line.
#[derive(Default)]
enum Unfinished {
    Comment,
    #[default]
    Nothing,
    Text(BytesMut),
}

#[derive(Default)]
struct Block {
    event: Option<Cow<'static, str>>,
    data: Data,
    id: Option<String>,
    retry_ms: Option<u64>,
}

#[derive(Default)]
enum Data {
    #[default]
    Absent,
    /// Whole lines `data: value` with LF, as the assembler wants them.
    Many(BytesMut),
    One(Bytes),
}

// === impl Event ===

impl Event {
    /// Tells whether the block carries an MCP message: named `message`, or not named, and with data that is not empty.
    pub fn is_message(&self) -> bool {
        let named = self.event.as_deref().is_none_or(|name| name.is_empty() || name == "message");
        named && self.data.as_ref().is_some_and(|data| !data.is_empty())
    }
}

// === impl Decoder ===

impl Decoder {
    /// Creates a decoder for one stream, at its first byte.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            chunk: Bytes::new(),
            position: 0,
            chunk_cut: false,
            stream_bytes: 0,
            block_bytes: 0,
            first_line: true,
            after_cr: false,
            unfinished: Unfinished::Nothing,
            block: Block::default(),
            oversize: Oversize::Ends,
            failed: None,
        }
    }

    /// Creates one that goes on after a block over the limit: of it only the ends are kept. After four limits without an
    /// end it gives up [LIM-1].
    pub fn skipping(limits: Limits) -> Self {
        Self { oversize: Oversize::Skipped(None), ..Self::new(limits) }
    }

    /// Takes the next chunk of the stream, of any size; it is read by [`next_event`](Self::next_event).
    ///
    /// # Errors
    ///
    /// [`DecodeError::ChunkPending`] if the chunk before has unread bytes, else the error that ended the decoder before.
    pub fn push(&mut self, mut chunk: Bytes) -> Result<(), DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.position < self.chunk.len() {
            return Err(self.fail(DecodeError::ChunkPending));
        }
        if self.chunk_cut {
            return Err(self.fail(DecodeError::StreamTooLarge { limit: self.limits.stream_bytes_max }));
        }
        let room = self.limits.stream_bytes_max.saturating_sub(self.stream_bytes);
        self.chunk_cut = chunk.len() > room;
        chunk.truncate(room);
        self.stream_bytes = self.stream_bytes.saturating_add(chunk.len());
        self.chunk = chunk;
        self.position = 0;
        Ok(())
    }

    /// Returns the next finished block, or `None` when the pushed bytes hold no further one.
    ///
    /// # Errors
    ///
    /// Any [`DecodeError`]; the blocks before the fault have been returned, what was held is released, and every later
    /// call returns the same error.
    pub fn next_event(&mut self) -> Result<Option<Event>, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.read_block().map_err(|error| self.fail(error))
    }

    fn read_block(&mut self) -> Result<Option<Event>, DecodeError> {
        loop {
            let start = self.position;
            let rest = self.chunk.get(start..).unwrap_or_default();
            let Some(first) = rest.first() else {
                return self.end_chunk();
            };
            if mem::take(&mut self.after_cr) && *first == b'\n' {
                self.position = start + 1;
                continue;
            }
            let line_end = match first {
                // Most blocks are of these three lines; what is compared need not be searched.
                b'\r' | b'\n' => Some(0),
                b'e' if rest.starts_with(MESSAGE_LINE) => Some(MESSAGE_LINE.len() - 1),
                _ => memchr2(b'\r', b'\n', rest),
            };
            let length = line_end.unwrap_or(rest.len());
            let terminator = rest.get(length).copied();
            let consumed = length + terminator.map_or(0, |_| 1);
            #[cfg(test)]
            cost::scan(consumed);
            self.position = start + consumed;
            self.after_cr = terminator == Some(b'\r');
            if matches!(self.oversize, Oversize::Skipped(Some(_))) {
                if let Some(event) = self.skip(start, start + length, terminator.is_some())? {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.charge(consumed) {
                Err(_) if matches!(self.oversize, Oversize::Skipped(None)) => {
                    if let Some(event) = self.begin_skip(start, start + length, terminator.is_some()) {
                        return Ok(Some(event));
                    }
                    continue;
                }
                charged => charged?,
            }
            if terminator.is_none() {
                self.hold_from(start);
            } else if let Some(event) = self.end_line(start, start + length)? {
                return Ok(Some(event));
            }
        }
    }

    /// Lets go of the chunk that was read, and says whether the stream limit lay in it.
    fn end_chunk(&mut self) -> Result<Option<Event>, DecodeError> {
        self.chunk = Bytes::new();
        self.position = 0;
        if self.chunk_cut {
            return Err(DecodeError::StreamTooLarge { limit: self.limits.stream_bytes_max });
        }
        Ok(None)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let limit = self.limits.event_bytes_max;
        self.block_bytes = self.block_bytes.saturating_add(bytes);
        if self.block_bytes > limit { Err(DecodeError::EventTooLarge { limit }) } else { Ok(()) }
    }

    /// Begins to skip the block that is held, with the chunk's `start..end`.
    fn begin_skip(&mut self, start: usize, end: usize, line_ends: bool) -> Option<Event> {
        let part = self.chunk.get(start..end).unwrap_or_default();
        let line = match mem::take(&mut self.unfinished) {
            Unfinished::Comment => BytesMut::from(&b":"[..]),
            Unfinished::Nothing => BytesMut::new(),
            Unfinished::Text(text) => text,
        };
        let block = mem::take(&mut self.block);
        let data: &[u8] = match &block.data {
            Data::Absent => b"",
            Data::Many(lines) => lines,
            Data::One(value) => value,
        };
        let mut skipping = Skipping::begin(&[data, &line, part], self.block_bytes);
        // It was the blank line that was one byte too many: the block is over.
        let over = line_ends && line.is_empty() && part.is_empty();
        if line_ends {
            skipping.end_line();
        }
        if over {
            return Some(self.skipped(skipping));
        }
        self.oversize = Oversize::Skipped(Some(skipping));
        None
    }

    fn skip(&mut self, start: usize, end: usize, line_ends: bool) -> Result<Option<Event>, DecodeError> {
        let part = self.chunk.get(start..end).unwrap_or_default();
        let limit = self.limits.event_bytes_max;
        let Oversize::Skipped(skipping) = &mut self.oversize else { return Ok(None) };
        let Some(mut skipping) = skipping.take() else { return Ok(None) };
        if skipping.take(part, line_ends) {
            return Ok(Some(self.skipped(skipping)));
        }
        if skipping.is_hopeless(limit) {
            return Err(DecodeError::EventTooLarge { limit });
        }
        self.oversize = Oversize::Skipped(Some(skipping));
        Ok(None)
    }

    fn skipped(&mut self, skipping: Skipping) -> Event {
        self.block_bytes = 0;
        self.first_line = false;
        Event { too_large: Some(Box::new(skipping.finish())), ..Event::default() }
    }

    /// Keeps the chunk's bytes from `start` for the line that goes on in the next chunk.
    fn hold_from(&mut self, start: usize) {
        let rest = self.chunk.get(start..).unwrap_or_default();
        if matches!(self.unfinished, Unfinished::Nothing) {
            let comment = rest.first() == Some(&b':');
            self.unfinished = if comment { Unfinished::Comment } else { Unfinished::Text(BytesMut::new()) };
        }
        if let Unfinished::Text(text) = &mut self.unfinished {
            append(text, rest);
        }
    }

    /// Ends a line whose last part is the chunk's `start..end`, and the block with it if the line is blank.
    fn end_line(&mut self, start: usize, end: usize) -> Result<Option<Event>, DecodeError> {
        let part = self.chunk.get(start..end).unwrap_or_default();
        let held;
        let (owner, line) = match mem::take(&mut self.unfinished) {
            Unfinished::Comment => (&self.chunk, b":".as_slice()),
            Unfinished::Nothing => (&self.chunk, part),
            Unfinished::Text(mut text) => {
                append(&mut text, part);
                held = text.freeze();
                (&held, held.as_ref())
            }
        };
        let mark = if mem::take(&mut self.first_line) { BYTE_ORDER_MARK } else { &[] };
        let line = line.strip_prefix(mark).unwrap_or(line);
        if line.is_empty() {
            self.block_bytes = 0;
            return mem::take(&mut self.block).finish();
        }
        self.block.add_line(owner, line)?;
        if self.block.is_empty() {
            self.block_bytes = 0;
        }
        Ok(None)
    }

    /// Ends the decoder and releases what it holds.
    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.chunk = Bytes::new();
        self.position = 0;
        self.unfinished = Unfinished::Nothing;
        self.block = Block::default();
        self.oversize = Oversize::Ends;
        self.failed = Some(error);
        error
    }
}

impl fmt::Debug for Decoder {
    /// Shows the counters, never the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("limits", &self.limits)
            .field("stream_bytes", &self.stream_bytes)
            .field("block_bytes", &self.block_bytes)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

// === impl Block ===

impl Block {
    /// Adds a line that is not blank; `line` lies in `owner` if it is a field.
    fn add_line(&mut self, owner: &Bytes, line: &[u8]) -> Result<(), DecodeError> {
        if let Some(value) = line.strip_prefix(DATA_PREFIX) {
            self.data.add(owner, value);
            return Ok(());
        }
        let (name, value) = line.split_at(memchr(b':', line).unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.data.add(owner, value),
            b"event" => {
                self.event = Some(match text("event", value)? {
                    "message" => Cow::Borrowed("message"),
                    other => Cow::Owned(other.to_owned()),
                })
            }
            b"id" if memchr(0, value).is_none() => self.id = Some(text("id", value)?.to_owned()),
            b"retry" => self.retry_ms = digits(value).or(self.retry_ms),
            _ => {}
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self { event: None, data: Data::Absent, id: None, retry_ms: None })
    }

    /// Ends the block; one without a known field is no event.
    fn finish(self) -> Result<Option<Event>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let Self { event, data, id, retry_ms } = self;
        Ok(Some(Event { event, data: data.finish()?, id, retry_ms, too_large: None }))
    }
}

// === impl Data ===

impl Data {
    fn add(&mut self, owner: &Bytes, value: &[u8]) {
        match self {
            Self::Absent => *self = Self::One(owner.slice_ref(value)),
            Self::Many(lines) => append_data_line(lines, value),
            Self::One(first) => {
                let mut lines = BytesMut::new();
                append_data_line(&mut lines, first);
                append_data_line(&mut lines, value);
                *self = Self::Many(lines);
            }
        }
    }

    fn finish(self) -> Result<Option<Bytes>, DecodeError> {
        match self {
            Self::Absent => Ok(None),
            Self::Many(lines) => join_data_lines(&lines).map(Some),
            Self::One(value) => {
                text("data", &value)?;
                Ok(Some(value))
            }
        }
    }
}

/// An iterator as a stream that is always ready.
struct InMemory<I>(I);

impl<I: Iterator + Unpin> Stream for InMemory<I> {
    type Item = Result<I::Item, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.get_mut().0.next().map(Ok))
    }
}

/// Joins whole `data` lines, each ended by LF, to the data of the one event they make.
pub(super) fn join_data_lines(lines: &[u8]) -> Result<Bytes, DecodeError> {
    // The assembler turns quadratic on input that is not UTF-8.
    text("data", lines)?;
    let blank_line = b"\n".as_slice();
    let block = lines.split_inclusive(|byte| *byte == b'\n').chain(iter::once(blank_line));
    let events = pin!(EventStream::new(InMemory(block)));
    match events.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(event))) => Ok(Bytes::from(event.data)),
        Poll::Ready(Some(Err(_)) | None) | Poll::Pending => Err(DecodeError::Unjoined),
    }
}

fn append_data_line(lines: &mut BytesMut, value: &[u8]) {
    append(lines, DATA_PREFIX);
    append(lines, value);
    append(lines, b"\n");
}

fn append(buffer: &mut BytesMut, bytes: &[u8]) {
    #[cfg(test)]
    let (length, capacity) = (buffer.len(), buffer.capacity());
    buffer.extend_from_slice(bytes);
    #[cfg(test)]
    cost::copy(bytes.len() + if buffer.capacity() == capacity { 0 } else { length }, buffer.capacity());
}

fn text<'a>(field: &'static str, value: &'a [u8]) -> Result<&'a str, DecodeError> {
    str::from_utf8(value).map_err(|_| DecodeError::InvalidUtf8 { field })
}

/// Reads a number of ASCII digits and nothing else, so no sign.
fn digits(value: &[u8]) -> Option<u64> {
    value.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(value).ok()?.parse().ok()).flatten()
}

/// Work done by the decoders of the current thread, for tests that bound it.
#[cfg(test)]
pub(super) mod cost {
    use std::cell::Cell;

    thread_local! {
        /// Bytes searched for a line end.
        pub(crate) static SCANNED: Cell<usize> = const { Cell::new(0) };
        /// Bytes copied into assembly buffers, those that moved when a buffer grew included.
        pub(crate) static COPIED: Cell<usize> = const { Cell::new(0) };
        /// The largest room an assembly buffer ever had.
        pub(crate) static HELD_MAX: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn scan(bytes: usize) {
        SCANNED.set(SCANNED.get() + bytes);
    }

    pub(super) fn copy(bytes: usize, capacity: usize) {
        COPIED.set(COPIED.get() + bytes);
        HELD_MAX.set(HELD_MAX.get().max(capacity));
    }
}
