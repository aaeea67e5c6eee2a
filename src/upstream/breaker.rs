//! The pause after failures in a row, in which nothing is tried again [TRN-3, TRN-4].

use std::time::Duration;

use crate::clock::Moment;

const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Failures in a row, and until when whoever asks is told so instead of trying.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    last: Moment,
    until: Option<Moment>,
    cause: String,
}

// === impl Breaker ===

impl Breaker {
    /// Takes note of a failure; up to `patience` of them in a row cost nothing.
    pub(super) fn failed(&mut self, now: Moment, cause: String, patience: u32) {
        self.failures = self.failures.saturating_add(1);
        (self.last, self.cause) = (now, cause);
        if self.failures > patience {
            let pause = backoff(self.failures - patience);
            let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            self.until = Some(Moment::from_millis(now.as_millis().saturating_add(millis)));
        }
    }

    /// All is well again.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Says why nothing is tried now; `None` if it may be.
    pub(super) fn why_not(&self, now: Moment) -> Option<&str> {
        (self.until? > now).then_some(self.cause.as_str())
    }

    /// Says whether it must be remembered: for twice the longest pause.
    pub(super) fn matters(&self, now: Moment) -> bool {
        self.failures > 0 && now.since(self.last) < BACKOFF_MAX * 2
    }

    /// Says how many failures there were in a row.
    #[cfg(test)]
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }
}

/// The pause before start number `failures + 1`: doubled each time, with up to a quarter of jitter.
pub(super) fn backoff(failures: u32) -> Duration {
    let base = BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(7)).min(BACKOFF_MAX);
    let jitter = crate::seal::random::<1>().map_or(0, |[byte]| u32::from(byte));
    base + base / 4 * jitter / 255
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF_MAX, BACKOFF_MIN, Breaker, backoff};
    use crate::clock::Clock;

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert!(backoff(0) >= BACKOFF_MIN && backoff(1) <= BACKOFF_MIN * 2);
        assert!(backoff(4) >= BACKOFF_MIN * 8);
        assert!(backoff(u32::MAX) >= BACKOFF_MAX && backoff(u32::MAX) <= BACKOFF_MAX * 2);
    }

    /// [TRN-4]: within the pause the cause is told, after it one may try, and a success forgets it all.
    #[test]
    fn it_opens_after_its_patience_and_closes_with_the_time() {
        let clock = Clock::manual();
        let mut breaker = Breaker::default();
        breaker.failed(clock.now(), "first".to_owned(), 1);
        assert_eq!(breaker.why_not(clock.now()), None);
        breaker.failed(clock.now(), "second".to_owned(), 1);
        assert_eq!(breaker.why_not(clock.now()), Some("second"));
        clock.advance(BACKOFF_MIN * 2);
        assert_eq!(breaker.why_not(clock.now()), None);
        assert!(breaker.matters(clock.now()));
        clock.advance(BACKOFF_MAX * 2);
        assert!(!breaker.matters(clock.now()));
        breaker.failed(clock.now(), "third".to_owned(), 0);
        breaker.reset();
        assert_eq!(breaker.why_not(clock.now()), None);
    }
}
