//! The connections of one server: whose each is, who holds it, and when nobody needs it any more [TRN-4].
//!
//! Not for: starting (`start`), or the connection the list is read over (`server`). Invariants: one holder's state is never
//! in another's hands; what is held is never stopped for being idle, for both are decided under one lock; a connection on
//! which the server may ask back is held by one call at a time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::{Notify, Semaphore, watch};

use crate::clock::Moment;
use crate::exchange::{OwnerKey, UpstreamCall};
use crate::id::PrincipalId;
use crate::wire::mcp::{Era, Features};

use super::Isolation;
use super::breaker::Breaker;
use super::link::{Link, StartError, Started};
use super::member::{Held, Member};
use super::place::{Full, Place, Places};
use super::server::Server;

/// How many different sets of features have connections of one server for one holder; the holder's clients with another
/// one are not asked anything. Nobody uses up what another may be asked.
const CLASSES_MAX: usize = 4;
/// How many sessions of HTTP+SSE one holder has with a server at once, each for one call that may be asked back; the next
/// call waits.
const CHANNELS_MAX: usize = 16;
/// How many starts of one server go on at once that calls wait for.
const STARTS_MAX: usize = 4;
/// How long a client is asked nothing on a connection where the server has not answered a call that another client gave up;
/// then, when nobody holds it, it is replaced.
const DOUBT_MAX: Duration = Duration::from_secs(60);

/// Whose connection it is, in which era, and what the server was told that it may ask there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) holder: Holder,
    pub(super) era: Era,
    pub(super) features: Features,
}

/// Who has a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// One principal, in all of its sessions.
    Principal(PrincipalId),
    /// One session of a client.
    Session(u64),
    /// Everybody who is granted the server.
    Shared,
}

/// How a start ended that others wait for; `None` while it goes on.
pub(super) type Outcome = Option<Result<(), StartError>>;

/// All connections of one server, and what is known of its starts.
#[derive(Debug)]
pub(super) struct Pool {
    stock: Mutex<Stock>,
    pub(super) places: Arc<Places>,
    pub(super) starts: Semaphore,
    /// Starts that have failed, whoever they were for.
    pub(super) breaker: Mutex<Breaker>,
    /// The server was stopped because nobody used it.
    resting: AtomicBool,
    /// The keeper of the list has not noticed that yet.
    stopped: AtomicBool,
    /// Wakes the keeper of the list when that is over.
    woken: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Stock {
    shelves: HashMap<Key, Shelf>,
    /// The connection that was opened for the list, until a caller takes it for its own.
    pub(super) unowned: Option<(Started, Arc<Place>)>,
    /// Since when nobody has had a connection.
    quiet_since: Option<Moment>,
}

/// The connections of one key.
#[derive(Debug, Default)]
struct Shelf {
    members: Vec<Arc<Member>>,
    start: Option<watch::Receiver<Outcome>>,
    /// Connections that have ended soon after their start.
    early: Breaker,
}

/// What a call finds.
pub(super) enum Found {
    Held(Held),
    /// A start goes on.
    Starting(watch::Receiver<Outcome>),
    /// Something is about to be free.
    Soon,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new(places: Arc<Places>) -> Self {
        Self {
            stock: Mutex::default(),
            places,
            starts: Semaphore::new(STARTS_MAX),
            breaker: Mutex::default(),
            resting: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            woken: Notify::new(),
        }
    }

    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Acquire)
    }

    fn lay_down(&self) {
        self.stopped.store(true, Ordering::Release);
        self.resting.store(true, Ordering::Release);
    }

    /// Says, once, whether the connection of the list was ended because nobody used the server.
    pub(super) fn was_laid_down(&self) -> bool {
        self.stopped.swap(false, Ordering::AcqRel)
    }

    /// The same, without taking note of it.
    pub(super) fn is_laid_down(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until the rest is over.
    pub(super) async fn rested(&self) {
        // A wake of before may have left its mark.
        while self.is_resting() {
            self.woken.notified().await;
        }
    }

    /// Ends the rest; says whether there was one. The keeper is woken.
    pub(super) fn wake(&self) -> bool {
        let rested = self.resting.swap(false, Ordering::AcqRel);
        if rested {
            self.woken.notify_one();
        }
        rested
    }
}

// === impl Stock ===

