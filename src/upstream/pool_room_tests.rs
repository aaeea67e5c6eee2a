//! Places in the pool: who waits for one, what makes room, and what others keep [LIM-6, TRN-4].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::STARTS_MAX;
use super::{ASKABLE, ELICITS, Yard, call, call_of, same, until, within};
use crate::clock::Clock;
use crate::exchange::RejectKind;
use crate::id::PrincipalId;
use crate::runtime::Tasks;
use crate::upstream::Isolation;
use crate::upstream::means::Means;
use crate::upstream::server::Phase;
use crate::upstream::watches::Watches;
use crate::wire::mcp::Features;

/// [TRN-4]: what ends makes room for one, and whoever comes meanwhile waits for it: nobody is refused for want of a place that
/// is about to be free, and no second idle process is ended for it.
#[tokio::test]
async fn a_place_that_is_about_to_be_free_is_waited_for() {
    let yard = Yard::ready(4, |settings| settings.max_processes = 3).await;
    yard.plant.slow.store(true, Ordering::SeqCst);
    let wires = |closed: bool| {
        let all = yard.plant.wires.lock().unwrap();
        all.iter().filter(|wire| wire.state.closed.is_cancelled() == closed).count()
    };
    drop(yard.held(&call("ann")).await.unwrap());
    let _bob = yard.held(&call("bob")).await.unwrap();
    let (cid, dan) = (call("cid"), call("dan"));
    let (mut first, mut second) = (Box::pin(yard.server.held_for(&cid)), Box::pin(yard.server.held_for(&dan)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..20 {
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending(), "it waits too");
        assert_eq!((wires(true), wires(false)), (1, 2), "one process alone is ended");
        yard.server.pool.places.freed.notify_waiters();
        tokio::task::yield_now().await;
    }
    // Its place goes to one of them; for the other one the list gives way.
    yard.plant.slow.store(false, Ordering::SeqCst);
    let ended: Vec<_> = yard.plant.wires.lock().unwrap().clone();
    ended.iter().filter(|wire| wire.state.closed.is_cancelled()).for_each(|wire| wire.die());
    let both = within(futures_util::future::join(first, second)).await;
    let both = (both.0.unwrap(), both.1.unwrap());
    assert!(yard.held(&call("ann")).await.is_err(), "all three are busy");
    drop(both);
    yard.end().await;
}

/// [TRN-4]: the connection of the list is nobody's room while resources are watched over it, and gives way when they are not.
#[tokio::test]
async fn a_watched_list_makes_no_room() {
    let yard = Yard::ready(1, |settings| settings.max_processes = 1).await;
    drop(yard.held(&call_of("ann", None, ASKABLE)).await.unwrap());
    assert_eq!(yard.opened(), 1, "the list is read over ann's own");
    let watch =
        Watches::add(&yard.server.watches, &PrincipalId::new("ann"), Arc::from("file:///a"), Arc::new(|_| {})).unwrap();
    let asking = call_of("ann", None, ELICITS);
    yard.held(&asking).await.unwrap_err();
    assert_eq!(yard.open()[0].features, Features::ASKABLE, "what is watched over is still there");
    drop(watch);
    drop(yard.held(&asking).await.unwrap());
    assert_eq!(yard.open()[0].features, asking.client.features);
    assert_eq!(yard.server.status().phase, Phase::Ready, "that was no failure of the server");
    yard.end().await;
}

/// [TRN-4]: the connection of the list that ends before anybody took it for its own gives its place back.
#[tokio::test]
async fn a_list_that_dies_leaves_no_place_behind() {
    let yard = Yard::ready(1, |settings| settings.max_processes = 1).await;
    yard.open()[0].die();
    until("its place is free", || yard.server.pool.places.count() == 0).await;
    until("the next one", || yard.opened() == 2 && yard.server.status().phase == Phase::Ready).await;
    drop(yard.held(&call("ann")).await.unwrap());
    yard.end().await;
}

/// [LIM-6, TRN-4]: a principal whose calls hang, and may be asked back, has no more of a server than its share: others always
/// get in. Who is alone may have all.
#[tokio::test]
async fn hanging_calls_leave_room_for_others() {
    // The list keeps its own where there are several.
    for (grants, most) in [(2, 4), (1, 8)] {
        let yard = Yard::ready(grants, |settings| settings.max_processes = 8).await;
        let ann = call_of("ann", None, ELICITS);
        let mut held = Vec::new();
        for _ in 0..most {
            held.push(yard.held(&ann).await.unwrap());
        }
        let mut next = Box::pin(yard.server.held_for(&ann));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending(), "it waits for one of its own");
        if grants > 1 {
            held.push(yard.held(&call_of("bob", None, ELICITS)).await.unwrap());
            held.push(yard.held(&call("cid")).await.unwrap());
            assert!(next.as_mut().poll(&mut context).is_pending());
        }
        drop(held.remove(0));
        drop(within(next).await.unwrap());
        drop(held);
        yard.end().await;
    }
}

/// [LIM-6, TRN-8]: so many starts of a server go on at once; the rest begins as they end, and every caller gets its own.
#[tokio::test]
async fn so_many_starts_go_on_at_once() {
    let yard = Yard::new(20, |_| {});
    yard.plant.gate.add_permits(1);
    yard.server.settled().await;
    let calls: Vec<_> = (0..10).map(|who| call(&format!("p{who}"))).collect();
    let mut held = Box::pin(futures_util::future::join_all(calls.iter().map(|call| yard.server.held_for(call))));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut begun = 0;
    for ended in 0..=6 {
        until("starts", || {
            assert!(held.as_mut().poll(&mut context).is_pending());
            begun = yard.opened() - 1;
            begun == ended + STARTS_MAX
        })
        .await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(yard.opened() - 1, ended + STARTS_MAX, "no more begin");
        yard.plant.gate.add_permits(1);
    }
    yard.plant.gate.add_permits(10);
    assert!(within(held).await.into_iter().all(|held| held.is_ok()));
    assert_eq!(yard.opened(), 11);
    yard.end().await;
}

