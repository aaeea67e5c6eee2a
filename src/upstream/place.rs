//! How many processes may live: of one server, and of one principal over all servers [TRN-4].
//!
//! Invariant: a process lives only with a [`Place`], from before its start until it is reaped.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::id::PrincipalId;
use crate::limit::{Tally, share};

use super::server::Server;

/// The processes of each principal, over all servers.
#[derive(Debug)]
pub(super) struct Census {
    taken: Mutex<HashMap<PrincipalId, Count>>,
    max: AtomicUsize,
    /// Where they may be.
    servers: Mutex<Vec<Weak<Server>>>,
    /// Wakes who waits for a place of its principal.
    pub(super) freed: Notify,
}

/// The processes of one principal.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    /// How many of them are ending.
    leaving: usize,
}

/// The places of one server.
#[derive(Debug)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    max: usize,
    pub(super) census: Arc<Census>,
    /// Wakes who waits for a place, or for a connection that holds one.
    pub(super) freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Those of each principal.
    each: Tally,
    /// How many are of processes that are ending.
    leaving: usize,
}

/// The right to one process; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    principal: Mutex<Option<PrincipalId>>,
    leaving: AtomicBool,
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The principal has as many as it may.
    Principal(usize),
    /// It has as many of this server as the others leave it.
    Share(usize),
    /// The server has.
    Server(usize),
}

/// In words for the one who called.
impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(max) => {
                write!(f, "all {max} processes of this principal are in use (processes_per_principal)")
            }
            Self::Share(max) => write!(
                f,
                "all {max} processes of it that one principal may have are in use (half of what the others leave of \
                 max_processes)"
            ),
            Self::Server(max) => write!(f, "all {max} processes of it are in use (max_processes)"),
        }
    }
}

// === impl Census ===

