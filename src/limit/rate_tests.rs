//! Buckets by the manual clock, against what the rate says.

use std::time::Duration;

use proptest::prelude::*;

use super::Buckets;
use crate::clock::Clock;
use crate::limit::Rate;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// [LIM-5]: so many at once, then one for each interval; the refusal says exactly how long.
#[test]
fn a_bucket_empties_and_fills_by_the_clock() {
    let clock = Clock::manual();
    let buckets = Buckets::new(rate("60/min burst 3"), &clock, 10);
    for _ in 0..3 {
        assert_eq!(buckets.take(&"a"), Ok(()));
    }
    assert_eq!(buckets.take(&"a"), Err(Duration::from_secs(1)));
    assert_eq!(buckets.take(&"b"), Ok(()), "another key has a bucket of its own");
    clock.advance(Duration::from_millis(400));
    assert_eq!(buckets.take(&"a"), Err(Duration::from_millis(600)));
    clock.advance(Duration::from_millis(600));
    assert_eq!(buckets.take(&"a"), Ok(()));
    assert_eq!(buckets.take(&"a"), Err(Duration::from_secs(1)));
    buckets.put_back(&"a");
    assert_eq!(buckets.take(&"a"), Ok(()), "one was put back");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(
        (0..9).filter(|_| buckets.take(&"a").is_ok()).count(),
        3,
        "a pause does not save up more than the burst"
    );
}

/// [LIM-6]: keys are bounded before one is added; what is full again makes room, what is not stays as it is.
#[test]
fn keys_are_bounded_and_forgotten() {
    let clock = Clock::manual();
    let buckets = Buckets::new(rate("1/min"), &clock, 100);
    for key in 0..100 {
        assert_eq!(buckets.take(&key), Ok(()));
    }
    for key in 100..1_000 {
        assert_eq!(buckets.take(&key), Err(Duration::from_secs(1)), "no room: refused, not forgotten");
    }
    assert_eq!(buckets.len(), 100);
    assert!(buckets.take(&0).is_err(), "what was used stays used");
    clock.advance(Duration::from_secs(59));
    buckets.forget();
    assert_eq!(buckets.len(), 100);
    clock.advance(Duration::from_secs(1));
    assert_eq!(buckets.take(&500), Ok(()), "a new key finds the room of those that are full again");
    assert_eq!(buckets.len(), 1);
    clock.advance(Duration::from_secs(60));
    buckets.forget();
    assert_eq!(buckets.len(), 0);
}

proptest! {
    /// [LIM-5]: in any window, what passes is at most the burst and what comes in that time.
    #[test]
    fn no_window_has_more_than_the_rate(pauses in prop::collection::vec(0_u64..400, 1..200), burst in 1_u32..6) {
        let clock = Clock::manual();
        let rate = rate(&format!("10/s burst {burst}"));
        let buckets = Buckets::new(rate, &clock, 1);
        let mut passed = Vec::new();
        for pause in pauses {
            clock.advance(Duration::from_millis(pause));
            if buckets.take(&()).is_ok() {
                passed.push(clock.now());
            }
        }
        for (first, start) in passed.iter().enumerate() {
            for (last, end) in passed.iter().enumerate().skip(first) {
                let most = u128::from(burst) + end.since(*start).as_millis() / 100;
                prop_assert!((last - first + 1) as u128 <= most);
            }
        }
    }

    /// [LIM-5]: a refusal's time is exact: one millisecond before it there is none, after it there is.
    #[test]
    fn the_time_of_a_refusal_is_exact(taken in 1_u32..20, gone in 0_u64..100) {
        let clock = Clock::manual();
        let buckets = Buckets::new(rate("10/s burst 1"), &clock, 1);
        prop_assert_eq!((0..taken).filter(|_| buckets.take(&()).is_ok()).count(), 1);
        clock.advance(Duration::from_millis(gone));
        if let Err(after) = buckets.take(&()) {
            clock.advance(after.checked_sub(Duration::from_millis(1)).unwrap());
            prop_assert!(buckets.take(&()).is_err());
            clock.advance(Duration::from_millis(1));
            prop_assert!(buckets.take(&()).is_ok());
        }
    }
}
