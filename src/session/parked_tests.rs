//! Parked calls: who keeps a place, and how long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;

use super::{Live, ParkedCalls, ParkedLimits};
use crate::clock::Clock;
use crate::exchange::{Answer, Event, EventStream, Outcome, Question, Responder};
use crate::id::PrincipalId;
use crate::runtime::{Drain, Tasks};
use crate::wire::json;
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Era, InputKind};

const BINDING: [u8; 32] = [7; 32];
const TIME: Duration = Duration::from_secs(600);
const KEEP: Duration = Duration::from_secs(60);

fn store(per_principal_max: usize) -> Arc<ParkedCalls> {
    let limits = ParkedLimits { max: 3, per_principal_max, time: TIME, keep: KEEP, ..ParkedLimits::default() };
    ParkedCalls::new(limits, Clock::manual(), Tasks::new(), Drain::new())
}

/// A call of `principal` that asks at once; its server goes on by what is sent.
fn park(calls: &Arc<ParkedCalls>, principal: &PrincipalId) -> Option<(EventStream, mpsc::Sender<Event>)> {
    let (server, heard) = mpsc::channel(4);
    let events = stream::unfold(heard, async |mut heard| Some((heard.recv().await?, heard)));
    let live = Live { events: Box::pin(events), guards: Vec::new() };
    let params = Bytes::from_static(br#"{"message":"m","requestedSchema":{}}"#);
    let question = Question { kind: InputKind::Elicitation, params, responder: Responder::new(|_| {}) };
    calls.park(principal, BINDING, live, question).ok().map(|events| (events, server))
}

async fn outcome(mut events: EventStream) -> Outcome {
    loop {
        if let Event::Done(outcome) = events.next().await.unwrap() {
            return outcome;
        }
    }
}

/// The handle that the client is asked with.
async fn handle(events: EventStream) -> String {
    let Ok(Answer::InputRequired(input)) = outcome(events).await else { panic!("it is not asked") };
    json::text_of(&input.wanted.state.unwrap()).unwrap().into_owned()
}

fn done() -> Event {
    let response = Box::new(Response::with_result(&RequestId::number(1), br#"{"content":[]}"#));
    Event::Done(Ok(Answer::Upstream { response, era: Era::Legacy }))
}

async fn come(calls: &ParkedCalls, principal: &PrincipalId, state: &str) -> Option<Outcome> {
    let joining = calls.open(principal, state)?;
    let answers = vec![("q1".to_owned(), Bytes::from_static(br#"{"action":"cancel"}"#))];
    Some(outcome(calls.join(principal, BINDING, joining, answers).ok()?).await)
}

/// [R96, LIM-6]: what came while the client was asked is kept for it, for as long as nothing needs the place; once it was
/// told, for as long as every answer that was told.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_waits_gives_way() {
    let calls = store(1);
    let alice = PrincipalId::new("alice");
    let (events, server) = park(&calls, &alice).unwrap();
    let first = handle(events).await;
    assert!(park(&calls, &alice).is_none(), "one that goes on does not give way");
    server.send(done()).await.unwrap();
    // The server lets go of a call that has ended.
    server.closed().await;
    let (events, server) = park(&calls, &alice).expect("a place");
    let second = handle(events).await;
    assert!(come(&calls, &alice, &first).await.is_none());

    server.send(done()).await.unwrap();
    server.closed().await;
    tokio::time::sleep(TIME - Duration::from_secs(100)).await;
    assert_eq!(calls.len(), 1, "nobody needs the place, and its client may still come");
    for _ in 0..2 {
        assert!(matches!(come(&calls, &alice, &second).await, Some(Ok(Answer::Upstream { .. }))));
    }
    tokio::time::sleep(KEEP + Duration::from_secs(1)).await;
    assert_eq!(calls.len(), 0);
}

/// [LIM-6]: of those that are over, one that was told gives way first.
#[tokio::test(start_paused = true)]
async fn what_was_told_gives_way_first() {
    let calls = store(2);
    let alice = PrincipalId::new("alice");
    let mut states = Vec::new();
    for _ in 0..2 {
        let (events, server) = park(&calls, &alice).unwrap();
        states.push(handle(events).await);
        server.send(done()).await.unwrap();
        server.closed().await;
    }
    assert!(come(&calls, &alice, &states[1]).await.is_some());
    let _third = park(&calls, &alice).expect("a place");
    assert!(come(&calls, &alice, &states[1]).await.is_none());
    assert!(come(&calls, &alice, &states[0]).await.is_some());
}

/// [CFG-4]: nobody can come for the call of a principal that a reload has taken away.
#[tokio::test(start_paused = true)]
async fn a_principal_that_has_gone_leaves_no_call() {
    let calls = store(2);
    let (alice, bob) = (PrincipalId::new("alice"), PrincipalId::new("bob"));
    let (events, server) = park(&calls, &alice).unwrap();
    let state = handle(events).await;
    let (events, _bobs) = park(&calls, &bob).unwrap();
    let bobs = handle(events).await;
    calls.retain(|principal| *principal == bob);
    server.closed().await;
    assert!(come(&calls, &alice, &state).await.is_none());
    assert_eq!(calls.len(), 1);
    assert!(calls.open(&bob, &bobs).is_some());
}
