//! Kept streams: order, bounds, time.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};

use super::{Kept, Priming, ReplayLimits, STREAMS_MAX, Shelf};
use crate::clock::Clock;
use crate::session::Said;
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::Kind;

const WIDE: ReplayLimits =
    ReplayLimits { time: Duration::from_secs(60), stream_bytes: 1 << 20, session_bytes: 4 << 20 };

/// Says each text when it is asked, the last as the answer; a pause is a poll that waits.
struct Script(VecDeque<Option<String>>);

impl Stream for Script {
    type Item = Said;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Said>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(text)) => {
                let last = self.0.iter().all(Option::is_none);
                Poll::Ready(Some(Said { last, ..Said::note(Bytes::from(text)) }))
            }
        }
    }
}

fn kept(shelf: &Arc<Shelf>, texts: &[Option<&str>]) -> (Arc<Kept>, u64) {
    let kept = shelf.place(RequestId::number(7), (Kind::Tools, "tool".to_owned())).unwrap();
    let script = Script(texts.iter().map(|text| text.map(str::to_owned)).collect());
    let (primer, holder) = kept.begin(Box::pin(script), Priming::On);
    assert!(primer.unwrap().ends_with(b"\nretry: 1000\ndata: \n\n"));
    (kept, holder)
}

/// The number and the data of an event.
fn read(event: &[u8]) -> (u64, String) {
    let text = std::str::from_utf8(event).unwrap();
    let (head, data) = text.strip_prefix("event: message\nid: ").unwrap().split_once("\ndata: ").unwrap();
    (head.rsplit_once('.').unwrap().1.parse().unwrap(), data.strip_suffix("\n\n").unwrap().to_owned())
}

/// All that is said by now, in one write.
fn poll(kept: &Kept, holder: u64) -> Poll<Option<Vec<(u64, String)>>> {
    let told = kept.poll(holder, b"", &mut Context::from_waker(Waker::noop()));
    told.map(|told| {
        told.map(|told| {
            let text = String::from_utf8([&*told.joined, &*told.large.concat()].concat()).unwrap();
            let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
            events.map(|event| read(format!("{event}\n\n").as_bytes())).collect()
        })
    })
}

/// What is kept after an event.
fn missed(kept: &Kept, after: u64) -> Vec<(u64, String)> {
    let (frames, holder) = kept.resume(after).unwrap();
    kept.let_go(holder);
    frames.iter().map(|frame| read(frame)).collect()
}

