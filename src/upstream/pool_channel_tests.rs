//! Sessions of HTTP+SSE in the pool: channels that are no processes [TRN-1, TRN-4].

use std::sync::Arc;

use super::{ELICITS, Yard, call_of, same, until, within};
use crate::secret::Secret;
use crate::upstream::pool::CHANNELS_MAX;
use crate::upstream::{Isolation, ServerSettings, Transport};

fn old(settings: &mut ServerSettings) {
    let url = "http://127.0.0.1:1/sse";
    settings.transport =
        Transport::Http { uri: url.parse().unwrap(), url: Secret::new(url.to_owned()), headers: Vec::new() };
    settings.max_processes = 1;
}

/// [LIM-6, TRN-4]: each call that may be asked back has a session alone, up to a bound for each holder, at which the next
/// waits; no bound of processes holds for them.
#[tokio::test]
async fn sessions_of_one_holder_are_bounded() {
    let yard = Yard::ready(2, old).await;
    let asking = call_of("ann", Some(1), ELICITS);
    let mut held = Vec::new();
    for _ in 0..CHANNELS_MAX {
        held.push(yard.held(&asking).await.unwrap());
    }
    assert_eq!(yard.open().len(), CHANNELS_MAX + 1, "and one for the list");
    let mut next = Box::pin(yard.server.held_for(&asking));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        assert!(next.as_mut().poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    // Another session of the same person is another holder, and whoever cannot be asked shares one.
    drop(yard.held(&call_of("ann", Some(2), ELICITS)).await.unwrap());
    let plain = [
        yard.held(&call_of("ann", Some(1), "{}")).await.unwrap(),
        yard.held(&call_of("ann", Some(1), "{}")).await.unwrap(),
    ];
    assert!(same(&plain[0], &plain[1]));
    let free = held.pop().unwrap();
    let link = Arc::clone(free.link());
    drop(free);
    assert!(Arc::ptr_eq(within(next).await.unwrap().link(), &link));
    drop((held, plain));
    yard.end().await;
}

/// [TRN-4, TRN-10]: in a session that all share nobody is asked, so that one is enough, whatever their clients declared.
#[tokio::test]
async fn a_session_that_all_share_is_one() {
    let shared = |settings: &mut ServerSettings| {
        old(settings);
        settings.isolation = Some(Isolation::Shared);
    };
    let yard = Yard::ready(2, shared).await;
    let first = yard.held(&call_of("ann", Some(1), ELICITS)).await.unwrap();
    let second = yard.held(&call_of("bob", None, "{}")).await.unwrap();
    assert!(same(&first, &second));
    assert_eq!(yard.open().len(), 1, "that of the list");
    drop((first, second));
    yard.end().await;
}

/// [TRN-4]: a session that nobody uses is closed, and that of the list as well; the next call opens both again.
#[tokio::test]
async fn a_session_that_nobody_uses_is_closed() {
    let yard = Yard::ready(1, old).await;
    let call = call_of("ann", Some(1), "{}");
    let held = yard.held(&call).await.unwrap();
    yard.sweep_after(ServerSettings::IDLE_STOP);
    yard.sweep_after(ServerSettings::IDLE_STOP);
    assert!(!held.link().closed().is_cancelled(), "it is used");
    drop(held);
    for _ in 0..4 {
        yard.sweep_after(ServerSettings::IDLE_STOP);
    }
    until("both are closed", || yard.open().is_empty()).await;
    drop(yard.held(&call).await.unwrap());
    until("both are open", || yard.open().len() == 2).await;
    yard.end().await;
}

/// [TRN-7]: a holder whose session ends again and again soon after its start is held back; another one is not.
#[tokio::test]
async fn a_session_that_ends_soon_again_and_again_is_held_back() {
    let yard = Yard::ready(2, old).await;
    let list = yard.open();
    let own = || yard.open().into_iter().find(|wire| !Arc::ptr_eq(wire, &list[0]));
    let noted = |times| yard.server.pool.stock().shelves.values().any(|shelf| shelf.early.failures() == times);
    let (mine, other) = (call_of("ann", Some(1), "{}"), call_of("ann", Some(2), "{}"));
    for times in 1..=2 {
        let held = yard.held(&mine).await.unwrap();
        own().unwrap().die();
        drop(held);
        until("it is noted", || noted(times)).await;
    }
    let reject = yard.held(&mine).await.unwrap_err();
    assert!(reject.detail.contains("has ended soon after each start: it died"), "{reject:?}");
    drop(yard.held(&other).await.unwrap());
    yard.end().await;
}
