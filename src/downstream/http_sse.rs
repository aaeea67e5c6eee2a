//! HTTP+SSE, the transport of 2024-11-05: one GET carries all that a client is told, each POST one message of the client.
//!
//! Not for: what a message means (`conversation`). Invariants: a stream is found only by the principal and on the path that
//! opened it; the conversation ends with its GET; what waits to be written is bounded, and while it waits no request is
//! begun.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Moment;
use crate::exchange::{Endpoint, Handler};
use crate::id::{PrincipalId, SessionId};
use crate::session::{Said, SessionStore, Told};
use crate::wire::jsonrpc::{DecodeError, Decoded, Limits, Message, RequestId, decode};
use crate::wire::sse;

use super::accept::{self, Take};
use super::body::{self, Body};
use super::conversation::{Carrier, Line, Queue, Talk, queue};
use super::handshake::no_session;
use super::post::{Visit, label_of};
use super::respond::{Fault, bare};
use super::server::Door;
use super::stream::Events;

/// How many messages wait for a client, and how many bytes of them.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: u32 = 1 << 20;
/// Where a POST says which stream it belongs to.
const KEY: &str = "sessionId";

/// The open streams.
pub(super) struct Streams<H>(Mutex<HashMap<SessionId, Arc<Stream<H>>>>);

/// One client's stream.
struct Stream<H> {
    id: SessionId,
    principal: PrincipalId,
    endpoint: Endpoint,
    last_used: AtomicU64,
    /// Ends it.
    cut: CancellationToken,
    /// Nothing once it has ended.
    talk: tokio::sync::Mutex<Option<Talk<H>>>,
}

/// What a client is told, as the body of its GET.
pub(super) struct Outbox {
    /// Ends the conversation when the body is dropped; the first to go, so that nothing begins in the room the rest leaves.
    _cut: DropGuard,
    queue: Queue,
    /// Of the message that is being written.
    guards: Vec<Box<dyn Send>>,
}

// === impl Streams ===

impl<H> Default for Streams<H> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<H: Handler> Streams<H> {
    /// Finds a stream and takes note of its use; one of another principal or path is as unknown [R37].
    fn get(&self, id: &str, principal: &PrincipalId, endpoint: &Endpoint, now: Moment) -> Option<Arc<Stream<H>>> {
        let stream = self.open().get(id).cloned()?;
        if stream.principal != *principal || stream.endpoint != *endpoint {
            tracing::info!(stream = ?stream.id, %principal, "a stream of another principal or path was named");
            return None;
        }
        stream.last_used.store(now.as_millis(), Ordering::Relaxed);
        Some(stream)
    }

