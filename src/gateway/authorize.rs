//! May this call happen? Decided anew on each round, from the state at this moment [POL-12].

use std::sync::Arc;

use crate::exchange::Caller as _;
use crate::exchange::{ReasonCode, Reject, UpstreamCall};
use crate::limit::Limits;
use crate::policy::{Action, Permitted};
use crate::seal;
use crate::upstream::Server;
use crate::wire::mcp::Trace;

use super::Gateway;
use super::inspect::open_state;
use super::resolve::Resolved;
use super::standing::Standing;
use super::visits;

/// A permitted call and its server.
#[derive(Debug)]
pub(super) struct Authorized {
    pub(super) server: Arc<Server>,
    pub(super) call: Permitted<Arc<UpstreamCall>>,
    pub(super) standing: Standing,
    /// Where anything limits calls.
    pub(super) limits: Option<Arc<Limits>>,
}

/// Asks policy; the only way to a [`Permitted`] call.
pub(super) fn authorize(gateway: &Gateway, resolved: Resolved) -> Result<Authorized, Reject> {
    let request_state = open_state(gateway, &resolved)?;
    visits::check(&resolved.entry.server, &resolved.call)?;
    let Resolved { caller, entry, call, client, owner, own_names: _ } = resolved;
    let action = Action { kind: entry.kind, server: &entry.server, shown: &entry.shown, full: &entry.full };
    let trace = call.trace.as_deref().map(|trace| Box::new(continued(trace)));
    let upstream = Arc::new(UpstreamCall {
        call,
        original: Arc::clone(&entry.original),
        original_spelled: entry.definition.raw.slice(entry.definition.name_at.clone()),
        header_params: Arc::clone(&entry.header_params),
        client,
        owner,
        principal: caller.principal().clone(),
        request_state,
        trace,
    });
    let call = caller.subject().decide(&action).permit(upstream);
    let call = call.map_err(|why| Reject::unknown(entry.kind, why.into()).about(&entry.full))?;
    let server = caller.snapshot().targets().get(&entry.server);
    let server = Arc::clone(server.ok_or_else(|| Reject::unknown(entry.kind, ReasonCode::Unknown))?);
    let limits = Some(caller.snapshot().limits()).filter(|limits| limits.limits_calls()).cloned();
    Ok(Authorized { server, call, standing: Standing::of(&caller, entry), limits })
}

/// Continues a trace with a span of the gateway's own; without randomness, under the one it came with.
fn continued(trace: &Trace) -> Trace {
    seal::random().map_or_else(|_| trace.clone(), |span| trace.child(span))
}
