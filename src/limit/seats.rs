//! Seats that all principals have together, of which each may have its share [LIM-6].
//!
//! Not for: seats that are waited for (`slots`). Invariants: a seat is given back once, by its last holder; who has none is not
//! remembered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::PrincipalId;

use super::{Tally, share};

/// So many seats. Clones share them.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Inner>);

/// A principal's seat, or several at once; given back when it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    principal: PrincipalId,
    count: usize,
}

/// Why there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSeat {
    /// So many are taken, which are all.
    All(usize),
    /// The principal has as many as any may have.
    Own(usize),
    /// It has as many as the others leave it.
    Share(usize),
}

#[derive(Debug)]
struct Inner {
    max: usize,
    own_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    each: Tally,
}

// === impl Seats ===

impl Seats {
    /// Makes `max` seats, of which one principal may have `own_max`.
    #[must_use]
    pub fn new(max: usize, own_max: usize) -> Self {
        Self(Arc::new(Inner { max, own_max, taken: Mutex::default() }))
    }

    /// Takes a seat. Where others may come too (`shared`), a principal has no more than its share.
    ///
    /// # Errors
    /// [`NoSeat`].
    pub fn take(&self, principal: &PrincipalId, shared: bool) -> Result<Seat, NoSeat> {
        self.take_many(principal, 1, shared)
    }

    /// Takes so many seats at once.
    ///
    /// # Errors
    /// [`NoSeat`].
    pub fn take_many(&self, principal: &PrincipalId, count: usize, shared: bool) -> Result<Seat, NoSeat> {
        let mut seat = Seat { seats: self.clone(), principal: principal.clone(), count: 0 };
        seat.add(count, shared)?;
        Ok(seat)
    }

    /// Counts seats for a principal; `all` of the others is what is taken beside its own.
    fn enter(&self, taken: &mut Taken, principal: &PrincipalId, count: usize, shared: bool) -> Result<(), NoSeat> {
        let own = taken.each.of(principal);
        let most = self.0.own_max;
        if own.saturating_add(count) > most {
            return Err(NoSeat::Own(most));
        }
        let most = share(self.0.max, taken.all - own);
        if shared && own.saturating_add(count) > most {
            return Err(NoSeat::Share(most));
        }
        taken.each.add(principal, count);
        Ok(())
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seat ===

impl Seat {
    /// Returns whose it is.
    #[must_use]
    pub const fn principal(&self) -> &PrincipalId {
        &self.principal
    }

    /// Takes so many seats more with it.
    ///
    /// # Errors
    /// [`NoSeat`]; then it stays what it was.
    pub fn add(&mut self, count: usize, shared: bool) -> Result<(), NoSeat> {
        let mut taken = self.seats.taken();
        let most = self.seats.0.max;
        if taken.all.saturating_add(count) > most {
            return Err(NoSeat::All(most));
        }
        self.seats.enter(&mut taken, &self.principal, count, shared)?;
        taken.all += count;
        drop(taken);
        self.count += count;
        Ok(())
    }

    /// Gives it to another principal.
    ///
    /// # Errors
    /// [`NoSeat`]: that one may have no more; then it stays whose it was.
    pub fn pass(&mut self, principal: &PrincipalId, shared: bool) -> Result<(), NoSeat> {
        let mut taken = self.seats.taken();
        self.seats.enter(&mut taken, principal, self.count, shared)?;
        taken.each.take_off(&self.principal, self.count);
        drop(taken);
        self.principal = principal.clone();
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        taken.all -= self.count;
        taken.each.take_off(&self.principal, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::{NoSeat, Seats};
    use crate::id::PrincipalId;

    fn all(seats: &Seats, who: &str, shared: bool) -> (Vec<super::Seat>, NoSeat) {
        let who = PrincipalId::new(who);
        let taken: Vec<_> = std::iter::from_fn(|| seats.take(&who, shared).ok()).collect();
        (taken, seats.take(&who, shared).unwrap_err())
    }

    /// [LIM-6]: no principal takes all seats where others may come; what is given back can be taken again.
    #[test]
    fn each_has_its_share_of_seats() {
        let seats = Seats::new(8, usize::MAX);
        let (ann, full) = all(&seats, "ann", true);
        assert_eq!((ann.len(), full), (4, NoSeat::Share(4)));
        let (bob, full) = all(&seats, "bob", true);
        assert_eq!((bob.len(), full), (2, NoSeat::Share(2)));
        let (cid, full) = all(&seats, "cid", true);
        assert_eq!((cid.len(), full), (1, NoSeat::Share(1)));
        let (dan, full) = all(&seats, "dan", true);
        assert_eq!((dan.len(), full), (1, NoSeat::All(8)));
        drop((ann, bob, cid, dan));
        assert!(seats.taken().each.is_empty() && seats.taken().all == 0);
        let (alone, full) = all(&seats, "ann", false);
        assert_eq!((alone.len(), full), (8, NoSeat::All(8)));
    }

    /// [LIM-6]
    #[test]
    fn its_own_bound_holds_also_where_more_is_left() {
        let seats = Seats::new(8, 3);
        for shared in [true, false] {
            let (ann, full) = all(&seats, "ann", shared);
            assert_eq!((ann.len(), full), (3, NoSeat::Own(3)));
        }
    }

    /// [LIM-6]: several are taken at once, and more with them, as far as there are; all come back.
    #[test]
    fn several_are_taken_at_once() {
        let (seats, ann, bob) = (Seats::new(100, usize::MAX), PrincipalId::new("ann"), PrincipalId::new("bob"));
        let mut of_ann = seats.take(&ann, true).unwrap();
        assert_eq!((of_ann.add(49, true), of_ann.add(1, true)), (Ok(()), Err(NoSeat::Share(50))));
        let mut of_bob = seats.take(&bob, true).unwrap();
        assert_eq!((of_bob.add(25, true), of_bob.add(24, true)), (Err(NoSeat::Share(25)), Ok(())));
        assert_eq!(
            (of_ann.add(usize::MAX, false), of_ann.add(26, false)),
            (Err(NoSeat::All(100)), Err(NoSeat::All(100)))
        );
        assert_eq!(of_ann.add(25, false), Ok(()));
        drop(of_ann);
        assert_eq!((of_bob.pass(&ann, true), seats.taken().each.of(&ann)), (Ok(()), 25));
        drop(of_bob);
        assert!(seats.taken().each.is_empty() && seats.taken().all == 0);
    }

    /// [LIM-6]: a seat that goes to another counts for that one, also when all are taken.
    #[test]
    fn a_seat_is_passed_on() {
        let (seats, ann, bob) = (Seats::new(4, usize::MAX), PrincipalId::new("ann"), PrincipalId::new("bob"));
        let (mut of_ann, _) = all(&seats, "ann", false);
        assert_eq!(of_ann[0].pass(&bob, true), Ok(()));
        assert_eq!(of_ann[1].pass(&bob, true), Err(NoSeat::Share(1)));
        assert_eq!((of_ann[0].principal(), of_ann[1].principal()), (&bob, &ann));
        assert_eq!(seats.take(&bob, false).unwrap_err(), NoSeat::All(4));
        drop(of_ann);
        assert!(seats.taken().each.is_empty() && seats.taken().all == 0);
    }
}
