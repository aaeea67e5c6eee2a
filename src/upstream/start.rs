//! Starts, each for all who wait for it; and the watch over what was started [TRN-3, TRN-4].
//!
//! Not for: who may have a connection (`pool`). Invariants: a start belongs to the server, so that a caller who goes away
//! ends nothing; one that fails is told to all who wait at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use crate::exchange::{Owner, OwnerKey, Reject, UpstreamCall};
use crate::id::PrincipalId;
use crate::wire::mcp::{Era, Feature};

use super::Isolation;
use super::link::{Link, StartError, Started, Want};
use super::member::{Held, Member};
use super::place::Place;
use super::pool::{Found, Holder, Key, Outcome};
use super::server::{Phase, Server};

/// How long a new connection is waited for that will ask for roots, as others of its server have.
const EARLY_MAX: Duration = Duration::from_secs(1);
/// A connection that has lived so long counts as good.
pub(super) const STABLE: Duration = Duration::from_secs(10);

impl Server {
    /// Finds the connection of a call's owner, or waits until it is started; the call holds it until the result is dropped.
    /// On a connection whose server may ask back, nobody else's call is under way meanwhile.
    ///
    /// # Cancel safety
    /// A start goes on for those who come later.
    pub(super) async fn held_for(self: &Arc<Self>, call: &UpstreamCall) -> Result<Held, Reject> {
        let native = call.client.version.era();
        let other = if native == Era::Legacy { Era::Stateless } else { Era::Legacy };
        let known = self.eras();
        let wanted = if known.speaks(native) == Some(false) { other } else { native };
        // A connection that lives serves its owner, whatever has happened to the one the list is read over.
        if let Some(held) = self.find_open(wanted, call) {
            return Ok(held);
        }
        // Boxed, so that a call that finds a connection does not carry the room that this may need.
        Box::pin(self.held_at_last(native, other, call)).await
    }

    /// Starts the connection of a call's owner, or waits until it is started or free.
    async fn held_at_last(self: &Arc<Self>, native: Era, other: Era, call: &UpstreamCall) -> Result<Held, Reject> {
        self.settled().await;
        if let Phase::Down(cause) = self.status().phase {
            return Err(self.down(&StartError::Failed(cause)));
        }
        let eras = self.eras();
        if eras.speaks(native) == Some(false) {
            return self.held_in(other, call).await.map_err(|err| self.down(&err));
        }
        match self.held_in(native, call).await {
            Ok(held) => Ok(held),
            // A server that is known to live in the other era, and does not start in this one, does not speak it.
            Err(err @ (StartError::Era(..) | StartError::Failed(_)))
                if eras.speaks(native).is_none()
                    && (matches!(err, StartError::Era(..)) || eras.speaks(other) == Some(true)) =>
            {
                tracing::info!(server = %self.name(), era = ?native, why = %err, "the server is bridged to from this era");
                let held = self.held_in(other, call).await.map_err(|err| self.down(&err))?;
                self.lacks(native);
                Ok(held)
            }
            Err(err) => Err(self.down(&err)),
        }
    }

    async fn held_in(self: &Arc<Self>, era: Era, call: &UpstreamCall) -> Result<Held, StartError> {
        let mut start: Option<watch::Receiver<Outcome>> = None;
        loop {
            // Before the look, so that nothing that becomes free in between is missed.
            let mut freed = pin!(self.pool.places.freed.notified());
            let mut freed_elsewhere = pin!(self.pool.places.census.freed.notified());
            freed.as_mut().enable();
            freed_elsewhere.as_mut().enable();
            if let Some(outcome) = start.as_ref().and_then(|start| start.borrow().clone()) {
                outcome?;
                start = None;
            }
            // One start is waited for to its end, whatever becomes free meanwhile.
            let found = match &start {
                Some(_) => self.find_open(era, call).map_or(Found::Soon, Found::Held),
                None => self.find(era, call)?,
            };
            match found {
                Found::Held(held) => return Ok(held),
                Found::Starting(goes_on) => start = Some(goes_on),
                Found::Soon => {}
            }
            let over = async {
                match &mut start {
                    Some(start) => start.wait_for(Option::is_some).await.map(drop).is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return Err(stopped()),
                told = over => if !told { return Err(stopped()) },
                () = freed => {}
                () = freed_elsewhere => {}
            }
        }
    }

    /// Starts a connection in the background.
    pub(super) fn start(
        self: &Arc<Self>,
        key: Key,
        place: Option<Arc<Place>>,
        call: &UpstreamCall,
        outcome: watch::Sender<Outcome>,
    ) {
        let (server, owner, principal) = (Arc::clone(self), call.owner.clone(), call.principal.clone());
        self.tasks.spawn("start a connection", async move {
            let want = Want { era: Some(key.era), features: key.features, place };
            let done = match server.open(want).await {
                Ok(started) => server.stand(&key, &started, owner, &principal),
                Err(err) => {
                    server.note_failure(&key, &err);
                    Err(err)
                }
            };
            outcome.send_replace(Some(done));
        });
    }

    async fn open(&self, want: Want) -> Result<Started, StartError> {
        tracing::debug!(server = %self.name(), era = ?want.era, features = ?want.features, "a connection is started");
        let roots = want.features.contains(Feature::Roots) && self.asks_early();
        let opening = async {
            let _turn = self.pool.starts.acquire().await;
            let open = Arc::clone(&self.connector).open(want);
            let opened =
                tokio::time::timeout(self.settings().start_timeout, open).await.unwrap_or_else(|_| Err(late()));
            if let (true, Ok(started)) = (roots, &opened)
                && let Some(early) = started.link.early()
            {
                // Its first call would be sent before the answer that it may need.
                let _asked = tokio::time::timeout(EARLY_MAX, early.cancelled()).await.is_ok();
            }
            opened
        };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(stopped()),
            opened = opening => opened,
        }
    }