/// [LIM-6, TRN-4]: a principal that has all the processes it may have over all servers gets another one: what it has left
/// idle longest makes room, on whichever server, and nobody else's does; what is ending is waited for. Where all are busy it is
/// refused.
#[tokio::test]
async fn what_is_idle_on_another_server_makes_room() {
    let means = Means::new(Tasks::new(), Clock::manual());
    let mut yards = Vec::new();
    for _ in 0..3 {
        yards.push(Yard::of(&means, 2, |_| {}).opened_up().await);
    }
    let [files, notes, mail] = &yards[..] else { panic!("three servers") };
    files.set.bound_processes(2);
    let (ann, bob) = (call("ann"), call("bob"));
    let bobs = files.held(&bob).await.unwrap();
    let bobs = files.wire(&bobs);
    let mut anns = Vec::new();
    for yard in [files, notes] {
        let held = yard.held(&ann).await.unwrap();
        anns.push(yard.wire(&held));
        drop(held);
        yard.sweep_after(Duration::from_secs(1));
        yard.sweep_after(Duration::from_secs(1));
    }
    files.plant.slow.store(true, Ordering::SeqCst);
    let mut first = Box::pin(mail.server.held_for(&ann));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..20 {
        assert!(first.as_mut().poll(&mut context).is_pending(), "it waits until a place is free");
        means.census.freed.notify_waiters();
        tokio::task::yield_now().await;
    }
    assert!(
        anns[0].state.closed.is_cancelled() && !anns[1].state.closed.is_cancelled(),
        "one alone, and the one of longest ago"
    );
    files.plant.slow.store(false, Ordering::SeqCst);
    anns[0].die();
    let first = within(first).await.unwrap();
    let second = files.held(&ann).await.unwrap();
    assert!(anns[1].state.closed.is_cancelled());
    let reject = notes.held(&ann).await.unwrap_err();
    assert!(reject.public.contains("all 2 processes of this principal"), "{reject:?}");
    assert!(!bobs.state.closed.is_cancelled(), "bob's was idle for longer");
    drop((first, second));
    drop(notes.held(&ann).await.unwrap());
    for yard in &yards {
        within(yard.set.close()).await;
        assert_eq!(yard.server.pool.places.count(), 0);
    }
    means.tasks.cancel();
    within(means.tasks.wait()).await;
}

/// [TRN-4]: the bound of a server is hard. An idle process makes room; where all are busy the call is refused at once.
#[tokio::test]
async fn an_idle_process_makes_room_and_a_busy_one_does_not() {
    let yard = Yard::ready(3, |settings| settings.max_processes = 2).await;
    let ann = yard.held(&call("ann")).await.unwrap();
    // The list gives way to a caller.
    let bob = yard.held(&call("bob")).await.unwrap();
    assert_eq!(yard.open().len(), 2);
    let reject = yard.held(&call("cid")).await.unwrap_err();
    assert_eq!(&*reject.public, "server 'up': all 2 processes of it are in use (max_processes)");
    assert_eq!((reject.kind, reject.code()), (RejectKind::Busy, crate::codes::Code::TooManyCalls));
    drop(ann);
    let cid = yard.held(&call("cid")).await.unwrap();
    assert_eq!(yard.open().len(), 2, "ann's made room");
    drop((bob, cid));
    yard.end().await;
}

/// [TRN-4]: the bound of a principal is hard too, and the others do not feel it.
#[tokio::test]
async fn one_principal_has_no_more_than_its_share() {
    let yard = Yard::ready(2, |settings| settings.isolation = Some(Isolation::Session)).await;
    yard.set.bound_processes(2);
    let first = yard.held(&call_of("ann", Some(1), "{}")).await.unwrap();
    let second = yard.held(&call_of("ann", Some(2), "{}")).await.unwrap();
    assert!(!same(&first, &second), "each session has its own");
    let reject = yard.held(&call_of("ann", Some(3), "{}")).await.unwrap_err();
    assert!(reject.public.contains("all 2 processes of this principal"), "{reject:?}");
    let other = yard.held(&call_of("bob", Some(4), "{}")).await.unwrap();
    drop((first, second, other));
    yard.end().await;
}

/// [TRN-4]: a server has connections for four different sets of features; who comes with a fifth is asked nothing.
#[tokio::test]
async fn four_classes_and_no_more() {
    const ALL: [&str; 5] = [
        r#"{"roots":{}}"#,
        r#"{"sampling":{}}"#,
        ELICITS,
        r#"{"roots":{},"sampling":{}}"#,
        r#"{"roots":{},"elicitation":{}}"#,
    ];
    let yard = Yard::ready(2, |_| {}).await;
    let mut held = Vec::new();
    for capabilities in ALL {
        held.push(yard.held(&call_of("ann", None, capabilities)).await.unwrap());
    }
    let classes: Vec<Features> = yard.open().iter().map(|wire| wire.features).collect();
    let asks = |features: &&Features| features.may_be_asked() && **features != Features::ASKABLE;
    assert_eq!(classes.iter().filter(asks).count(), 4);
    assert!(same(&held[4], &yard.held(&call("ann")).await.unwrap()), "the fifth shares with those of no features");
    // Another principal has classes of its own.
    assert!(yard.held(&call_of("bob", None, ALL[4])).await.unwrap().is_alone());
    // A set that is known already is still served.
    assert!(yard.held(&call_of("ann", None, ALL[0])).await.unwrap().is_alone());
    drop(held);
    yard.end().await;
}