/// The sum over all streams is what the session counts.
fn check(shelf: &Shelf) {
    let streams = shelf.streams();
    let all = || streams.iter().flat_map(|streams| &streams.all);
    let sum: usize = all().map(|kept| kept.state().bytes).sum();
    let counted: usize = all()
        .flat_map(|kept| kept.state().events.iter().map(|event| super::size(&event.frames)).collect::<Vec<_>>())
        .sum();
    assert_eq!((sum, counted), (shelf.bytes.load(std::sync::atomic::Ordering::Relaxed), sum));
    assert!(sum <= shelf.limits.session_bytes, "{sum}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// [R43, R45]: wherever connections break, with or without somebody who goes on in between, every message comes once
    /// and in order, the answer last.
    #[test]
    fn every_message_comes_once(
        script in prop::collection::vec(prop::option::weighted(0.7, 0_u16..1000), 1..30),
        breaks in prop::collection::vec((1_usize..6, any::<bool>()), 0..40),
    ) {
        let shelf = Shelf::new(WIDE, Clock::manual(), 7);
        let wanted: Vec<String> = script.iter().flatten().map(ToString::to_string).collect();
        let texts: Vec<Option<&str>> = {
            let mut said = wanted.iter();
            script.iter().map(|text| text.and_then(|_| said.next().map(String::as_str))).collect()
        };
        let (kept, mut holder) = kept(&shelf, &texts);
        let mut got: Vec<(u64, String)> = Vec::new();
        let last = |got: &[(u64, String)]| got.last().map_or(0, |(number, _)| *number);
        for (reads, goes_on) in breaks {
            for _ in 0..reads {
                if let Poll::Ready(Some(events)) = poll(&kept, holder) {
                    got.extend(events);
                }
            }
            if let Some(away) = kept.let_go(holder).filter(|_| goes_on) {
                while let Poll::Ready(Some(_)) = poll(&kept, away) {}
            }
            let (frames, number) = kept.resume(last(&got)).unwrap();
            got.extend(frames.iter().map(|frame| read(frame)));
            holder = number;
            check(&shelf);
        }
        for _ in 0..script.len() + 1 {
            if let Poll::Ready(Some(events)) = poll(&kept, holder) {
                got.extend(events);
            }
        }
        let wanted: Vec<(u64, String)> = (1..).zip(wanted).collect();
        prop_assert_eq!(&got, &wanted);
        prop_assert_eq!(missed(&kept, 0), wanted);
    }
}

#[test]
fn a_stream_keeps_its_newest_and_its_answer() {
    let limits = ReplayLimits { stream_bytes: 330, session_bytes: 800, ..WIDE };
    let shelf = Shelf::new(limits, Clock::manual(), 7);
    let note = "n".repeat(50);
    let (kept, holder) = kept(&shelf, &[Some(&note), Some(&note), Some(&"x".repeat(500)), Some(&note), Some("answer")]);
    while let Poll::Ready(Some(_)) = poll(&kept, holder) {}
    kept.let_go(holder);
    check(&shelf);
    let all = missed(&kept, 0);
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    // The third is larger than all that is kept; of the others the oldest has gone.
    assert_eq!(numbers, [2, 4, 5]);
    assert_eq!(all[2].1, "answer");
}

/// [LIM-6]: an answer that comes whole after its stand-in makes room for itself, as every other event does.
#[test]
fn an_answer_that_is_whole_at_last_makes_room() {
    let limits = ReplayLimits { stream_bytes: 330, session_bytes: 800, ..WIDE };
    let shelf = Shelf::new(limits, Clock::manual(), 7);
    let note = "n".repeat(50);
    let (kept, holder) = kept(&shelf, &[Some(&note), Some(&note), Some("answer")]);
    while let Poll::Ready(Some(_)) = poll(&kept, holder) {}
    kept.let_go(holder);
    assert_eq!(missed(&kept, 0).len(), 3);
    let whole = format!("event: message\nid: x.3\ndata: {}\n\n", "a".repeat(200));
    kept.complete(&[Bytes::from(whole)]);
    check(&shelf);
    let all = missed(&kept, 0);
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!((numbers, all.last().unwrap().1.len()), (vec![2, 3], 200));
    assert!(kept.state().bytes <= 330);
}

/// The oldest that are over go first; an answer for which there is no room becomes an error with the request's id.
#[test]
fn a_session_keeps_its_sum() {
    let limits = ReplayLimits { stream_bytes: 400, session_bytes: 1000, ..WIDE };
    let shelf = Shelf::new(limits, Clock::manual(), 7);
    let answer = "a".repeat(300);
    let run = |over: bool| {
        let (kept, holder) = kept(&shelf, &[Some(&answer)]);
        while let Poll::Ready(Some(_)) = poll(&kept, holder) {}
        if over {
            kept.let_go(holder);
        }
        check(&shelf);
        kept
    };
    let all = [run(true), run(true), run(true), run(true)];
    let found: Vec<bool> = all.iter().map(|kept| shelf.find(&kept.id(0)).is_some()).collect();
    assert_eq!(found, [false, false, true, true]);
    // These are still being read: nothing of them can go but what is newest.
    let held = [run(false), run(false), run(false)];
    let texts: Vec<String> = held.iter().map(|kept| missed(kept, 0)[0].1.clone()).collect();
    assert_eq!((texts[0].as_str(), texts[1].as_str()), (answer.as_str(), answer.as_str()));
    assert!(
        texts[2].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-31000,"message":"The answer was not read"#)
    );
}

#[test]
fn a_session_keeps_so_many_streams() {
    let shelf = Shelf::new(WIDE, Clock::manual(), 7);
    let mut all: Vec<_> = (0..STREAMS_MAX).map(|_| kept(&shelf, &[None, Some("answer")])).collect();
    assert!(shelf.place(RequestId::number(1), (Kind::Tools, String::new())).is_none(), "all of them run");
    let (first, holder) = all.remove(3);
    while !matches!(poll(&first, holder), Poll::Ready(None)) {}
    first.let_go(holder);
    assert!(shelf.place(RequestId::number(1), (Kind::Tools, String::new())).is_some());
    assert!(shelf.find(&first.id(0)).is_none());
    assert!(all.iter().all(|(kept, _)| shelf.find(&kept.id(0)).is_some()));
    shelf.close();
    assert!(shelf.place(RequestId::number(1), (Kind::Tools, String::new())).is_none());
    assert!(
        all.iter().all(|(kept, holder)| matches!(poll(kept, *holder), Poll::Ready(None))),
        "their calls are dropped"
    );
}

#[test]
fn time_begins_when_the_call_is_over_and_its_client_gone() {
    let clock = Clock::manual();
    let shelf = Shelf::new(WIDE, clock.clone(), 7);
    let (kept, holder) = kept(&shelf, &[None, Some("answer")]);
    assert!(poll(&kept, holder).is_pending());
    let away = kept.let_go(holder).unwrap();
    clock.advance(Duration::from_secs(3600));
    assert!(shelf.find(&kept.id(0)).is_some(), "its call runs");
    while !matches!(poll(&kept, away), Poll::Ready(None)) {}
    kept.let_go(away);
    clock.advance(Duration::from_secs(59));
    shelf.prune(clock.now());
    assert!(shelf.find(&kept.id(0)).is_some());
    clock.advance(Duration::from_secs(1));
    assert!(shelf.find(&kept.id(0)).is_none());
    shelf.prune(clock.now());
    assert!(shelf.streams().as_ref().unwrap().all.is_empty());
    assert_eq!(shelf.bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// [LIM-6]: who comes back again and again, each time before it is over, does not keep it for ever.
#[test]
fn coming_back_does_not_prolong_the_time() {
    let clock = Clock::manual();
    let shelf = Shelf::new(WIDE, clock.clone(), 7);
    let (kept, holder) = kept(&shelf, &[Some("answer")]);
    while !matches!(poll(&kept, holder), Poll::Ready(None)) {}
    kept.let_go(holder);
    clock.advance(Duration::from_secs(40));
    assert_eq!(missed(&kept, 0).len(), 1);
    clock.advance(Duration::from_secs(19));
    assert!(shelf.find(&kept.id(0)).is_some());
    clock.advance(Duration::from_secs(1));
    assert!(shelf.find(&kept.id(0)).is_none());
}

#[test]
fn a_call_that_nobody_goes_on_with_says_so() {
    let shelf = Shelf::new(WIDE, Clock::manual(), 7);
    let (kept, holder) = kept(&shelf, &[Some("note"), None, Some("answer")]);
    assert_eq!(poll(&kept, holder), Poll::Ready(Some(vec![(1, "note".to_owned())])));
    let away = kept.let_go(holder).unwrap();
    kept.give_up(away, "No place");
    assert_eq!(
        missed(&kept, 1),
        [(2, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-31000,"message":"No place"}}"#.to_owned())]
    );
    assert!(!format!("{kept:?}").contains(&kept.key.to_string()));
}
