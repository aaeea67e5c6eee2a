//! Keeps one server going: started, its lists read and read again, started anew when it has gone.
//!
//! Not for: whose connection is whose (`server`). Invariants: each kind of list is read on its own, so that one which fails,
//! hangs or never ends hides no other; the last good list of a kind stands until there is a newer one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};

use crate::catalog::Lists;
use crate::id::PrincipalId;
use crate::runtime::ReadyLatch;
use crate::wire::mcp::{Capabilities, Kind, Kinds};

use super::audience::Owners;
use super::breaker::backoff;
use super::link::{Changes, Started};
use super::list::{self, Listing};
use super::server::{Phase, Server};
use super::start::{Berth, ForList, STABLE};
use super::{Isolation, OnDown};

/// How long after a server went down `on_down = "hide"` takes its tools away [TRN-7].
const HIDE_AFTER: Duration = Duration::from_secs(10);
/// Changes that come together are read once.
const COALESCE: Duration = Duration::from_millis(250);
/// A list with a time to live is read again after it, but not more often than this; nor is one that could not be read.
const TTL_MIN: Duration = Duration::from_secs(5);
/// What a server says of a longer time is not believed.
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// How often the pause is doubled while nothing new comes of it.
const DOUBLED_MAX: u32 = 4;
/// How often it is looked at what nobody uses, at the least and at the most.
const SWEEP_MIN: Duration = Duration::from_millis(250);
const SWEEP_MAX: Duration = Duration::from_secs(30);
/// How long the first good list of a server waits for its lists of the other kinds.
const LAG: Duration = Duration::from_secs(2);

/// One reading of one kind, and whose own connection it was read over.
type Reading = (Kind, Option<PrincipalId>, Result<Listing, String>);

/// How a connection has lived.
enum Life {
    /// It has shown no list at all; the cause.
    Barren(String),
    /// It has ended soon after its first list, which counts as a failure.
    Short,
    /// It has lived long enough.
    Long,
    /// The list goes on over another one.
    Moves,
}

/// How old a connection is, from its first good list on.
enum Age {
    /// Too young to count as good; how long it has to live yet.
    Young(Option<Pin<Box<Sleep>>>),
    /// Old enough.
    Old,
}

/// What is known of one connection's lists.
struct Keeping {
    lists: Lists,
    owners: Owners,
    can: Capabilities,
    /// Kinds that have not been read yet.
    pending: Kinds,
    /// There is a good list, or none to be had.
    good: bool,
    /// Why the first that failed could not be read.
    cause: Option<String>,
    /// How long the good lists wait for the others.
    lag: Option<Pin<Box<Sleep>>>,
    /// What is known was published.
    settled: bool,
}

// === impl Server ===

