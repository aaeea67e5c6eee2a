//! The list of a server that one principal alone is granted: over which process it is read, and who may see it [TRN-4].

use std::sync::Arc;
use std::time::Duration;

use super::{ASKABLE, ELICITS, Meanwhile, Yard, call, call_of, until};
use crate::id::PrincipalId;
use crate::upstream::Grants;
use crate::upstream::link::Link;
use crate::upstream::server::Phase;

fn only(name: &str) -> Grants {
    Grants::One(PrincipalId::new(name))
}

/// [TRN-4, POL-10]: the process that the list is read over is idle and stopped while another one of its principal works: the
/// list goes on over that one, what it turns on is listed, and nothing is started for it.
#[tokio::test]
async fn a_list_goes_on_over_the_process_that_works() {
    let idle = Duration::from_secs(100);
    let yard = Yard::ready(1, |settings| settings.idle_stop = Some(idle)).await;
    let first = yard.held(&call("ann")).await.unwrap();
    until("the list has moved", || yard.server.is_catalog(first.link())).await;
    let listed = yard.wire(&first);
    let second = yard.held(&call_of("ann", None, ELICITS)).await.unwrap();
    drop(first);
    for _ in 0..3 {
        yard.sweep_after(idle);
    }
    assert!(listed.state.closed.is_cancelled() && !second.link().closed().is_cancelled());
    until("its list goes on", || yard.server.is_catalog(second.link())).await;
    yard.wire(&second).turns("on");
    until("the list of what works", || yard.lists("on")).await;
    assert_eq!((yard.opened(), yard.open().len()), (3, 1), "the list's own at first, and the two of the calls");
    // With the last of them the server rests.
    drop(second);
    for _ in 0..3 {
        yard.sweep_after(idle);
    }
    until("all have ended", || yard.open().is_empty() && yard.server.pool.is_resting()).await;
    assert_eq!((yard.server.status().phase, yard.opened()), (Phase::Ready, 3));
    yard.end().await;
}

/// [TRN-4]: what one principal has turned on in its own process is never shown to another: not when a reload puts that one
/// in its place, nor beside it, whether the server rests or not; a list that was being read then is not shown either.
#[tokio::test]
async fn what_is_ones_own_is_shown_to_nobody_else() {
    let idle = Duration::from_secs(100);
    for (next, rests, reads) in [
        (only("bob"), false, false),
        (only("bob"), true, false),
        (only("bob"), false, true),
        (Grants::Several, false, false),
        (Grants::Several, true, false),
        (Grants::Several, false, true),
    ] {
        let what = format!("{next:?} {rests} {reads}");
        let yard = Yard::ready(1, |settings| settings.idle_stop = Some(idle)).await;
        let held = yard.held(&call("ann")).await.unwrap();
        until("the list has moved", || yard.server.is_catalog(held.link())).await;
        let own = yard.wire(&held);
        own.turns("on");
        until("what ann has turned on", || yard.lists("on")).await;
        if reads {
            let lists = yard.plant.lists();
            yard.plant.hushed.send_replace(true);
            own.turns("late");
            until("the list is being read", || yard.plant.lists() > lists).await;
        }
        drop(held);
        if rests {
            for _ in 0..3 {
                yard.sweep_after(idle);
            }
            until("it rests", || yard.server.pool.is_resting()).await;
        }
        yard.grant(&next);
        assert!(yard.lists("t") && !yard.lists("on"), "{what}: from this moment on");
        assert_eq!(yard.server.status().phase, Phase::Ready, "{what}");
        yard.set.revoke(|principal, _| next == Grants::Several || principal.as_str() == "bob");
        yard.plant.hushed.send_replace(false);
        let shown = || assert!(yard.lists("t") && !yard.lists("on") && !yard.lists("late"), "{what}");
        until("the list is read over a process that is nobody's", || {
            shown();
            let listed = yard.server.listed();
            listed.is_some_and(|link| !link.closed().is_cancelled() && yard.server.whose(&link).is_none())
        })
        .await;
        let held = yard.held(&call("bob")).await.unwrap();
        yard.wire(&held).turns("bob");
        if next == only("bob") {
            until("its own", || {
                assert!(!yard.lists("on") && !yard.lists("late"), "{what}");
                yard.lists("bob")
            })
            .await;
        }
        drop(held);
        yard.end().await;
    }
}

