//! Time as a value: the only place that reads the machine's clocks.
//!
//! Not for: sleeping or deadlines of futures (tokio's timers do that). Pure rooms get a [`Moment`] as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock, in milliseconds since the clock was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Makes a moment from milliseconds since the clock was made.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the clock was made.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns how long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A clock, real or set by hand. Cloning is cheap and shares the time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Real { start: Instant },
    Manual { millis: Arc<AtomicU64> },
}

impl Clock {
    /// Makes a clock that follows the machine.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the Clock")]
    pub fn real() -> Self {
        Self(Kind::Real { start: Instant::now() })
    }

    /// Makes a clock that stands still until [`Clock::advance`].
    #[must_use]
    pub fn manual() -> Self {
        Self(Kind::Manual { millis: Arc::new(AtomicU64::new(0)) })
    }

    /// Returns the monotonic time.
    #[must_use]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Kind::Real { start } => Moment(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)),
            Kind::Manual { millis } => Moment(millis.load(Ordering::Relaxed)),
        }
    }

    /// Returns the wall clock in seconds since 1970; a manual clock starts at 1970.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the Clock")]
    pub fn unix_secs(&self) -> u64 {
        match &self.0 {
            Kind::Real { .. } => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            Kind::Manual { millis } => millis.load(Ordering::Relaxed) / 1000,
        }
    }

    /// Returns the wall clock in milliseconds since 1970; a manual clock starts at 1970.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the Clock")]
    pub fn unix_millis(&self) -> u64 {
        match &self.0 {
            Kind::Real { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Kind::Manual { millis } => millis.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock forward; does nothing to a real one.
    pub fn advance(&self, by: Duration) {
        if let Kind::Manual { millis } = &self.0 {
            millis.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}
