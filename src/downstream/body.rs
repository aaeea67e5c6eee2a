//! Bodies: a request's, read up to its cap, and a response's, in parts or as a stream of events.
//!
//! Invariants: no more than the cap is ever held; a large request's body is counted for as long as any of it is held; a
//! reply's guards live until the body is dropped.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::exchange::{ByteStream, Caller};
use crate::limit::{NoSeat, Seat, Seats};
use crate::runtime::hushed;

use super::respond::Fault;
use super::stream::Events;

/// How long a client may pause within its body, and how long it may wait in all before anything of it is there.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many bytes of a body a client has to send in a second, beyond that time.
const RATE_MIN: u64 = 16 << 10;
/// How much is set aside on a client's mere word.
const CLAIM_MAX: usize = 1 << 20;
/// Up to how many bytes a body is not counted among those that are held: what a connection's buffer may hold anyway.
const UNCOUNTED_MAX: usize = 64 << 10;

/// What a response carries.
pub(super) enum Body {
    /// Parts whose length is known.
    Parts {
        /// What is yet to be sent.
        parts: std::vec::IntoIter<Bytes>,
        /// Held until the last part is handed over.
        guards: Vec<Box<dyn Send>>,
    },
    /// A stream of events.
    Events(Box<Events>),
    /// An answer that is passed on as it comes.
    Pieces {
        /// What is yet to be sent before.
        parts: std::vec::IntoIter<Bytes>,
        /// What follows.
        rest: ByteStream,
        /// Held until the body is dropped.
        guards: Vec<Box<dyn Send>>,
    },
}

/// A server broke off in the middle of an answer that is passed on as it comes: so does the gateway.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server ended its answer too early")]
pub(super) struct BrokenOff;

// === impl Body ===

impl Body {
    /// Makes a body without bytes.
    pub(super) fn empty() -> Self {
        Self::parts(Vec::new(), Vec::new())
    }

    /// Makes a body of parts.
    pub(super) fn parts(parts: Vec<Bytes>, guards: Vec<Box<dyn Send>>) -> Self {
        let mut parts = parts;
        parts.retain(|part| !part.is_empty());
        Self::Parts { parts: parts.into_iter(), guards }
    }

    /// Makes a body of parts and what follows them.
    pub(super) fn pieces(parts: Vec<Bytes>, rest: ByteStream, guards: Vec<Box<dyn Send>>) -> Self {
        Self::Pieces { parts: parts.into_iter(), rest, guards }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let next = match self.get_mut() {
            Self::Parts { parts, .. } => Poll::Ready(parts.next()),
            Self::Events(events) => events.poll_bytes(cx),
            Self::Pieces { parts, rest, .. } => match parts.next() {
                Some(part) => Poll::Ready(Some(part)),
                None => {
                    return rest.as_mut().poll_next(cx).map(|piece| {
                        piece.map(|piece| {
                            piece.map(Frame::data).map_err(|reject| {
                                tracing::info!(detail = %reject.detail, "{}", reject.public);
                                BrokenOff
                            })
                        })
                    });
                }
            },
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Parts { parts, .. } => parts.as_slice().is_empty(),
            Self::Events(events) => events.is_over(),
            Self::Pieces { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Parts { parts, .. } => SizeHint::with_exact(
                parts.as_slice().iter().map(|part| u64::try_from(part.len()).unwrap_or(u64::MAX)).sum(),
            ),
            Self::Events(_) | Self::Pieces { .. } => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts { parts, guards } => write!(f, "Parts({}, {} guards)", parts.len(), guards.len()),
            Self::Events(_) => f.write_str("Events"),
            Self::Pieces { parts, guards, .. } => {
                write!(f, "Pieces({} and more, {} guards)", parts.len(), guards.len())
            }
        }
    }
}

/// Polls for a frame. Where it was the last, hyper's end of the channel has nothing to be woken for.
fn poll_quietly<B>(body: &mut B, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let frame = hushed(|| Pin::new(&mut *body).poll_frame(cx));
    if !body.is_end_stream() {
        cx.waker().wake_by_ref();
    }
    frame
}

/// Returns how long a client may take for the next piece, of whose body so much has come. One that sends a byte now and
/// then would hold it for ever.
#[expect(clippy::disallowed_methods, reason = "for a timeout of tokio's own")]
fn time_left(began: &mut Option<Instant>, read: usize) -> Duration {
    let gone = began.get_or_insert_with(Instant::now).elapsed();
    let most = PAUSE_MAX + Duration::from_secs(read as u64 / RATE_MIN);
    most.saturating_sub(gone).min(PAUSE_MAX)
}

/// What has come of a body that comes in pieces.
struct Gathered {
    bytes: Vec<u8>,
    /// One seat for each byte there is room for, where that is counted.
    seat: Option<Seat>,
    /// How many bytes it may be, and for how many room is made at first.
    most: usize,
    at_first: usize,
}

/// A large body and its seats, which come back when nothing of it is held any more.
struct Counted {
    bytes: Bytes,
    _seat: Seat,
}

// === impl Gathered ===

impl Gathered {
    /// Makes room for a body of which the client says that it has so many bytes; 0: it does not say.
    fn new(claimed: usize, bytes_max: usize) -> Self {
        let (most, at_first) = if claimed == 0 { (bytes_max, 0) } else { (claimed, CLAIM_MAX) };
        Self { bytes: Vec::new(), seat: None, most, at_first }
    }