impl Stock {
    /// Shortens a key to one of no features where the server has enough different ones already.
    fn classed(&self, key: Key) -> Key {
        if key.features == Features::NONE || self.shelves.contains_key(&key) {
            return key;
        }
        let mine = self.shelves.keys().filter(|known| known.holder == key.holder);
        let classes: HashSet<Features> = mine.map(|known| known.features).collect();
        let full = classes.iter().filter(|known| **known != Features::NONE).count() >= CLASSES_MAX;
        if full && !classes.contains(&key.features) { Key { features: Features::NONE, ..key } } else { key }
    }

    /// Says whether somebody owns the connection, or may be about to.
    pub(super) fn owns(&self, link: &Arc<dyn Link>) -> bool {
        self.members().any(|(_, member)| Arc::ptr_eq(&member.link, link))
    }

    /// Says whose a connection is, where it is one principal's.
    pub(super) fn whose(&self, link: &Arc<dyn Link>) -> Option<PrincipalId> {
        let (_, member) = self.members().find(|(_, member)| Arc::ptr_eq(&member.link, link))?;
        member.principal().cloned()
    }

    /// Takes note that the start of a key is over; `false` if nobody wants what came of it.
    pub(super) fn start_over(&mut self, key: &Key) -> bool {
        self.shelves.get_mut(key).is_some_and(|shelf| shelf.start.take().is_some())
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, key: &Key, member: Arc<Member>) {
        self.shelves.entry(key.clone()).or_default().members.push(member);
        self.quiet_since = None;
    }

    /// Takes a connection out that has closed.
    pub(super) fn closed(&mut self, key: &Key, member: &Arc<Member>) {
        if let Some(shelf) = self.shelves.get_mut(key) {
            shelf.members.retain(|other| !Arc::ptr_eq(other, member));
        }
    }

    /// Takes note that a connection has ended for good: by itself `soon` after its start, which counts as a failure, by
    /// itself later, or because it was ended from here.
    pub(super) fn ended(&mut self, key: &Key, member: &Member, soon: Option<String>, now: Moment) {
        let Some(shelf) = self.shelves.get_mut(key) else { return };
        match soon {
            // A server may end once, as a person may stop it; in a loop it may not.
            Some(cause) => shelf.early.failed(now, cause, 1),
            None if !member.is_retired() => shelf.early.reset(),
            None => {}
        }
        if shelf.is_blank(now) {
            self.shelves.remove(key);
        }
    }

    /// Empties everything; returns the connections.
    pub(super) fn drain(&mut self) -> Vec<Arc<dyn Link>> {
        self.unowned = None;
        let shelves = self.shelves.drain();
        shelves.flat_map(|(_, shelf)| shelf.members).map(|member| member.retire()).collect()
    }

    /// Takes out the connections of those principals that may not keep them.
    pub(super) fn drain_but(&mut self, keeps: impl Fn(&PrincipalId) -> bool) -> Vec<Arc<dyn Link>> {
        let gone = |key: &Key| match &key.holder {
            Holder::Principal(principal) => !keeps(principal),
            // The session's own end closes it.
            Holder::Session(_) | Holder::Shared => false,
        };
        let taken: Vec<_> = self.shelves.extract_if(|key, _| gone(key)).collect();
        taken.into_iter().flat_map(|(_, shelf)| shelf.members).map(|member| member.retire()).collect()
    }

    /// Finds what has been idle longest and is held by nobody, of what `of` names.
    fn idlest(&self, of: impl Fn(&Member) -> bool) -> Option<(Key, Arc<Member>)> {
        let idle = self.members().filter(|(_, member)| !member.is_held() && of(member));
        let (key, member) = idle.min_by_key(|(_, member)| member.last_seen())?;
        Some((key.clone(), Arc::clone(member)))
    }

    /// Finds what lives and was used last, of what `of` names.
    fn busiest(&self, of: impl Fn(&Key, &Member) -> bool) -> Option<&Arc<Member>> {
        let living = self.members().filter(|(key, member)| !member.link.closed().is_cancelled() && of(key, member));
        living.max_by_key(|(_, member)| (member.is_held(), member.last_seen())).map(|(_, member)| member)
    }

    fn members(&self) -> impl Iterator<Item = (&Key, &Arc<Member>)> {
        self.shelves.iter().flat_map(|(key, shelf)| shelf.members.iter().map(move |member| (key, member)))
    }

