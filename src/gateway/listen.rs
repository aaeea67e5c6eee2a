//! One path for list changes: a legacy session's GET and `subscriptions/listen` alike (design §12a).
//!
//! A change is told exactly if the caller's own visible set differs from what it was told last [POL-10].

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::watch;

use crate::exchange::{Answer, Caller as _, Endpoint, Event, Listen, Reply, Seen};
use crate::wire::mcp::{Kind, Kinds};

use super::Gateway;
use super::identify::Identified;

/// Snapshots that come together are judged once.
const COALESCE: Duration = Duration::from_millis(50);

struct Listener {
    gateway: Arc<Gateway>,
    caller: Identified,
    endpoint: Endpoint,
    wanted: Listen,
    published: watch::Receiver<u64>,
    /// What this stream has said last.
    said: Seen,
    /// What is to be said now.
    pending: Kinds,
    first: bool,
}

/// Opens a stream of changes. It ends when the client closes it, or the door does, or when a reload has taken away what
/// it lived by [CFG-4].
pub(super) fn listen(gateway: Arc<Gateway>, caller: &Identified, endpoint: Endpoint, wanted: Listen) -> Reply {
    let published = gateway.published.subscribe();
    let said = wanted.told.seen();
    let pending = Kinds::NONE;
    let listener =
        Listener { said, pending, caller: caller.clone(), endpoint, wanted, published, first: true, gateway };
    Reply::events(Box::pin(stream::unfold(listener, Listener::next)))
}

impl Listener {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(kind) = self.pending.iter().next() {
                self.pending = self.pending.without(kind);
                return Some((Event::Changed(kind), self));
            }
            if !self.first {
                self.published.changed().await.ok()?;
                tokio::time::sleep(COALESCE).await;
            }
            self.first = false;
            self.published.mark_unchanged();
            self.caller = self.caller.renewed(&self.gateway);
            if self.caller.is_lost(&self.endpoint) {
                return Some((Event::Done(Ok(Answer::Ended)), self));
            }
            let now = self.caller.seen(&self.endpoint);
            let (said, told) = (std::mem::replace(&mut self.said, now), self.wanted.told.seen());
            for kind in Kind::ALL.into_iter().filter(|kind| self.wanted.kinds.contains(kind.told_as())) {
                if now.of(kind) != said.of(kind) && now.of(kind) != told.of(kind) {
                    self.pending = self.pending.with(kind.told_as());
                    if self.wanted.own {
                        self.wanted.told.update(kind, now.of(kind));
                    }
                }
            }
        }
    }
}