    /// Adds a piece.
    fn add(&mut self, piece: &[u8], bodies: &Seats, caller: &impl Caller) -> Result<(), NoSeat> {
        let need = self.bytes.len() + piece.len();
        if need > self.bytes.capacity() {
            let room = self.room_for(need);
            match &mut self.seat {
                Some(seat) => seat.add(room - self.bytes.capacity(), caller.is_one_of_many())?,
                None => self.seat = seat_of(bodies, caller, room)?,
            }
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns how much room is made for what has come: twice that, as far as more may come.
    fn room_for(&self, need: usize) -> usize {
        self.most.clamp(need, need.saturating_mul(2).max(self.at_first))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes a seat for each byte of a body that a caller sends, if it is so large that it is counted.
///
/// # Errors
/// [`NoSeat`]: so much is held already.
pub(super) fn seat_of(bodies: &Seats, caller: &impl Caller, bytes: usize) -> Result<Option<Seat>, NoSeat> {
    if bytes <= UNCOUNTED_MAX {
        return Ok(None);
    }
    bodies.take_many(caller.principal(), bytes, caller.is_one_of_many()).map(Some)
}

/// Counts a body until nothing of it is held any more.
pub(super) fn with_seat(bytes: Bytes, seat: Option<Seat>) -> Bytes {
    match seat {
        Some(seat) => Bytes::from_owner(Counted { bytes, _seat: seat }),
        None => bytes,
    }
}

/// Reads a request's body. One that says it is over the cap is not read at all. Of one for which there is no room nothing is
/// held; what follows is read all the same, so that the client is told and its connection goes on.
///
/// # Errors
/// [`Fault`]: over the cap, without room, too slow, or broken off.
pub(super) async fn read<B>(
    mut body: B,
    bytes_max: usize,
    (bodies, caller): (&Seats, &impl Caller),
) -> Result<Bytes, Fault>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let claimed = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if claimed > bytes_max {
        return Err(Fault::BodyTooLarge);
    }
    let mut first = Bytes::new();
    // In a box, so that the calls whose bodies come at once do not carry its room.
    let mut rest: Option<Box<Gathered>> = None;
    let (mut read, mut full) = (0, None);
    let mut began = None;
    loop {
        // Nearly always it has come with the head: then no timer is needed.
        let frame = match std::future::poll_fn(|cx| Poll::Ready(poll_quietly(&mut body, cx))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let left = time_left(&mut began, read);
                tokio::time::timeout(left, body.frame()).await.map_err(|_| Fault::BodySlow)?
            }
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| Fault::BodyBroken)?.into_data() else { continue };
        read += data.len();
        if read > bytes_max {
            return Err(Fault::BodyTooLarge);
        }
        if read == data.len() {
            // It lies in the connection's own buffer, and is not counted.
            first = data;
            if body.is_end_stream() {
                break;
            }
        } else if full.is_none() {
            let rest = rest.get_or_insert_with(|| Box::new(Gathered::new(claimed, bytes_max)));
            let before = std::mem::take(&mut first);
            full = rest.add(&before, bodies, caller).and_then(|()| rest.add(&data, bodies, caller)).err();
        }
        if full.is_some() {
            rest = None;
        }
    }
    match (full, rest) {
        (Some(full), _) => Err(Fault::BodiesFull(full)),
        (None, Some(rest)) => Ok(with_seat(Bytes::from(rest.bytes), rest.seat)),
        (None, None) => Ok(first),
    }
}
