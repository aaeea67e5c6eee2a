//! Calls of stateless clients whose servers ask on the way: each is kept alive until its client comes back with answers.
//!
//! Not for: what a call does meanwhile (`parked_call`), or a stateless server's own `requestState`, which needs nothing kept.
//! Invariants: the handle is sealed, expires, and opens for its principal and its very call alone [TRN-10, R92, R96]; the
//! number kept is bounded, in all and per principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::exchange::{Event, EventStream, Question, ReasonCode, Reject, RejectKind};
use crate::id::PrincipalId;
use crate::runtime::{Drain, Tasks};
use crate::seal::Seal;

use super::parked_call::{Joiner, ParkedCall};

const PURPOSE: &str = "parked call";
/// How many retries of one call wait to be heard.
const RETRIES_MAX: usize = 8;

/// How many calls are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ParkedLimits {
    /// The most in all.
    pub max: usize,
    /// The most of one principal.
    pub per_principal_max: usize,
    /// How long a client may take to come back with its answers.
    pub time: Duration,
    /// How long a finished answer is kept for a client that has lost it.
    pub keep: Duration,
    /// How long a call goes on that nobody waits for any more, between two tries of its client.
    pub abandoned: Duration,
    /// How often one call may ask.
    pub rounds_max: u64,
}

/// A call as the hall handed it back.
pub struct Live {
    /// What comes of it. Dropping it cancels the call at its server.
    pub events: EventStream,
    /// What was taken for it: the lease of its connection.
    pub guards: Vec<Box<dyn Send>>,
}

/// The handle of a parked call, opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    number: u64,
    round: u64,
}

/// A client that has come back.
#[derive(Debug)]
pub(super) struct Retry {
    /// Whose round it answers.
    pub(super) round: u64,
    /// The answers by their keys.
    pub(super) answers: Vec<(String, Bytes)>,
    /// Where what follows goes.
    pub(super) joiner: Joiner,
}

/// The parked calls of the process.
#[derive(Debug)]
pub struct ParkedCalls {
    seal: Option<Seal>,
    clock: Clock,
    tasks: Tasks,
    drain: Drain,
    limits: ParkedLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<u64, Entry>,
    of: HashMap<PrincipalId, usize>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    principal: PrincipalId,
    binding: [u8; 32],
    /// Dropping it ends a call that is over.
    retries: mpsc::Sender<Retry>,
    standing: Standing,
}

/// Who waits for a parked call; what is worth least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Its outcome was told: it is kept for a client that has lost that.
    Told,
    /// Its outcome came while its client was being asked, who may come for it until its handle is too old.
    Due,
    /// It goes on.
    Live,
}

/// A place in the table; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    calls: Arc<ParkedCalls>,
    pub(super) number: u64,
    pub(super) principal: PrincipalId,
}

// === impl ParkedLimits ===

impl Default for ParkedLimits {
    fn default() -> Self {
        Self {
            max: 256,
            per_principal_max: 16,
            time: Duration::from_secs(600),
            keep: Duration::from_secs(60),
            abandoned: Duration::from_secs(5),
            rounds_max: 16,
        }
    }
}

// === impl ParkedCalls ===

impl ParkedCalls {
    /// Makes an empty store. Its handles live as long as the process.
    #[must_use]
    pub fn new(limits: ParkedLimits, clock: Clock, tasks: Tasks, drain: Drain) -> Arc<Self> {
        let seal = Seal::new().inspect_err(|err| tracing::error!(%err, "no call can be parked")).ok();
        Arc::new(Self { seal, clock, tasks, drain, limits, table: Mutex::default() })
    }

    /// Parks a call that asks; returns what its client hears now. `binding` is a digest of all that a retry must repeat.
    ///
    /// # Errors
    /// Too many are parked, or the gateway stops: then the call is cancelled at its server.
    pub fn park(
        self: &Arc<Self>,
        principal: &PrincipalId,
        binding: [u8; 32],
        live: Live,
        first: Question,
    ) -> Result<EventStream, Reject> {
        let (retries, heard) = mpsc::channel(RETRIES_MAX);
        let place = self.take_place(principal, binding, retries)?;
        let (joiner, events) = Joiner::new();
        let call = ParkedCall::new(place, live, first, joiner, heard);
        self.tasks.spawn("parked call", call.run());
        Ok(events)
    }

    /// Opens a handle; `None` if it is none of a parked call, of this principal, and not too old.
    #[must_use]
    pub fn open(&self, principal: &PrincipalId, state: &str) -> Option<Joining> {
        let now = self.clock.unix_secs();
        let opened = self.seal.as_ref()?.open(PURPOSE, principal.as_str(), now, state).ok()?;
        let (number, round) = opened.split_at_checked(8)?;
        let read = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
        Some(Joining { number: read(number)?, round: read(round)? })
    }

