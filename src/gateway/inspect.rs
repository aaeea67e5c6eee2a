//! What comes back is looked at before a client has it: here, a server's `requestState` is sealed [TRN-10, R92].
//!
//! Not for: eras; the door lowers the answer.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::exchange::{Answer, Caller as _, Event, Outcome, Reject, RejectKind, Reply, ReplyBody};
use crate::id::PrincipalId;
use crate::wire::json;
use crate::wire::jsonrpc::{Edits, Payload, Response};

use super::Gateway;
use super::authorize::bad_state;
use super::resolve::Resolved;

const PURPOSE: &str = "requestState";
/// How long a person may take to answer.
const STATE_SECS: u64 = 3_600;

/// What a sealed state is bound to, beyond principal and time.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Binding {
    server: String,
    tool: String,
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
    binding: Binding,
}

impl Inspection {
    pub(super) fn of(resolved: &Resolved) -> Self {
        Self { principal: resolved.caller.principal().clone(), binding: binding(resolved) }
    }

    /// Looks at the outcome, now or at the end of the events.
    pub(super) fn inspect(self, gateway: &Arc<Gateway>, reply: Reply) -> Reply {
        match reply.into_parts() {
            (ReplyBody::Done(outcome), _guards) => Reply::once(self.outcome(gateway, *outcome)),
            (ReplyBody::Events(events), guards) => {
                let (gateway, mut inspection) = (Arc::clone(gateway), Some(self));
                let events = events.map(move |event| match event {
                    Event::Done(outcome) => Event::Done(match inspection.take() {
                        Some(inspection) => inspection.outcome(&gateway, outcome),
                        None => outcome,
                    }),
                    other @ (Event::Log(_) | Event::Progress(_) | Event::ToolsChanged) => other,
                });
                Reply::events(Box::pin(events)).with_guard(guards)
            }
        }
    }

    fn outcome(self, gateway: &Gateway, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(Answer::Upstream { response, era }) if asks_for_input(&response) => {
                let response = Box::new(self.seal(gateway, *response)?);
                Ok(Answer::Upstream { response, era })
            }
            other => other,
        }
    }

    fn seal(self, gateway: &Gateway, response: Response) -> Result<Response, Reject> {
        let Payload::Result(at) = response.payload.clone() else { return Ok(response) };
        let broken = |why: &str| {
            let words = format!("server '{}' sent an input request that cannot be read", self.binding.server);
            Reject::upstream(RejectKind::Upstream, words, why)
        };
        let result = response.raw.slice(at.clone());
        let members = json::members(&result).map_err(|err| broken(&err.to_string()))?;
        let Some(state) = members.get("requestState").map_err(|err| broken(&err.to_string()))? else {
            return Ok(response);
        };
        let place = json::range_in(&result, state.get());
        let place = place.start + at.start..place.end + at.start;
        let payload = Sealed { state: state.get().to_owned(), binding: self.binding };
        let payload = serde_json::to_vec(&payload).unwrap_or_default();
        let expires = gateway.clock.unix_secs() + STATE_SECS;
        let sealed = gateway.seal.seal(PURPOSE, self.principal.as_str(), expires, &payload).map_err(|err| {
            Reject::upstream(RejectKind::Upstream, "the gateway cannot seal a handle", err.to_string())
        })?;
        let text = json::quoted(&sealed);
        let grown = text.len() + at.end - (place.end - place.start);
        let mut edits = Edits::new(response.raw.clone());
        // The id may lie behind the result.
        let moved = response.id_at.start > at.start;
        let id_at = if moved {
            let shift = |place: usize| place + grown - at.end;
            shift(response.id_at.start)..shift(response.id_at.end)
        } else {
            response.id_at.clone()
        };
        edits.replace(place, text);
        Ok(Response { raw: edits.apply(), id: response.id, id_at, payload: Payload::Result(at.start..grown) })
    }
}

/// Opens the state that a retry carries, as the server's own JSON text.
pub(super) fn open_state(gateway: &Gateway, resolved: &Resolved) -> Result<Option<Bytes>, Reject> {
    let (Some(at), Some(params)) = (&resolved.call.params.request_state_at, &resolved.call.request.params) else {
        return Ok(None);
    };
    let text: String = serde_json::from_slice(params.get(at.clone()).unwrap_or_default()).map_err(|_| bad_state())?;
    let now = gateway.clock.unix_secs();
    let opened =
        gateway.seal.open(PURPOSE, resolved.caller.principal().as_str(), now, &text).map_err(|_| bad_state())?;
    let sealed: Sealed = serde_json::from_slice(&opened).map_err(|_| bad_state())?;
    if sealed.binding != binding(resolved) {
        return Err(bad_state());
    }
    Ok(Some(Bytes::from(sealed.state)))
}

fn binding(resolved: &Resolved) -> Binding {
    let arguments = resolved.call.params.arguments.as_deref().unwrap_or_default();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, arguments);
    Binding {
        server: resolved.entry.server.as_str().to_owned(),
        tool: resolved.entry.original.to_string(),
        arguments: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn asks_for_input(response: &Response) -> bool {
    let Payload::Result(at) = &response.payload else { return false };
    let result = response.raw.get(at.clone()).unwrap_or_default();
    memchr::memmem::find(result, b"input_required").is_some()
        && json::members(result).ok().is_some_and(|members| {
            members.get("resultType").ok().flatten().is_some_and(|kind| kind.get() == "\"input_required\"")
        })
}
