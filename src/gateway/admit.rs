//! Is there room for it? Rates, and places among the calls under way [LIM-5].
//!
//! Two steps: a principal's requests are counted before a body is read; a call's server and tool after it is known that
//! it may happen, so that no refusal tells of what is hidden. Invariant: a place is a guard that travels with the reply.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::exchange::{Caller as _, ReasonCode, Reject, RejectKind, Retry, Source};
use crate::limit::{Entered, Exceeded, Permit, Place, Waiting};
use crate::wire::mcp::Kind;

use super::Gateway;
use super::authorize::Authorized;
use super::identify::Identified;
use super::timed::LOOK;

/// When to come again, where nobody knows when a call will have ended.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two looks for buckets that are full again.
const FORGET_PAUSE: Duration = Duration::from_secs(60);

/// A permitted call that has its place.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) authorized: Authorized,
    pub(super) place: Option<Permit>,
}

/// Counts a request of a principal.
pub(super) fn request(caller: &Identified) -> Result<(), Reject> {
    caller.snapshot().limits().request(caller.principal()).map_err(|exceeded| refused(exceeded, ""))
}

/// Counts what ends something, of a principal that is over its rate.
pub(super) fn end(caller: &Identified) -> Result<(), Reject> {
    caller.snapshot().limits().end(caller.principal()).map_err(|exceeded| refused(exceeded, ""))
}

/// Counts a call, and waits for its place where calls under way are bounded. What a reload takes away ends the wait, and
/// so does the time that the call itself would have.
pub(super) async fn admit(gateway: &Gateway, mut authorized: Authorized) -> Result<Admitted, Reject> {
    let Some(limits) = authorized.limits.take() else { return Ok(Admitted { authorized, place: None }) };
    let (principal, entry) = (authorized.standing.principal(), authorized.standing.entry());
    let shown = Arc::clone(&entry.shown);
    let tool = (entry.kind == Kind::Tools).then_some(&entry.full);
    limits.call(principal, &entry.server, tool).map_err(|exceeded| refused(exceeded, &shown))?;
    let place = || Place { principal: principal.clone(), server: entry.server.clone(), tool: Arc::clone(&entry.full) };
    let place = match limits.enter(place).map_err(|exceeded| refused(exceeded, &shown))? {
        None => None,
        Some(Entered::Now(permit)) => Some(permit),
        // Boxed, so that a call that has its place at once does not carry the room for that.
        Some(Entered::Later(waiting)) => Some(Box::pin(wait(gateway, &mut authorized, waiting)).await?),
    };
    Ok(Admitted { authorized, place })
}

/// Forgets now and then whose rates are as if they had never called.
pub(super) async fn forget(gateway: Weak<Gateway>) {
    let mut ticks = tokio::time::interval(FORGET_PAUSE);
    loop {
        ticks.tick().await;
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.snapshot.load().limits().forget();
    }
}

async fn wait(gateway: &Gateway, authorized: &mut Authorized, mut waiting: Waiting) -> Result<Permit, Reject> {
    let most = authorized.server.settings().tool_timeout;
    let mut waited = Duration::ZERO;
    loop {
        let look = LOOK.min(most.saturating_sub(waited));
        if let Ok(permit) = tokio::time::timeout(look, poll_fn(|cx| waiting.poll(cx))).await {
            return Ok(permit);
        }
        waited += look;
        if let Some(reject) = authorized.standing.lost(gateway) {
            return Err(reject);
        }
        if waited >= most {
            let seconds = most.as_secs();
            let words =
                format!("Too many calls are under way: this one waited {seconds} s for its turn. Try again later");
            return Err(busy(words, BUSY_PAUSE, ReasonCode::TooManyCalls));
        }
    }
}

/// Says which limit is reached, and when to come again.
fn refused(exceeded: Exceeded, tool: &str) -> Reject {
    let seconds = |after: Duration| after.as_secs() + u64::from(after.subsec_nanos() > 0);
    match exceeded {
        Exceeded::Requests(rate, after) => {
            let words = format!("Too many requests: at most {rate}. Try again in {} s", seconds(after));
            busy(words, after, ReasonCode::RateLimited)
        }
        Exceeded::Server(rate, after) => {
            let words =
                format!("Too many calls to the server of '{tool}': at most {rate}. Try again in {} s", seconds(after));
            busy(words, after, ReasonCode::RateLimited)
        }
        Exceeded::Tool(rate, after) => {
            let words = format!("Too many calls of '{tool}': at most {rate}. Try again in {} s", seconds(after));
            busy(words, after, ReasonCode::RateLimited)
        }
        Exceeded::Queue(0) => {
            let words = "Too many calls are under way. Try again when one of them has ended";
            busy(words, BUSY_PAUSE, ReasonCode::TooManyCalls)
        }
        Exceeded::Queue(most) => {
            let words = format!(
                "Too many calls are under way, and {most} wait already. Try again when some of them have ended"
            );
            busy(words, BUSY_PAUSE, ReasonCode::TooManyCalls)
        }
    }
}

fn busy(words: impl Into<Cow<'static, str>>, after: Duration, reason: ReasonCode) -> Reject {
    let retry = Retry::After(after);
    Reject { retry, source: Source::Gateway, ..Reject::client(RejectKind::Busy, words, reason) }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
