//! The requests that wait for an answer on one connection, and what has arrived for each.
//!
//! Not for: reading or writing. Invariants: exactly one outcome per request; nothing follows it; an entry that is gone
//! is never written and never answered; what comes beside the calls and may be of another client's call than the one in
//! flight is nobody's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::exchange::{Event, Outcome, OwnerKey, Question, Reject};
use crate::upstream::link::{Left, Outgoing, progress_value};
use crate::wire::jsonrpc::Notification;
use crate::wire::mcp::{Features, LogMessage};

/// How many notifications wait for a client; when full, the oldest is dropped.
const NOTES_MAX: usize = 32;
/// How many bytes of them wait, as long as there is more than one; when full, likewise.
const NOTES_BYTES_MAX: usize = 1 << 20;
/// How many calls that were given up are remembered; a server that obeys a cancel never answers them. Over it the
/// connection is in doubt for everybody.
const STRAGGLERS_MAX: usize = 64;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Table {
    /// Several principals have it: what comes beside their calls is nobody's.
    shared: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<u64, Arc<Slot>>,
    last_id: u64,
    /// Calls that were given up, until the server answers them.
    stragglers: Vec<(u64, OwnerKey)>,
    /// There were more of them than are remembered.
    forgotten: bool,
    /// Whose call came first.
    first: Option<OwnerKey>,
    /// Others have called since.
    others: bool,
    /// Set once no request is taken any more.
    shut: Option<Reject>,
}

/// One request.
#[derive(Debug)]
pub(in crate::upstream) struct Slot {
    outgoing: Outgoing,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The writer has begun to write it.
    written: bool,
    /// Progress and logs, in the order they came.
    notes: VecDeque<Event>,
    progress_last: Option<f64>,
    questions: VecDeque<Question>,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// Whose calls a connection has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Owners {
    /// Nobody's.
    Nobody,
    /// One owner's.
    One,
    /// Several owners', or it is not known.
    Several,
}

/// What is to be done for a request whose caller has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Abandoned {
    /// The server works on it and should be told.
    Cancel,
    /// It has ended, or was never sent.
    Nothing,
}

// === impl Table ===

