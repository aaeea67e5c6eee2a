//! Watched resources: who may watch, what becomes of it when servers change, and who is told [POL-10, POL-15].
//!
//! Not for: asking servers (`upstream`). Invariants: a watch exists only for a resource that its client could read at that
//! moment; with each snapshot all are judged anew: what may not be read any more is watched no longer, and what a new
//! server serves is watched there before the old one is let go; an update is told only if the resource could be read then.
//! Judging many holds nobody up: not who watches meanwhile, nor the other tasks of its thread [LIM-6].

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::catalog::Entry;
use crate::exchange::{
    Asking, Caller as _, Endpoint, Hold, ReasonCode, Reject, RejectKind, TooManyWatched, Watching, WeakWatching,
};
use crate::policy::Action;
use crate::runtime::Tasks;
use crate::upstream::{Hears, Server, Watch, WatchError};
use crate::wire::mcp::Kind;

use super::Gateway;
use super::identify::Identified;
use super::list::{not_offered, wait_for_first_lists};
use super::resolve::resource;

/// How many servers are asked at once for what they serve now; the rest is judged again when half of them have answered.
const ASKED_MAX: u32 = 1024;

/// A client that watches something.
#[derive(Debug)]
pub(super) struct Watcher {
    watching: WeakWatching,
    /// As it was judged last.
    caller: Mutex<Identified>,
    endpoint: Endpoint,
}

/// What judging may do.
struct Judge {
    gateway: Arc<Gateway>,
    tasks: Tasks,
    /// Bounds what servers are asked.
    asking: Arc<Semaphore>,
}

/// A resource whose server is being asked: it is not watched if it refuses, or if nobody waits for it any more.
struct Begun<'a> {
    watching: &'a Watching,
    uri: &'a str,
    settled: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.watching.end(self.uri);
        }
    }
}

impl Gateway {
    /// Watches a resource for a client, once its server has accepted. One that is watched already stays as it is.
    ///
    /// # Errors
    /// [`Reject`]: unknown or hidden, which look alike; the server does not do that; or too many are watched.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing watched.
    pub(super) async fn watch(
        &self,
        caller: Identified,
        endpoint: &Endpoint,
        uri: &str,
        watching: &Watching,
    ) -> Result<(), Reject> {
        let (caller, entry) = match resource(&caller, endpoint, uri) {
            Some(entry) => (caller, entry),
            None => {
                let caller = wait_for_first_lists(self, caller, endpoint).await;
                let why = || caller.why_hidden(endpoint, Kind::Resources, uri);
                let entry = resource(&caller, endpoint, uri)
                    .ok_or_else(|| Reject::unknown(Kind::Resources, why()).about(uri))?;
                (caller, entry)
            }
        };
        if !watching.begin(uri).map_err(too_many)? {
            return Ok(());
        }
        let mut begun = Begun { watching, uri, settled: false };
        self.register(&caller, endpoint, watching);
        let watch = ask(&caller, endpoint, &entry, uri, watching)?;
        watch.accepted().await.map_err(|err| refused(&err))?;
        begun.settled = true;
        drop(watching.hold(uri, Some(Arc::new(watch))));
        self.judge_again(caller.snapshot().generation());
        Ok(())
    }

    /// Lets all be judged again if there is a newer snapshot: what was being asked then was left alone.
    fn judge_again(&self, judged_by: u64) {
        if self.snapshot.load().generation() != judged_by {
            self.published.send_modify(|_| {});
        }
    }

    fn register(&self, caller: &Identified, endpoint: &Endpoint, watching: &Watching) {
        let caller = Mutex::new(caller.clone());
        let new = Arc::new(Watcher { watching: watching.downgrade(), caller, endpoint: endpoint.clone() });
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.watching.upgrade().is_some());
        if !watchers.iter().any(|watcher| watcher.watching.is(&new.watching)) {
            watchers.push(new);
        }
    }

    /// Judges all watches anew with each snapshot.
    pub(super) async fn keep_watches(self: Arc<Self>, tasks: Tasks, mut published: watch::Receiver<u64>) {
        let judge = Judge { gateway: self, tasks, asking: Arc::new(Semaphore::new(ASKED_MAX as usize)) };
        let mut left = false;
        loop {
            tokio::select! {
                changed = published.changed() => if changed.is_err() { return },
                half = judge.asking.acquire_many(ASKED_MAX / 2), if left => drop(half),
            }
            left = judge.all().await;
        }
    }
}

