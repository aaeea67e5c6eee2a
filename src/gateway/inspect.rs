//! What comes back is looked at before a client has it: a server's questions name it, its `requestState` is sealed
//! [TRN-10, R92], its URIs are rewritten [NAM-4].
//!
//! Not for: eras; the door lowers the answer.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::Gateway;
use super::resolve::Resolved;
use super::rewrite;
use super::shape::Shaper;
use super::visits::{self, Asked};
use crate::catalog::Entry;
use crate::exchange::{
    Answer, Caller as _, Event, InputRequired, Outcome, Question, ReasonCode, Reject, RejectKind, Reply, ReplyBody,
    ServerCall,
};
use crate::id::{PrincipalId, UpstreamName};
use crate::wire::bridge::{self, InputRequest, Wanted};
use crate::wire::json;
use crate::wire::jsonrpc::{Payload, Response};

const PURPOSE: &str = "requestState";
/// How long a person may take to answer.
const STATE_SECS: u64 = 3_600;

/// What a sealed state is bound to, beyond principal and time.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Binding {
    server: String,
    method: String,
    name: String,
    arguments: String,
}

/// A server's own state with its binding.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    binding: Binding,
    /// The server's own value, as JSON text.
    state: String,
}

/// What must be known of a call when its answer comes.
#[derive(Debug)]
pub(super) struct Inspection {
    principal: PrincipalId,
    entry: Arc<Entry>,
    call: Arc<ServerCall>,
    client: Asked,
    /// Names and URIs stay the server's own.
    own_names: bool,
    shaper: Option<Shaper>,
}

impl Inspection {
    pub(super) fn of(resolved: &Resolved) -> Self {
        Self {
            principal: resolved.caller.principal().clone(),
            entry: Arc::clone(&resolved.entry),
            call: Arc::clone(&resolved.call),
            shaper: Shaper::of(resolved),
            client: Asked {
                features: resolved.client.features,
                by_result: resolved.client.version.era().asks_by_result(),
            },
            own_names: resolved.own_names,
        }
    }

    /// Looks at the outcome, now or at the end of the events.
    pub(super) async fn inspect(self, gateway: &Arc<Gateway>, reply: Reply) -> Reply {
        match reply.into_parts() {
            (ReplyBody::Done(outcome), guards) => {
                let outcome = if self.changes(gateway, &outcome) {
                    // Apart, so that the calls that need none of it are small.
                    Box::new(Box::pin(self.outcome(gateway, *outcome)).await)
                } else {
                    outcome
                };
                Reply::done(outcome).with_guards(guards)
            }
            (ReplyBody::Events(events), guards) => {
                let (server, own_names) = (self.entry.server.clone(), self.own_names);
                let (gateway, mut inspection) = (Arc::clone(gateway), Some(self));
                let events = events.then(move |event| {
                    let (gateway, event) = (Arc::clone(&gateway), told(event, inspection.as_ref(), &server, own_names));
                    let inspection = if matches!(event, Event::Done(_)) { inspection.take() } else { None };
                    async move {
                        match (event, inspection) {
                            (Event::Done(outcome), Some(inspection)) if inspection.changes(&gateway, &outcome) => {
                                Event::Done(Box::pin(inspection.outcome(&gateway, outcome)).await)
                            }
                            (event, _) => event,
                        }
                    }
                });
                Reply::events(Box::pin(events)).with_guards(guards)
            }
        }
    }

    /// Says whether something may have to be done to an outcome. Most pass as they are.
    fn changes(&self, gateway: &Gateway, outcome: &Outcome) -> bool {
        let Ok(Answer::Upstream { response, .. }) = outcome else { return false };
        asks_for_input(response)
            || bridge::asks_by_error(response)
            || rewrite::may_rewrite(&self.call, response)
            || self.shaper.as_ref().is_some_and(|shaper| shaper.concerns(gateway, outcome))
    }

    async fn outcome(self, gateway: &Gateway, outcome: Outcome) -> Outcome {
        let shaper = self.shaper.filter(|shaper| shaper.concerns(gateway, &outcome));
        let outcome = match shaper {
            // What is left is still in the server's own words.
            Some(shaper) => shaper.shape(gateway, &self.principal, &self.entry, outcome).await,
            None => outcome,
        };
        match outcome {
            Ok(Answer::Upstream { mut response, era }) => {
                if !self.own_names && response.may_have_uris() {
                    rewrite::rewrite(&self.entry, &self.call, &mut response);
                }
                rewrite::name_missing(&self.call, &mut response);
                if era.asks_by_result() && asks_for_input(&response) {
                    let input = self.input(gateway, &response.settled())?;
                    return Ok(Answer::InputRequired(Box::new(input)));
                }
                if !era.asks_by_result() && bridge::asks_by_error(&response) {
                    let mut response = Box::new(response.settled());
                    let wanted = visits::asked(&self.entry.server, &self.call, &response, self.client).await?;
                    if let Some(wanted) = wanted {
                        return Ok(Answer::InputRequired(Box::new(InputRequired { wanted, result: Bytes::new() })));
                    }
                    bridge::name_visits(&mut response, self.entry.server.as_str());
                    return Ok(Answer::Upstream { response, era });
                }
                Ok(Answer::Upstream { response, era })
            }
            other => other,
        }
    }