impl Table {
    /// Makes the table of a connection that belongs to one holder, or is `shared` by all who are granted the server.
    pub(in crate::upstream) fn new(shared: bool) -> Self {
        Self { shared, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request under the next id.
    pub(in crate::upstream) fn enter(&self, outgoing: Outgoing) -> Result<(u64, Arc<Slot>), Reject> {
        let mut inner = self.inner();
        if let Some(reject) = &inner.shut {
            return Err(reject.clone().safe_to_retry());
        }
        if let Outgoing::Call(call) = &outgoing {
            inner.called_by(&call.owner.key);
        }
        inner.last_id += 1;
        let id = inner.last_id;
        let slot = Arc::new(Slot { outgoing, state: Mutex::default() });
        inner.slots.insert(id, Arc::clone(&slot));
        Ok((id, slot))
    }

    /// Notes that a request is about to be written; `false` if nobody waits for it any more.
    pub(in crate::upstream) fn begin(&self, id: u64) -> bool {
        self.inner().slots.get(&id).map(|slot| slot.state().written = true).is_some()
    }

    /// Ends a request; `false` if there is none of this id.
    pub(in crate::upstream) fn finish(&self, id: u64, outcome: Outcome) -> bool {
        let mut inner = self.inner();
        let slot = inner.slots.remove(&id);
        if slot.is_none() {
            inner.stragglers.retain(|(straggler, _)| *straggler != id);
        }
        drop(inner);
        slot.map(|slot| slot.finish(outcome)).is_some()
    }

    /// Hands a progress notification to its request; `false` if it is dropped [R109].
    pub(in crate::upstream) fn progress(&self, id: u64, notification: &Notification) -> bool {
        let slot = self.inner().slots.get(&id).map(Arc::clone);
        slot.is_some_and(|slot| slot.progress(notification))
    }

    /// Hands a log message to the call that it is of; `false` if it is dropped. A pipe does not say which call that is: it is
    /// known where there is one alone, and where all are of one client session, whose message it is then in any case
    /// [R111, protocol §5.3]; where several principals share the pipe it is never known [TRN-10].
    pub(in crate::upstream) fn log(&self, message: &Notification) -> bool {
        if self.shared {
            return false;
        }
        let inner = self.inner();
        let mut calls = inner.slots.iter().filter_map(|(id, slot)| match &slot.outgoing {
            Outgoing::Call(call) => Some((*id, &call.owner.key, slot)),
            Outgoing::Own { .. } => None,
        });
        let Some(first) = calls.next() else { return false };
        if inner.left_behind(first.1) == Left::Others {
            return false;
        }
        let mut oldest = first;
        for call in calls {
            if call.1 != first.1 || !matches!(call.1, OwnerKey::Session(_)) {
                return false;
            }
            if call.0 < oldest.0 {
                oldest = call;
            }
        }
        let slot = Arc::clone(oldest.2);
        drop(inner);
        note(slot.state(), Event::Log(LogMessage::of(message.clone())));
        true
    }

    /// Takes out a request whose caller has gone.
    pub(in crate::upstream) fn abandon(&self, id: u64) -> Abandoned {
        let mut inner = self.inner();
        let Some(slot) = inner.slots.remove(&id) else { return Abandoned::Nothing };
        // A handshake request is never cancelled [protocol §3]; the late answer finds no entry.
        let handshake = matches!(slot.outgoing.method(), "initialize" | "server/discover");
        if !slot.state().written || handshake {
            return Abandoned::Nothing;
        }
        inner.give_up(id, &slot);
        Abandoned::Cancel
    }

    /// Returns the one call that a question can belong to: the only client's call that waits, while the server does not
    /// still work on one that another owner has given up. On a connection that several principals share there is none: the
    /// question could be late, or of work that a call has left behind [R100, TRN-10].
    pub(in crate::upstream) fn only_call(&self) -> Option<Arc<Slot>> {
        if self.shared {
            return None;
        }
        let inner = self.inner();
        let mut calls = inner.slots.values().filter(|slot| slot.features().is_some());
        let (first, second) = (calls.next()?, calls.next());
        let clear = first.owner().is_some_and(|owner| inner.left_behind(owner) != Left::Others);
        (second.is_none() && clear).then(|| Arc::clone(first))
    }

    /// Says whose calls it has had, while none is under way.
    pub(in crate::upstream) fn resting(&self) -> Owners {
        let inner = self.inner();
        let busy = inner.slots.values().any(|slot| slot.features().is_some());
        match &inner.first {
            _ if self.shared || busy || inner.others => Owners::Several,
            Some(_) => Owners::One,
            None => Owners::Nobody,
        }
    }

    /// Says whether all its calls are of one owner.
    pub(in crate::upstream) fn has_one_owner(&self) -> bool {
        let inner = self.inner();
        !self.shared && !inner.others && inner.first.is_some()
    }

    /// Says whose calls were given up that the server has not answered.
    pub(in crate::upstream) fn left_behind(&self, owner: &OwnerKey) -> Left {
        self.inner().left_behind(owner)
    }

    /// Takes no more requests.
    pub(in crate::upstream) fn shut(&self, why: &Reject) {
        self.inner().shut.get_or_insert_with(|| why.clone());
    }

    /// Fails every request that waits.
    pub(in crate::upstream) fn fail_all(&self, why: &Reject) {
        self.fail(why, |_| true);
    }

    /// Fails every request that was not yet written.
    pub(in crate::upstream) fn fail_unwritten(&self, why: &Reject) {
        self.fail(why, |written| !written);
    }

    fn fail(&self, why: &Reject, which: impl Fn(bool) -> bool) {
        let failed: Vec<Arc<Slot>> = {
            let mut inner = self.inner();
            let failed: Vec<_> = inner.slots.extract_if(|_, slot| which(slot.state().written)).collect();
            for (id, slot) in failed.iter().filter(|(_, slot)| slot.state().written) {
                inner.give_up(*id, slot);
            }
            failed.into_iter().map(|(_, slot)| slot).collect()
        };
        for slot in failed {
            let written = slot.state().written;
            slot.finish(Err(if written { why.clone() } else { why.clone().safe_to_retry() }));
        }
    }

    /// Counts the requests that wait.
    #[cfg(test)]
    pub(in crate::upstream) fn len(&self) -> usize {
        self.inner().slots.len()
    }
}

// === impl Inner ===

impl Inner {
    /// Takes note of a call's owner.
    fn called_by(&mut self, owner: &OwnerKey) {
        match &self.first {
            Some(first) => self.others |= first != owner,
            None => self.first = Some(owner.clone()),
        }
    }

    /// Takes note that nobody waits any more for what the server may work on.
    fn give_up(&mut self, id: u64, slot: &Slot) {
        let Some(owner) = slot.owner() else { return };
        if self.stragglers.len() < STRAGGLERS_MAX {
            self.stragglers.push((id, owner.clone()));
        } else {
            self.forgotten = true;
        }
    }

    fn left_behind(&self, owner: &OwnerKey) -> Left {
        if self.forgotten || self.stragglers.iter().any(|(_, theirs)| theirs != owner) {
            return Left::Others;
        }
        if self.stragglers.is_empty() { Left::Nothing } else { Left::Own }
    }
}

// === impl Slot ===

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, outcome: Outcome) {
        let mut state = self.state();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn progress(&self, notification: &Notification) -> bool {
        let Some(value) = progress_value(notification) else { return false };
        let Some(spelled) = self.outgoing.progress_for_client(notification) else { return false };
        let mut state = self.state();
        if state.progress_last.is_some_and(|last| value <= last) {
            return false;
        }
        state.progress_last = Some(value);
        note(state, Event::Progress(spelled));
        true
    }

    /// Returns what the client of this call can be asked; `None` if it is no client's call.
    pub(in crate::upstream) fn features(&self) -> Option<Features> {
        match &self.outgoing {
            Outgoing::Call(call) => Some(call.client.features),
            Outgoing::Own { .. } => None,
        }
    }

    /// Returns who owns the call; `None` if it is no client's.
    fn owner(&self) -> Option<&OwnerKey> {
        match &self.outgoing {
            Outgoing::Call(call) => Some(&call.owner.key),
            Outgoing::Own { .. } => None,
        }
    }

    /// What was taken back while nobody looked is no question any more.
    pub(super) fn drop_taken_back(&self) {
        self.state().questions.retain(|question| !question.responder.asked().is_over());
    }

    /// Hands a question to this call.
    pub(in crate::upstream) fn ask(&self, question: Question) {
        self.drop_taken_back();
        let mut state = self.state();
        state.questions.push_back(question);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns what has arrived, notifications first and the outcome last.
    pub(in crate::upstream) fn poll(&self, context: &Context<'_>) -> Poll<Event> {
        let mut state = self.state();
        if let Some(note) = state.notes.pop_front() {
            return Poll::Ready(note);
        }
        if let Some(question) = state.questions.pop_front() {
            return Poll::Ready(Event::Ask(question));
        }
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(Event::Done(outcome));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Puts a notification into the queue of a request.
fn note(mut state: MutexGuard<'_, State>, note: Event) {
    let over = |waiting: &VecDeque<Event>| {
        let bytes: usize = waiting.iter().map(Event::note_bytes).sum();
        waiting.len() >= NOTES_MAX || bytes + note.note_bytes() > NOTES_BYTES_MAX
    };
    while over(&state.notes) && state.notes.pop_front().is_some() {}
    state.notes.push_back(note);
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
pub(in crate::upstream) mod tests;
