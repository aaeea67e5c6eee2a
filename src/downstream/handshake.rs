//! `initialize`: agrees on a version and opens a session [R33, FC-CLI-02, FC-SES-02].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};

use crate::exchange::{
    Answer, Call, ClientFacts, Discovery, Exchange, Handler, Owner, ReasonCode, Reject, RejectKind, Told,
};
use crate::id::PrincipalId;
use crate::session::{NewSession, Place, Session, SessionError};
use crate::wire::bridge::server_info;
use crate::wire::json::{self, Raw};
use crate::wire::jsonrpc::{Params, Request};
use crate::wire::mcp::{Era, ProtocolVersion, name};

use super::answer::{Rendered, invalid, member_instructions};
use super::body::Body;
use super::post::Visit;
use super::respond::{Fault, Refusal};
use super::server::Door;

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers `initialize`. A session id on it is stale and ignored.
    pub(super) async fn initialize(&self, visit: &Visit<H::Caller>, request: &Request) -> Response<Body> {
        let opened = match self.place(&visit.principal) {
            Ok(place) => self.open(visit, request, Arc::new(place)).await,
            Err(refusal) => Err(refusal),
        };
        let (session, answer) = match opened {
            Ok(opened) => opened,
            Err(refusal) => return visit.refuse(refusal, Some(request.id.clone())),
        };
        let mut response = answer.respond(visit.take, Vec::new());
        // base64url is always a header value.
        if let Ok(id) = HeaderValue::from_str(session.id.as_str()) {
            response.headers_mut().insert(name::SESSION_ID, id);
        }
        response
    }

    /// Takes a place among the sessions.
    ///
    /// # Errors
    /// [`Refusal`]: too many sessions.
    pub(super) fn place(&self, principal: &PrincipalId) -> Result<Place, Refusal> {
        self.sessions.place(principal).map_err(no_session)
    }

    /// Opens a session at a place; returns it with the answer.
    ///
    /// # Errors
    /// [`Refusal`]: params that cannot be read, or a drain.
    pub(super) async fn open(
        &self,
        visit: &Visit<H::Caller>,
        request: &Request,
        place: Arc<Place>,
    ) -> Result<(Arc<Session>, Rendered), Refusal> {
        let rejected = |reject| Refusal::of_reject(reject, Era::Legacy);
        if self.drain.is_draining() {
            return Err(Fault::Draining.into());
        }
        let client = facts(request.params.as_deref()).map_err(|words| rejected(invalid(words)))?;
        let version = client.version;
        let exchange = Exchange {
            endpoint: visit.endpoint.clone(),
            client: client.clone(),
            owner: Owner::principal(visit.principal.clone()),
            call: Call::Discover,
        };
        let reply = self.handler.call(visit.caller.clone(), exchange).await;
        let discovery = match reply.outcome(|_| {}).await.map_err(rejected)? {
            Answer::Discovery(found) => found,
            Answer::Ended
            | Answer::InputRequired(_)
            | Answer::Page(_)
            | Answer::Unseen(_)
            | Answer::Upstream { .. } => Discovery::default(),
        };
        let told = Told::default();
        let (principal, endpoint) = (visit.principal.clone(), visit.endpoint.clone());
        let new = NewSession { principal, endpoint, client, told };
        let session = self.sessions.create_at(place, new).map_err(no_session)?;
        let instructions = discovery.instructions.as_deref().map(member_instructions).unwrap_or_default();
        let capabilities = discovery.capabilities.spelled();
        let info = server_info();
        let info = String::from_utf8_lossy(&info);
        let result = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},{instructions}"serverInfo":{info}}}"#
        );
        Ok((session, Rendered::result(&request.id, &result)))
    }
}

/// Refuses a session.
pub(super) fn no_session(err: SessionError) -> Refusal {
    let reject = match err {
        SessionError::Random => Reject::upstream(RejectKind::Upstream, "No session can be opened", err.to_string()),
        SessionError::TooMany | SessionError::TooManyOfPrincipal => {
            Reject::client(RejectKind::TooMany, "Too many sessions", ReasonCode::OverLimit).with_detail(err.to_string())
        }
    };
    Refusal::of_reject(reject, Era::Legacy)
}

/// Reads what a client says of itself; a version that is no string counts as none [FC-CLI-02].
fn facts(params: Option<&Params>) -> Result<ClientFacts, String> {
    let get = |key| match params {
        Some(params) => params.get(key).map_err(|err| err.to_string()),
        None => Ok(None),
    };
    let requested = get("protocolVersion")?.and_then(json::text);
    // Copied, so that a session does not hold the whole request.
    let own = |value: Raw<'_>| value.is_object().then(|| Bytes::copy_from_slice(value.get()));
    let version = ProtocolVersion::negotiate(requested.as_deref());
    let capabilities = get("capabilities")?.and_then(own).unwrap_or(Bytes::from_static(b"{}"));
    Ok(ClientFacts::new(version, get("clientInfo")?.and_then(own), capabilities))
}
