//! The event stream of one exchange: what the hall says, comments in between, and the outcome as its last event.
//!
//! Not for: queues. The hall is asked only when the client's socket has room, so a slow client holds up its own stream.
//! Invariants: no `id:`, no requests, and nothing after the outcome [R26, R27].

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

use crate::exchange::{ByteStream, Event};
use crate::wire::jsonrpc::one_line;
use crate::wire::sse::{Frame, Head, KEEP_ALIVE, encode_message, frame_message};

use super::answer::{Asker, Rendered};
use super::body::Body;
use super::respond::blank;
use super::running::Running;

/// Up to here copying an event is cheaper than sending it in three chunks.
const COPY_MAX: usize = 16 << 10;
/// How much is joined to one write.
const JOIN_MAX: usize = 64 << 10;

/// The events of one exchange as bytes.
pub(super) struct Events {
    source: Option<(Running, Asker)>,
    queue: VecDeque<Bytes>,
    silence: Pin<Box<Sleep>>,
    keep_alive: Duration,
    guards: Vec<Box<dyn Send>>,
    /// The rest of an outcome that is passed on as it comes.
    rest: Option<ByteStream>,
}

// === impl Events ===

impl Events {
    /// Starts a stream.
    pub(super) fn new(running: Running, asker: Asker, keep_alive: Duration) -> Self {
        Self {
            source: Some((running, asker)),
            queue: VecDeque::new(),
            silence: Box::pin(tokio::time::sleep(keep_alive)),
            keep_alive,
            guards: Vec::new(),
            rest: None,
        }
    }

    /// Queues a message in front of what follows.
    pub(super) fn with_message(mut self, parts: &[Bytes]) -> Self {
        self.push(parts);
        self
    }

    /// Queues a comment in front of what follows.
    pub(super) fn with_comment(mut self) -> Self {
        self.queue.push_back(Bytes::from_static(KEEP_ALIVE));
        self
    }

    /// Makes the response.
    pub(super) fn respond(self) -> Response<Body> {
        respond(Body::Events(Box::new(self)))
    }

    /// Says whether all has been handed over.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_empty() && self.source.is_none() && self.rest.is_none()
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
                        self.queue.push_back(Bytes::from_static(b"\n\n"));
                    }
                }
                continue;
            }
            let Some((running, asker)) = &mut self.source else {
                return if joined.is_empty() { Poll::Ready(None) } else { self.sent(Some(joined.freeze())) };
            };
            match running.poll_event(cx) {
                Poll::Pending if !joined.is_empty() => return self.sent(Some(joined.freeze())),
                Poll::Pending => {
                    if self.silence.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.queue.push_back(Bytes::from_static(KEEP_ALIVE));
                }
                Poll::Ready(Some(Event::Done(outcome))) => {
                    // A stream that no request has asked for ends without a word.
                    let rendered = asker.id.is_some().then(|| asker.render(outcome));
                    self.guards = running.take_guards();
                    self.source = None;
                    match rendered {
                        None => {}
                        Some(Rendered { parts, rest: Some(rest), .. }) => {
                            self.queue.extend(begin_event(&parts));
                            self.rest = Some(rest.pieces);
                        }
                        Some(Rendered { parts, rest: None, .. }) => self.push(&parts),
                    }
                }
                Poll::Ready(Some(event)) => {
                    if let Some(message) = asker.message(event) {
                        self.push(&[message]);
                    }
                }
                Poll::Ready(None) => {
                    let farewell = asker.farewell();
                    self.source = None;
                    if let Some(farewell) = farewell {
                        self.push(&[farewell]);
                    }
                }
            }
        }
    }

    /// Hands bytes over; the silence begins anew.
    fn sent(&mut self, bytes: Option<Bytes>) -> Poll<Option<Bytes>> {
        self.silence.set(tokio::time::sleep(self.keep_alive));
        Poll::Ready(bytes)
    }

    fn push(&mut self, parts: &[Bytes]) {
        self.queue.extend(event(parts));
    }
}

/// Spells the beginning of an event whose payload is yet to come to its end.
pub(super) fn begin_event(parts: &[Bytes]) -> Vec<Bytes> {
    std::iter::once(Bytes::from_static(b"event: message\ndata: ")).chain(parts.iter().cloned().map(one_line)).collect()
}

/// Makes the rest of a payload the rest of its event.
pub(super) fn end_event(rest: ByteStream) -> ByteStream {
    let end = futures_util::stream::iter([Ok(Bytes::from_static(b"\n\n"))]);
    Box::pin(rest.map(|piece| piece.map(one_line)).chain(end))
}

/// Spells one event.
pub(super) fn event(parts: &[Bytes]) -> Vec<Bytes> {
    if parts.iter().map(Bytes::len).sum::<usize>() <= COPY_MAX {
        let mut whole = BytesMut::new();
        encode_message(Head::default(), parts, &mut whole);
        return vec![whole.freeze()];
    }
    match frame_message(Head::default(), parts) {
        Frame::Whole(whole) => vec![whole],
        Frame::Around { head, tail } => {
            let inner = parts.iter().filter(|part| !part.is_empty()).cloned();
            std::iter::once(head).chain(inner).chain(std::iter::once(tail)).collect()
        }
    }
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
