//! `initialize`: agrees on a version and opens a session [R33, FC-CLI-02, FC-SES-02].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};

use crate::exchange::{
    Answer, Call, Caller as _, ClientFacts, Discovery, Exchange, Handler, Owner, ReasonCode, Reject, RejectKind, Told,
};
use crate::limit::{NoSeat, Seat};
use crate::session::{NewSession, Session, SessionError};
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
        let opened = match self.place(&visit.caller) {
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

    /// Takes a place among the sessions, for one or for a stream that counts as one.
    ///
    /// # Errors
    /// [`Refusal`]: too many sessions.
    pub(super) fn place(&self, caller: &H::Caller) -> Result<Seat, Refusal> {
        self.sessions.place(caller.principal(), caller.is_one_of_many()).map_err(no_session)
    }

    /// Opens a session at a place; returns it with the answer.
    ///
    /// # Errors
    /// [`Refusal`]: params that cannot be read, or a drain.
    pub(super) async fn open(
        &self,
        visit: &Visit<H::Caller>,
        request: &Request,
        place: Arc<Seat>,
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
        SessionError::TooMany(full) => Reject::client(RejectKind::TooMany, too_many(full), ReasonCode::OverLimit),
    };
    Refusal::of_reject(reject, Era::Legacy)
}

/// Says which bound is reached, and its key.
fn too_many(full: NoSeat) -> String {
    let what = "Too many sessions and streams";
    match full {
        NoSeat::All(most) => format!("{what}: all {most} are in use (limits.sessions)"),
        NoSeat::Own(most) => {
            format!("{what}: this principal has all {most} that it may have (limits.sessions_per_principal)")
        }
        NoSeat::Share(most) => format!(
            "{what}: this principal has all {most} that it may have (half of what the others leave of limits.sessions)"
        ),
    }
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