    /// Takes a connection out whose end is brought about from here.
    fn retire(&mut self, key: &Key, member: &Arc<Member>) -> Arc<dyn Link> {
        self.closed(key, member);
        member.retire()
    }
}

impl Shelf {
    /// Finds a connection for an owner's call, and better one on which the call may be asked.
    fn free(&self, owner: &OwnerKey) -> Option<&Arc<Member>> {
        let free = || self.members.iter().filter(|member| member.is_free());
        free().find(|member| member.is_clear_for(owner)).or_else(|| free().next())
    }

    fn is_blank(&self, now: Moment) -> bool {
        self.members.is_empty() && self.start.is_none() && !self.early.matters(now)
    }
}

// === impl Server ===

impl Server {
    /// Finds a connection for a call, or has one started. The words of an error are for the operator.
    pub(super) fn find(self: &Arc<Self>, era: Era, call: &UpstreamCall) -> Result<Found, StartError> {
        let now = self.clock.now();
        let mut stock = self.pool.stock();
        let key = stock.classed(self.key(era, call));
        let shelf = stock.shelves.entry(key.clone()).or_default();
        shelf.members.retain(|member| !member.link.closed().is_cancelled());
        if let Some(member) = shelf.free(&call.owner.key).map(Arc::clone) {
            if member.is_held() || member.doubt(&call.owner.key, now) < DOUBT_MAX || !self.may_end(&member.link) {
                return Ok(Found::Held(member.hold(&call.owner.key)));
            }
            tracing::info!(server = %self.name(), "a connection is replaced: a call that was cancelled is not answered there");
            self.end(&stock.retire(&key, &member));
        }
        let shelf = stock.shelves.entry(key.clone()).or_default();
        if self.is_http() && shelf.members.len() >= CHANNELS_MAX {
            return Ok(Found::Soon);
        }
        // A start whose task is gone will never end.
        shelf.start.take_if(|start| start.has_changed().is_err());
        if let Some(start) = &shelf.start {
            return Ok(Found::Starting(start.clone()));
        }
        if let Some(why) = shelf.early.why_not(now) {
            return Err(StartError::Failed(format!("has ended soon after each start: {why}")));
        }
        if let Some(held) = self.adopt(&mut stock, &key, call) {
            return Ok(Found::Held(held));
        }
        if let Some(why) = self.pool.breaker().why_not(now) {
            return Err(StartError::Failed(why.to_owned()));
        }
        let place = match self.place(&key, call) {
            Ok(place) => place,
            Err(full) => return self.make_room(stock, &key, call, full),
        };
        let (outcome, start) = watch::channel(None);
        stock.shelves.entry(key.clone()).or_default().start = Some(start.clone());
        drop(stock);
        self.start(key, place, call, outcome);
        Ok(Found::Starting(start))
    }

    /// Finds a connection that is open already and free.
    pub(super) fn find_open(&self, era: Era, call: &UpstreamCall) -> Option<Held> {
        let key = self.key(era, call);
        let stock = self.pool.stock();
        let members = &stock.shelves.get(&key)?.members;
        let free = |member: &&Arc<Member>| {
            !member.link.closed().is_cancelled() && member.is_free() && member.is_clear_for(&call.owner.key)
        };
        members.iter().find(free).map(|member| member.hold(&call.owner.key))
    }

    /// A place for a process; other connections need none.
    fn place(&self, key: &Key, call: &UpstreamCall) -> Result<Option<Arc<Place>>, Full> {
        if self.is_http() {
            return Ok(None);
        }
        let account = match &key.holder {
            Holder::Principal(principal) => Some(principal),
            Holder::Session(_) => Some(&call.principal),
            Holder::Shared => None,
        };
        self.pool.places.take(account, self.sole().is_none()).map(Some)
    }