    /// Joins the call with answers; returns what its client hears. An identical retry hears the same [R96].
    ///
    /// # Errors
    /// The call has ended, is another's, or was asked with other params.
    pub fn join(
        &self,
        principal: &PrincipalId,
        binding: [u8; 32],
        joining: Joining,
        answers: Vec<(String, Bytes)>,
    ) -> Result<EventStream, Reject> {
        let retries = {
            let table = self.table();
            let entry = table.calls.get(&joining.number);
            let entry = entry.filter(|entry| entry.principal == *principal && entry.binding == binding);
            entry.map(|entry| entry.retries.clone()).ok_or_else(Reject::bad_state)?
        };
        let (joiner, events) = Joiner::new();
        retries.try_send(Retry { round: joining.round, answers, joiner }).map_err(|err| match err {
            mpsc::error::TrySendError::Full(_) => too_many("too many retries of one call"),
            mpsc::error::TrySendError::Closed(_) => Reject::bad_state(),
        })?;
        Ok(events)
    }

    /// Ends the calls of the principals that `keeps` does not keep: nobody can come for them [CFG-4].
    pub fn retain(&self, keeps: impl Fn(&PrincipalId) -> bool) {
        let mut table = self.table();
        let gone = table.calls.iter().filter(|(_, entry)| !keeps(&entry.principal));
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        for number in gone {
            table.remove(number);
        }
    }

    /// Says how many calls are parked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().calls.len()
    }

    /// Says whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_place(
        self: &Arc<Self>,
        principal: &PrincipalId,
        binding: [u8; 32],
        retries: mpsc::Sender<Retry>,
    ) -> Result<Place, Reject> {
        let mut table = self.table();
        let mine = table.of.get(principal).copied().unwrap_or_default();
        if self.drain.is_draining() || self.seal.is_none() {
            return Err(Reject::client(RejectKind::Draining, "The gateway is stopping", ReasonCode::Draining));
        }
        // What is over gives way to what goes on, the principal's own first.
        if mine >= self.limits.per_principal_max && !table.forget_over(Some(principal)) {
            return Err(too_many("limits.parked_calls_per_principal is reached"));
        }
        if table.calls.len() >= self.limits.max && !table.forget_over(None) {
            return Err(too_many("limits.parked_calls is reached"));
        }
        table.last += 1;
        let number = table.last;
        *table.of.entry(principal.clone()).or_default() += 1;
        table.calls.insert(number, Entry { principal: principal.clone(), binding, retries, standing: Standing::Live });
        Ok(Place { calls: Arc::clone(self), number, principal: principal.clone() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    /// Takes a call out; `false` if it is out already.
    fn remove(&mut self, number: u64) -> bool {
        let Some(entry) = self.calls.remove(&number) else { return false };
        if let Some(mine) = self.of.get_mut(&entry.principal) {
            *mine = mine.saturating_sub(1);
            if *mine == 0 {
                self.of.remove(&entry.principal);
            }
        }
        true
    }

    /// Takes a call out that is over, of this principal or of any: one whose outcome was told before one that its client may
    /// still come for, the oldest first. `false` if there is none.
    fn forget_over(&mut self, of: Option<&PrincipalId>) -> bool {
        let over = |entry: &Entry| entry.standing < Standing::Live && of.is_none_or(|of| entry.principal == *of);
        let over = self.calls.iter().filter(|(_, entry)| over(entry));
        let least = over.map(|(number, entry)| (entry.standing, *number)).min();
        least.is_some_and(|(_, number)| self.remove(number))
    }
}

fn too_many(detail: &str) -> Reject {
    let words = "Too many calls wait for their client's answers";
    Reject::client(RejectKind::TooMany, words, ReasonCode::OverLimit).with_detail(detail)
}

// === impl Place ===

impl Place {
    pub(super) fn limits(&self) -> &ParkedLimits {
        &self.calls.limits
    }

    pub(super) fn drain(&self) -> &Drain {
        &self.calls.drain
    }

    /// Takes note that the call has its outcome: from here on it is kept as long as there is room.
    pub(super) fn over(&self, standing: Standing) {
        if let Some(entry) = self.calls.table().calls.get_mut(&self.number) {
            entry.standing = standing;
        }
    }

    /// Seals the handle of one round.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub(super) fn seal(&self, round: u64) -> Result<String, Reject> {
        let failed = |why: &str| Reject::upstream(RejectKind::Upstream, "the gateway cannot seal a handle", why);
        let seal = self.calls.seal.as_ref().ok_or_else(|| failed("no key"))?;
        let expires = self.calls.clock.unix_secs().saturating_add(self.limits().time.as_secs());
        let payload = [self.number.to_be_bytes(), round.to_be_bytes()].concat();
        seal.seal(PURPOSE, self.principal.as_str(), expires, &payload).map_err(|err| failed(&err.to_string()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.table().remove(self.number);
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("guards", &self.guards.len()).finish_non_exhaustive()
    }
}

/// Ends a stream of events that must have an outcome.
pub(super) fn lost() -> Event {
    let why = "the call ended without an outcome";
    Event::Done(Err(Reject::upstream(RejectKind::Upstream, "The call was lost", why)))
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
