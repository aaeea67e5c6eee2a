//! The event stream of one exchange: what the hall says, comments in between, and the outcome as its last event.
//!
//! Not for: queues. The hall is asked only when the client's socket has room, so a slow client holds up its own stream.
//! Invariants: no requests, nothing after the outcome, and no `id:` but on a stream that its client may come back to
//! [R26, R27].

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use tokio::time::Sleep;

use crate::exchange::ByteStream;
use crate::session::Told;
use crate::wire::jsonrpc::one_line;
use crate::wire::sse::{self, Head, KEEP_ALIVE};

use super::body::Body;
use super::http_sse::Outbox;
use super::respond::blank;
use super::resume::Driver;
use super::spoken::Spoken;

/// The events of one exchange as bytes.
pub(super) struct Events {
    source: Source,
    /// What stands in front of what is said next; it waits for nothing.
    lead: Bytes,
    queue: VecDeque<Bytes>,
    /// Set once there is nothing to say.
    silence: Option<Pin<Box<Sleep>>>,
    /// Something was said since the silence began.
    spoke: bool,
    keep_alive: Duration,
    guards: Vec<Box<dyn Send>>,
    /// The rest of an outcome that is passed on as it comes.
    rest: Option<ByteStream>,
    /// The outcome was among what was said.
    ended: bool,
}

/// Where the events come from.
#[expect(clippy::large_enum_variant, reason = "a stream is in a box, and the large form is the common one")]
enum Source {
    /// A call that ends with this stream, or that nobody will read to its end.
    Call(Spoken),
    /// A call that its client may come back to.
    Held(Driver),
    /// All that the client of 2024-11-05 is told.
    Told(Outbox),
    /// All has been said.
    Over,
}

// === impl Source ===

impl Source {
    fn poll_told(&mut self, lead: &[u8], cx: &mut Context<'_>) -> Poll<Option<Told>> {
        match self {
            Self::Call(spoken) => Told::poll(lead, cx, |cx| spoken.poll_said(cx)),
            Self::Held(driver) => driver.poll(lead, cx),
            Self::Told(outbox) => outbox.poll(lead, cx),
            Self::Over => Poll::Ready(None),
        }
    }

    /// Says whether the client may be sent away, for it can come back.
    fn may_leave(&mut self) -> bool {
        match self {
            Self::Held(driver) => driver.may_leave(),
            Self::Call(_) | Self::Told(_) | Self::Over => false,
        }
    }

    const fn is_over(&self) -> bool {
        match self {
            Self::Call(spoken) => spoken.is_over(),
            Self::Held(_) | Self::Told(_) => false,
            Self::Over => true,
        }
    }
}

// === impl Events ===

impl Events {
    /// Starts a stream.
    pub(super) fn new(call: Spoken, keep_alive: Duration) -> Self {
        Self::from(Source::Call(call), keep_alive)
    }

    /// Starts a stream that its client may come back to; `primer` is what it begins with.
    pub(super) fn held(driver: Driver, primer: Option<Bytes>, keep_alive: Duration) -> Self {
        Self { lead: primer.unwrap_or_default(), ..Self::from(Source::Held(driver), keep_alive) }
    }

    /// Starts the stream of a client whose messages all go over it; `first` is what it begins with.
    pub(super) fn told(outbox: Outbox, first: Bytes, keep_alive: Duration) -> Self {
        Self { lead: first, ..Self::from(Source::Told(outbox), keep_alive) }
    }

    /// Starts a stream that its client has come back to, and has missed so much of.
    pub(super) fn resumed(driver: Driver, missed: Vec<Bytes>, keep_alive: Duration) -> Self {
        Self { queue: VecDeque::from(missed), ..Self::from(Source::Held(driver), keep_alive) }
    }

    const fn from(source: Source, keep_alive: Duration) -> Self {
        Self {
            source,
            lead: Bytes::new(),
            queue: VecDeque::new(),
            silence: None,
            spoke: false,
            keep_alive,
            guards: Vec::new(),
            rest: None,
            ended: false,
        }
    }

    /// Queues a message in front of what follows; for a stream that is not held.
    pub(super) fn with_message(mut self, message: Bytes) -> Self {
        self.queue.extend(sse::message(Head::default(), &[message]));
        self
    }

    /// Begins with a comment, if there is nothing else to begin with.
    pub(super) fn with_comment(mut self) -> Self {
        if self.queue.is_empty() && self.lead.is_empty() {
            self.lead = Bytes::from_static(KEEP_ALIVE);
        }
        self
    }

    /// Makes the response.
    pub(super) fn respond(self) -> Response<Body> {
        respond(Body::Events(Box::new(self)))
    }

    /// Says whether all has been handed over.
    pub(super) fn is_over(&self) -> bool {
        let said = self.ended || self.source.is_over();
        said && self.queue.is_empty() && self.lead.is_empty() && self.rest.is_none()
    }

    /// Polls for the next bytes: all small events that are there, in one piece, so that they are one write; none waits for
    /// more.
    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(next) = self.queue.pop_front() {
                self.spoke = true;
                return Poll::Ready(Some(next));
            }
            if let Some(rest) = &mut self.rest {
                match ready!(rest.as_mut().poll_next(cx)) {
                    Some(Ok(piece)) => self.queue.push_back(one_line(piece)),
                    // The stream ends without an answer: this one cannot be taken back.
                    Some(Err(_)) => self.rest = None,
                    None => {
                        self.rest = None;
                        self.queue.push_back(Bytes::from_static(sse::END));
                    }
                }
                continue;
            }
            let told = if self.ended { Poll::Ready(None) } else { self.source.poll_told(&self.lead, cx) };
            match told {
                Poll::Ready(Some(told)) => self.take(told),
                Poll::Pending if self.lead.is_empty() => {
                    ready!(self.poll_silence(cx));
                    self.queue.push_back(Bytes::from_static(KEEP_ALIVE));
                }
                Poll::Pending => self.queue.push_back(std::mem::take(&mut self.lead)),
                Poll::Ready(None) if self.lead.is_empty() => {
                    self.source = Source::Over;
                    return Poll::Ready(None);
                }
                Poll::Ready(None) => self.queue.push_back(std::mem::take(&mut self.lead)),
            }
        }
    }

    fn take(&mut self, told: Told) {
        let Told { joined, large, rest, last, pause, guards, .. } = told;
        self.lead = Bytes::new();
        self.queue.extend(std::iter::once(joined).chain(large).filter(|piece| !piece.is_empty()));
        self.rest = rest;
        self.ended = last;
        self.guards.extend(guards);
        if pause && self.source.may_leave() {
            // What is there is still sent; the client comes back for the rest.
            self.source = Source::Over;
        }
    }

    /// Waits until nothing has been said for so long. Costs nothing as long as there is something to say.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let anew = || tokio::time::sleep(self.keep_alive);
        let silence = match &mut self.silence {
            Some(silence) => {
                if self.spoke {
                    silence.set(anew());
                }
                silence
            }
            none => none.insert(Box::pin(anew())),
        };
        self.spoke = false;
        silence.as_mut().poll(cx)
    }
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