impl Server {
    /// Starts the server and keeps it: lists, watches, restarts with backoff. Ends when tasks are cancelled.
    pub(super) async fn supervise(self: Arc<Self>, latch: Option<ReadyLatch>) {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            () = Arc::clone(&self).keep(latch) => {}
            () = self.tidy() => {}
        }
    }

    /// Stops what nobody uses, as long as the server lives.
    async fn tidy(&self) {
        let pause = self.settings.idle_stop.map_or(SWEEP_MAX, |idle| (idle / 4).clamp(SWEEP_MIN, SWEEP_MAX));
        loop {
            sleep(pause).await;
            self.sweep(self.clock.now());
        }
    }

    async fn keep(self: Arc<Self>, mut latch: Option<ReadyLatch>) {
        let mut failures = 0_u32;
        loop {
            let life = match self.open_for_list().await {
                Ok(opened) => self.live(opened, &mut latch).await,
                Err(err) => Life::Barren(err.to_string()),
            };
            self.clear_berth();
            if self.pool.was_laid_down() {
                // Where its only principal works with another process, the list goes on over that.
                if self.heir().is_some() {
                    self.pool.wake();
                }
                self.pool.rested().await;
                failures = 0;
                continue;
            }
            failures = if matches!(life, Life::Long | Life::Moves) { 0 } else { failures.saturating_add(1) };
            match life {
                Life::Long | Life::Short => self.set_phase(if failures < 2 {
                    Phase::Starting
                } else {
                    Phase::Down(format!("has ended {failures} times soon after its start"))
                }),
                Life::Moves => continue,
                Life::Barren(cause) => self.fell(cause),
            }
            sleep(backoff(failures)).await;
            if matches!(self.status.borrow().phase, Phase::Down(_)) && failures == 1 {
                tracing::info!(server = %self.name(), "the server is tried again");
            }
        }
    }

    /// Lives with one connection until it ends. Changes are listened for before anything is read, so that none is lost.
    async fn live(self: &Arc<Self>, opened: ForList, latch: &mut Option<ReadyLatch>) -> Life {
        let ForList { started, berth } = opened;
        let link = Arc::clone(&started.link);
        // What somebody calls over is not ended for a list that it does not give: the last good ones stand.
        let owned = matches!(berth, Berth::Owned);
        if owned {
            self.list_over(Some(&link));
        }
        let mut berth = Some(berth);
        let kinds = started.can.lists;
        let (found, mut heard) = mpsc::channel(Kind::ALL.len());
        let changes = link.changes();
        // Where calls share it, a server may ask beside them.
        let asks = self.settings().isolation() == Isolation::Shared;
        if !started.can.tells.is_empty() || started.can.subscribe || asks {
            Arc::clone(&link).watch(started.can.tells);
        }
        let mut watching = pin!(self.watches.serve(&link, started.can));
        let reading = kinds.iter().map(|kind| keep_kind(self, &started, kind, changes.clone(), found.clone()));
        let mut reading = pin!(join_all(reading));
        let mut keeping = self.keeping(started.can, owned);
        let mut age = Age::Young(None);
        loop {
            if keeping.may_settle() {
                if let Some(cause) = keeping.failure() {
                    link.close();
                    return Life::Barren(cause);
                }
                if !self.settle(&started, berth.take(), &mut keeping) {
                    link.close();
                    return Life::Moves;
                }
                // Ready from the first good list on, whatever happens later [OPS-4].
                drop(latch.take());
                age = Age::Young(Some(Box::pin(sleep(STABLE))));
            }
            if owned && self.is_anothers(&link) {
                return self.leaves();
            }
            tokio::select! {
                () = link.closed().cancelled() => {
                    let words = link.last_words().unwrap_or_else(|| "the connection ended".to_owned());
                    if !keeping.settled && !owned {
                        return Life::Barren(keeping.failure().unwrap_or(words));
                    }
                    if !self.pool.is_laid_down() {
                        tracing::warn!(server = %self.name(), cause = words, "the server has gone");
                    }
                    return age.life();
                }
                () = self.apart.notified() => {
                    // It may have been said twice before this connection was opened.
                    if self.is_anothers(&link) {
                        return self.leaves();
                    }
                }
                Some(reading) = heard.recv() => self.take(&mut keeping, reading),
                () = rings(keeping.lag.as_mut()) => keeping.pending = Kinds::NONE,
                () = age.grows() => age = Age::Old,
                _ = reading.as_mut(), if !kinds.is_empty() => {}
                () = watching.as_mut() => {}
            }
        }
    }

    /// Leaves a connection to its holder, who goes on with it.
    fn leaves(&self) -> Life {
        tracing::info!(server = %self.name(), "its list leaves a connection that is one principal's own");
        self.list_over(None);
        Life::Moves
    }

    /// Starts from the last good lists, less those of kinds that the server does not have now; `enough`: they will do.
    fn keeping(&self, can: Capabilities, enough: bool) -> Keeping {
        let kinds = can.lists;
        let known = self.status();
        let (mut lists, mut owners) = (known.lists.unwrap_or_default(), Owners::all(known.of.as_ref()));
        for kind in Kind::ALL.into_iter().filter(|kind| !kinds.contains(*kind)) {
            lists.set(kind, Arc::default());
            owners.set(kind, None);
        }
        let good = kinds.is_empty() || enough;
        Keeping { lists, owners, can, pending: kinds, good, cause: None, lag: None, settled: false }
    }

    /// Takes a reading in.
    fn take(&self, keeping: &mut Keeping, (kind, whose, listing): Reading) {
        keeping.pending = keeping.pending.without(kind);
        match listing {
            Ok(listing) => {
                for warning in &listing.warnings {
                    tracing::warn!(server = %self.name(), list = kind.list_method(), warning, "its list is not as it should be");
                }
                keeping.lists.set(kind, Arc::from(listing.items));
                keeping.owners.set(kind, whose);
                keeping.good = true;
                if keeping.settled {
                    self.publish(keeping);
                } else if keeping.lag.is_none() {
                    keeping.lag = Some(Box::pin(sleep(LAG)));
                }
            }
            Err(cause) => {
                tracing::warn!(server = %self.name(), list = kind.list_method(), cause, "its list could not be read");
                keeping.cause.get_or_insert_with(|| format!("{} failed: {cause}", kind.list_method()));
            }
        }
    }

    /// Shows what was read, and lets callers have the connection; `false` if the list is to be read over another one.
    fn settle(self: &Arc<Self>, started: &Started, berth: Option<Berth>, keeping: &mut Keeping) -> bool {
        keeping.settled = true;
        keeping.lag = None;
        self.found(started.link.era());
        if !self.offer(started, berth.unwrap_or(Berth::Owned)) {
            return false;
        }
        self.publish(keeping);
        true
    }

    fn publish(&self, keeping: &mut Keeping) {
        self.hidden.store(false, Ordering::Release);
        self.show(&mut keeping.lists, keeping.can, &mut keeping.owners);
    }

    pub(super) fn hide_later(self: &Arc<Self>) {
        if self.settings.on_down != OnDown::Hide || self.is_hidden() {
            return;
        }
        let server = Arc::clone(self);
        self.tasks.spawn("hide a server that is down", async move {
            sleep(HIDE_AFTER).await;
            if matches!(server.status.borrow().phase, Phase::Down(_)) {
                server.hidden.store(true, Ordering::Release);
                server.tell();
            }
        });
    }
}