    /// Says whether the server has asked for roots before the first call, on the connection of the list or before.
    fn asks_early(&self) -> bool {
        let catalog = self.catalog.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if catalog.is_some_and(|link| link.has_asked_early()) {
            self.early.store(true, Ordering::Relaxed);
        }
        self.early.load(Ordering::Relaxed)
    }

    /// Puts a connection in its place, where somebody may still have it.
    fn stand(
        self: &Arc<Self>,
        key: &Key,
        started: &Started,
        owner: Owner,
        principal: &PrincipalId,
    ) -> Result<(), StartError> {
        let member = self.member(key, started, Some(principal));
        let mut stock = self.pool.stock();
        if !stock.start_over(key) || self.stopping.is_cancelled() {
            drop(stock);
            started.link.close();
            return Err(stopped());
        }
        stock.add(key, Arc::clone(&member));
        // The list moves to the process of the only principal: what a call changes or ends stands there and nowhere else. Its
        // keeper looks for it under the same lock.
        if self.heir_in(&stock).is_some() && self.let_go(&mut stock) {
            tracing::debug!(server = %self.name(), "its list moves");
        }
        drop(stock);
        self.found(key.era);
        self.pool.breaker().reset();
        self.attend(key.clone(), member, Some(owner));
        self.pool.wake();
        // The keeper of the list may be waiting for a place of its own.
        self.pool.places.freed.notify_waiters();
        Ok(())
    }

    fn note_failure(self: &Arc<Self>, key: &Key, err: &StartError) {
        self.pool.stock().start_over(key);
        let StartError::Failed(cause) = err else { return };
        // One that may not speak the era at all has not failed.
        if self.eras().speaks(key.era) != Some(true) || self.stopping.is_cancelled() {
            return;
        }
        self.pool.breaker().failed(self.clock.now(), cause.clone(), 0);
        if self.pool.is_resting() {
            self.fell(cause.clone());
            self.pool.wake();
        }
    }