    /// Says how many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open().len()
    }

    /// Says whether one has no room for more.
    #[cfg(test)]
    pub(super) fn is_crowded(&self) -> bool {
        use futures_util::FutureExt as _;
        let full = |talk: &Talk<H>| talk.lines.room().now_or_never().is_none();
        self.open().values().any(|stream| stream.talk.try_lock().is_ok_and(|talk| talk.as_ref().is_some_and(full)))
    }

    /// Ends the streams on which nothing has begun and nothing was said for so long.
    pub(super) fn reap(&self, now: Moment, idle: Duration) {
        self.retain(|stream| {
            let unused = now.since(Moment::from_millis(stream.last_used.load(Ordering::Relaxed)));
            // One that cannot be looked at is being used.
            unused < idle || !stream.talk.try_lock().is_ok_and(|talk| talk.as_ref().is_none_or(Talk::is_idle))
        });
    }

    /// Ends the streams that `keeps` does not keep [CFG-4].
    pub(super) fn retain_of(&self, keeps: impl Fn(&PrincipalId, &Endpoint) -> bool) {
        self.retain(|stream| keeps(&stream.principal, &stream.endpoint));
    }

    fn retain(&self, keeps: impl Fn(&Stream<H>) -> bool) {
        self.open().retain(|_, stream| {
            let kept = keeps(stream);
            if !kept {
                stream.cut.cancel();
            }
            kept
        });
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Stream<H>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> fmt::Debug for Streams<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

// === impl Stream ===

impl<H: Handler> Stream<H> {
    /// Lives until it is cut, or to the end of what still runs when a drain begins.
    async fn live(&self, door: &Door<H>) {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => {}
            () = door.drain.started() => {
                let left = self.talk.lock().await.as_mut().map(Talk::leave);
                if let Some(left) = left {
                    tokio::select! {
                        () = self.cut.cancelled() => {}
                        () = left => {}
                    }
                }
            }
        }
        door.streams.open().remove(&self.id);
        if let Some(talk) = self.talk.lock().await.take() {
            talk.end();
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// Polls for the next messages, which follow `lead`.
    pub(super) fn poll(&mut self, lead: &[u8], cx: &mut Context<'_>) -> Poll<Option<Told>> {
        // Whoever asks for more has taken what there was.
        self.guards.clear();
        let told = ready!(Told::poll(lead, cx, |cx| self.queue.poll_recv(cx).map(|line| line.map(said))));
        Poll::Ready(told.map(|mut told| {
            std::mem::swap(&mut self.guards, &mut told.guards);
            told
        }))
    }
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a GET with a client's stream, whose first event says where its messages go.
    pub(super) fn open_stream(self: &Arc<Self>, visit: &Visit<H::Caller>) -> Response<Body> {
        if !visit.take.events() {
            return visit.refuse(Fault::NotAcceptable, None);
        }
        if self.drain.is_draining() {
            return visit.refuse(Fault::Draining, None);
        }
        let place = match self.place(&visit.caller) {
            Ok(place) => place,
            Err(refusal) => return visit.refuse(refusal, None),
        };
        let id = match SessionStore::new_id() {
            Ok(id) => id,
            Err(err) => return visit.refuse(no_session(err), None),
        };
        let (lines, end) = queue(MESSAGES_MAX);
        let cut = CancellationToken::new();
        let talk = Talk::new(Arc::clone(self), lines.bounded(BYTES_MAX), Carrier::Http).at(place, cut.clone());
        let stream = Arc::new(Stream {
            id: id.clone(),
            principal: visit.principal.clone(),
            endpoint: visit.endpoint.clone(),
            last_used: AtomicU64::new(self.clock.now().as_millis()),
            cut: cut.clone(),
            talk: tokio::sync::Mutex::new(Some(talk)),
        });
        let first = endpoint_event(&self.settings.public_path, &visit.endpoint, &id);
        self.streams.open().insert(id, Arc::clone(&stream));
        let door = Arc::clone(self);
        self.tasks.spawn("client stream", async move { stream.live(&door).await });
        let outbox = Outbox { _cut: cut.drop_guard(), queue: end, guards: Vec::new() };
        Events::told(outbox, first, self.settings.keep_alive).respond()
    }

    /// Says whether a POST is to a stream of its sender.
    pub(super) fn knows_stream(&self, visit: &Visit<H::Caller>, query: Option<&str>) -> bool {
        let get = |id| self.streams.get(id, &visit.principal, &visit.endpoint, self.clock.now());
        query.and_then(stream_of).and_then(get).is_some()
    }

    /// Answers a POST of a stream's client: 202, and what there is to say to it comes on the stream.
    pub(super) async fn post_to_stream<B>(
        &self,
        visit: &mut Visit<H::Caller>,
        query: Option<&str>,
        body: B,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        // A client that tries Streamable HTTP first learns here that this is not it.
        let Some(id) = query.and_then(stream_of) else { return visit.refuse(Fault::Verb("GET"), None) };
        let Some(stream) = self.streams.get(id, &visit.principal, &visit.endpoint, self.clock.now()) else {
            return visit.refuse(Fault::SessionUnknown, None);
        };
        if !accept::is_json(&visit.headers) {
            return visit.refuse(Fault::MediaType, None);
        }
        let body = match body::read(body, self.settings.body_bytes_max, (&self.bodies, &visit.caller)).await {
            Ok(body) => body,
            Err(fault) => return visit.refuse(fault, None),
        };
        let heard = match decode(&body, &Limits::DOWNSTREAM) {
            Ok(heard) => heard,
            Err(DecodeError { kind, id }) => return visit.refuse(Fault::from(kind), id),
        };
        let (begins, id) = begins(&heard);
        visit.method = match &heard {
            Decoded::Batch(_) => "batch",
            Decoded::One(message) => label_of(message),
        };
        if begins && self.drain.is_draining() {
            return visit.refuse(Fault::Draining, id);
        }
        let lines = stream.talk.lock().await.as_ref().map(|talk| talk.lines.clone());
        let Some(lines) = lines else { return visit.refuse(Fault::SessionUnknown, id) };
        if begins {
            // What waits for a client that does not read is not added to; an answer and a cancellation always come in.
            lines.room().await;
        }
        // Whatever comes of it comes as events.
        visit.take = Take::Any;
        let mut talk = stream.talk.lock().await;
        let Some(talk) = talk.as_mut().filter(|_| !stream.cut.is_cancelled()) else {
            return visit.refuse(Fault::SessionUnknown, id);
        };
        if let Some(rendered) = talk.hear(visit, heard).await {
            // The client may be gone before there is room; what was heard is answered all the same.
            talk.spawn(async move { lines.say(rendered.parts, Vec::new()).await });
        }
        bare(StatusCode::ACCEPTED)
    }
}

/// Makes a message of what waited: the last is never known to be.
fn said(line: Line) -> Said {
    Said { parts: line.parts.into(), rest: None, last: false, guards: line.guards }
}

/// Says whether a request begins with what was heard, and which.
fn begins(heard: &Decoded) -> (bool, Option<RequestId>) {
    match heard {
        Decoded::Batch(_) => (true, None),
        Decoded::One(Message::Request(request)) => (true, Some(request.id.clone())),
        Decoded::One(Message::Notification(_) | Message::Response(_)) => (false, None),
    }
}

/// Spells the first event: the path of the GET itself as clients see it, under which the client's messages are found by the
/// stream's id. Not a relative one, which some clients would put together wrongly.
fn endpoint_event(public_path: &str, endpoint: &Endpoint, id: &SessionId) -> Bytes {
    let server = match endpoint {
        Endpoint::All => String::new(),
        Endpoint::Server(name) => format!("/{}", name.as_str()),
    };
    let mut event = BytesMut::new();
    sse::encode_endpoint(&format!("{public_path}/sse{server}?{KEY}={}", id.as_str()), &mut event);
    event.freeze()
}

/// Reads which stream a query names; one that names two names none.
fn stream_of(query: &str) -> Option<&str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix(KEY)?.strip_prefix('='));
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{endpoint_event, stream_of};
    use crate::exchange::Endpoint;
    use crate::id::{SessionId, UpstreamName};

    #[test]
    fn the_endpoint_is_the_path_of_the_stream() {
        let id = SessionId::new("aB-_9");
        let server = Endpoint::Server(UpstreamName::new("a.b").unwrap());
        assert_eq!(endpoint_event("", &Endpoint::All, &id), "event: endpoint\ndata: /sse?sessionId=aB-_9\n\n");
        assert_eq!(endpoint_event("/x/y", &server, &id), "event: endpoint\ndata: /x/y/sse/a.b?sessionId=aB-_9\n\n");
        for (query, found) in [
            ("sessionId=x", Some("x")),
            ("a=1&sessionId=x&b", Some("x")),
            ("sessionId=", Some("")),
            ("sessionId=x&sessionId=x", None),
            ("sessionIds=x", None),
            ("sessionid=x", None),
            ("", None),
        ] {
            assert_eq!(stream_of(query), found, "{query}");
        }
    }
}
