//! On whose account a client's connection is [LIM-6].
//!
//! Not for: how many there may be (`net::Slots`). Invariants: a connection is on one account at a time, that of whoever has
//! asked last; whoever has not said who they are have one account together, with a share as every principal has.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use crate::exchange::{Caller, ReasonCode, Reject, RejectKind};
use crate::id::PrincipalId;
use crate::limit::{NoSeat, Seat, Seats};

/// The account of one connection.
#[derive(Debug, Default)]
pub(super) struct Account {
    seat: Mutex<Option<Seat>>,
    /// It ends with the answer that is on its way.
    ends: AtomicBool,
}

// === impl Account ===

impl Account {
    /// Puts the connection on a caller's account.
    ///
    /// # Errors
    /// A [`Reject`] of kind `TooMany`: that one has its share already.
    pub(super) fn charge(&self, seats: &Seats, caller: &impl Caller) -> Result<(), Reject> {
        let principal = caller.principal();
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *seat {
            Some(seat) if seat.principal() == principal => Ok(()),
            Some(seat) => seat.pass(principal, caller.is_one_of_many()).map_err(too_many),
            none => match seats.take(principal, caller.is_one_of_many()) {
                Ok(taken) => {
                    *none = Some(taken);
                    Ok(())
                }
                Err(full) => {
                    self.ends.store(true, Ordering::Relaxed);
                    Err(too_many(full))
                }
            },
        }
    }

    /// Says whether the connection is to end with its answer: it was refused an account, or is nobody's and nobody has
    /// enough.
    pub(super) fn is_over(&self, seats: &Seats) -> bool {
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        if seat.is_none() && !self.ends.load(Ordering::Relaxed) {
            // No principal has an empty name.
            *seat = seats.take(&PrincipalId::new(""), true).ok();
        }
        let over = seat.is_none();
        if over {
            self.ends.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Waits until the connection ends with the answer that is on its way. Nothing wakes for it: who writes the answer does.
    pub(super) async fn ends(&self) {
        poll_fn(|_| if self.ends.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

fn too_many(full: NoSeat) -> Reject {
    let words = match full {
        NoSeat::All(most) | NoSeat::Own(most) => {
            format!("Too many connections: all {most} are in use (limits.connections)")
        }
        NoSeat::Share(most) => format!(
            "Too many connections: this principal has all {most} that it may have (half of what the others leave of \
             limits.connections)"
        ),
    };
    Reject::client(RejectKind::TooMany, words, ReasonCode::OverLimit)
}