    /// Takes a connection out when it closes, and closes it when its owner ends. What it tells of changed lists is heard, for
    /// a server may say it beside a call alone; that its owner's roots have changed it is told as long as it is nobody else's.
    pub(super) fn attend(self: &Arc<Self>, key: Key, member: Arc<Member>, owner: Option<Owner>) {
        let server = Arc::clone(self);
        let owner_ended = owner.as_ref().and_then(|owner| owner.ended.clone());
        let owner_ended = owner_ended.filter(|_| matches!(key.holder, Holder::Session(_)));
        let roots = owner.filter(|_| key.features.contains(Feature::RootsChanged));
        let roots = roots.and_then(|owner| Some((owner.key, owner.aside?.roots())));
        let mut changes = member.link.changes();
        self.tasks.spawn("watch a connection", async move {
            let link = Arc::clone(&member.link);
            let owner_gone = async {
                match owner_ended {
                    Some(ended) => ended.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            let mut known = *changes.borrow_and_update();
            let told = async {
                while changes.changed().await.is_ok() {
                    let now = *changes.borrow_and_update();
                    server.told_elsewhere(&link, now.since(&known));
                    known = now;
                }
                std::future::pending().await
            };
            tokio::select! {
                () = link.closed().cancelled() => {}
                () = owner_gone => member.retire().close(),
                () = told => {}
                () = roots_of(roots, &member) => {}
            }
            server.pool.stock().closed(&key, &member);
            if link.is_channel() && !member.is_retired() {
                // What comes in its place may have another list, and tells nobody.
                server.doubts.send_modify(|count| *count += 1);
            }
            link.close();
            Arc::clone(&link).ended().await;
            let now = server.clock.now();
            let soon = link.is_channel() && !member.is_retired() && now.since(member.born) < STABLE;
            let words = soon.then(|| link.last_words().unwrap_or_default());
            server.pool.stock().ended(&key, &member, words, now);
            server.pool.places.freed.notify_waiters();
        });
    }

    /// Opens a connection to read the list over, where there is none that it can be read over.
    pub(super) async fn open_for_list(&self) -> Result<ForList, StartError> {
        if let Some(owned) = self.heir() {
            return Ok(owned);
        }
        let place = if self.is_http() {
            None
        } else {
            match self.place_for_list().await {
                Ok(place) => Some(place),
                Err(owned) => return Ok(owned),
            }
        };
        let _permit = self.starts.acquire().await;
        let want = Want { era: None, features: self.listed_with(Era::Legacy), place: place.clone() };
        let open = Arc::clone(&self.connector).open(want);
        let started =
            tokio::time::timeout(self.settings().start_timeout, open).await.unwrap_or_else(|_| Err(late()))?;
        started.link.refuse_early();
        // A call may have started one meanwhile.
        if let Some(owned) = self.heir() {
            started.link.close();
            return Ok(owned);
        }
        Ok(ForList { started, berth: Berth::Free(place) })
    }

    /// Finds the connection that the list is to be read over rather than over one of its own.
    pub(super) fn heir(&self) -> Option<ForList> {
        let started = self.heir_in(&self.pool.stock())?;
        Some(ForList { started, berth: Berth::Owned })
    }

    /// Gives the place back of a connection of the list that has ended before anybody took it for its own.
    pub(super) fn clear_berth(&self) {
        drop(self.pool.stock().unowned.take_if(|(started, _)| started.link.closed().is_cancelled()));
    }

    /// Waits for a place, or for what a call has started that will do. Callers come first: while they have them all, the list
    /// stays as it was.
    async fn place_for_list(&self) -> Result<Arc<Place>, ForList> {
        loop {
            let mut freed = pin!(self.pool.places.freed.notified());
            freed.as_mut().enable();
            if let Some(owned) = self.heir() {
                return Err(owned);
            }
            if let Ok(place) = self.pool.places.take(None, false) {
                return Ok(place);
            }
            self.is_used_without_list();
            freed.await;
        }
    }

    /// Says which connection the list is read over.
    pub(super) fn list_over(&self, link: Option<&Arc<dyn Link>>) {
        *self.catalog.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = link.cloned();
    }

    /// Lets callers have a connection that was opened for the list: its first fitting one, or all where it is everybody's.
    /// `false`: a call has started one meanwhile that the list is to be read over instead.
    #[must_use]
    pub(super) fn offer(self: &Arc<Self>, started: &Started, berth: Berth) -> bool {
        // One that a call has started has its holder.
        let Berth::Free(place) = berth else { return true };
        let link = &started.link;
        let mut stock = self.pool.stock();
        if self.heir_in(&stock).is_some() {
            return false;
        }
        self.list_over(Some(link));
        let stateless_http = self.is_http() && link.era() == Era::Stateless;
        if stateless_http || self.settings().isolation() == Isolation::Shared {
            let key = Key { holder: Holder::Shared, era: link.era(), features: self.listed_with(link.era()) };
            let member = self.member(&key, started, None);
            stock.add(&key, Arc::clone(&member));
            drop(stock);
            self.attend(key, member, None);
        } else if let Some(place) = place {
            stock.unowned = Some((started.clone(), place));
        }
        true
    }
}

/// A connection that the list is to be read over.
#[derive(Debug)]
pub(super) struct ForList {
    pub(super) started: Started,
    pub(super) berth: Berth,
}

/// Whose a connection is that the list is read over.
#[derive(Debug)]
pub(super) enum Berth {
    /// Nobody's yet; a process has a place.
    Free(Option<Arc<Place>>),
    /// It has a holder.
    Owned,
}

/// Tells a connection's server of each change of its owner's roots. Never ends.
async fn roots_of(roots: Option<(OwnerKey, watch::Receiver<u64>)>, member: &Member) {
    if let Some((owner, mut changes)) = roots {
        while changes.changed().await.is_ok() {
            if member.is_only_of(&owner) {
                Arc::clone(&member.link).roots_changed();
            }
        }
    }
    std::future::pending().await
}

fn stopped() -> StartError {
    StartError::Failed("is being stopped".to_owned())
}

fn late() -> StartError {
    StartError::Failed("did not finish its start in time (start_timeout_secs)".to_owned())
}