/// Reads a kind, and again after each change and when it is no longer fresh. Never ends.
async fn keep_kind(
    server: &Server,
    started: &Started,
    kind: Kind,
    mut changes: watch::Receiver<Changes>,
    found: mpsc::Sender<Reading>,
) {
    let (mut doubts, mut elsewhere) = (server.doubts.subscribe(), server.elsewhere.subscribe());
    // What the last list was, and how often in a row nothing new has come of reading it.
    let (mut last, mut vain): (Vec<Bytes>, u32) = (Vec::new(), 0);
    loop {
        let (before, before_elsewhere) = (*changes.borrow_and_update(), *elsewhere.borrow_and_update());
        doubts.mark_unchanged();
        let link = server.listed_over(&started.link);
        // Whosever it is at any time meanwhile, it is that one's own.
        let whose = server.whose(&link);
        let reading = list::read(&link, kind, &server.settings);
        let listing = tokio::time::timeout(server.settings.tool_max, reading)
            .await
            .unwrap_or_else(|_| Err("its pages take too long".to_owned()));
        let again = match &listing {
            Ok(_) if started.can.tells.contains(kind) => None,
            Ok(Listing { ttl: None, .. }) => None,
            Ok(Listing { ttl: Some(ttl), items, .. }) => {
                let now: Vec<Bytes> = items.iter().map(|item| item.raw.clone()).collect();
                vain = if now == last { vain.saturating_add(1) } else { 0 };
                last = now;
                Some(again_after(*ttl, vain))
            }
            Err(_) => {
                vain = vain.saturating_add(1);
                Some(again_after(TTL_MIN, vain - 1))
            }
        };
        // The receiver lives as long as this future.
        let whose = whose.or_else(|| server.whose(&link));
        let _taken = found.send((kind, whose, listing)).await.is_ok();
        let expired = async {
            match again {
                Some(pause) => sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed(&mut changes, kind, &before) => sleep(COALESCE).await,
            () = changed(&mut elsewhere, kind, &before_elsewhere) => sleep(COALESCE).await,
            Ok(()) = doubts.changed() => sleep(COALESCE).await,
            // With a principal's own connection goes what it had changed; with the list's own all of this ends.
            () = link.closed().cancelled() => sleep(COALESCE).await,
            () = expired => {}
        }
    }
}

/// The pause before a list is read again though nobody has told of a change: its time to live, longer while nothing new comes
/// of it, with up to a quarter of jitter [R84].
fn again_after(ttl: Duration, vain: u32) -> Duration {
    let base = ttl.clamp(TTL_MIN, TTL_MAX).saturating_mul(1 << vain.min(DOUBLED_MAX));
    let jitter = crate::seal::random::<1>().map_or(0, |[byte]| u32::from(byte));
    base + base / 4 * jitter / 255
}

/// Waits until the server has told of a change of this kind since `before`.
async fn changed(changes: &mut watch::Receiver<Changes>, kind: Kind, before: &Changes) {
    if changes.wait_for(|now| now.since(before).contains(kind)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits for a timer; for ever where there is none.
async fn rings(timer: Option<&mut Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

// === impl Age ===

impl Age {
    async fn grows(&mut self) {
        match self {
            Self::Young(timer) => rings(timer.as_mut()).await,
            Self::Old => std::future::pending().await,
        }
    }

    const fn life(&self) -> Life {
        match self {
            Self::Old => Life::Long,
            Self::Young(_) => Life::Short,
        }
    }
}

// === impl Keeping ===

impl Keeping {
    /// Says whether what there is may be shown: everything was asked for, and nothing is waited for any more.
    const fn may_settle(&self) -> bool {
        !self.settled && self.pending.is_empty()
    }

    /// Says why nothing at all could be read.
    fn failure(&mut self) -> Option<String> {
        if self.good { None } else { self.cause.take() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TTL_MAX, TTL_MIN, again_after};

    /// [R84]
    #[test]
    fn what_is_read_in_vain_is_read_less_often_and_never_in_step() {
        let second = Duration::from_secs(1);
        for (ttl, vain, least) in [
            (Duration::from_millis(1), 0, TTL_MIN),
            (60 * second, 0, 60 * second),
            (60 * second, 1, 120 * second),
            (60 * second, 4, 960 * second),
            (60 * second, u32::MAX, 960 * second),
            (Duration::MAX, 0, TTL_MAX),
            (Duration::from_millis(u64::MAX), 4, TTL_MAX * 16),
        ] {
            let pauses: Vec<Duration> = (0..64).map(|_| again_after(ttl, vain)).collect();
            assert!(pauses.iter().all(|pause| (least..=least * 5 / 4).contains(pause)), "{ttl:?} {vain}");
            assert!(pauses.iter().any(|pause| pause != &pauses[0]), "all at once");
        }
    }
}
