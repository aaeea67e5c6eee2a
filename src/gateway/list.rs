//! `tools/list`: answered from the view, without a server.

use std::time::Duration;

use tokio::sync::watch;

use crate::catalog::{Cursor, Shape};
use crate::exchange::{Answer, Caller as _, Endpoint, Outcome, ReasonCode, Reject, RejectKind, Told, ToolsPage};
use crate::upstream::Phase;

use super::Gateway;
use super::identify::{Identified, scope};

const PURPOSE: &str = "tools/list cursor";
/// How long a cursor is good for.
const CURSOR_SECS: u64 = 3_600;

/// Answers a list, after the first lists of servers still starting have come or their time is over [TRN-8].
pub(super) async fn list(
    gateway: &Gateway,
    caller: Identified,
    endpoint: &Endpoint,
    shape: Shape,
    cursor: Option<String>,
    told: &Told,
) -> Outcome {
    let caller = wait_for_first_lists(gateway, caller, endpoint).await;
    let fingerprint = caller.seen(endpoint);
    let from = match cursor {
        None => 0,
        Some(cursor) => open(gateway, &caller, &cursor, fingerprint)?,
    };
    let room = caller.snapshot().settings().list_page_bytes;
    let page = caller.view().page(scope(endpoint), shape, caller.mask(), from, room);
    let next_cursor = page.next.map(|index| seal(gateway, &caller, index, fingerprint)).transpose()?;
    if next_cursor.is_none() {
        told.update(fingerprint);
    }
    Ok(Answer::Tools(ToolsPage { tools: page.tools, next_cursor, ttl_ms: 0, private: true }))
}

fn open(gateway: &Gateway, caller: &Identified, cursor: &str, fingerprint: u64) -> Result<usize, Reject> {
    gateway
        .seal
        .open(PURPOSE, caller.principal().as_str(), gateway.clock.unix_secs(), cursor)
        .ok()
        .and_then(|bytes| Cursor::decode(&bytes))
        .filter(|cursor| cursor.fingerprint == fingerprint)
        .and_then(|cursor| usize::try_from(cursor.index).ok())
        .ok_or_else(|| Reject::client(RejectKind::InvalidParams, "Invalid cursor", ReasonCode::BadRequest))
}

fn seal(gateway: &Gateway, caller: &Identified, index: usize, fingerprint: u64) -> Result<String, Reject> {
    let cursor = Cursor { index: index as u64, fingerprint };
    let expires = gateway.clock.unix_secs() + CURSOR_SECS;
    gateway
        .seal
        .seal(PURPOSE, caller.principal().as_str(), expires, &cursor.encode())
        .map_err(|err| Reject::upstream(RejectKind::Upstream, "the gateway cannot seal a cursor", err.to_string()))
}

/// Waits for the servers this path names that are starting and have never listed; failed ones are not waited for.
pub(super) async fn wait_for_first_lists(gateway: &Gateway, caller: Identified, endpoint: &Endpoint) -> Identified {
    let starting = |caller: &Identified| {
        caller.snapshot().targets().iter().any(|server| {
            let named = match endpoint {
                Endpoint::All => true,
                Endpoint::Server(name) => name == server.name(),
            };
            let status = server.status();
            named
                && caller.granted().contains(server.name())
                && status.tools.is_none()
                && status.phase == Phase::Starting
        })
    };
    let news = caller.snapshot().targets().news();
    if !starting(&caller) && caller.news() >= *news.borrow() {
        return caller;
    }
    let limit: Duration = caller.snapshot().settings().first_list_wait;
    if tokio::time::timeout(limit, settled(gateway, news, || starting(&caller))).await.is_err() {
        tracing::debug!("a list does not wait any longer for servers that are starting");
    }
    caller.renewed(gateway)
}

/// Waits until nothing is starting, and then until the snapshot has seen that.
async fn settled(gateway: &Gateway, mut news: watch::Receiver<u64>, starting: impl Fn() -> bool) {
    while starting() {
        if news.changed().await.is_err() {
            return;
        }
    }
    let seen = *news.borrow();
    gateway.caught_up(seen).await;
}
