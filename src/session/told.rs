//! What a call says, spelled as events: as much as is there becomes one write.
//!
//! Not for: what is kept of it (`replay`). Invariants: nothing waits for what is yet to come; a large payload is not copied;
//! the piece that is written has room for nothing else, so that who keeps a part of it holds no more than was said.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use smallvec::SmallVec;

use crate::exchange::ByteStream;
use crate::wire::sse::{self, EventId, Head};

/// Up to here copying a message is cheaper than writing it in pieces.
const COPY_MAX: usize = 16 << 10;
/// With so many bytes a write is not made larger.
const ENOUGH: usize = 48 << 10;
/// How long the stream's own part of an id is, with the dot behind it.
const ID_KEY: usize = 17;

/// What a call says, in the order it says it.
pub type Source = Pin<Box<dyn Stream<Item = Said> + Send>>;

/// Bytes in pieces, nearly always in one.
pub type Frames = SmallVec<[Bytes; 1]>;

/// One message of a call, or a pause: nothing is said, and the client may leave and come back.
pub struct Said {
    /// Its JSON text, in parts.
    pub parts: Frames,
    /// What follows the parts, of an answer that nobody looks at; then no part has a line end.
    pub rest: Option<ByteStream>,
    /// Whether it is the answer: nothing follows.
    pub last: bool,
    /// Given back when the answer has been sent.
    pub guards: Vec<Box<dyn Send>>,
}

/// Messages as events, for one write.
#[derive(Default)]
pub struct Told {
    /// The small ones, whole and in one piece; empty if there is none.
    pub joined: Bytes,
    /// The last of all in pieces, where it is large.
    pub large: Frames,
    /// The rest of its payload, of an answer that nobody looks at.
    pub rest: Option<ByteStream>,
    /// Whether the answer is among them: nothing follows.
    pub last: bool,
    /// Whether the client may leave now, and come back.
    pub pause: bool,
    /// Given back when the answer has been sent.
    pub guards: Vec<Box<dyn Send>>,
    /// Where each of the small ones ends.
    pub(super) ends: SmallVec<[usize; 8]>,
}

/// Messages that become one write.
#[derive(Default)]
pub(super) struct Batch(SmallVec<[Said; 8]>);

/// How the events of a stream are numbered.
#[derive(Clone, Copy)]
pub(super) struct Numbering {
    /// The stream's own part of each id.
    pub(super) key: u64,
    /// The number of the last event.
    pub(super) last: u64,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").field("parts", &self.parts).field("last", &self.last).finish_non_exhaustive()
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("joined", &self.joined.len()).field("last", &self.last).finish_non_exhaustive()
    }
}

// === impl Said ===

impl Said {
    /// Makes a pause.
    #[must_use]
    pub fn pause() -> Self {
        Self { parts: Frames::new(), rest: None, last: false, guards: Vec::new() }
    }

    fn is_pause(&self) -> bool {
        self.parts.is_empty() && self.rest.is_none()
    }

    /// Says a message that is not the last.
    #[must_use]
    pub fn note(message: Bytes) -> Self {
        Self { parts: SmallVec::from([message]), rest: None, last: false, guards: Vec::new() }
    }
}

// === impl Told ===

