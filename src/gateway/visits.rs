//! Visits to URLs that a server asks for by an error: who is asked, how often, and what a refusal comes to [R63].
//!
//! Not for: how they are spelled (`wire::bridge`). Invariant: the call is made again by its client alone.

use std::time::Duration;

use bytes::Bytes;

use crate::exchange::{ReasonCode, Reject, RejectKind, ServerCall};
use crate::id::UpstreamName;
use crate::wire::bridge::{self, Visited, Wanted};
use crate::wire::jsonrpc::{Params, Response};
use crate::wire::mcp::{Feature, Features};

/// How often one call may ask.
const ROUNDS_MAX: u32 = 10;
/// How long a client is kept that comes back before its visit is over; doubled each time.
const PACE: Duration = Duration::from_millis(250);

/// What is known of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// What it can be asked.
    pub(super) features: Features,
    /// It is asked by results, and makes its call again by itself.
    pub(super) by_result: bool,
}

/// Returns what a client is asked; `None` for one that reads the error as it is. A visit takes a while: who comes back at
/// once waits.
///
/// # Errors
/// The client cannot be asked, or was asked too often.
pub(super) async fn asked(
    server: &UpstreamName,
    call: &ServerCall,
    response: &Response,
    client: Asked,
) -> Result<Option<Wanted>, Reject> {
    let can = client.features.contains(Feature::ElicitationUrl);
    if !can || (client.by_result && !call.params.method.asks_back()) {
        let told = bridge::told_visits(response);
        let words =
            format!("server '{server}' wants a URL visited first, which this client cannot be asked for: {told}");
        let reject = Reject::upstream(RejectKind::Upstream, words, "URL elicitation by error");
        return Err(Reject { reason: ReasonCode::AsksBack, ..reject });
    }
    if !client.by_result {
        return Ok(None);
    }
    let rounds = visited(call).rounds;
    if rounds >= ROUNDS_MAX {
        let words = format!("server '{server}' wants URLs visited again and again");
        return Err(Reject::upstream(RejectKind::Upstream, words, "over the rounds of one call"));
    }
    if rounds > 0 {
        tokio::time::sleep(PACE.saturating_mul(1 << rounds.min(5))).await;
    }
    let wanted = bridge::wanted_visits(response, rounds + 1).map_err(|err| {
        let words = format!("server '{server}' sent an input request that cannot be read");
        Reject::upstream(RejectKind::Upstream, words, err.to_string())
    })?;
    Ok(Some(wanted.named(server.as_str())))
}

/// Refuses a call whose client was asked for a visit and did not go: its server would ask again.
pub(super) fn check(server: &UpstreamName, call: &ServerCall) -> Result<(), Reject> {
    if !visited(call).declined {
        return Ok(());
    }
    let words = format!("server '{server}' wants a URL visited first, and the client did not");
    Err(Reject::client(RejectKind::InvalidParams, words, ReasonCode::BadRequest))
}

fn visited(call: &ServerCall) -> Visited {
    if call.params.responses_at.is_none() {
        return Visited::default();
    }
    let params: Bytes = call.request.params.as_deref().map(Params::text).unwrap_or_default();
    bridge::visited(&params)
}