/// [TRN-8]: where nothing but one's own was ever listed, the next one waits for a list as for that of a new server.
#[tokio::test]
async fn who_comes_after_waits_for_a_list_of_its_own() {
    let yard = Yard::ready(1, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    until("the list has moved", || yard.server.is_catalog(held.link())).await;
    yard.wire(&held).turns("on");
    until("what ann has turned on", || yard.lists("on")).await;
    let next = Yard::new(1, |_| {});
    next.server.change(|status| {
        let known = yard.server.status();
        (status.phase, status.lists, status.of) = (Phase::Ready, known.lists, known.of);
    });
    next.grant(&only("bob"));
    let status = next.server.status();
    assert!(status.lists.is_none() && status.of.is_none() && status.phase == Phase::Starting);
    let next = next.opened_up().await;
    assert!(next.lists("t"));
    drop(held);
    next.end().await;
    yard.end().await;
}

/// A server with other settings takes over what is shown of the one before, and with it whose that is [TRN-8, TRN-4].
#[tokio::test]
async fn what_is_inherited_stays_ones_own() {
    let yard = Yard::ready(1, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    until("the list has moved", || yard.server.is_catalog(held.link())).await;
    yard.wire(&held).turns("on");
    until("what ann has turned on", || yard.lists("on")).await;
    for (next, tool) in [(only("ann"), "on"), (only("bob"), "t"), (Grants::Several, "t")] {
        let heir = Yard::new(2, |settings| settings.max_processes = 5);
        heir.server.inherit(&yard.server);
        heir.grant(&next);
        assert!(heir.lists(tool));
        let heir = heir.opened_up().await;
        heir.end().await;
    }
    drop(held);
    yard.end().await;
}

/// [TRN-4]: when a reload leaves one principal, its process and that of the list become one: the list moves to the one that
/// it has, and its first fitting call takes the list's where it has none.
#[tokio::test]
async fn who_is_left_alone_has_one_process() {
    let yard = Yard::ready(2, |_| {}).await;
    let held = yard.held(&call("ann")).await.unwrap();
    let bobs = yard.held(&call("bob")).await.unwrap();
    assert_eq!(yard.open().len(), 3);
    yard.grant(&only("ann"));
    yard.set.revoke(|principal, _| principal.as_str() == "ann");
    until("ann's alone is left", || yard.open().len() == 1 && yard.server.is_catalog(held.link())).await;
    assert!(!held.link().closed().is_cancelled() && bobs.link().closed().is_cancelled());
    yard.wire(&held).turns("on");
    until("its list", || yard.lists("on")).await;
    assert_eq!((yard.opened(), yard.server.status().phase), (3, Phase::Ready));
    drop((held, bobs));
    yard.end().await;

    let yard = Yard::ready(2, |_| {}).await;
    let list = Arc::clone(&yard.open()[0]);
    yard.grant(&only("ann"));
    let held = yard.held(&call_of("ann", None, ASKABLE)).await.unwrap();
    assert!(Arc::ptr_eq(&yard.wire(&held), &list) && yard.opened() == 1);
    // And no longer when there is another one.
    drop(held);
    yard.grant(&Grants::Several);
    until("the list has its own", || yard.open().len() == 2).await;
    yard.end().await;
}

/// [TRN-4]: the only principal's process stands in just the moment in which the list has been read over one of its own: one of
/// them is left, and it is the principal's.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_process_that_stands_when_the_list_is_read_is_the_only_one() {
    let idle = Duration::from_secs(100);
    let yard = Yard::ready(1, |settings| settings.idle_stop = Some(idle)).await;
    until("it rests", || {
        yard.sweep_after(idle);
        yard.open().is_empty()
    })
    .await;
    yard.plant.hushed.send_replace(true);
    let lists = yard.plant.lists();
    // As somebody does who watches a resource.
    yard.server.pool.wake();
    until("the list is being read", || yard.plant.lists() > lists).await;
    let list = Arc::clone(&yard.open()[0]);
    let plant = Arc::clone(&yard.plant);
    let (tell, told) = std::sync::mpsc::channel();
    *yard.plant.meanwhile.lock().unwrap() = Some(Meanwhile(Box::new(move || {
        // From another thread: what this one wakes would wait for it.
        std::thread::spawn(move || plant.hushed.send_replace(false)).join().unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
    })));
    let ann = call("ann");
    let (held, ()) = futures_util::future::join(yard.held(&ann), async {
        let link = Arc::clone(&list) as Arc<dyn Link>;
        until("the list is read", || list.state.closed.is_cancelled() || yard.server.is_catalog(&link)).await;
        tell.send(()).unwrap();
    })
    .await;
    let held = held.unwrap();
    until("one is left", || yard.open().len() == 1 && yard.server.is_catalog(held.link())).await;
    assert!(list.state.closed.is_cancelled() && !held.link().closed().is_cancelled());
    yard.wire(&held).turns("on");
    until("its list", || yard.lists("on")).await;
    drop(held);
    yard.end().await;
}