impl Told {
    /// Polls for what nobody can come back to, without ids; behind `lead`, which is yet to be written.
    pub fn poll(
        lead: &[u8],
        cx: &mut Context<'_>,
        next: impl FnMut(&mut Context<'_>) -> Poll<Option<Said>>,
    ) -> Poll<Option<Self>> {
        let mut batch = Batch::default();
        batch.poll_fill(cx, next).map(|some| some.then(|| batch.spell(lead, None)))
    }
}

// === impl Batch ===

impl Batch {
    /// Takes what is said by now, as much as a write takes; `false` if all has been said.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Said>>,
    ) -> Poll<bool> {
        let mut bytes = 0;
        loop {
            let said = match next(cx) {
                Poll::Pending if self.0.is_empty() => return Poll::Pending,
                Poll::Ready(None) if self.0.is_empty() => return Poll::Ready(false),
                Poll::Pending | Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(said)) => said,
            };
            let more = size(&said.parts);
            bytes += more;
            let over = said.last || said.rest.is_some() || said.is_pause() || more > COPY_MAX || bytes > ENOUGH;
            self.0.push(said);
            if over {
                return Poll::Ready(true);
            }
        }
    }

    /// Spells the messages as events behind `lead`.
    pub(super) fn spell(self, lead: &[u8], numbering: Option<Numbering>) -> Told {
        let mut ids = numbering.map(|numbering| (numbering.id(0), numbering.last));
        let mut told = Told::default();
        let mut joined = BytesMut::with_capacity(lead.len() + self.room(numbering));
        joined.extend_from_slice(lead);
        for said in self.0 {
            if said.is_pause() {
                told.pause = true;
                continue;
            }
            let id = ids.as_mut().and_then(|(id, number)| {
                *number += 1;
                id.truncate(ID_KEY);
                push_number(id, *number);
                EventId::new(id)
            });
            let head = Head { id, retry_ms: None };
            if let Some(rest) = said.rest {
                told.large = std::iter::once(sse::begin_message(head)).chain(said.parts).collect();
                told.rest = Some(rest);
            } else if size(&said.parts) > COPY_MAX {
                told.large = sse::message(head, &said.parts).into();
            } else {
                sse::encode_message(head, &said.parts, &mut joined);
                told.ends.push(joined.len());
            }
            told.last = said.last;
            told.guards.extend(said.guards);
        }
        told.joined = joined.freeze();
        told
    }

    /// Returns how much room the small messages need.
    fn room(&self, numbering: Option<Numbering>) -> usize {
        let id = numbering.map_or(0, |numbering| ID_KEY + digits(numbering.last + self.0.len() as u64));
        let small = self.0.iter().filter(|said| said.rest.is_none() && !said.is_pause()).map(|said| size(&said.parts));
        small.filter(|size| *size <= COPY_MAX).map(|size| sse::room(size, id)).sum()
    }
}

// === impl Numbering ===

impl Numbering {
    /// Spells the id of an event.
    pub(super) fn id(self, number: u64) -> String {
        let mut id = String::with_capacity(ID_KEY + 20);
        for place in (0..16).rev() {
            id.push(digit((self.key >> (4 * place)) & 0xF));
        }
        id.push('.');
        push_number(&mut id, number);
        id
    }

    /// Reads the stream's own part of an id, and the event's number.
    pub(super) fn read(id: &str) -> Option<(u64, u64)> {
        let (key, number) = id.split_once('.')?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if key.len() + 1 != ID_KEY || !plain(key) || !plain(number) {
            return None;
        }
        Some((u64::from_str_radix(key, 16).ok()?, number.parse().ok()?))
    }
}

/// Appends a number in decimal. An event costs a call of this; `write!` costs ten times as much.
fn push_number(text: &mut String, number: u64) {
    let mut power = 10_u64.checked_pow(number.checked_ilog10().unwrap_or(0)).unwrap_or(1);
    while power > 0 {
        text.push(digit((number / power) % 10));
        power /= 10;
    }
}

fn digit(value: u64) -> char {
    u32::try_from(value).ok().and_then(|value| char::from_digit(value, 16)).unwrap_or('0')
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |most| most as usize + 1)
}

/// Counts the bytes of some pieces.
pub(super) fn size(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use super::{Numbering, digits};

    #[test]
    fn ids_are_read_as_they_are_spelled() {
        for (key, number) in [(0, 0), (7, 9), (u64::MAX, 10), (1 << 60, 99), (0xABC, 100), (1, u64::MAX)] {
            let id = Numbering { key, last: 0 }.id(number);
            assert_eq!(id, format!("{key:016x}.{number}"));
            assert_eq!(id.len(), 17 + digits(number));
            assert_eq!(Numbering::read(&id), Some((key, number)));
        }
        for bad in
            ["", ".", "7.1", "0000000000000007", "0000000000000007.", "+000000000000007.1", "0000000000000007.-1"]
        {
            assert_eq!(Numbering::read(bad), None, "{bad}");
        }
    }
}
