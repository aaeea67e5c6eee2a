//! A request of a server: what the gateway answers itself, what a client may be asked, what is refused [R46, R98, R100].
//!
//! Not for: to whose call it belongs; each transport knows its own channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::exchange::{QUESTIONS_BYTES_MAX, QUESTIONS_MAX, Settled};
use crate::wire::jsonrpc::{Notification, Params, Request, RequestId, Response, code};
use crate::wire::mcp::{Features, InputKind};

/// How many bytes the questions of one connection that are out may take together.
const CONNECTION_BYTES_MAX: usize = 4 * QUESTIONS_BYTES_MAX;

/// How many bytes of answers may be on their way to a server on one connection, or one larger.
pub(super) const ANSWERS_BYTES_MAX: usize = 16 << 20;

/// The questions of one call, or of one connection, that may be out at once [LIM-6].
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The place of a question that is out; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

/// There is no place for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// They would take more bytes than this.
    Bytes(usize),
    /// So many are out already.
    Count(usize),
    /// Another one of the same id is.
    Twice,
}

/// What becomes of a request of a server.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is answered here.
    Answer(Box<Response>),
    /// A client is asked: what, with which params.
    Ask(InputKind, Bytes),
}

// === impl Room ===

impl Room {
    /// Makes the room of a call.
    pub(super) fn of_call() -> Arc<Self> {
        Arc::new(Self { bytes_max: QUESTIONS_BYTES_MAX, count: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    /// Makes the room of a connection, which several calls may share.
    pub(super) fn of_connection() -> Arc<Self> {
        Arc::new(Self { bytes_max: CONNECTION_BYTES_MAX, count: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    /// Takes the place of a question, whose message is kept until it is answered.
    pub(super) fn take(self: &Arc<Self>, request: &Request) -> Result<Taken, Full> {
        let bytes = request.raw.len();
        // Whoever is refused gives back what it took to ask.
        let taken = Taken { room: Arc::clone(self), bytes };
        let count = self.count.fetch_add(1, Ordering::AcqRel);
        let sum = self.bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        if count >= QUESTIONS_MAX {
            return Err(Full::Count(QUESTIONS_MAX));
        }
        if sum > self.bytes_max { Err(Full::Bytes(self.bytes_max)) } else { Ok(taken) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.count.fetch_sub(1, Ordering::AcqRel);
        self.room.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Judges a request; `features` are those of the client whose call it belongs to, `None` if it belongs to none.
pub(super) fn hear(request: &Request, features: Option<Features>) -> Verdict {
    if request.method == "ping" {
        return Verdict::Answer(Box::new(Response::with_result(&request.id, b"{}")));
    }
    let Some(kind) = InputKind::from_method(&request.method) else {
        return Verdict::Answer(Box::new(refusal(&request.id, code::METHOD_NOT_FOUND.0, "Method not found")));
    };
    let Some(features) = features else {
        tracing::debug!(method = kind.method(), "a question that belongs to no known call is refused");
        return Verdict::Answer(Box::new(refusal(&request.id, code::METHOD_NOT_FOUND.0, "Method not found")));
    };
    let params = request.params.as_deref().map_or(Bytes::from_static(b"{}"), Params::text);
    match kind.check(&params, features) {
        Ok(()) => Verdict::Ask(kind, params),
        Err(unasked) => Verdict::Answer(Box::new(refusal(&request.id, unasked.code.0, unasked.message))),
    }
}

/// Refuses for want of room, and says how much there is.
pub(super) fn too_many(request: &Request, full: Full) -> Response {
    let words = match full {
        Full::Bytes(most) => format!("Too large: questions that are not answered yet may have {most} bytes together"),
        Full::Count(most) => format!("Too many questions at once: {most} are not answered yet"),
        Full::Twice => "Another question of this id is not answered yet".to_owned(),
    };
    refusal(&request.id, code::INTERNAL.0, &words)
}

/// Stands for an answer that finds no room among those on their way.
pub(super) fn no_room(id: &RequestId) -> Response {
    let words = format!("The client has answered, and {ANSWERS_BYTES_MAX} bytes of answers are not read yet");
    refusal(id, code::INTERNAL.0, &words)
}

/// Returns which of its own requests a server cancels.
pub(super) fn taken_back(notification: &Notification) -> Option<RequestId> {
    let params = notification.params.as_deref()?;
    RequestId::from_raw(params.slice("requestId").ok()??)
}

/// Spells what the server is told.
pub(super) fn told(id: &RequestId, settled: &Settled) -> Response {
    match settled {
        Ok(result) => Response::with_result(id, result),
        Err(error) => Response::with_error(Some(id), error),
    }
}

fn refusal(id: &RequestId, code: i64, words: &str) -> Response {
    Response::with_error(Some(id), format!(r#"{{"code":{code},"message":"{words}"}}"#).as_bytes())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Full, Room, Verdict, hear, too_many};
    use crate::exchange::{QUESTIONS_BYTES_MAX, QUESTIONS_MAX};
    use crate::wire::jsonrpc::{Decoded, ErrorObject, Limits, Message, decode};
    use crate::wire::mcp::{Feature, Features};

    fn judged(method: &str, params: &str, features: Option<Features>) -> Option<i64> {
        let raw = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":"s","method":"{method}","params":{params}}}"#));
        let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::UPSTREAM) else { panic!("{raw:?}") };
        match hear(&request, features) {
            Verdict::Answer(response) => Some(response.error().map_or(0, |error| ErrorObject::read(&error).code.0)),
            Verdict::Ask(kind, asked) => {
                assert_eq!((kind.method(), &asked[..]), (method, params.as_bytes()));
                None
            }
        }
    }

    /// [LIM-6]: they are bounded in number and in bytes, of which the refusal tells; what is answered gives its place back.
    #[test]
    fn questions_that_are_out_are_bounded_in_bytes() {
        let question = |bytes: usize| {
            let head = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"x":""#;
            let raw = Bytes::from(format!("{head}{}\"}}}}", "x".repeat(bytes - head.len() - 3)));
            let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::UPSTREAM) else { panic!() };
            request
        };
        let (call, connection) = (Room::of_call(), Room::of_connection());
        let half = question(QUESTIONS_BYTES_MAX / 2);
        let mut held = vec![call.take(&half).unwrap(), call.take(&half).unwrap()];
        assert_eq!(call.take(&question(100)).unwrap_err(), Full::Bytes(QUESTIONS_BYTES_MAX));
        let refused = too_many(&half, Full::Bytes(QUESTIONS_BYTES_MAX));
        let error = ErrorObject::read(&refused.error().unwrap());
        assert!(error.code.0 == -32603 && error.message.contains("4194304 bytes"), "{error:?}");
        drop(held.pop());
        held.push(call.take(&half).unwrap());
        for _ in 0..8 {
            held.push(connection.take(&half).unwrap());
        }
        assert_eq!(connection.take(&question(100)).unwrap_err(), Full::Bytes(4 * QUESTIONS_BYTES_MAX));
        drop(held);
        let held: Vec<_> = (0..QUESTIONS_MAX).map(|_| call.take(&question(100)).unwrap()).collect();
        for _ in 0..2 {
            assert_eq!(call.take(&question(100)).unwrap_err(), Full::Count(QUESTIONS_MAX));
        }
        drop(held);
        assert!(call.take(&question(QUESTIONS_BYTES_MAX)).is_ok());
    }

    /// [R46, R98, R100]
    #[test]
    fn only_what_a_known_client_declared_is_asked() {
        let roots = Some(Features::NONE.with(Feature::Roots));
        assert_eq!(judged("ping", "{}", None), Some(0));
        assert_eq!(judged("roots/list", "{}", None), Some(-32601));
        assert_eq!(judged("roots/list", "{}", roots), None);
        assert_eq!(judged("elicitation/create", r#"{"message":"m"}"#, roots), Some(-32601));
        assert_eq!(judged("tools/call", "{}", roots), Some(-32601));
    }
}