    /// All places are taken: what is idle makes room, and is waited for. Where the principal has all of its own, that is what
    /// it has left idle longest on any server.
    fn make_room(
        &self,
        mut stock: MutexGuard<'_, Stock>,
        key: &Key,
        call: &UpstreamCall,
        full: Full,
    ) -> Result<Found, StartError> {
        let busy = self.is_alone(key) && stock.shelves.get(key).is_some_and(|shelf| !shelf.members.is_empty());
        let room = match full {
            Full::Principal(_) => {
                // Another server has a lock of its own.
                drop(stock);
                self.pool.places.census.make_room(&call.principal) || busy
            }
            Full::Share(_) => {
                self.pool.places.one_leaves() || self.end_idlest_of(&mut stock, Some(&call.principal)) || busy
            }
            Full::Server(_) => {
                self.pool.places.one_leaves() || self.end_idlest_of(&mut stock, None) || busy || self.rest(&mut stock)
            }
        };
        if room { Ok(Found::Soon) } else { Err(StartError::Full(full)) }
    }

    /// Says when what a principal has left idle longest was seen used last; `None` if there is nothing that may be ended.
    pub(super) fn idle_since(&self, principal: &PrincipalId) -> Option<(bool, u64)> {
        let stock = self.pool.stock();
        Some(self.idlest(&stock, Some(principal))?.1.last_seen())
    }

    /// Ends the process that has been idle longest, of a principal or of all; `false` if there is none that may be.
    pub(super) fn end_idlest(&self, principal: Option<&PrincipalId>) -> bool {
        let mut stock = self.pool.stock();
        self.end_idlest_of(&mut stock, principal)
    }

    fn end_idlest_of(&self, stock: &mut Stock, principal: Option<&PrincipalId>) -> bool {
        let Some((key, member)) = self.idlest(stock, principal) else { return false };
        self.end(&stock.retire(&key, &member));
        true
    }

    fn idlest(&self, stock: &Stock, principal: Option<&PrincipalId>) -> Option<(Key, Arc<Member>)> {
        // Connections that are no processes make no room for one.
        let theirs = |member: &Member| principal.is_none_or(|principal| member.principal() == Some(principal));
        stock.idlest(|member| theirs(member) && self.may_end(&member.link)).filter(|_| !self.is_http())
    }

    /// Finds the connection that the list is to be read over rather than over one of its own: that of the only principal, or
    /// one that all share.
    pub(super) fn heir_in(&self, stock: &Stock) -> Option<Started> {
        let sole = self.sole();
        let fits = |key: &Key, member: &Member| {
            let theirs = match &key.holder {
                Holder::Principal(principal) => sole.as_ref() == Some(principal),
                Holder::Shared => key.features == self.listed_with(key.era),
                Holder::Session(_) => false,
            };
            theirs && member.link.is_channel()
        };
        stock.busiest(fits).map(|member| member.started())
    }

    /// Gives the connection that was opened for the list to its first caller, where it fits: whose client declared less would
    /// have a server that asks what nobody answers. With more principals than one, the list must not depend on what one of
    /// them does to a child of its own.
    fn adopt(self: &Arc<Self>, stock: &mut Stock, key: &Key, call: &UpstreamCall) -> Option<Held> {
        let (Started { link, .. }, place) = stock.unowned.as_ref()?;
        let theirs = matches!(&key.holder, Holder::Principal(principal) if self.sole().as_ref() == Some(principal))
            && self.settings().isolation() == Isolation::Principal;
        let fits = link.era() == key.era && key.features == self.listed_with(key.era) && !link.closed().is_cancelled();
        // One whose question for roots was refused would go without them.
        let poor = link.has_asked_early();
        if poor || !theirs || !fits || place.assign(&call.principal).is_err() {
            return None;
        }
        let (started, _place) = stock.unowned.take()?;
        let member = self.member(key, &started, Some(&call.principal));
        let held = member.hold(&call.owner.key);
        stock.add(key, Arc::clone(&member));
        self.attend(key.clone(), member, Some(call.owner.clone()));
        Some(held)
    }

    fn key(&self, era: Era, call: &UpstreamCall) -> Key {
        let features = if era == Era::Legacy { self.askable(call.client.features) } else { Features::NONE };
        if era == Era::Stateless && self.is_http() {
            return Key { holder: Holder::Shared, era, features };
        }
        let holder = match (self.settings().isolation(), &call.owner.key) {
            (Isolation::Session, OwnerKey::Session(number)) => Holder::Session(*number),
            (Isolation::Session, OwnerKey::Principal(_)) | (Isolation::Principal, _) => {
                Holder::Principal(call.principal.clone())
            }
            (Isolation::Shared, _) => Holder::Shared,
        };
        Key { holder, era, features }
    }

