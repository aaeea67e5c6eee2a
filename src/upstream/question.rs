//! A request of a server: what the gateway answers itself, what a client may be asked, what is refused [R46, R98, R100].
//!
//! Not for: to whose call it belongs; each transport knows its own channels.

use bytes::Bytes;

use crate::exchange::Settled;
use crate::wire::jsonrpc::{Notification, Params, Request, RequestId, Response, code};
use crate::wire::mcp::{Features, InputKind};

/// What becomes of a request of a server.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is answered here.
    Answer(Response),
    /// A client is asked: what, with which params.
    Ask(InputKind, Bytes),
}

/// Judges a request; `features` are those of the client whose call it belongs to, `None` if it belongs to none.
pub(super) fn hear(request: &Request, features: Option<Features>) -> Verdict {
    if request.method == "ping" {
        return Verdict::Answer(Response::with_result(&request.id, b"{}"));
    }
    let Some(kind) = InputKind::from_method(&request.method) else {
        return Verdict::Answer(refusal(request, code::METHOD_NOT_FOUND.0, "Method not found"));
    };
    let Some(features) = features else {
        tracing::debug!(method = kind.method(), "a question that belongs to no known call is refused");
        return Verdict::Answer(refusal(request, code::METHOD_NOT_FOUND.0, "Method not found"));
    };
    let params = request.params.as_deref().map_or(Bytes::from_static(b"{}"), Params::text);
    match kind.check(&params, features) {
        Ok(()) => Verdict::Ask(kind, params),
        Err(unasked) => Verdict::Answer(refusal(request, unasked.code.0, unasked.message)),
    }
}

/// Refuses for want of room.
pub(super) fn too_many(request: &Request) -> Response {
    refusal(request, code::INTERNAL.0, "Too many questions at once")
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

fn refusal(request: &Request, code: i64, words: &'static str) -> Response {
    Response::with_error(Some(&request.id), format!(r#"{{"code":{code},"message":"{words}"}}"#).as_bytes())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Verdict, hear};
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
