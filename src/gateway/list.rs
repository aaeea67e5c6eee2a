//! Lists of every kind: answered from the view, without a server.

use std::time::Duration;

use tokio::sync::watch;

use crate::catalog::{Cursor, Shape};
use crate::exchange::{Answer, Caller as _, Endpoint, ListPage, Outcome, ReasonCode, Reject, RejectKind, Told};
use crate::upstream::Phase;
use crate::wire::mcp::Kind;

use super::Gateway;
use super::identify::{Identified, scope};

/// How long a cursor is good for.
const CURSOR_SECS: u64 = 3_600;

/// Answers a list, after the first lists of servers still starting have come or their time is over [TRN-8].
pub(super) async fn list(
    gateway: &Gateway,
    caller: Identified,
    endpoint: &Endpoint,
    (kind, shape): (Kind, Shape),
    cursor: Option<String>,
    told: &Told,
) -> Outcome {
    let caller = wait_for_first_lists(gateway, caller, endpoint).await;
    check_offered(&caller, endpoint, kind, shape)?;
    let fingerprint = caller.fingerprint(endpoint, kind);
    let from = match cursor {
        None => 0,
        Some(cursor) => open(gateway, &caller, &cursor, (kind, fingerprint))?,
    };
    let room = caller.snapshot().settings().list_page_bytes;
    let page = caller.view().page((scope(endpoint), kind), shape, caller.mask(), from, room);
    let next_cursor = page.next.map(|index| seal(gateway, &caller, index, (kind, fingerprint))).transpose()?;
    if next_cursor.is_none() {
        told.update(kind, fingerprint);
    }
    Ok(Answer::Page(ListPage { kind, items: page.items, next_cursor, ttl_ms: 0, private: true }))
}

/// Refuses what no server of this caller has [R16, R32]. A legacy session may have been told else when it began, and gets
/// an empty list.
pub(super) fn check_offered(caller: &Identified, endpoint: &Endpoint, kind: Kind, shape: Shape) -> Result<(), Reject> {
    if kind == Kind::Tools || shape == Shape::Handshake || caller.capabilities(endpoint).lists.contains(kind) {
        return Ok(());
    }
    Err(not_offered())
}

/// The refusal of a method that is behind a capability which is not declared.
pub(super) fn not_offered() -> Reject {
    Reject::client(RejectKind::MethodNotFound, "Method not found", ReasonCode::NotFound)
}

fn open(
    gateway: &Gateway,
    caller: &Identified,
    cursor: &str,
    (kind, fingerprint): (Kind, u64),
) -> Result<usize, Reject> {
    gateway
        .seal
        .open(kind.list_method(), caller.principal().as_str(), gateway.clock.unix_secs(), cursor)
        .ok()
        .and_then(|bytes| Cursor::decode(&bytes))
        .filter(|cursor| cursor.fingerprint == fingerprint)
        .and_then(|cursor| usize::try_from(cursor.index).ok())
        .ok_or_else(|| Reject::client(RejectKind::InvalidParams, "Invalid cursor", ReasonCode::BadRequest))
}

fn seal(
    gateway: &Gateway,
    caller: &Identified,
    index: usize,
    (kind, fingerprint): (Kind, u64),
) -> Result<String, Reject> {
    let cursor = Cursor { index: index as u64, fingerprint };
    let expires = gateway.clock.unix_secs() + CURSOR_SECS;
    gateway
        .seal
        .seal(kind.list_method(), caller.principal().as_str(), expires, &cursor.encode())
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
                && status.lists.is_none()
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

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