    /// Returns what a server is told that it may ask: on a channel that several principals share nothing, for it would never
    /// be known whom [TRN-10].
    pub(super) fn askable(&self, features: Features) -> Features {
        let shared_channel = self.settings().isolation() == Isolation::Shared && self.transport() != "http";
        if shared_channel { Features::NONE } else { features }
    }

    /// Makes what stands in the pool for a connection, of a principal's or everybody's.
    pub(super) fn member(&self, key: &Key, started: &Started, principal: Option<&PrincipalId>) -> Arc<Member> {
        let asks = key.era == Era::Legacy && key.features.may_be_asked();
        // A channel does not say which call a question of the server belongs to, so that there is one call at a time; where it
        // is shared, none is asked there.
        let alone = asks && started.link.is_channel() && key.holder != Holder::Shared;
        // A session is one client's.
        let doubtful = asks && matches!(key.holder, Holder::Principal(_));
        let principal = principal.filter(|_| key.holder != Holder::Shared).cloned();
        Member::new(started, principal, (alone, doubtful), self.clock.now(), &self.pool.places)
    }

    /// What a server is told that it may ask where its lists are read: everything, for it may list its asking tools to those
    /// alone who can be asked. A stateless one is told with each request.
    pub(super) fn listed_with(&self, era: Era) -> Features {
        if era == Era::Stateless { Features::NONE } else { self.askable(Features::ASKABLE) }
    }

    /// A pipe does not say which call a question of the server belongs to, so that there is one call at a time.
    pub(super) fn is_alone(&self, key: &Key) -> bool {
        !self.is_http() && key.era == Era::Legacy && key.features.may_be_asked()
    }

    /// Stops what nobody has used for so long, and forgets what is over [TRN-4].
    pub(super) fn sweep(&self, now: Moment) {
        let mut stock = self.pool.stock();
        let limit = self.settings().idle_stop;
        let mut idle = Vec::new();
        for shelf in stock.shelves.values_mut() {
            let stops = |member: &mut Arc<Member>| {
                // What is held open costs something while nobody calls; else there is nothing to stop.
                let idle = member.link.is_channel() && limit.is_some_and(|limit| member.is_idle(now, limit));
                idle && self.may_end(&member.link)
            };
            idle.extend(shelf.members.extract_if(.., stops).map(|member| member.retire()));
        }
        stock.shelves.retain(|_, shelf| !shelf.is_blank(now));
        if !idle.is_empty() {
            tracing::info!(server = %self.name(), connections = idle.len(), "stopped: nobody has used it for a while");
        }
        for link in idle {
            self.end(&link);
        }
        let Some(limit) = limit else { return };
        if !stock.shelves.is_empty() {
            stock.quiet_since = None;
            return;
        }
        let since = *stock.quiet_since.get_or_insert(now);
        if now.since(since) >= limit && self.rest(&mut stock) {
            tracing::info!(server = %self.name(), "the server rests: nobody has used it for a while");
        }
    }

    /// Stops the connection that the list is read over, until somebody calls; `false` if there is none that may be.
    fn rest(&self, stock: &mut Stock) -> bool {
        self.watches.is_empty() && self.let_go(stock)
    }

    /// Stops the connection that was opened for the list; `false` if there is none, or somebody has it.
    pub(super) fn let_go(&self, stock: &mut Stock) -> bool {
        let rests = |link: &Arc<dyn Link>| link.is_channel() && !link.closed().is_cancelled() && !stock.owns(link);
        let Some(link) = self.listed().filter(rests) else { return false };
        stock.unowned = None;
        self.end(&link);
        true
    }

    /// Says whether an idle connection may be ended: subscriptions stand on that of the list.
    fn may_end(&self, link: &Arc<dyn Link>) -> bool {
        self.watches.is_empty() || !self.is_catalog(link)
    }

    /// Ends a connection. Where the list is read over it, that waits for the next call.
    pub(super) fn end(&self, link: &Arc<dyn Link>) {
        if self.is_catalog(link) {
            self.pool.lay_down();
        }
        link.close();
    }

    pub(super) fn is_catalog(&self, link: &Arc<dyn Link>) -> bool {
        self.listed().is_some_and(|listed| Arc::ptr_eq(&listed, link))
    }

    /// Returns the connection that the list is read over.
    pub(super) fn listed(&self) -> Option<Arc<dyn Link>> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
