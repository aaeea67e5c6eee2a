//! One POST: read, decode, and find out in which era it is asked (protocol §2.8).

use bytes::Bytes;
use http::Response;

use crate::exchange::{Endpoint, Handler};
use crate::id::PrincipalId;
use crate::wire::jsonrpc::{DecodeError, DecodeErrorKind, Decoded, Limits, Message, RequestId, decode};
use crate::wire::mcp::{Era, LEGACY_LATEST, MetaError, Method, ProtocolVersion, RequestMeta, Trace};

use super::accept::{self, Take};
use super::answer::{Asker, Log};
use super::body::{self, Body};
use super::headers::{Headers, Known, Single};
use super::respond::{Fault, Refusal};
use super::server::Door;

/// A request whose caller is known.
pub(super) struct Visit<C> {
    /// Who calls.
    pub(super) caller: C,
    /// The same, for the log.
    pub(super) principal: PrincipalId,
    /// What the path names.
    pub(super) endpoint: Endpoint,
    /// The request's headers.
    pub(super) headers: Headers,
    /// What the client can take.
    pub(super) take: Take,
    /// What is asked, for the log.
    pub(super) method: &'static str,
}

/// The three ways to ask.
enum Kind {
    Handshake,
    Legacy,
    Stateless,
}

// === impl Visit ===

impl<C> Visit<C> {
    /// Returns who asked, for a legacy answer.
    pub(super) fn legacy_asker(&self, id: Option<RequestId>) -> Asker {
        Asker {
            version: LEGACY_LATEST,
            id,
            principal: self.principal.clone(),
            method: self.method,
            log: Log::All,
            capabilities: Bytes::from_static(b"{}"),
        }
    }

    /// Refuses.
    pub(super) fn refuse(&self, fault: impl Into<Refusal>, id: Option<RequestId>) -> Response<Body> {
        self.legacy_asker(id).refuse(fault.into()).respond(Take::Any, Vec::new())
    }

    /// Reads the trace that a request is part of [R123].
    pub(super) fn trace(&self, meta: &RequestMeta) -> Option<Box<Trace>> {
        let header = |known| match self.headers.text(known) {
            Single::Value(value) => Some(value),
            Single::Absent | Single::Bad => None,
        };
        let parent = header(Known::TraceParent);
        if parent.is_none() && !meta.has_trace() {
            return None;
        }
        Trace::read(&meta.trace, [parent, header(Known::TraceState)]).map(Box::new)
    }
}

impl From<DecodeErrorKind> for Fault {
    fn from(kind: DecodeErrorKind) -> Self {
        match kind {
            DecodeErrorKind::NotJson(_) => Self::NotJson(kind.to_string()),
            DecodeErrorKind::BatchSize(_) | DecodeErrorKind::Depth(_) | DecodeErrorKind::NotMessage(_) => {
                Self::NotMessage(kind.to_string())
            }
        }
    }
}

/// Returns a method's name for the log: what is not in the table is one label.
pub(super) fn label(method: &str) -> &'static str {
    Method::from_name(method).map_or("other", |method| method.spec().name)
}

/// Returns what a message is, for the log.
pub(super) fn label_of(message: &Message) -> &'static str {
    match message {
        Message::Request(request) => label(&request.method),
        Message::Notification(_) => "notification",
        Message::Response(_) => "response",
    }
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a POST.
    pub(super) async fn post<B>(&self, visit: &mut Visit<H::Caller>, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        if !accept::is_json(&visit.headers) {
            return visit.refuse(Fault::MediaType, None);
        }
        let body = match body::read(body, self.settings.body_bytes_max, (&self.bodies, &visit.caller)).await {
            Ok(body) => body,
            Err(fault) => return visit.refuse(fault, None),
        };
        let message = match decode(&body, &Limits::DOWNSTREAM) {
            Ok(Decoded::One(message)) => message,
            Ok(Decoded::Batch(batch)) => return self.batch(visit, batch).await,
            Err(DecodeError { kind, id }) => return visit.refuse(Fault::from(kind), id),
        };
        let (id, params) = match &message {
            Message::Request(request) => (Some(&request.id), request.params.as_deref()),
            Message::Notification(notification) => (None, notification.params.as_deref()),
            Message::Response(_) => (None, None),
        };
        visit.method = label_of(&message);
        let meta = match RequestMeta::read(params) {
            Ok(meta) => meta,
            Err(err @ (MetaError::Malformed(_) | MetaError::WrongType(_))) => {
                return visit.refuse(Fault::Meta(err.to_string()), id.cloned());
            }
        };
        if visit.take == Take::Nothing && id.is_some() {
            return visit.refuse(Fault::NotAcceptable, id.cloned());
        }
        match (classify(visit, &message, &meta), message) {
            (Kind::Stateless, message) => self.stateless(visit, message, meta).await,
            (Kind::Handshake, Message::Request(request)) => self.initialize(visit, &request).await,
            (Kind::Handshake | Kind::Legacy, message) => self.legacy(visit, message, meta).await,
        }
    }
}

fn classify<C>(visit: &Visit<C>, message: &Message, meta: &RequestMeta) -> Kind {
    if meta.is_stateless() {
        return Kind::Stateless;
    }
    let modern = match visit.headers.text(Known::ProtocolVersion) {
        Single::Absent => false,
        Single::Bad => true,
        Single::Value(version) => {
            ProtocolVersion::from_text(version).is_none_or(|version| version.era() == Era::Stateless)
        }
    };
    if modern && visit.headers.text(Known::SessionId) == Single::Absent {
        return Kind::Stateless;
    }
    match message {
        Message::Request(request) if request.method == Method::Initialize.spec().name => Kind::Handshake,
        Message::Request(_) | Message::Notification(_) | Message::Response(_) => Kind::Legacy,
    }
}