impl Judge {
    /// Judges all that are registered, each on its own; says whether something is left for want of room. Who registers
    /// meanwhile is judged again by itself.
    async fn all(&self) -> bool {
        let all = self.gateway.watchers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut left = false;
        for watcher in all {
            match self.one(&watcher) {
                Some(some) => left |= some,
                None => {
                    let mut watchers = self.gateway.watchers.lock().unwrap_or_else(PoisonError::into_inner);
                    watchers.retain(|other| !Arc::ptr_eq(other, &watcher));
                }
            }
            // Each may watch hundreds, and there may be thousands of them.
            tokio::task::yield_now().await;
        }
        left
    }

    /// Judges what one client watches; says whether something is left. `None` if it watches nothing any more.
    fn one(&self, watcher: &Watcher) -> Option<bool> {
        let watching = watcher.watching.upgrade()?;
        let caller = {
            let mut caller = watcher.caller.lock().unwrap_or_else(PoisonError::into_inner);
            *caller = caller.clone().renewed(&self.gateway);
            caller.clone()
        };
        if caller.is_lost(&watcher.endpoint) {
            watching.clear();
            return None;
        }
        let mut left = false;
        for uri in watching.watched() {
            match Arc::clone(&self.asking).try_acquire_owned() {
                Ok(room) => self.keep((&caller, &watcher.endpoint), &watching, uri, room),
                Err(_) => left = true,
            }
        }
        Some(left)
    }

    /// Judges one watch anew.
    fn keep(
        &self,
        (caller, endpoint): (&Identified, &Endpoint),
        watching: &Watching,
        uri: String,
        room: OwnedSemaphorePermit,
    ) {
        // Where its server is being asked, that is not disturbed.
        let Some(held) = watching.settled(&uri) else { return };
        let held = held.and_then(|hold| hold.downcast::<Watch>().ok());
        let Some(entry) = resource(caller, endpoint, &uri) else {
            // It may come back: then it is watched again.
            drop(watching.hold(&uri, None));
            return;
        };
        let server = caller.snapshot().targets().get(&entry.server);
        if held.as_ref().is_some_and(|held| server.is_some_and(|server| server.holds(held))) {
            return;
        }
        let Ok(watch) = ask(caller, endpoint, &entry, &uri, watching) else { return };
        watching.ask(&uri, Asking::Begun);
        let (gateway, watching) = (Arc::clone(&self.gateway), watching.clone());
        let generation = caller.snapshot().generation();
        self.tasks.spawn("watch a resource again", again(gateway, generation, watching, (uri, watch), room));
    }
}

/// Waits for the server that serves a resource now, then lets go of the one before.
async fn again(
    gateway: Arc<Gateway>,
    generation: u64,
    watching: Watching,
    (uri, watch): (String, Watch),
    room: OwnedSemaphorePermit,
) {
    // The old server is let go only now; what was missed in between counts as an update.
    match watch.accepted().await {
        Ok(()) => {
            let before = watching.hold(&uri, Some(Arc::new(watch) as Hold));
            watching.updated(&uri, uri.clone());
            drop(before);
        }
        Err(err) => {
            tracing::info!(%err, "a resource is not watched at the server that serves it now");
            watching.ask(&uri, Asking::Failed);
        }
    }
    drop(room);
    gateway.judge_again(generation);
}

/// Asks the server, by its own URI.
fn ask(
    caller: &Identified,
    endpoint: &Endpoint,
    entry: &Entry,
    uri: &str,
    watching: &Watching,
) -> Result<Watch, Reject> {
    let unknown = |why| Reject::unknown(entry.kind, why);
    let action = Action { kind: entry.kind, server: &entry.server, shown: &entry.shown, full: &entry.full };
    let permitted =
        caller.subject().decide(&action).permit(Arc::clone(&entry.original)).map_err(|why| unknown(why.into()))?;
    let server = caller.snapshot().targets().get(&entry.server).ok_or_else(|| unknown(ReasonCode::Unknown))?;
    if !server.status().can.subscribe {
        return Err(not_offered());
    }
    server.watch(caller.principal(), permitted, hears(server, endpoint, uri, watching)).map_err(|err| refused(&err))
}

/// Writes down what the server tells, by the client's URIs.
fn hears(server: &Arc<Server>, endpoint: &Endpoint, uri: &str, watching: &Watching) -> Hears {
    let (watching, watched, name) = (watching.downgrade(), uri.to_owned(), server.name().clone());
    let own_names = *endpoint != Endpoint::All;
    Arc::new(move |own| {
        let Some(watching) = watching.upgrade() else { return };
        let shown = if own_names { own.to_owned() } else { Entry::unlisted(&name, own).shown.to_string() };
        watching.updated(&watched, shown);
    })
}

fn too_many(err: TooManyWatched) -> Reject {
    Reject::client(RejectKind::TooMany, err.to_string(), ReasonCode::OverLimit)
}

fn refused(err: &WatchError) -> Reject {
    Reject::upstream(RejectKind::Upstream, err.to_string(), "")
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
