//! Places for calls under way: so many of a principal, at a server, of a tool; and who is next.
//!
//! Not for: sleeping; a call that waits is woken by the waker it left. Invariants: no bound is ever passed; a place comes
//! back exactly once, whatever is dropped when; nobody waits who could go; at each server the principals take turns, so
//! that one of many calls holds up the others by one call at most.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::id::{PrincipalId, UpstreamName};

use super::{Exceeded, LimitSettings};

/// What a call takes a place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose call it is.
    pub principal: PrincipalId,
    /// Where it goes.
    pub server: UpstreamName,
    /// The full name of its tool.
    pub tool: Arc<str>,
}

/// What came of asking for a place.
#[derive(Debug)]
pub enum Entered {
    /// There was one.
    Now(Permit),
    /// It is waited for.
    Later(Waiting),
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    slots: Arc<Slots>,
    place: Place,
}

/// A call that waits for a place; when this is dropped, it waits no more.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    slots: Arc<Slots>,
    ticket: Option<u64>,
}

/// All places.
#[derive(Debug)]
pub(super) struct Slots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bounds: LimitSettings,
    principals: HashMap<PrincipalId, Own>,
    servers: HashMap<UpstreamName, Line>,
    tickets: HashMap<u64, Ticket>,
    last: u64,
}

/// What one principal has.
#[derive(Debug, Default)]
struct Own {
    running: usize,
    /// Its calls that wait, oldest first, and where.
    waiting: BTreeMap<u64, UpstreamName>,
}

/// What is at one server.
#[derive(Debug, Default)]
struct Line {
    running: usize,
    tools: HashMap<Arc<str>, usize>,
    /// Who has calls that wait here, in the order of their turns.
    turns: VecDeque<PrincipalId>,
    /// Their calls, oldest first.
    waiting: HashMap<PrincipalId, VecDeque<u64>>,
}

#[derive(Debug)]
struct Ticket {
    place: Place,
    /// It has its place, and nobody has come for it yet.
    granted: bool,
    waker: Option<Waker>,
}

// === impl Slots ===

impl Slots {
    pub(super) fn new(settings: &LimitSettings) -> Self {
        Self(Mutex::new(State { bounds: settings.clone(), ..State::default() }))
    }

    /// Takes other bounds; who may go now goes.
    pub(super) fn set(&self, settings: &LimitSettings) {
        let woken = {
            let mut state = self.state();
            state.bounds = settings.clone();
            let servers: Vec<UpstreamName> = state.servers.keys().cloned().collect();
            servers.iter().flat_map(|server| state.advance(server)).collect()
        };
        wake(woken);
    }

    /// Asks for a place.
    ///
    /// # Errors
    /// [`Exceeded::Queue`]: there is none, and too many calls of the principal wait already.
    pub(super) fn enter(self: &Arc<Self>, place: Place) -> Result<Entered, Exceeded> {
        let mut state = self.state();
        if state.has_room(&place) {
            state.take(&place);
            drop(state);
            return Ok(Entered::Now(Permit { slots: Arc::clone(self), place }));
        }
        let ticket = state.queue(place)?;
        Ok(Entered::Later(Waiting { slots: Arc::clone(self), ticket: Some(ticket) }))
    }

    /// Counts the calls that have a place, and those that wait.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.principals.values().map(|own| own.waiting.len()).sum();
        (state.servers.values().map(|line| line.running).sum(), waiting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Says whether a call could go now.
    fn has_room(&self, place: &Place) -> bool {
        let all = &self.bounds.concurrency;
        let own = |own: Option<&super::Own>| own.and_then(|own| own.concurrent);
        let room = |bound: Option<usize>, used: usize| bound.is_none_or(|bound| used < bound);
        let line = self.servers.get(&place.server);
        let of_principal = own(self.bounds.principals.get(&place.principal)).or(all.principal);
        let of_server = own(self.bounds.servers.get(&place.server)).or(all.server);
        room(of_principal, self.principals.get(&place.principal).map_or(0, |own| own.running))
            && room(of_server, line.map_or(0, |line| line.running))
            && room(all.tool, line.and_then(|line| line.tools.get(&place.tool)).copied().unwrap_or(0))
    }

    fn take(&mut self, place: &Place) {
        self.principals.entry(place.principal.clone()).or_default().running += 1;
        let line = self.servers.entry(place.server.clone()).or_default();
        line.running += 1;
        *line.tools.entry(Arc::clone(&place.tool)).or_default() += 1;
    }

    /// Puts a call at the end of its principal's own queue; a principal that has none gets its turn last.
    fn queue(&mut self, place: Place) -> Result<u64, Exceeded> {
        let queued = self.bounds.principals.get(&place.principal).and_then(|own| own.queued);
        let queued = queued.unwrap_or(self.bounds.concurrency.queued);
        let ticket = self.last + 1;
        let own = self.principals.entry(place.principal.clone()).or_default();
        if own.waiting.len() >= queued {
            self.tidy(&place);
            return Err(Exceeded::Queue(queued));
        }
        self.last = ticket;
        own.waiting.insert(ticket, place.server.clone());
        let line = self.servers.entry(place.server.clone()).or_default();
        let mine = line.waiting.entry(place.principal.clone()).or_default();
        if mine.is_empty() {
            line.turns.push_back(place.principal.clone());
        }
        mine.push_back(ticket);
        self.tickets.insert(ticket, Ticket { place, granted: false, waker: None });
        Ok(ticket)
    }

    /// Frees a place and lets those go who can go by it.
    #[must_use]
    fn free(&mut self, place: &Place) -> Vec<Waker> {
        if let Some(own) = self.principals.get_mut(&place.principal) {
            own.running = own.running.saturating_sub(1);
        }
        if let Some(line) = self.servers.get_mut(&place.server) {
            line.running = line.running.saturating_sub(1);
            if let Some(tool) = line.tools.get_mut(&place.tool) {
                *tool = tool.saturating_sub(1);
            }
        }
        let mut woken = self.advance(&place.server);
        // What waits elsewhere for the principal's own bound alone.
        let elsewhere: Vec<u64> =
            self.principals.get(&place.principal).map(|own| own.waiting.keys().copied().collect()).unwrap_or_default();
        for ticket in elsewhere {
            woken.extend(self.try_grant(ticket));
        }
        self.tidy(place);
        woken
    }

    /// Lets calls at a server go, by turns, as long as there is room.
    #[must_use]
    fn advance(&mut self, server: &UpstreamName) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some(ticket) = self.next_at(server) {
            woken.extend(self.try_grant(ticket));
        }
        woken
    }

