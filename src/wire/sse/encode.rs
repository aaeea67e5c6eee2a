//! Messages to event-stream bytes: always `event: message`, whatever line ends the payload holds.
//!
//! Not for choosing ids, retry delays or when to send a keep-alive, and not a check of the payload: it is text that was
//! valid when it came in.
//!
//! Invariants: a line end of the payload (CR, LF or CRLF, also one cut between two parts) becomes one line end of the
//! decoded data, LF. JSON has raw line ends only as white space between its tokens, so its value is the same. No payload
//! and no id can end the event or add a field.

use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memchr3};

/// A comment that keeps a quiet stream open; readers skip it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

const ENDPOINT: &[u8] = b"event: endpoint\n";
const MESSAGE: &[u8] = b"event: message\n";
const ID: &[u8] = b"id: ";
const DATA: &[u8] = b"data: ";
const PLAIN_HEAD: &[u8] = b"event: message\ndata: ";
/// What ends an event.
pub const END: &[u8] = b"\n\n";
/// Up to here copying a payload is cheaper than sending an event in three pieces.
const COPY_MAX: usize = 16 << 10;

/// An event id that stays what it is in an event stream: no CR, LF or NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId<'a>(&'a str);

/// The fields of an event that stand in front of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// What a client names to resume after this event.
    pub id: Option<EventId<'a>>,
    /// How long a client waits before it connects again.
    pub retry_ms: Option<u64>,
}

/// A message around or with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The payload has no line end: send `head`, the payload parts as they are, `tail`.
    Around {
        /// Everything in front of the payload.
        head: Bytes,
        /// Everything behind the payload.
        tail: Bytes,
    },
    /// The payload had line ends and is in here, split over several lines.
    Whole(Bytes),
}

// === impl EventId ===

impl<'a> EventId<'a> {
    /// Takes `id` unless a reader would cut or ignore it.
    pub fn new(id: &'a str) -> Option<Self> {
        memchr3(b'\0', b'\n', b'\r', id.as_bytes()).is_none().then_some(Self(id))
    }

    /// Returns the id as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

// === impl Head ===

impl Head<'_> {
    fn append(self, name: &[u8], out: &mut BytesMut) {
        out.extend_from_slice(name);
        if let Some(id) = self.id {
            out.extend_from_slice(ID);
            out.extend_from_slice(id.0.as_bytes());
            out.extend_from_slice(b"\n");
        }
        if let Some(retry_ms) = self.retry_ms {
            out.extend_from_slice(b"retry: ");
            out.extend_from_slice(retry_ms.to_string().as_bytes());
            out.extend_from_slice(b"\n");
        }
    }
}

/// Returns how many bytes a message event has whose payload has no line end; an `id` of 0 bytes is none.
pub const fn room(payload: usize, id: usize) -> usize {
    PLAIN_HEAD.len() + payload + END.len() + if id == 0 { 0 } else { ID.len() + id + 1 }
}

/// Appends one message event to `out`; the payload is the parts one after the other, each cut anywhere.
///
/// Without parts, or with empty ones, the event has empty data: one that only primes the client with an id.
pub fn encode_message<P: AsRef<[u8]>>(head: Head<'_>, data_parts: &[P], out: &mut BytesMut) {
    let id = head.id.map_or(0, |id| id.0.len());
    out.reserve(room(data_parts.iter().map(|part| part.as_ref().len()).sum(), id));
    head.append(MESSAGE, out);
    append_data(data_parts, out);
}

/// Frames one message event without copying its payload, unless it has line ends.
pub fn frame_message<P: AsRef<[u8]>>(head: Head<'_>, data_parts: &[P]) -> Frame {
    if data_parts.iter().any(|part| memchr2(b'\r', b'\n', part.as_ref()).is_some()) {
        let mut whole = BytesMut::new();
        encode_message(head, data_parts, &mut whole);
        return Frame::Whole(whole.freeze());
    }
    let tail = Bytes::from_static(END);
    if head == Head::default() {
        return Frame::Around { head: Bytes::from_static(PLAIN_HEAD), tail };
    }
    let mut front = BytesMut::new();
    head.append(MESSAGE, &mut front);
    front.extend_from_slice(DATA);
    Frame::Around { head: front.freeze(), tail }
}

/// Spells one message event in as few pieces as it takes without copying a large payload.
pub fn message(head: Head<'_>, parts: &[Bytes]) -> Vec<Bytes> {
    if parts.iter().map(Bytes::len).sum::<usize>() <= COPY_MAX {
        let mut whole = BytesMut::new();
        encode_message(head, parts, &mut whole);
        return vec![whole.freeze()];
    }
    match frame_message(head, parts) {
        Frame::Whole(whole) => vec![whole],
        Frame::Around { head, tail } => {
            let inner = parts.iter().filter(|part| !part.is_empty()).cloned();
            std::iter::once(head).chain(inner).chain(std::iter::once(tail)).collect()
        }
    }
}

/// Spells what stands in front of a payload that is yet to come: without line ends, and then [`END`].
pub fn begin_message(head: Head<'_>) -> Bytes {
    let mut front = BytesMut::new();
    head.append(MESSAGE, &mut front);
    front.extend_from_slice(DATA);
    front.freeze()
}

/// Appends the first event of the HTTP+SSE transport of 2024-11-05, the only one that is not named `message`.
pub fn encode_endpoint(uri: &str, out: &mut BytesMut) {
    Head::default().append(ENDPOINT, out);
    append_data(&[uri], out);
}

fn append_data<P: AsRef<[u8]>>(parts: &[P], out: &mut BytesMut) {
    out.extend_from_slice(DATA);
    let mut after_cr = false;
    for part in parts {
        let mut rest = part.as_ref();
        while let Some(first) = rest.first() {
            if after_cr && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
            }
            let (line, tail) = rest.split_at(memchr2(b'\r', b'\n', rest).unwrap_or(rest.len()));
            out.extend_from_slice(line);
            if !tail.is_empty() {
                out.extend_from_slice(b"\n");
                out.extend_from_slice(DATA);
            }
            after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
        }
    }
    out.extend_from_slice(END);
}
