//! Which limit holds for whom, and what a reload keeps.

use std::sync::Arc;
use std::time::Duration;

use super::{Exceeded, Limits};
use crate::clock::Clock;
use crate::id::{PrincipalId, UpstreamName};
use crate::limit::{Entered, LimitSettings, Own, Place, Rates};

fn principal(name: &str) -> PrincipalId {
    PrincipalId::new(name)
}

fn server(name: &str) -> UpstreamName {
    UpstreamName::new(name).unwrap()
}

fn rates(principal: &str, server: &str, tool: &str) -> LimitSettings {
    let rate = |text: &str| text.parse().ok();
    LimitSettings {
        rates: Rates { principal: rate(principal), server: rate(server), tool: rate(tool) },
        ..LimitSettings::default()
    }
}

fn call(limits: &Limits, who: &str, at: &str, tool: &str) -> Result<(), Exceeded> {
    limits.call(&principal(who), &server(at), Some(&Arc::from(tool)))
}

/// [LIM-5]: where nothing is configured nothing is counted.
#[test]
fn without_limits_nothing_is_counted() {
    let limits = Limits::new(&LimitSettings::default(), Clock::manual());
    for _ in 0..1_000 {
        assert_eq!(limits.request(&principal("a")), Ok(()));
        assert_eq!(call(&limits, "a", "s", "s__t"), Ok(()));
    }
    let place = || unreachable!("nobody asks where a call goes");
    assert!(limits.enter(place).unwrap().is_none());
    assert_eq!(limits.load(), (0, 0, 0));
}

/// [LIM-5, LIM-6]: what ends something has a rate of its own, generous and each principal's, where requests have one; a reload
/// keeps what was used of it.
#[test]
fn what_ends_something_has_a_rate_of_its_own() {
    let clock = Clock::manual();
    let none = Limits::new(&rates("", "2/min", ""), clock.clone());
    let limits = none.follow(&rates("1/h", "", ""));
    for _ in 0..1_000 {
        assert_eq!(none.end(&principal("a")), Ok(()));
    }
    assert_eq!((none.load().0, limits.request(&principal("a"))), (0, Ok(())));
    let ends = |limits: &Limits| (0..1_000).take_while(|_| limits.end(&principal("a")).is_ok()).count();
    assert_eq!(ends(&limits), 200);
    let limits = limits.follow(&rates("2/h", "", ""));
    assert_eq!((ends(&limits), limits.end(&principal("b"))), (0, Ok(())));
    clock.advance(Duration::from_secs(1));
    assert_eq!(ends(&limits), 20);
    assert!(limits.load().0 >= 2);
    clock.advance(Duration::from_secs(7_200));
    limits.forget();
    assert_eq!(limits.load().0, 0);
}

/// [LIM-5]: per principal, server and tool; nobody uses up another's, and a refused call uses up nothing.
#[test]
fn each_principal_has_rates_of_its_own() {
    let limits = Limits::new(&rates("3/min", "2/min", "1/min"), Clock::manual());
    for _ in 0..3 {
        assert_eq!(limits.request(&principal("a")), Ok(()));
    }
    let refused = limits.request(&principal("a")).unwrap_err();
    assert_eq!(refused.after(), Some(Duration::from_secs(20)));
    assert_eq!(limits.request(&principal("b")), Ok(()));
    assert_eq!(call(&limits, "a", "s", "s__t"), Ok(()));
    for _ in 0..5 {
        assert!(matches!(call(&limits, "a", "s", "s__t"), Err(Exceeded::Tool(..))));
    }
    assert_eq!(
        call(&limits, "a", "s", "s__u"),
        Ok(()),
        "calls that the tool's rate refused are not counted at the server"
    );
    assert!(matches!(call(&limits, "a", "s", "s__v"), Err(Exceeded::Server(..))));
    assert_eq!(call(&limits, "a", "r", "r__t"), Ok(()));
    assert_eq!(call(&limits, "b", "s", "s__t"), Ok(()));
}

/// [LIM-5]: what a policy or a server states replaces what holds for all.
#[test]
fn a_rate_of_its_own_replaces_the_common_one() {
    let mut settings = rates("1/min", "1/min", "");
    let own = |rate: &str| Own { rate: rate.parse().ok(), ..Own::default() };
    settings.principals.insert(principal("big"), own("3/min"));
    settings.servers.insert(server("s"), own("2/min"));
    let limits = Limits::new(&settings, Clock::manual());
    let passes = |who: &str| (0..9).filter(|_| limits.request(&principal(who)).is_ok()).count();
    assert_eq!((passes("big"), passes("small")), (3, 1));
    let calls = |at: &str| (0..9).filter(|_| call(&limits, "a", at, "t").is_ok()).count();
    assert_eq!((calls("s"), calls("r")), (2, 1));
}

/// [LIM-5, CFG-4]: a reload keeps what was used of a rate that stays as it is, also where it is stated elsewhere now.
#[test]
fn a_reload_keeps_what_was_used() {
    let clock = Clock::manual();
    let first = Limits::new(&rates("2/min", "1/min", "1/min"), clock.clone());
    assert_eq!(first.request(&principal("a")), Ok(()));
    assert_eq!(call(&first, "a", "s", "s__t"), Ok(()));
    let mut settings = rates("2/min", "1/min", "5/min");
    settings.principals.insert(principal("a"), Own { rate: "2/min".parse().ok(), ..Own::default() });
    let second = first.follow(&settings);
    assert_eq!(second.request(&principal("a")), Ok(()));
    assert!(second.request(&principal("a")).is_err(), "the one before the reload counts");
    assert!(matches!(call(&second, "a", "s", "s__t"), Err(Exceeded::Server(..))));
    let third = second.follow(&rates("", "", "5/min"));
    assert_eq!((0..9).filter(|_| call(&third, "a", "s", "s__t").is_ok()).count(), 5, "a changed rate begins anew");
    assert_eq!(third.request(&principal("a")), Ok(()));
    clock.advance(Duration::from_secs(60));
    third.forget();
    assert_eq!(third.load().0, 0);
}

/// [LIM-5, CFG-4]: calls under way go on being counted, and other bounds let others go.
#[test]
fn a_reload_keeps_the_calls_under_way() {
    let place = || Place { principal: principal("a"), server: server("s"), tool: Arc::from("s__t") };
    let bounded = |most: Option<usize>| {
        let mut settings = LimitSettings::default();
        settings.concurrency.server = most;
        settings.concurrency.queued = 1;
        settings
    };
    let first = Limits::new(&bounded(Some(1)), Clock::manual());
    let Ok(Some(Entered::Now(running))) = first.enter(place) else { panic!("there is room") };
    let Ok(Some(Entered::Later(mut waiting))) = first.enter(place) else { panic!("it waits") };
    assert!(matches!(first.enter(place), Err(Exceeded::Queue(1))));
    let context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.poll(&context).is_pending());
    let second = first.follow(&bounded(Some(2)));
    let std::task::Poll::Ready(granted) = waiting.poll(&context) else { panic!("there is room now") };
    assert!(matches!(second.enter(place), Ok(Some(Entered::Later(_)))), "both count");
    assert_eq!(second.load(), (0, 2, 0));
    drop((running, granted, waiting));
    assert_eq!(second.load(), (0, 0, 0));
    let off = second.follow(&LimitSettings::default());
    assert!(off.enter(place).unwrap().is_none());
}
