//! Questions for roots that a server asks while no call is under way, as some do when they are told that they are initialized,
//! or that roots have changed: kept for the next call of the one client that has the channel (protocol §5.3).
//!
//! Not for: any other question, which without a call is nobody's [TRN-10], or whose the channel is (`pending`). Invariant: few
//! and small ones are kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::wire::jsonrpc::{Request, RequestId};

/// How many are kept.
const KEPT_MAX: usize = 4;
/// How large one may be.
const BYTES_MAX: usize = 4 << 10;

/// The questions that are kept.
#[derive(Debug, Default)]
pub(super) struct Early {
    kept: Mutex<Vec<Request>>,
    /// How many there are, so that a call looks at a number.
    count: AtomicUsize,
    /// Nobody is about to call: they are refused.
    refuses: AtomicBool,
    /// Cancelled when there was one before the first call.
    pub(super) asked: CancellationToken,
}

impl Early {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Says whether nobody is about to call.
    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }

    /// Keeps none from here on, as long as nobody has called; returns those that there are.
    pub(super) fn refuse(&self) -> Vec<Request> {
        self.refuses.store(true, Ordering::SeqCst);
        self.take()
    }

    /// Keeps one; `false` where there is no room.
    pub(super) fn keep(&self, request: &Request) -> bool {
        let mut kept = self.kept();
        let fits = kept.len() < KEPT_MAX && request.raw.len() <= BYTES_MAX;
        if fits {
            kept.push(request.clone());
            self.count.store(kept.len(), Ordering::SeqCst);
        }
        fits
    }

    /// Takes them out.
    pub(super) fn take(&self) -> Vec<Request> {
        let mut kept = self.kept();
        self.count.store(0, Ordering::SeqCst);
        std::mem::take(&mut *kept)
    }

    /// Forgets one that its server has taken back.
    pub(super) fn forget(&self, id: &RequestId) {
        let mut kept = self.kept();
        kept.retain(|request| request.id != *id);
        self.count.store(kept.len(), Ordering::SeqCst);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Request>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "early_tests.rs"]
mod tests;
