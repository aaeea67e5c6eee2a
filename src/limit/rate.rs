//! Buckets of one rate, one for each key, by the generic cell rate algorithm.
//!
//! Not for: which rate holds for whom (`limits`). Invariants: a key is taken in only while there is room; a bucket that is
//! full again is forgotten without loss.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

use crate::clock::Clock;

use super::Rate;

/// How many keys one rate may have; about 100 bytes each.
pub(super) const KEYS_MAX: usize = 100_000;
/// How soon a key for which there was no room may be tried again, and the least pause between two searches for room.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The buckets of one rate.
#[derive(Debug)]
pub(super) struct Buckets<K: Debug + Eq + Hash + Clone> {
    rate: Rate,
    shelf: Arc<Shelf<K>>,
    limiter: RateLimiter<K, Shared<K>, Ticks, NoOpMiddleware<Nanos>>,
    clock: Ticks,
    start: Nanos,
}

/// Our clock, as governor reads it.
#[derive(Clone, Debug)]
struct Ticks(Clock);

/// Where the buckets stand.
#[derive(Debug)]
struct Shelf<K: Debug + Eq + Hash> {
    /// When each bucket is full again: nanoseconds since the start, 0 for one that is new.
    times: DashMap<K, AtomicU64>,
    /// Held while a key is added: then their number is exact. Holds when room was last searched for.
    adding: Mutex<u64>,
    max: usize,
}

/// The shelf, as governor asks it.
#[derive(Debug)]
struct Shared<K: Debug + Eq + Hash>(Arc<Shelf<K>>);

// === impl Buckets ===

impl<K: Debug + Eq + Hash + Clone> Buckets<K> {
    pub(super) fn new(rate: Rate, clock: &Clock, max: usize) -> Self {
        let clock = Ticks(clock.clone());
        let quota = Quota::with_period(rate.interval());
        // A rate's interval is never zero; were it, one in a second would be the rate.
        let quota = quota.unwrap_or(Quota::per_second(std::num::NonZeroU32::MIN)).allow_burst(rate.burst());
        let shelf = Arc::new(Shelf { times: DashMap::new(), adding: Mutex::default(), max });
        let limiter = RateLimiter::new(quota, Shared(Arc::clone(&shelf)), clock.clone());
        let start = clock.now();
        Self { rate, shelf, limiter, clock, start }
    }

    /// Returns the rate.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one from the bucket of a key.
    ///
    /// # Errors
    /// How long until there is one again. A key for which there is no room is refused too.
    pub(super) fn take(&self, key: &K) -> Result<(), Duration> {
        if !self.shelf.has(key, self.since_start()) {
            return Err(FULL_PAUSE);
        }
        self.limiter.check_key(key).map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Puts back one that was taken for nothing.
    pub(super) fn put_back(&self, key: &K) {
        let one = u64::try_from(self.rate.interval().as_nanos()).unwrap_or(u64::MAX);
        if let Some(time) = self.shelf.times.get(key) {
            time.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |time| Some(time.saturating_sub(one))).ok();
        }
    }

    /// Forgets the buckets that are full again.
    pub(super) fn forget(&self) {
        self.shelf.forget(self.since_start());
    }

    /// Counts the keys.
    pub(super) fn len(&self) -> usize {
        self.shelf.times.len()
    }

    fn since_start(&self) -> u64 {
        self.clock.now().as_u64().saturating_sub(self.start.as_u64())
    }
}

// === impl Ticks ===

impl GovernorClock for Ticks {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.now().as_millis().saturating_mul(1_000_000))
    }
}

// === impl Shelf ===

impl<K: Debug + Eq + Hash + Clone> Shelf<K> {
    /// Takes a key in, unless there is no room.
    fn has(&self, key: &K, now: u64) -> bool {
        if self.times.contains_key(key) {
            return true;
        }
        let mut searched = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = u64::try_from(FULL_PAUSE.as_nanos()).unwrap_or(u64::MAX);
        if self.times.len() >= self.max && now >= searched.saturating_add(pause) {
            *searched = now;
            self.forget(now);
        }
        if self.times.len() >= self.max {
            return false;
        }
        self.times.entry(key.clone()).or_default();
        true
    }

    fn forget(&self, now: u64) {
        self.times.retain(|_, time| *time.get_mut() > now);
        self.times.shrink_to_fit();
    }
}

impl<K: Debug + Eq + Hash + Clone> StateStore for Shared<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let before = |time: u64| (time > 0).then(|| Nanos::new(time));
        // One that was forgotten since it was taken in was full.
        let Some(time) = self.0.times.get(key) else { return decide(None).map(|(result, _)| result) };
        let mut seen = time.load(Ordering::Acquire);
        loop {
            let (result, next) = decide(before(seen))?;
            match time.compare_exchange_weak(seen, next.as_u64(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(result),
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
