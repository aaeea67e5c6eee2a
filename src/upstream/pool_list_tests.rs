//! Which connection a list is read over, and when it is read again [POL-10, TRN-4, TRN-8].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{ELICITS, Yard, call, call_of, until};
use crate::upstream::server::Phase;

/// [TRN-8]: a server that could not be reached may have come back with another list, without a word: it is read again.
#[tokio::test]
async fn a_server_in_doubt_is_listed_again() {
    let yard = Yard::ready(2, |_| {}).await;
    let lists = yard.plant.lists();
    yard.server.doubts.send_modify(|count| *count += 1);
    until("the list is read again", || yard.plant.lists() > lists).await;
    assert_eq!(yard.opened(), 1, "over the same connection");
    yard.end().await;
}

/// The list moves to the only principal's process, and what a call turns on there is listed; when it ends, a new one is
/// [POL-10, TRN-4].
#[tokio::test]
async fn the_list_moves_to_the_only_principals_process() {
    let yard = Yard::ready(1, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    until("the list's own process has given way", || yard.open().len() == 1).await;
    let own = Arc::clone(&yard.open()[0]);
    assert!(!own.features.may_be_asked());
    own.turns("on");
    until("the list of its process", || yard.lists("on")).await;
    drop(held);
    own.die();
    until("the list of a new one", || yard.lists("t")).await;
    yard.end().await;
}

/// The process that the list moves to serves calls, whether it gives a list or not: the one that is known stands, and the
/// call goes on [TRN-8].
#[tokio::test]
async fn a_process_that_gives_no_list_keeps_its_calls() {
    let yard = Yard::ready(1, |_| {}).await;
    yard.plant.mute.store(true, Ordering::SeqCst);
    let read = yard.plant.lists();
    let held = yard.held(&call("ann")).await.unwrap();
    until("its process is asked for its list", || yard.plant.lists() > read).await;
    let own = Arc::clone(&yard.open()[0]);
    // It has been read, and what came of it is known, when a change is heard.
    own.turns("on");
    until("its list", || yard.lists("on")).await;
    assert!(yard.open().len() == 1 && !held.link().closed().is_cancelled());
    assert_eq!(yard.server.status().phase, Phase::Ready);
    drop(held);
    yard.end().await;
}

/// What belongs to the only principal is left to it when there is another, also where its list is still being read
/// [TRN-4].
#[tokio::test]
async fn a_list_leaves_a_process_that_is_somebodys() {
    let yard = Yard::ready(1, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    yard.server.grant(None);
    until("the list has a process of its own", || {
        yard.open().len() == 2 && yard.server.status().phase == Phase::Ready && !yard.server.is_catalog(held.link())
    })
    .await;
    assert!(!held.link().closed().is_cancelled(), "the call goes on");
    drop(held);
    yard.end().await;
}

/// A second process of the only principal, of a client that declared something else, is listed when it tells of a change;
/// no longer when it ends, nor when there is another principal [POL-10, TRN-4].
#[tokio::test]
async fn the_list_is_read_over_the_process_that_told_of_a_change() {
    for ends in [true, false] {
        let yard = Yard::ready(1, |_| {}).await;
        let first = yard.held(&call("ann")).await.unwrap();
        until("the list's own process has given way", || yard.open().len() == 1).await;
        let second = yard.held(&call_of("ann", None, ELICITS)).await.unwrap();
        let own = yard.open().into_iter().find(|wire| wire.features.may_be_asked()).unwrap();
        own.turns("on");
        until("the list of the second process", || yard.lists("on")).await;
        if ends {
            own.die();
        } else {
            yard.server.grant(None);
        }
        until("the list of before", || yard.lists("t")).await;
        drop((first, second));
        yard.end().await;
    }
    // Of several principals nobody's process says what all of them see.
    let yard = Yard::ready(2, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    let own = yard.open().into_iter().find(|wire| !wire.features.may_be_asked()).unwrap();
    let read = yard.plant.lists();
    own.turns("on");
    until("the list is read again", || yard.plant.lists() > read).await;
    assert!(yard.lists("t"));
    drop(held);
    yard.end().await;
}

/// [TRN-8]: a caller's process that ends by itself may come back with another list, while the one that the list is read over
/// lives on: it is read again. One that is stopped tells of nothing.
#[tokio::test]
async fn a_process_that_dies_puts_the_list_in_doubt() {
    let yard = Yard::ready(2, |_| {}).await;
    for dies in [false, true] {
        let lists = yard.plant.lists();
        drop(yard.held(&call("ann")).await.unwrap());
        let doubts = *yard.server.doubts.borrow();
        if dies {
            yard.open().last().unwrap().die();
            until("the list is read again", || yard.plant.lists() > lists).await;
        } else {
            yard.set.revoke(|_, _| false);
            until("ann's has ended", || yard.open().len() == 1).await;
        }
        assert_eq!(*yard.server.doubts.borrow() - doubts, u64::from(dies));
    }
    yard.end().await;
}
