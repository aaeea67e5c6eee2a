//! Who keeps a slot, and who gives way.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::{FutureExt as _, poll};
use tokio::net::TcpStream;

use super::{SILENCE_MIN, Slot, Slots};
use crate::net::Listener;

#[tokio::test]
async fn a_slot_bounds_connections_and_comes_back() {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(1)).unwrap();
    let _one = TcpStream::connect(listener.address().unwrap()).await.unwrap();
    let _two = TcpStream::connect(listener.address().unwrap()).await.unwrap();
    let first = listener.accept().await;
    let mut second = pin!(listener.accept());
    assert!(poll!(&mut second).is_pending());
    drop(first);
    second.await;
}

/// Whether it has been asked to give way.
fn is_to_go(slot: &Slot) -> bool {
    slot.silence().gives_way().now_or_never().is_some()
}

/// [LIM-6]: the longest silent gives way when its time is over, and only when somebody waits.
#[tokio::test(start_paused = true)]
async fn whoever_says_nothing_gives_way() {
    let slots = Slots::new(3);
    let (one, two, three) = (slots.take().await, slots.take().await, slots.take().await);
    tokio::time::advance(SILENCE_MIN * 3).await;
    assert!(!is_to_go(&one) && !is_to_go(&two) && !is_to_go(&three), "nobody waits");
    one.silence().ends();
    let mut next = pin!(slots.take());
    let asked = two.silence();
    tokio::select! {
        _ = next.as_mut() => panic!("there is no slot"),
        () = asked.gives_way() => {}
    }
    assert!(!is_to_go(&one) && !is_to_go(&three));
    drop(two);
    let next = next.await;
    // Everybody has the time to say what they want.
    drop(three);
    let last = slots.take().await;
    let mut more = pin!(slots.take());
    assert!(poll!(&mut more).is_pending());
    tokio::time::advance(SILENCE_MIN - Duration::from_millis(1)).await;
    assert!(poll!(&mut more).is_pending() && !is_to_go(&next) && !is_to_go(&last));
    tokio::time::advance(Duration::from_millis(2)).await;
    assert!(poll!(&mut more).is_pending() && is_to_go(&next) && !is_to_go(&last));
}

/// [LIM-6]: whoever speaks in the moment in which it is asked to go stays, and the next one is asked.
#[tokio::test(start_paused = true)]
async fn whoever_speaks_at_the_last_moment_stays() {
    let slots = Slots::new(2);
    let (one, two) = (slots.take().await, slots.take().await);
    let mut next = pin!(slots.take());
    assert!(poll!(&mut next).is_pending());
    tokio::time::advance(SILENCE_MIN * 2).await;
    assert!(poll!(&mut next).is_pending());
    one.silence().ends();
    assert!(!is_to_go(&one) && !is_to_go(&two));
    let asked = two.silence();
    tokio::select! {
        _ = next.as_mut() => panic!("there is no slot"),
        () = asked.gives_way() => {}
    }
    drop(two);
    next.await;
    assert!(!is_to_go(&one));
}

/// [LIM-6]: where all have spoken the next one waits.
#[tokio::test(start_paused = true)]
async fn nobody_who_has_spoken_gives_way() {
    let slots = Slots::new(2);
    let held = [slots.take().await, slots.take().await];
    held.iter().for_each(|slot| slot.silence().ends());
    assert!(tokio::time::timeout(SILENCE_MIN * 20, slots.take()).await.is_err());
    assert!(!held.iter().any(is_to_go));
    drop(held);
    let _one = slots.take().await;
    assert_eq!(slots.silent().waiting.len(), 1, "who is gone is not remembered");
}
