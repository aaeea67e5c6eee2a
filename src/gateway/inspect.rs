//! What comes back is looked at before a client has it: a server's questions name it, its `requestState` is sealed
//! [TRN-10, R92], its URIs are rewritten [NAM-4].
//!
//! Not for: eras; the door lowers the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use serde::{Deserialize, Serialize};

use crate::catalog::Entry;
use crate::exchange::{
    Answer, Caller as _, Event, EventStream, InputRequired, Outcome, QUESTIONS_BYTES_MAX, QUESTIONS_MAX, Question,
    ReasonCode, Reject, RejectKind, Reply, ReplyBody, ServerCall,
};
use crate::id::{PrincipalId, UpstreamName};
use crate::wire::bridge::{self, InputRequest, Wanted};
use crate::wire::json;
use crate::wire::jsonrpc::{Payload, Response};
use crate::wire::mcp::LogMessage;

use super::Gateway;
use super::resolve::Resolved;
use super::rewrite;
use super::shape::Shaper;
use super::visits::{self, Asked};

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

/// The events of a reply, looked at one by one.
struct Inspected {
    events: EventStream,
    gateway: Arc<Gateway>,
    state: Inspecting,
}

enum Inspecting {
    /// They come.
    Events(Inspection),
    /// The outcome is worked on.
    Outcome(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    /// That was the last.
    Over,
}

// === impl Inspection ===

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
                let inspected = Inspected { events, gateway: Arc::clone(gateway), state: Inspecting::Events(self) };
                Reply::events(Box::pin(inspected)).with_guards(guards)
            }
        }
    }

    /// Says whether something may have to be done to an outcome. Most pass as they are.
    fn changes(&self, gateway: &Gateway, outcome: &Outcome) -> bool {
        let Ok(Answer::Upstream { response, .. }) = outcome else { return false };
        asks_for_input(response)
            || bridge::asks_by_error(response)
            || matches!(response.payload, Payload::Error(_))
            || rewrite::may_rewrite(&self.call, response)
            || self.shaper.as_ref().is_some_and(|shaper| shaper.concerns(gateway, outcome))
    }

    /// What is told on the way: a question with its server's name, all else as long as the reader may have it.
    fn told(&self, event: Event) -> Event {
        let (server, shaper) = (&self.entry.server, self.shaper.as_ref());
        match event {
            Event::Ask(question) => Event::Ask(named(question, server, self.own_names)),
            Event::Log(message) => {
                let cut = shaper.and_then(|shaper| shaper.cut(message.raw()));
                let message = cut.map_or(message, LogMessage::text);
                Event::Log(if self.own_names { message } else { message.named(server.as_str()) })
            }
            Event::Progress(raw) => Event::Progress(shaper.and_then(|shaper| shaper.cut(&raw)).unwrap_or(raw)),
            other @ (Event::Changed(_) | Event::Done(_) | Event::Paused | Event::Said(_) | Event::Watch(_)) => other,
        }
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
                if matches!(response.payload, Payload::Error(_))
                    && let Some(server) = gateway.snapshot().targets().get(&self.entry.server)
                {
                    *response = rewrite::conceal(server, *response);
                }
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
        let bytes: usize = wanted.requests.iter().map(|request| request.key.len() + request.params.len()).sum();
        if wanted.requests.len() > QUESTIONS_MAX || bytes > QUESTIONS_BYTES_MAX {
            let words = format!(
                "server '{}' asks for too much at once: {QUESTIONS_MAX} questions of {QUESTIONS_BYTES_MAX} bytes together are \
                 the limit",
                self.entry.server
            );
            let detail = format!("{} questions, {bytes} bytes", wanted.requests.len());
            let reject = Reject::upstream(RejectKind::Upstream, words, detail);
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

// === impl Inspected ===

impl Stream for Inspected {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        if let Inspecting::Events(inspection) = &this.state {
            match ready!(this.events.as_mut().poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Event::Done(outcome)) => {
                    if !inspection.changes(&this.gateway, &outcome) {
                        return Poll::Ready(Some(Event::Done(outcome)));
                    }
                    if let Inspecting::Events(inspection) = std::mem::replace(&mut this.state, Inspecting::Over) {
                        let gateway = Arc::clone(&this.gateway);
                        let work = async move { inspection.outcome(&gateway, outcome).await };
                        this.state = Inspecting::Outcome(Box::pin(work));
                    }
                }
                Some(event) => return Poll::Ready(Some(inspection.told(event))),
            }
        }
        let Inspecting::Outcome(work) = &mut this.state else { return Poll::Ready(None) };
        let outcome = ready!(work.as_mut().poll(cx));
        this.state = Inspecting::Over;
        Poll::Ready(Some(Event::Done(outcome)))
    }
}

/// Names the server in its question [TRN-10, R99], and shows its URIs.
fn named(question: Question, server: &UpstreamName, own_names: bool) -> Question {
    let params = if own_names { question.params } else { rewrite::question(server, &question.params) };
    let params = bridge::named(question.kind, &params, server.as_str());
    Question { params, ..question }
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