    /// Finds whose turn it is: of the first principal that has one, the oldest call that could go now.
    fn next_at(&self, server: &UpstreamName) -> Option<u64> {
        let line = self.servers.get(server)?;
        let can_go = |ticket: &&u64| self.tickets.get(ticket).is_some_and(|ticket| self.has_room(&ticket.place));
        line.turns.iter().find_map(|principal| line.waiting.get(principal)?.iter().find(can_go).copied())
    }

    /// Gives a call that waits its place, if there is room; its principal's next turn at that server is the last.
    fn try_grant(&mut self, ticket: u64) -> Option<Waker> {
        let place = self.tickets.get(&ticket).map(|ticket| ticket.place.clone())?;
        if !self.has_room(&place) || !self.leave_queue(ticket, &place) {
            return None;
        }
        if let Some(line) = self.servers.get_mut(&place.server)
            && let Some(at) = line.turns.iter().position(|principal| *principal == place.principal)
            && let Some(principal) = line.turns.remove(at)
        {
            line.turns.push_back(principal);
        }
        self.take(&place);
        let ticket = self.tickets.get_mut(&ticket)?;
        ticket.granted = true;
        ticket.waker.take()
    }

    /// Takes a call out of its queues; `false` if it stands in none.
    fn leave_queue(&mut self, ticket: u64, place: &Place) -> bool {
        let own = self.principals.get_mut(&place.principal);
        if own.is_none_or(|own| own.waiting.remove(&ticket).is_none()) {
            return false;
        }
        if let Some(line) = self.servers.get_mut(&place.server)
            && let Some(mine) = line.waiting.get_mut(&place.principal)
        {
            mine.retain(|other| *other != ticket);
            if mine.is_empty() {
                line.waiting.remove(&place.principal);
                line.turns.retain(|principal| *principal != place.principal);
            }
        }
        true
    }

    /// Forgets what is empty.
    fn tidy(&mut self, place: &Place) {
        if self.principals.get(&place.principal).is_some_and(|own| own.running == 0 && own.waiting.is_empty()) {
            self.principals.remove(&place.principal);
        }
        let Some(line) = self.servers.get_mut(&place.server) else { return };
        if line.tools.get(&place.tool) == Some(&0) {
            line.tools.remove(&place.tool);
        }
        if line.running == 0 && line.waiting.is_empty() {
            self.servers.remove(&place.server);
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Takes the place, if it is there; else the call is woken when it is.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Permit> {
        let mut state = self.slots.state();
        // It was taken before: nothing comes any more.
        let Some(id) = self.ticket else { return Poll::Pending };
        match state.tickets.get_mut(&id) {
            Some(ticket) if ticket.granted => {}
            Some(ticket) => {
                ticket.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            None => return Poll::Pending,
        }
        let Some(ticket) = state.tickets.remove(&id) else { return Poll::Pending };
        drop(state);
        self.ticket = None;
        Poll::Ready(Permit { slots: Arc::clone(&self.slots), place: ticket.place })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(id) = self.ticket.take() else { return };
        let woken = {
            let mut state = self.slots.state();
            let Some(ticket) = state.tickets.remove(&id) else { return };
            if ticket.granted {
                state.free(&ticket.place)
            } else {
                state.leave_queue(id, &ticket.place);
                state.tidy(&ticket.place);
                Vec::new()
            }
        };
        wake(woken);
    }
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        let woken = self.slots.state().free(&self.place);
        wake(woken);
    }
}

/// Outside of the lock: whoever wakes up may ask at once.
fn wake(woken: Vec<Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
