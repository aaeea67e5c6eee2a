//! Slots for connections. While none is free, whoever has connected and said nothing gives way to new ones [LIM-6].
//!
//! Not for: whose connections they are (`downstream::account`). Invariants: never more connections at once than slots; only who
//! has not asked for anything yet gives way, the longest silent first.

use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a client has in any case to say what it wants, its TLS handshake included.
const SILENCE_MIN: Duration = Duration::from_secs(2);

/// The connections that may be open at once; clones share them, so that several sockets have one bound.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Arc<Semaphore>,
    silent: Mutex<Silent>,
}

/// Those that have said nothing yet, the oldest first.
#[derive(Debug, Default)]
struct Silent {
    last: u64,
    waiting: BTreeMap<u64, (Instant, Silence)>,
}

/// A connection's slot; free again when it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    silence: Silence,
    _permit: OwnedSemaphorePermit,
}

/// Whether a connection's client has said anything yet. Clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Silence(Arc<Standing>);

#[derive(Debug, Default)]
struct Standing {
    /// Its place among the silent.
    number: u64,
    /// Rings when it is to give way.
    bell: Notify,
    is_over: AtomicBool,
}

// === impl Slots ===

impl Slots {
    /// Makes `max` slots.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let free = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(Shared { free, silent: Mutex::default() }))
    }

    /// Waits for a slot for a connection that is there. While none is free, one after the other of those that are silent is
    /// asked to give way.
    pub(super) async fn take(&self) -> Slot {
        let mut free = pin!(Arc::clone(&self.0.free).acquire_owned());
        loop {
            tokio::select! {
                biased;
                // Nobody closes the semaphore.
                Ok(permit) = free.as_mut() => return self.seat(permit),
                () = self.make_room() => {}
            }
        }
    }

    /// Waits until the longest silent has been so for its time, asks it to give way, and waits that it has.
    async fn make_room(&self) {
        if let Some((number, due)) = self.oldest() {
            tokio::time::sleep_until(due).await;
            let oldest = self.silent().waiting.remove(&number);
            let Some((_, silence)) = oldest.filter(|(_, silence)| !silence.is_over()) else { return };
            silence.0.bell.notify_one();
        }
        // It may have spoken in this moment: then it stays, and the next is asked.
        tokio::time::sleep(SILENCE_MIN).await;
    }

    /// Finds the longest silent, and when it will have been so for its time. Whoever has spoken since is forgotten.
    fn oldest(&self) -> Option<(u64, Instant)> {
        let mut silent = self.silent();
        while let Some(oldest) = silent.waiting.first_entry() {
            let (since, silence) = oldest.get();
            if !silence.is_over() {
                return Some((*oldest.key(), *since + SILENCE_MIN));
            }
            oldest.remove();
        }
        None
    }

    #[expect(clippy::disallowed_methods, reason = "for a timeout of tokio's own")]
    fn seat(&self, permit: OwnedSemaphorePermit) -> Slot {
        let mut silent = self.silent();
        silent.last += 1;
        let number = silent.last;
        let silence = Silence(Arc::new(Standing { number, ..Standing::default() }));
        silent.waiting.insert(number, (Instant::now(), silence.clone()));
        drop(silent);
        Slot { slots: self.clone(), silence, _permit: permit }
    }

    fn silent(&self) -> MutexGuard<'_, Silent> {
        self.0.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl Slot {
    /// Returns whether its client has said anything yet.
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.silence.clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.silent().waiting.remove(&self.silence.0.number);
    }
}

// === impl Silence ===

impl Silence {
    /// Ends it: the client has asked for something, and its connection gives way no more. To be called by the task that waits
    /// for [`Silence::gives_way`], so that the two are never at once.
    pub fn ends(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection has to make room for another one. Costs a compare once the silence is over.
    pub async fn gives_way(&self) {
        let mut bell = pin!(self.0.bell.notified());
        poll_fn(|cx| if self.is_over() { Poll::Pending } else { bell.as_mut().poll(cx) }).await;
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
