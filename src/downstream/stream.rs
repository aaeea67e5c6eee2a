//! The event stream of one exchange: what the hall says, comments in between, and the outcome as its last event.
//!
//! Not for: queues. The hall is asked only when the client's socket has room, so a slow client holds up its own stream.
//! Invariants: no requests, nothing after the outcome, and no `id:` but on a stream that its client may come back to
//! [R26, R27].

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use tokio::time::Sleep;

use crate::exchange::ByteStream;
use crate::session::{Said, Told};
use crate::wire::jsonrpc::one_line;
use crate::wire::sse::{self, Head, KEEP_ALIVE};

use super::body::Body;
use super::respond::blank;
use super::resume::Driver;
use super::spoken::Spoken;

/// Up to here copying is cheaper than sending an event of its own.
const COPY_MAX: usize = 16 << 10;
/// How much is joined to one write.
const JOIN_MAX: usize = 64 << 10;

/// The events of one exchange as bytes.
pub(super) struct Events {
    source: Source,
    queue: VecDeque<Bytes>,
    silence: Pin<Box<Sleep>>,
    keep_alive: Duration,
    guards: Vec<Box<dyn Send>>,
    /// The rest of an outcome that is passed on as it comes.
    rest: Option<ByteStream>,
}

/// Where the events come from.
#[expect(clippy::large_enum_variant, reason = "a stream is in a box, and the large form is the common one")]
enum Source {
    /// A call that ends with this stream, or that nobody will read to its end.
    Call(Spoken),
    /// A call that its client may come back to.
    Held(Driver),
    /// All has been said.
    Over,
}

// === impl Source ===

impl Source {
    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Option<Told>> {
        match self {
            Self::Call(spoken) => spoken.poll_said(cx).map(|said| said.map(spell)),
            Self::Held(driver) => driver.poll(cx),
            Self::Over => Poll::Ready(None),
        }
    }

    /// Says whether the client may be sent away, for it can come back.
    fn may_leave(&mut self) -> bool {
        match self {
            Self::Held(driver) => driver.may_leave(),
            Self::Call(_) | Self::Over => false,
        }
    }

    const fn is_over(&self) -> bool {
        match self {
            Self::Call(spoken) => spoken.is_over(),
            Self::Held(_) => false,
            Self::Over => true,
        }
    }
}

// === impl Events ===

impl Events {
    /// Starts a stream.
    pub(super) fn new(call: Spoken, keep_alive: Duration) -> Self {
        Self::from(Source::Call(call), VecDeque::new(), keep_alive)
    }

    /// Starts a stream that its client may come back to, or has come back to; `first` is what it begins with.
    pub(super) fn held(driver: Driver, first: Vec<Bytes>, keep_alive: Duration) -> Self {
        Self::from(Source::Held(driver), VecDeque::from(first), keep_alive)
    }

    fn from(source: Source, queue: VecDeque<Bytes>, keep_alive: Duration) -> Self {
        Self {
            source,
            queue,
            silence: Box::pin(tokio::time::sleep(keep_alive)),
            keep_alive,
            guards: Vec::new(),
            rest: None,
        }
    }

    /// Queues a message in front of what follows; for a stream that is not held.
    pub(super) fn with_message(mut self, message: Bytes) -> Self {
        self.queue.extend(sse::message(Head::default(), &[message]));
        self
    }

    /// Begins with a comment, if there is nothing else to begin with.
    pub(super) fn with_comment(mut self) -> Self {
        if self.queue.is_empty() {
            self.queue.push_back(Bytes::from_static(KEEP_ALIVE));
        }
        self
    }

    /// Makes the response.
    pub(super) fn respond(self) -> Response<Body> {
        respond(Body::Events(Box::new(self)))
    }

    /// Says whether all has been handed over.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_empty() && self.source.is_over() && self.rest.is_none()
    }

    /// Polls for the next bytes: all events that are there, in one piece, so that they are one write; none waits for more.
    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut joined = BytesMut::new();
        loop {
            while let Some(next) = self.queue.front() {
                if joined.is_empty() && next.len() > COPY_MAX {
                    let large = self.queue.pop_front();
                    return self.sent(large);
                }
                if joined.len() + next.len() > JOIN_MAX {
                    return self.sent(Some(joined.freeze()));
                }
                joined.extend_from_slice(next);
                self.queue.pop_front();
            }
            if let Some(rest) = &mut self.rest {
                match rest.as_mut().poll_next(cx) {
                    Poll::Pending if joined.is_empty() => return Poll::Pending,
                    Poll::Pending => return self.sent(Some(joined.freeze())),
                    Poll::Ready(Some(Ok(piece))) => self.queue.push_back(one_line(piece)),
                    // The stream ends without an answer: this one cannot be taken back.
                    Poll::Ready(Some(Err(_))) => self.rest = None,
                    Poll::Ready(None) => {
                        self.rest = None;
                        self.queue.push_back(Bytes::from_static(sse::END));
                    }
                }
                continue;
            }
            match self.source.poll_told(cx) {
                Poll::Pending if !joined.is_empty() => return self.sent(Some(joined.freeze())),
                Poll::Pending => {
                    if self.silence.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.queue.push_back(Bytes::from_static(KEEP_ALIVE));
                }
                Poll::Ready(Some(told)) if told.is_pause() => {
                    // What is there is still sent; the client comes back for the rest.
                    if self.source.may_leave() {
                        self.source = Source::Over;
                    }
                }
                Poll::Ready(Some(Told { frames, rest, guards })) => {
                    self.queue.extend(frames);
                    self.rest = rest;
                    self.guards.extend(guards);
                }
                Poll::Ready(None) => {
                    self.source = Source::Over;
                    return if joined.is_empty() { Poll::Ready(None) } else { self.sent(Some(joined.freeze())) };
                }
            }
        }
    }

    /// Hands bytes over; the silence begins anew.
    fn sent(&mut self, bytes: Option<Bytes>) -> Poll<Option<Bytes>> {
        self.silence.set(tokio::time::sleep(self.keep_alive));
        Poll::Ready(bytes)
    }
}

/// Spells a message that nobody can come back to.
fn spell(said: Said) -> Told {
    let Said { parts, rest, guards, .. } = said;
    let frames = match &rest {
        None => sse::message(Head::default(), &parts),
        Some(_) => std::iter::once(sse::begin_message(Head::default())).chain(parts).collect(),
    };
    Told { frames, rest, guards }
}

/// Spells the beginning of an event whose payload is yet to come to its end.
pub(super) fn begin_event(parts: &[Bytes]) -> Vec<Bytes> {
    std::iter::once(sse::begin_message(Head::default())).chain(parts.iter().cloned().map(one_line)).collect()
}

/// Makes the rest of a payload the rest of its event.
pub(super) fn end_event(rest: ByteStream) -> ByteStream {
    let end = futures_util::stream::iter([Ok(Bytes::from_static(sse::END))]);
    Box::pin(rest.map(|piece| piece.map(one_line)).chain(end))
}

/// Makes an event-stream response [R25].
pub(super) fn respond(body: Body) -> Response<Body> {
    let mut response = blank(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
