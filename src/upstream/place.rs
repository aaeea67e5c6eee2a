//! How many processes may live: of one server, and of one principal over all servers [TRN-4].
//!
//! Invariant: a process lives only with a [`Place`], from before its start until it is reaped.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::id::PrincipalId;

/// The processes of each principal, over all servers.
#[derive(Debug)]
pub(super) struct Census {
    taken: Mutex<HashMap<PrincipalId, usize>>,
    max: AtomicUsize,
}

/// The places of one server.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicUsize,
    /// How many of them are of processes that are ending.
    leaving: AtomicUsize,
    max: usize,
    census: Arc<Census>,
    /// Wakes who waits for a place, or for a connection that holds one.
    pub(super) freed: Notify,
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
            Self::Server(max) => write!(f, "all {max} processes of it are in use (max_processes)"),
        }
    }
}

// === impl Census ===

impl Census {
    /// The default of `[limits] processes_per_principal`.
    pub(super) const MAX: usize = 64;

    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), max: AtomicUsize::new(Self::MAX) })
    }

    /// Changes how many one principal may have; those that are over it keep what they have.
    pub(super) fn bound(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn enter(&self, principal: &PrincipalId) -> Result<(), Full> {
        let max = self.max.load(Ordering::Relaxed);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(principal.clone()).or_default();
        if *count >= max {
            return Err(Full::Principal(max));
        }
        *count += 1;
        Ok(())
    }

    fn leave(&self, principal: &PrincipalId) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(principal) {
            *count -= 1;
            if *count == 0 {
                taken.remove(principal);
            }
        }
    }
}

// === impl Places ===

impl Places {
    pub(super) fn new(max: usize, census: Arc<Census>) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), leaving: AtomicUsize::new(0), max, census, freed: Notify::new() })
    }

    /// Takes a place, on a principal's account or on nobody's.
    pub(super) fn take(self: &Arc<Self>, principal: Option<&PrincipalId>) -> Result<Arc<Place>, Full> {
        let room = |taken: usize| (taken < self.max).then_some(taken + 1);
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(Full::Server(self.max));
        }
        // From here on its drop gives back what it holds.
        let place = Place { places: Arc::clone(self), principal: Mutex::new(None), leaving: AtomicBool::new(false) };
        if let Some(principal) = principal {
            place.assign(principal)?;
        }
        Ok(Arc::new(place))
    }

    /// Says whether one that is taken is about to be free.
    pub(super) fn one_leaves(&self) -> bool {
        self.leaving.load(Ordering::Acquire) > 0
    }

    /// Says how many are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

// === impl Place ===

impl Place {
    /// Takes note that the process is ending.
    pub(super) fn leave(&self) {
        if !self.leaving.swap(true, Ordering::AcqRel) {
            self.places.leaving.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Puts a process that was nobody's on a principal's account.
    pub(super) fn assign(&self, principal: &PrincipalId) -> Result<(), Full> {
        self.places.census.enter(principal)?;
        let before = self.principal().replace(principal.clone());
        if let Some(before) = before {
            self.places.census.leave(&before);
        }
        Ok(())
    }

    fn principal(&self) -> std::sync::MutexGuard<'_, Option<PrincipalId>> {
        self.principal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(principal) = self.principal().take() {
            self.places.census.leave(&principal);
        }
        self.places.taken.fetch_sub(1, Ordering::AcqRel);
        // After it is free: who finds neither this nor a free one is right to give up.
        if *self.leaving.get_mut() {
            self.places.leaving.fetch_sub(1, Ordering::AcqRel);
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
        let list = files.take(None).unwrap();
        let first = files.take(Some(&ann)).unwrap();
        assert_eq!(files.take(Some(&bob)).unwrap_err(), Full::Server(2));
        let rest: Vec<_> = (0..2).map(|_| notes.take(Some(&ann)).unwrap()).collect();
        assert_eq!(notes.take(Some(&ann)).unwrap_err(), Full::Principal(3));
        assert_eq!(list.assign(&ann).unwrap_err(), Full::Principal(3));
        let other = notes.take(Some(&bob)).unwrap();
        drop(first);
        list.assign(&ann).unwrap();
        assert_eq!((files.taken(), notes.taken()), (1, 3), "a place that was refused is not held");
        assert_eq!(notes.take(Some(&ann)).unwrap_err(), Full::Principal(3));
        drop((rest, list, other));
        assert_eq!((files.taken(), notes.taken()), (0, 0));
        assert!(census.taken.lock().unwrap().is_empty(), "who has none is not remembered");
    }
}
