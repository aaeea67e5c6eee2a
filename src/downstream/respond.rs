//! The one table of refusals: what went wrong → HTTP status, JSON-RPC code, headers [design §13, product §9].
//!
//! Not for: results. Invariant: every refusal has a JSON-RPC body with the request's id, `null` if none could be read.

use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::exchange::{ReasonCode, Reject, RejectKind, Retry};
use crate::limit::NoSeat;
use crate::wire::json;
use crate::wire::jsonrpc::{ErrorCode, RequestId, Response as RpcResponse, code};
use crate::wire::mcp::{Era, STATELESS_LATEST};

use super::answer::Rest;
use super::body::Body;

/// After how many seconds there may be room for a body again.
const BODIES_PAUSE: u64 = 1;

/// A refusal, ready to be spelled.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// The HTTP status, as long as no other has been sent.
    pub(super) status: StatusCode,
    /// The JSON-RPC code.
    pub(super) code: ErrorCode,
    /// The words.
    pub(super) message: Cow<'static, str>,
    /// `error.data`, JSON text.
    pub(super) data: Option<Bytes>,
    /// One header beyond the usual.
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
    /// After how many seconds it is worth to try again, where that is known.
    pub(super) retry_after: Option<u64>,
    /// A call is told of it by a result [POL-11].
    pub(super) by_result: bool,
    /// For the log.
    pub(super) reason: ReasonCode,
    /// For the log.
    pub(super) detail: String,
}

