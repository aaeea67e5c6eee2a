//! One path for list changes: a legacy session's GET and `subscriptions/listen` alike (design §12a).
//!
//! A change is told exactly if the caller's own visible set differs from what it was told last [POL-10].

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::watch;

use crate::exchange::{Caller as _, Endpoint, Event, Listen, Reply};

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
    said: u64,
    first: bool,
}

/// Opens a stream of changes. It ends when the client closes it, or the door does.
pub(super) fn listen(gateway: Arc<Gateway>, caller: &Identified, endpoint: Endpoint, wanted: Listen) -> Reply {
    let published = gateway.published.subscribe();
    let said = wanted.told.fingerprint();
    let listener = Listener { said, caller: caller.clone(), endpoint, wanted, published, first: true, gateway };
    Reply::events(Box::pin(stream::unfold(listener, Listener::next)))
}

impl Listener {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if !self.first {
                self.published.changed().await.ok()?;
                tokio::time::sleep(COALESCE).await;
            }
            self.first = false;
            self.published.mark_unchanged();
            self.caller = self.caller.renewed(&self.gateway);
            let now = self.caller.seen(&self.endpoint);
            let said = std::mem::replace(&mut self.said, now);
            if self.wanted.tools && now != said && now != self.wanted.told.fingerprint() {
                if self.wanted.own {
                    self.wanted.told.update(now);
                }
                return Some((Event::ToolsChanged, self));
            }
        }
    }
}