    /// Reads what a server wants: what the client has declared [R91], with the server named and its state sealed.
    fn input(&self, gateway: &Gateway, response: &Response) -> Result<InputRequired, Reject> {
        let broken = |why: &str| {
            let words = format!("server '{}' sent an input request that cannot be read", self.entry.server);
            Reject::upstream(RejectKind::Upstream, words, why)
        };
        if !self.call.params.method.asks_back() {
            return Err(broken("this method cannot be answered so"));
        }
        let result = response.result().unwrap_or_default();
        let mut wanted = Wanted::read(&result).map_err(|err| broken(&err.to_string()))?;
        let undeclared = |one: &&InputRequest| one.kind.check(&one.params, self.client.features).is_err();
        if let Some(request) = wanted.requests.iter().find(undeclared) {
            let words = format!("server '{}' asks for what the client did not declare", self.entry.server);
            let reject = Reject::upstream(RejectKind::Upstream, words, request.kind.method());
            return Err(Reject { reason: ReasonCode::AsksBack, ..reject });
        }
        if let Some(state) = wanted.state.take() {
            let state = String::from_utf8_lossy(&state).into_owned();
            wanted.state = Some(json::quoted(&self.seal(gateway, state)?));
        }
        Ok(InputRequired { wanted: wanted.named(self.entry.server.as_str()), result })
    }

    fn seal(&self, gateway: &Gateway, state: String) -> Result<String, Reject> {
        let payload = Sealed { state, binding: binding(&self.entry, &self.call) };
        let payload = serde_json::to_vec(&payload).unwrap_or_default();
        let expires = gateway.clock.unix_secs() + STATE_SECS;
        gateway
            .seal
            .seal(PURPOSE, self.principal.as_str(), expires, &payload)
            .map_err(|err| Reject::upstream(RejectKind::Upstream, "the gateway cannot seal a handle", err.to_string()))
    }
}

/// Names the server in its question [TRN-10, R99], and shows its URIs.
fn named(question: Question, server: &UpstreamName, own_names: bool) -> Question {
    let params = if own_names { question.params } else { rewrite::question(server, &question.params) };
    let params = bridge::named(question.kind, &params, server.as_str());
    Question { params, ..question }
}

/// What is told on the way: a question with its server's name, all else as long as the reader may have it.
fn told(event: Event, inspection: Option<&Inspection>, server: &UpstreamName, own_names: bool) -> Event {
    let shaper = inspection.and_then(|inspection| inspection.shaper.as_ref());
    match (event, shaper) {
        (Event::Ask(question), _) => Event::Ask(named(question, server, own_names)),
        (Event::Log(raw), shaper) => {
            let raw = shaper.map_or_else(|| raw.clone(), |shaper| shaper.notification(raw.clone()));
            Event::Log(if own_names { raw } else { rewrite::name_logger(server, &raw) })
        }
        (Event::Progress(raw), Some(shaper)) => Event::Progress(shaper.notification(raw)),
        (other @ Event::Progress(_), None) => other,
        (other @ (Event::Changed(_) | Event::Done(_) | Event::Paused | Event::Said(_) | Event::Watch(_)), _) => other,
    }
}

/// Opens the state that a retry carries, as the server's own JSON text.
pub(super) fn open_state(gateway: &Gateway, resolved: &Resolved) -> Result<Option<Bytes>, Reject> {
    let Some(at) = &resolved.call.params.request_state_at else { return Ok(None) };
    let state = resolved.call.request.raw.get(at.clone()).unwrap_or_default();
    let text: String = serde_json::from_slice(state).map_err(|_| Reject::bad_state())?;
    let now = gateway.clock.unix_secs();
    let opened = gateway
        .seal
        .open(PURPOSE, resolved.caller.principal().as_str(), now, &text)
        .map_err(|_| Reject::bad_state())?;
    let sealed: Sealed = serde_json::from_slice(&opened).map_err(|_| Reject::bad_state())?;
    if sealed.binding != binding(&resolved.entry, &resolved.call) {
        return Err(Reject::bad_state());
    }
    Ok(Some(Bytes::from(sealed.state)))
}

fn binding(entry: &Entry, call: &ServerCall) -> Binding {
    let arguments = call.params.arguments.as_deref().unwrap_or_default();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, arguments);
    Binding {
        server: entry.server.as_str().to_owned(),
        method: call.params.method.spec().name.to_owned(),
        name: entry.original.to_string(),
        arguments: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn asks_for_input(response: &Response) -> bool {
    matches!(response.payload, Payload::Result(_))
        && response.outline().is_ok_and(|members| {
            let kind = members.get(&response.raw, "resultType").ok().flatten();
            kind.is_some_and(|kind| kind.get() == b"\"input_required\"")
        })
}