/// What the door itself refuses, before the hall is asked.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A batch where there is none in this revision.
    Batch,
    /// Too much is held of all requests' bodies, or of this principal's.
    BodiesFull(NoSeat),
    /// The body ended early.
    BodyBroken,
    /// The client paused too long within its body.
    BodySlow,
    /// The body is over its cap.
    BodyTooLarge,
    /// The gateway is stopping.
    Draining,
    /// An id that is in flight in this session.
    DuplicateId,
    /// A header is missing, repeated, or disagrees with the body.
    Header(String),
    /// `Last-Event-ID` names nothing that is kept.
    EventUnknown,
    /// `Host` or `Origin` is not allowed.
    Foreign(&'static str),
    /// `MCP-Protocol-Version` names nothing that a legacy session speaks.
    LegacyVersion,
    /// A `_meta` part is missing or malformed.
    Meta(String),
    /// The verb is not served here; what is.
    Verb(&'static str),
    /// A method that is unknown, removed or not served.
    Method,
    /// The client takes no form that we have.
    NotAcceptable,
    /// No such path, or no such server for this principal.
    NotFound,
    /// Not a message.
    NotMessage(String),
    /// Not JSON.
    NotJson(String),
    /// The body is of another type.
    MediaType,
    /// No `Mcp-Session-Id`.
    SessionMissing,
    /// The session has ended, or was another's.
    SessionUnknown,
    /// The version asked for is not served statelessly.
    Version(String),
}

// === impl Refusal ===

impl Refusal {
    /// Finds the row of a reject.
    pub(super) fn of_reject(reject: Reject, era: Era) -> Self {
        let (status, code) = match (reject.kind, era) {
            (RejectKind::Busy, _) => (StatusCode::TOO_MANY_REQUESTS, code::RATE),
            (RejectKind::InvalidParams | RejectKind::Unknown, _) => (StatusCode::OK, code::INVALID_PARAMS),
            (RejectKind::HeaderMismatch, _) => (StatusCode::BAD_REQUEST, code::HEADER_MISMATCH),
            (RejectKind::Limit, _) => (StatusCode::OK, code::LIMIT),
            (RejectKind::TooMany, _) => (StatusCode::SERVICE_UNAVAILABLE, code::TOO_MANY_SESSIONS),
            (RejectKind::Draining, _) => (StatusCode::SERVICE_UNAVAILABLE, code::DRAINING),
            (RejectKind::Unauthenticated, _) => (StatusCode::UNAUTHORIZED, code::UNAUTHENTICATED),
            (RejectKind::NotMapped, _) => (StatusCode::FORBIDDEN, code::UNAUTHENTICATED),
            (RejectKind::MethodNotFound, Era::Stateless) => (StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND),
            (RejectKind::MethodNotFound, Era::Legacy) => (StatusCode::OK, code::METHOD_NOT_FOUND),
            (RejectKind::Upstream | RejectKind::UpstreamTimeout, _) => (StatusCode::OK, code::INTERNAL),
        };
        let retry_after = match reject.retry {
            // Rounded up: whoever waits as long as is said is not refused again.
            Retry::After(pause) => Some((pause.as_secs() + u64::from(pause.subsec_nanos() > 0)).max(1)),
            Retry::Never | Retry::Safe => None,
        };
        let header = match (reject.kind, retry_after) {
            (RejectKind::Unauthenticated, _) => Some(Box::new((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))),
            (_, Some(seconds)) => Some(Box::new((RETRY_AFTER, HeaderValue::from(seconds)))),
            (_, None) => None,
        };
        let by_result = reject.kind == RejectKind::Busy;
        let Reject { public: message, reason, detail, .. } = reject;
        Self { status, code, message, data: None, header, retry_after, by_result, reason, detail }
    }

    /// Makes one that stands for a failure on the way back: -32603.
    pub(super) fn internal(words: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: ReasonCode::Upstream, ..Self::plain(StatusCode::OK, code::INTERNAL, words) }
    }

    fn plain(status: StatusCode, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            data: None,
            header: None,
            retry_after: None,
            by_result: false,
            reason: ReasonCode::BadRequest,
            detail: String::new(),
        }
    }

    /// Spells the JSON-RPC error.
    pub(super) fn spell(&self, id: Option<&RequestId>) -> Bytes {
        let mut error = format!(r#"{{"code":{},"message":"#, self.code.0).into_bytes();
        error.extend_from_slice(&json::quoted(&self.message));
        if let Some(data) = &self.data {
            error.extend_from_slice(b",\"data\":");
            error.extend_from_slice(data);
        }
        error.push(b'}');
        RpcResponse::with_error(id, &error).raw
    }

    /// Makes the whole response.
    pub(super) fn respond(self, id: Option<&RequestId>) -> Response<Body> {
        let body = self.spell(id);
        let mut response = json_response(self.status, vec![body], Vec::new());
        if let Some((name, value)) = self.header.map(|header| *header) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        const REQUEST: ErrorCode = code::INVALID_REQUEST;
        match fault {
            Fault::Batch => Self::plain(BAD, REQUEST, "Batches exist in sessions of 2025-03-26 alone"),
            Fault::BodiesFull(full) => Self {
                reason: ReasonCode::OverLimit,
                retry_after: Some(BODIES_PAUSE),
                header: Some(Box::new((RETRY_AFTER, HeaderValue::from(BODIES_PAUSE)))),
                ..Self::plain(StatusCode::SERVICE_UNAVAILABLE, code::TOO_MANY_SESSIONS, bodies_full(full))
            },
            Fault::BodyBroken => Self::plain(BAD, REQUEST, "The body ended early"),
            Fault::BodySlow => Self::plain(StatusCode::REQUEST_TIMEOUT, REQUEST, "The body came too slowly"),
            Fault::BodyTooLarge => Self {
                reason: ReasonCode::OverLimit,
                ..Self::plain(StatusCode::PAYLOAD_TOO_LARGE, REQUEST, "The body is too large")
            },
            Fault::Draining => Self {
                reason: ReasonCode::Draining,
                ..Self::plain(StatusCode::SERVICE_UNAVAILABLE, code::DRAINING, "The gateway is stopping")
            },
            Fault::DuplicateId => Self::plain(BAD, REQUEST, "A request with this id is in flight"),
            Fault::Header(why) => Self::plain(BAD, code::HEADER_MISMATCH, why),
            Fault::EventUnknown => Self {
                reason: ReasonCode::NotFound,
                ..Self::plain(BAD, REQUEST, "Last-Event-ID is of no stream that is kept for this session")
            },
            Fault::Foreign(why) => Self::plain(StatusCode::FORBIDDEN, REQUEST, why),
            Fault::LegacyVersion => Self::plain(BAD, REQUEST, "Unsupported MCP-Protocol-Version"),
            Fault::Meta(why) => Self::plain(BAD, code::INVALID_PARAMS, why),
            Fault::Verb(allow) => Self {
                header: Some(Box::new((ALLOW, HeaderValue::from_static(allow)))),
                ..Self::plain(StatusCode::METHOD_NOT_ALLOWED, REQUEST, "Method not allowed")
            },
            Fault::Method => Self {
                reason: ReasonCode::NotFound,
                ..Self::plain(StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND, "Method not found")
            },
            Fault::NotAcceptable => Self::plain(
                StatusCode::NOT_ACCEPTABLE,
                REQUEST,
                "Accept must take application/json or text/event-stream; a GET stream is text/event-stream",
            ),
            Fault::NotFound => {
                Self { reason: ReasonCode::NotFound, ..Self::plain(StatusCode::NOT_FOUND, REQUEST, "Not found") }
            }
            Fault::NotMessage(why) => Self::plain(BAD, REQUEST, why),
            Fault::NotJson(why) => Self::plain(BAD, code::PARSE, why),
            Fault::MediaType => {
                Self::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, REQUEST, "Content-Type must be application/json")
            }
            Fault::SessionMissing => Self::plain(BAD, REQUEST, "Mcp-Session-Id is required"),
            Fault::SessionUnknown => Self {
                reason: ReasonCode::NotFound,
                ..Self::plain(StatusCode::NOT_FOUND, REQUEST, "Session not found")
            },
            Fault::Version(requested) => {
                let requested = String::from_utf8_lossy(&json::quoted(&requested)).into_owned();
                let data = format!(r#"{{"supported":["{STATELESS_LATEST}"],"requested":{requested}}}"#);
                Self {
                    data: Some(Bytes::from(data)),
                    ..Self::plain(BAD, code::UNSUPPORTED_VERSION, "Unsupported protocol version")
                }
            }
        }
    }
}

