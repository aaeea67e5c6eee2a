//! One path for list changes: a legacy session's GET and `subscriptions/listen` alike (design §12a).
//!
//! A change is told exactly if the caller's own visible set differs from what it was told last [POL-10].

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use tokio::sync::watch;

use crate::exchange::{Answer, Caller as _, Endpoint, Event, Listen, Reply, Seen, WatchEvent};
use crate::wire::mcp::{Kind, Kinds};

use super::Gateway;
use super::identify::Identified;
use super::resolve::resource;

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

/// What has happened to what is listened to.
enum News {
    /// There is another snapshot.
    Published,
    /// A watched resource has changed.
    Updated,
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
        if !self.wanted.resources.is_empty() {
            let resources = self.watch_all().await;
            return Some((Event::Watch(WatchEvent::Honoured { kinds: self.wanted.kinds, resources }), self));
        }
        loop {
            if let Some(kind) = self.pending.iter().next() {
                self.pending = self.pending.without(kind);
                return Some((Event::Changed(kind), self));
            }
            while let Some(uri) = self.wanted.watching.next_updated() {
                // In the state of this moment: who may not read it does not hear of it [POL-15, R104].
                self.caller = self.caller.renewed(&self.gateway);
                if resource(&self.caller, &self.endpoint, &uri).is_some() {
                    return Some((Event::Watch(WatchEvent::Updated(uri)), self));
                }
            }
            if !self.first {
                match self.news().await? {
                    News::Updated => continue,
                    News::Published => tokio::time::sleep(COALESCE).await,
                }
            }
            self.published.mark_unchanged();
            self.caller = self.caller.renewed(&self.gateway);
            if self.caller.is_lost(&self.endpoint) {
                return Some((Event::Done(Ok(Answer::Ended)), self));
            }
            let now = self.caller.seen(&self.endpoint);
            let (said, told) = (std::mem::replace(&mut self.said, now), self.wanted.told.seen());
            let first = std::mem::replace(&mut self.first, false);
            for kind in Kind::ALL.into_iter().filter(|kind| self.wanted.kinds.contains(kind.told_as())) {
                // Who has listed nothing yet has nothing that could be old.
                let never = first && told.of(kind) == 0;
                if !never && now.of(kind) != said.of(kind) && now.of(kind) != told.of(kind) {
                    self.pending = self.pending.with(kind.told_as());
                    if self.wanted.own {
                        self.wanted.told.update(kind, now.of(kind));
                    }
                }
            }
        }
    }

    /// Waits for something that may have to be told.
    async fn news(&mut self) -> Option<News> {
        tokio::select! {
            changed = self.published.changed() => changed.ok().map(|()| News::Published),
            () = self.wanted.watching.news() => Some(News::Updated),
        }
    }

    /// Watches the resources that a listen names; returns those that are watched. One that is not is left out, whatever the
    /// reason: unknown, hidden and not to be had look alike.
    async fn watch_all(&mut self) -> Vec<String> {
        let uris = std::mem::take(&mut self.wanted.resources);
        let watched =
            uris.iter().map(|uri| self.gateway.watch(self.caller.clone(), &self.endpoint, uri, &self.wanted.watching));
        let watched = join_all(watched).await;
        uris.into_iter().zip(watched).filter(|(_, watched)| watched.is_ok()).map(|(uri, _)| uri).collect()
    }
}