impl Census {
    /// The default of `[limits] processes_per_principal`.
    pub(super) const MAX: usize = 64;

    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            max: AtomicUsize::new(Self::MAX),
            servers: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Takes note of a server.
    pub(super) fn join(&self, server: &Arc<Server>) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|other| other.strong_count() > 0);
        servers.push(Arc::downgrade(server));
    }

    /// Sees to it that a principal which has all its places gets one, if it may: one is free by now or about to be, or the
    /// process that the principal has left idle longest is ended, whichever server's it is. To be called without a lock.
    pub(super) fn make_room(&self, principal: &PrincipalId) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        if self.taken().get(principal).is_none_or(|count| count.all < max || count.leaving > 0) {
            return true;
        }
        let servers: Vec<_> = {
            let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            servers.iter().filter_map(Weak::upgrade).collect()
        };
        let idle = servers.iter().filter_map(|server| Some((server.idle_since(principal)?, server)));
        let idlest = idle.min_by_key(|(since, _)| *since);
        idlest.is_some_and(|(_, server)| server.end_idlest(Some(principal)))
    }

    /// Changes how many one principal may have; those that are over it keep what they have.
    pub(super) fn bound(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
        self.freed.notify_waiters();
    }

    fn enter(&self, principal: &PrincipalId) -> Result<(), Full> {
        let max = self.max.load(Ordering::Relaxed);
        let mut taken = self.taken();
        let count = taken.entry(principal.clone()).or_default();
        if count.all >= max {
            return Err(Full::Principal(max));
        }
        count.all += 1;
        Ok(())
    }

    /// Takes note that a process is ending.
    fn leaves(&self, principal: &PrincipalId) {
        if let Some(count) = self.taken().get_mut(principal) {
            count.leaving += 1;
        }
    }

    /// Takes note that a process has ended, which was known to be `leaving` or not.
    fn left(&self, principal: &PrincipalId, leaving: bool) {
        let mut taken = self.taken();
        if let Some(count) = taken.get_mut(principal) {
            count.all -= 1;
            count.leaving -= usize::from(leaving);
            if count.all == 0 {
                taken.remove(principal);
            }
        }
        drop(taken);
        self.freed.notify_waiters();
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<PrincipalId, Count>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Places ===

impl Places {
    pub(super) fn new(max: usize, census: Arc<Census>) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), max, census, freed: Notify::new() })
    }

    /// Takes a place, on a principal's account or on nobody's. Where the server is `shared` with others, one principal has no
    /// more than its share: calls that hang, and may be asked back, would keep everybody else from it.
    pub(super) fn take(self: &Arc<Self>, principal: Option<&PrincipalId>, shared: bool) -> Result<Arc<Place>, Full> {
        let mut taken = self.taken();
        if taken.all >= self.max {
            return Err(Full::Server(self.max));
        }
        if let Some(principal) = principal.filter(|_| shared) {
            let own = taken.each.of(principal);
            let most = share(self.max, taken.all - own);
            if own >= most {
                return Err(Full::Share(most));
            }
        }
        // What is refused has taken nothing, and so wakes nobody when it gives that back: who is refused may wait.
        if let Some(principal) = principal {
            self.census.enter(principal)?;
            taken.each.enter(principal);
        }
        taken.all += 1;
        let principal = Mutex::new(principal.cloned());
        Ok(Arc::new(Place { places: Arc::clone(self), principal, leaving: AtomicBool::new(false) }))
    }

    /// Says whether one that is taken is about to be free.
    pub(super) fn one_leaves(&self) -> bool {
        self.taken().leaving > 0
    }

    /// Says how many are taken.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.taken().all
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Takes note that the process is ending.
    pub(super) fn leave(&self) {
        let principal = self.principal();
        if self.leaving.swap(true, Ordering::AcqRel) {
            return;
        }
        self.places.taken().leaving += 1;
        if let Some(principal) = &*principal {
            self.places.census.leaves(principal);
        }
    }

    /// Puts a process that was nobody's on a principal's account.
    pub(super) fn assign(&self, principal: &PrincipalId) -> Result<(), Full> {
        let mut account = self.principal();
        self.places.census.enter(principal)?;
        let leaving = self.leaving.load(Ordering::Acquire);
        if leaving {
            self.places.census.leaves(principal);
        }
        let before = account.replace(principal.clone());
        let mut taken = self.places.taken();
        taken.each.enter(principal);
        if let Some(before) = before {
            taken.each.leave(&before);
            self.places.census.left(&before, leaving);
        }
        Ok(())
    }

    fn principal(&self) -> MutexGuard<'_, Option<PrincipalId>> {
        self.principal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (principal, leaving) = (self.principal().take(), self.leaving.load(Ordering::Acquire));
        let mut taken = self.places.taken();
        taken.all -= 1;
        taken.leaving -= usize::from(leaving);
        if let Some(principal) = &principal {
            taken.each.leave(principal);
        }
        drop(taken);
        // Last, so that who is woken finds a place in both.
        if let Some(principal) = &principal {
            self.places.census.left(principal, leaving);
        }
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Census, Full, Places};
    use crate::id::PrincipalId;

    /// [TRN-4]: both bounds are hard, over all servers for a principal, and what is given back can be taken again.
    #[test]
    fn no_process_without_a_place() {
        let census = Census::new();
        census.bound(3);
        let (files, notes) = (Places::new(2, Arc::clone(&census)), Places::new(9, Arc::clone(&census)));
        let (ann, bob) = (PrincipalId::new("ann"), PrincipalId::new("bob"));
        let list = files.take(None, false).unwrap();
        let first = files.take(Some(&ann), false).unwrap();
        assert_eq!(files.take(Some(&bob), false).unwrap_err(), Full::Server(2));
        let rest: Vec<_> = (0..2).map(|_| notes.take(Some(&ann), false).unwrap()).collect();
        assert_eq!(notes.take(Some(&ann), false).unwrap_err(), Full::Principal(3));
        assert_eq!(list.assign(&ann).unwrap_err(), Full::Principal(3));
        let other = notes.take(Some(&bob), false).unwrap();
        drop(first);
        list.assign(&ann).unwrap();
        assert_eq!((files.count(), notes.count()), (1, 3), "a place that was refused is not held");
        assert_eq!(notes.take(Some(&ann), false).unwrap_err(), Full::Principal(3));
        drop((rest, list, other));
        assert_eq!((files.count(), notes.count()), (0, 0));
        assert!(census.taken().is_empty(), "who has none is not remembered");
    }

    /// [LIM-6, TRN-4]: one principal does not use up a server that others are granted; alone it may.
    #[test]
    fn a_principal_leaves_something_for_the_others() {
        let places = Places::new(8, Census::new());
        let take = |who: &str| places.take(Some(&PrincipalId::new(who)), true);
        let _list = places.take(None, true).unwrap();
        let ann: Vec<_> = std::iter::from_fn(|| take("ann").ok()).collect();
        assert_eq!((ann.len(), take("ann").unwrap_err()), (4, Full::Share(4)));
        let bob: Vec<_> = std::iter::from_fn(|| take("bob").ok()).collect();
        assert_eq!((bob.len(), take("bob").unwrap_err()), (2, Full::Share(2)));
        let cid = take("cid").unwrap();
        assert_eq!(take("dan").unwrap_err(), Full::Server(8));
        drop((ann, bob, cid));
        assert!(places.taken().each.is_empty(), "who has none is not remembered");
        let alone: Vec<_> = std::iter::from_fn(|| places.take(Some(&PrincipalId::new("ann")), false).ok()).collect();
        assert_eq!(alone.len(), 7);
    }
}