fn bodies_full(full: NoSeat) -> String {
    let what = "Too many bytes of requests are held at once";
    let key = "limits.request_body_bytes × 16, or 256 MiB";
    match full {
        NoSeat::All(most) | NoSeat::Own(most) => format!("{what}: there is room for {most} ({key})"),
        NoSeat::Share(most) => {
            format!("{what}: this principal may have {most} (half of what the others leave of {key})")
        }
    }
}

/// Returns the status that goes with an error code a server sent to a stateless client [R23].
pub(super) fn status_of(code: ErrorCode, era: Era) -> StatusCode {
    match (era, code) {
        (Era::Stateless, code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => {
            StatusCode::BAD_REQUEST
        }
        (Era::Stateless, code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        (Era::Stateless | Era::Legacy, _) => StatusCode::OK,
    }
}

/// The most room for headers that is kept for the next response.
const SPARE_MAX: usize = 128;

thread_local! {
    /// The room of a request's headers, for the next response's. hyper takes that in turn for the request that follows, so
    /// that no call makes room anew.
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// Gives the room of a request's headers to the next response.
pub(super) fn spare(mut headers: HeaderMap) {
    if headers.capacity() <= SPARE_MAX {
        headers.clear();
        SPARE.set(Some(headers));
    }
}

/// Makes a response without headers.
pub(super) fn blank(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.headers_mut() = SPARE.take().unwrap_or_default();
    response
}

/// Makes a JSON response.
pub(super) fn json_response(status: StatusCode, parts: Vec<Bytes>, guards: Vec<Box<dyn Send>>) -> Response<Body> {
    let mut response = blank(Body::parts(parts, guards));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Makes a JSON response of which more is to come.
pub(super) fn json_pieces(parts: Vec<Bytes>, rest: Rest, guards: Vec<Box<dyn Send>>) -> Response<Body> {
    let mut response = blank(Body::pieces(parts, rest.pieces, guards));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(length) = rest.length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// Makes a response without a body.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = blank(Body::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fault, Refusal};
    use crate::exchange::{ReasonCode, Reject, RejectKind, Retry};
    use crate::wire::jsonrpc::RequestId;
    use crate::wire::mcp::Era;

    /// [R126]
    #[test]
    fn every_kind_has_its_row() {
        let rows = [
            (RejectKind::Busy, 429, -31001),
            (RejectKind::InvalidParams, 200, -32602),
            (RejectKind::HeaderMismatch, 400, -32020),
            (RejectKind::Draining, 503, -31003),
            (RejectKind::Limit, 200, -31000),
            (RejectKind::MethodNotFound, 404, -32601),
            (RejectKind::NotMapped, 403, -31005),
            (RejectKind::TooMany, 503, -31002),
            (RejectKind::Unauthenticated, 401, -31005),
            (RejectKind::Unknown, 200, -32602),
            (RejectKind::Upstream, 200, -32603),
            (RejectKind::UpstreamTimeout, 200, -32603),
        ];
        for (kind, status, code) in rows {
            for era in [Era::Legacy, Era::Stateless] {
                let refusal = Refusal::of_reject(Reject::client(kind, "w", ReasonCode::BadRequest), era);
                let legacy_method = kind == RejectKind::MethodNotFound && era == Era::Legacy;
                assert_eq!(refusal.status.as_u16(), if legacy_method { 200 } else { status }, "{kind:?}");
                assert_eq!(refusal.code.0, code, "{kind:?}");
                assert_eq!(refusal.header.is_some(), kind == RejectKind::Unauthenticated, "{kind:?}");
            }
        }
        let retry = Retry::After(Duration::from_secs(7));
        let reject = Reject { retry, ..Reject::client(RejectKind::TooMany, "w", ReasonCode::OverLimit) };
        assert_eq!(Refusal::of_reject(reject, Era::Legacy).header.unwrap().1, "7");
    }

    #[test]
    fn an_error_names_its_request() {
        let refusal = Refusal::from(Fault::Version("a\"b".to_owned()));
        assert_eq!(
            refusal.spell(Some(&RequestId::number(7))),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"a\"b"}}}"#
        );
        assert!(refusal.spell(None).starts_with(br#"{"jsonrpc":"2.0","error":"#));
    }
}
