//! What may be limited, checked and with units.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use crate::id::{PrincipalId, UpstreamName};

/// The most of anything in one period.
const COUNT_MAX: u32 = 1_000_000;

/// So many in a period, evenly, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: NonZeroU32,
    period: Period,
    burst: NonZeroU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Period {
    Hour,
    Minute,
    Second,
}

/// A text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a rate as \"60/min\" or \"60/min burst 10\": from 1 to 1000000, each s, min or h")]
pub struct RateError;

/// The rates of everybody [LIM-5]; `None`: not limited. Each is a principal's own, so that nobody uses up another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests of one principal, whatever they ask.
    pub principal: Option<Rate>,
    /// Calls of one principal to one server.
    pub server: Option<Rate>,
    /// Calls of one principal to one tool.
    pub tool: Option<Rate>,
}

/// How many calls may be under way at once [LIM-5]; `None`: not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Calls of one principal.
    pub principal: Option<usize>,
    /// Calls at one server, of all principals together.
    pub server: Option<usize>,
    /// Calls of one tool, of all principals together.
    pub tool: Option<usize>,
    /// How many calls of one principal may wait for their turn; one more is refused.
    pub queued: usize,
}

/// What is said of one principal, or of one server, in place of what holds for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its rate.
    pub rate: Option<Rate>,
    /// Calls at once.
    pub concurrent: Option<usize>,
    /// Calls that wait; of a principal alone.
    pub queued: Option<usize>,
}

/// Every limit of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// Rates of all.
    pub rates: Rates,
    /// Calls at once of all.
    pub concurrency: Concurrency,
    /// What single principals have instead, by their policy.
    pub principals: BTreeMap<PrincipalId, Own>,
    /// What single servers have instead.
    pub servers: BTreeMap<UpstreamName, Own>,
}

const fn at_least_1(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

// === impl Rate ===

impl Rate {
    /// How many messages that end something one principal may send which has asked too often [LIM-5].
    pub(super) const ENDS: Self = Self { count: at_least_1(20), period: Period::Second, burst: at_least_1(200) };

    /// Returns the time after which one more is there.
    #[must_use]
    pub fn interval(self) -> Duration {
        let period = match self.period {
            Period::Hour => Duration::from_secs(3600),
            Period::Minute => Duration::from_secs(60),
            Period::Second => Duration::from_secs(1),
        };
        period / self.count.get()
    }

    /// Returns how many may come at once after a pause.
    #[must_use]
    pub const fn burst(self) -> NonZeroU32 {
        self.burst
    }
}

impl FromStr for Rate {
    type Err = RateError;

    /// Reads `60/min` or `60/min burst 10`; without a burst it is the count.
    fn from_str(text: &str) -> Result<Self, RateError> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<NonZeroU32>().ok().filter(|number| digits && number.get() <= COUNT_MAX);
            number.ok_or(RateError)
        };
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => (rate, Some(number(burst.trim())?)),
            None => (text, None),
        };
        let (count, period) = rate.trim().split_once('/').ok_or(RateError)?;
        let period = match period {
            "h" => Period::Hour,
            "min" => Period::Minute,
            "s" => Period::Second,
            _ => return Err(RateError),
        };
        let count = number(count)?;
        Ok(Self { count, period, burst: burst.unwrap_or(count) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            Period::Hour => "h",
            Period::Minute => "min",
            Period::Second => "s",
        };
        write!(f, "{}/{period}", self.count)?;
        if self.burst == self.count { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

// === impl Concurrency ===

impl Concurrency {
    /// The default of `queued`.
    pub const QUEUED: usize = 16;
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { principal: None, server: None, tool: None, queued: Self::QUEUED }
    }
}

// === impl LimitSettings ===

impl LimitSettings {
    /// Says whether requests are limited by a rate anywhere.
    #[must_use]
    pub fn limits_requests(&self) -> bool {
        self.rates.principal.is_some() || self.principals.values().any(|own| own.rate.is_some())
    }

    /// Says whether the calls under way are limited anywhere.
    #[must_use]
    pub fn limits_concurrency(&self) -> bool {
        let Concurrency { principal, server, tool, queued: _ } = self.concurrency;
        let of_all = principal.or(server).or(tool).is_some();
        of_all || self.principals.values().chain(self.servers.values()).any(|own| own.concurrent.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Rate, RateError};

    /// [LIM-5]
    #[test]
    fn rates_are_read_and_spelled_alike() {
        for (text, interval, burst) in [
            ("60/min", Duration::from_secs(1), 60),
            ("1/s", Duration::from_secs(1), 1),
            ("10/s burst 3", Duration::from_millis(100), 3),
            ("2/h", Duration::from_secs(1800), 2),
            ("1000000/s", Duration::from_micros(1), 1_000_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.interval(), rate.burst().get()), (interval, burst), "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for text in
            ["", "60", "/min", "0/min", "60/day", "+6/min", "6 /min x", "60/min burst 0", "60/min burst", "1000001/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }
}
