//! A legacy call survives its client's connection, and its client comes back for the answer [R43, R44, R45].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::support::{Client, House, LEGACY, call, initialize, legacy_call, modern};
use crate::downstream::DownstreamSettings;
use crate::downstream::resume::Driver;
use crate::downstream::running::Survive;
use crate::exchange::{ClientFacts, Endpoint, Told};
use crate::id::PrincipalId;
use crate::limit::Seats;
use crate::session::{NewSession, Priming, ReplayLimits, Said, SessionLimits, SessionStore};
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::{Kind, ProtocolVersion};

/// One event as it stands on the wire.
#[derive(Debug)]
struct Event {
    id: String,
    retry: bool,
    data: Option<Value>,
}

impl Event {
    fn read(block: &str) -> Self {
        let mut event = Self { id: String::new(), retry: false, data: None };
        let mut data = Vec::new();
        for line in block.trim_end_matches("\n\n").lines() {
            match line.split_once(": ").unwrap() {
                ("event", name) => assert_eq!(name, "message"),
                ("id", id) => id.clone_into(&mut event.id),
                ("retry", _) => event.retry = true,
                ("data", text) => data.push(text.to_owned()),
                (name, _) => panic!("{name}"),
            }
        }
        let data = data.join("\n");
        event.data = (!data.is_empty()).then(|| serde_json::from_str(&data).unwrap());
        event
    }
}

/// The next events; several can come in one chunk, comments are left out.
async fn events(client: &mut Client) -> Option<Vec<Event>> {
    let chunk = client.chunk().await?;
    let blocks = chunk.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
    Some(blocks.map(Event::read).collect())
}

async fn event(client: &mut Client) -> Event {
    loop {
        let mut all = events(client).await.expect("the stream has ended");
        assert!(all.len() < 2, "{all:?}");
        if let Some(event) = all.pop() {
            return event;
        }
    }
}

async fn rest(client: &mut Client) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(more) = events(client).await {
        all.extend(more);
    }
    all
}

/// A house in which a silent call becomes a stream at once.
fn house() -> House {
    House::with(DownstreamSettings { keep_alive: Duration::from_millis(5), ..Default::default() })
}

async fn come_back(house: &House, session: &str, last: &str) -> Client {
    let mut client = house.connect().await;
    client.send("GET", "/mcp", &format!("{session}Last-Event-ID: {last}\r\n"), "").await;
    assert_eq!(client.head().await.0, 200);
    client
}

/// Begins a call; returns the open stream and the first event of its log.
async fn begin(house: &mut House, session: &str, tool: &str) -> (Client, Vec<Event>) {
    let mut client = house.connect().await;
    client.send("POST", "/mcp", session, &legacy_call("1", tool)).await;
    house.began(tool).await;
    assert_eq!(client.head().await.0, 200);
    let mut seen = Vec::new();
    while seen.is_empty() {
        seen = events(&mut client).await.unwrap();
    }
    (client, seen)
}

/// [R44]: an event with an id and no data, and `retry`, for sessions of 2025-11-25 alone; ids from 2025-03-26 on; nothing of
/// it where the answer is no stream, on stateless streams [R26], and in 2024-11-05.
#[tokio::test]
async fn a_stream_is_primed() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (mut client, primed) = begin(&mut house, &session, "gate").await;
    assert_eq!(primed.len(), 1);
    let (key, number) = primed[0].id.rsplit_once('.').unwrap();
    assert_eq!((key.len(), number, primed[0].retry, primed[0].data.is_none()), (16, "0", true, true));
    house.hall.gate.notify_one();
    let answer = event(&mut client).await;
    assert_eq!((answer.id, answer.retry), (format!("{key}.1"), false));
    assert_eq!(answer.data.unwrap()["id"], json!(1));
    assert!(rest(&mut client).await.is_empty());
    for (version, ids) in [("2025-06-18", true), ("2025-03-26", true), ("2024-11-05", false)] {
        let session = house.session(version).await;
        house.hall.gate.notify_one();
        let got = house.post(&session, &legacy_call("1", "chatty")).await;
        let all: Vec<Event> = got.body.split("\n\n").filter(|block| !block.is_empty()).map(Event::read).collect();
        assert_eq!(all.len(), 4, "{version}");
        assert!(all.iter().all(|event| event.id.is_empty() != ids && !event.retry && event.data.is_some()), "{all:?}");
    }
    let stateless = modern("tools/call", Some("chatty"));
    house.hall.gate.notify_one();
    assert!(!house.post(&stateless, &call("1", "chatty")).await.body.contains("id: "));
    let plain = house.post(&session, &legacy_call("2", "echo")).await;
    assert_eq!(plain.header("content-type"), Some("application/json"));
}

/// [R44, R59]: where a server closes a call's stream and goes on, a client of 2025-11-25 is told how to come back and is let
/// go, if the call can go on without it; nobody else notices.
#[tokio::test]
async fn a_server_that_pauses_lets_its_client_go() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    let (mut client, primed) = begin(&mut house, &session, "pauses").await;
    assert_eq!((primed.len(), primed[0].retry, primed[0].data.is_none()), (1, true, true), "{primed:?}");
    assert!(rest(&mut client).await.is_empty(), "the stream goes on");
    // It may come back before the answer is there, and after.
    let mut client = come_back(&house, &session, &primed[0].id).await;
    house.hall.gate.notify_one();
    house.gone("pauses").await;
    let answer = event(&mut client).await;
    assert_eq!(answer.data.unwrap()["id"], json!(1));
    let mut again = come_back(&house, &session, &primed[0].id).await;
    assert_eq!(rest(&mut again).await.len(), 1);

    let others = [
        (house.session("2025-06-18").await, legacy_call("1", "pauses")),
        (modern("tools/call", Some("pauses")), call("1", "pauses")),
    ];
    for (headers, body) in others {
        house.hall.gate.notify_one();
        let got = house.post(&headers, &body).await;
        assert_eq!((got.status, got.header("content-type")), (200, Some("application/json")), "{got:?}");
        house.began("pauses").await;
        house.gone("pauses").await;
    }

    let orphans = house.door.door().orphans.clone();
    let all: Vec<_> = std::iter::from_fn(|| orphans.take(&PrincipalId::new("carol"), false).ok()).collect();
    let (mut client, primed) = begin(&mut house, &session, "pauses").await;
    assert_eq!(primed.len(), 1);
    house.hall.gate.notify_one();
    assert_eq!(event(&mut client).await.data.unwrap()["id"], json!(1));
    drop(all);
}

/// [R45, LIM-6]: a principal that loses its connections, however many, leaves room for the lost calls of the others.
#[tokio::test]
async fn one_principals_lost_calls_leave_room_for_others() {
    let mut house = house();
    let orphans = house.door.door().orphans.clone();
    let alices: Vec<_> = std::iter::from_fn(|| orphans.take(&PrincipalId::new("alice"), true).ok()).collect();
    assert!(!alices.is_empty());
    let session = house.session("2025-11-25").await;
    let (client, _) = begin(&mut house, &session, "gate").await;
    drop(client);
    // It is cancelled: nothing has opened the gate.
    house.gone("gate").await;
    let got = house.post(&LEGACY.replace("alice", "bob"), &initialize("\"2025-11-25\"")).await;
    let session =
        format!("{}Mcp-Session-Id: {}\r\n", LEGACY.replace("alice", "bob"), got.header("mcp-session-id").unwrap());
    let (client, primed) = begin(&mut house, &session, "gate").await;
    drop(client);
    house.hall.gate.notify_one();
    house.gone("gate").await;
    let mut client = come_back(&house, &session, &primed[0].id).await;
    assert_eq!(event(&mut client).await.data.unwrap()["id"], json!(1));
    drop(alices);
}

/// [R45, FC-IDS-11, FC-CON-05]: the call goes on; who comes back gets what it has missed, once and in order.
#[tokio::test]
async fn an_answer_waits_for_its_client() {
    let mut house = house();
    for version in ["2025-11-25", "2025-06-18"] {
        let session = house.session(version).await;
        let (client, seen) = begin(&mut house, &session, "chatty").await;
        let primed = usize::from(version == "2025-11-25");
        // What a hall says at once comes as one write.
        assert_eq!(seen.len(), 3 + primed, "{seen:?}");
        drop(client);
        house.hall.gate.notify_one();
        house.gone("chatty").await;
        let mut client = come_back(&house, &session, &seen[primed].id).await;
        let missed = rest(&mut client).await;
        let numbers: Vec<&str> = missed.iter().map(|event| event.id.rsplit_once('.').unwrap().1).collect();
        assert_eq!(numbers, ["2", "3", "4"], "{version}");
        assert_eq!(missed[0].data.as_ref().unwrap()["params"]["progress"], json!(1));
        assert_eq!(missed[2].data.as_ref().unwrap()["id"], json!(1));
        // It is over: nothing is left, and nothing is said twice.
        let mut client = come_back(&house, &session, &missed[2].id).await;
        assert!(rest(&mut client).await.is_empty());
    }
}

/// [R45]: who comes back while the call runs reads on where it has stopped, and can be cut off again.
#[tokio::test]
async fn a_stream_goes_on_live() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (mut client, seen) = begin(&mut house, &session, "gate").await;
    for _ in 0..3 {
        drop(client);
        client = come_back(&house, &session, &seen[0].id).await;
        while !events(&mut client).await.unwrap().is_empty() {}
    }
    house.hall.gate.notify_one();
    assert_eq!(event(&mut client).await.data.unwrap()["id"], json!(1));
    assert!(rest(&mut client).await.is_empty());
    house.gone("gate").await;
}

/// [R42]: a connection that only looks alive loses the stream to the newer one.
#[tokio::test]
async fn a_stream_has_one_reader() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (mut old, seen) = begin(&mut house, &session, "gate").await;
    let mut new = come_back(&house, &session, &seen[0].id).await;
    assert!(rest(&mut old).await.is_empty());
    house.hall.gate.notify_one();
    assert_eq!(event(&mut new).await.data.unwrap()["id"], json!(1));
}

/// [R37, R43]: another principal's, another session's, a made up and an old id are alike; so is one whose tool its client may
/// not call any more.
#[tokio::test]
async fn a_stream_is_its_own_clients() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (mut client, seen) = begin(&mut house, &session, "gate").await;
    house.hall.gate.notify_one();
    assert_eq!(rest(&mut client).await.len(), 1);
    let id = &seen[0].id;
    let refused = async |session: &str, id: &str| {
        let got = house.ask("GET", "/mcp", &format!("{session}Last-Event-ID: {id}\r\n"), "").await;
        (got.code(), got.json()["error"]["message"].as_str().unwrap().starts_with("Last-Event-ID"))
    };
    let unknown = ((400, -32600), true);
    let other = house.session("2025-11-25").await;
    assert_eq!(refused(&other, id).await, unknown);
    for made_up in ["x", "x.0", ".0", &id.replace(".0", ".2"), &id.replace(".0", ".-1"), &id.replace(".0", "")] {
        assert_eq!(refused(&session, made_up).await, unknown, "{made_up}");
    }
    assert_eq!(refused(&session.replace("alice", "bob"), id).await, ((404, -32600), false));
    house.hall.open.store(false, Ordering::Relaxed);
    assert_eq!(refused(&session, id).await, unknown);
    house.hall.open.store(true, Ordering::Relaxed);
    assert_eq!(rest(&mut come_back(&house, &session, id).await).await.len(), 1);
    // Each who comes back has the whole time anew.
    house.clock.advance(Duration::from_secs(59));
    assert_eq!(rest(&mut come_back(&house, &session, id).await).await.len(), 1);
    house.clock.advance(Duration::from_secs(60));
    assert_eq!(refused(&session, id).await, unknown);
}

/// [R38, R45]: `DELETE` takes all along, also what its client is away from; a cancel ends the call without an answer.
#[tokio::test]
async fn delete_and_cancel_reach_a_call_without_client() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (client, seen) = begin(&mut house, &session, "hang").await;
    drop(client);
    // The id stays taken for as long as the call runs.
    assert_eq!(house.post(&session, &legacy_call("1", "echo")).await.code(), (400, -32600));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(house.post(&session, cancel).await.status, 202);
    house.gone("hang").await;
    let mut client = come_back(&house, &session, &seen[0].id).await;
    assert!(rest(&mut client).await.is_empty());

    let (client, _) = begin(&mut house, &session, "hang").await;
    drop(client);
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 200);
    house.gone("hang").await;
    let late = house.ask("GET", "/mcp", &format!("{session}Last-Event-ID: {}\r\n", seen[0].id), "").await;
    assert_eq!(late.code(), (404, -32600));

    let session = house.session("2025-11-25").await;
    let (mut client, _) = begin(&mut house, &session, "hang").await;
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 200);
    house.gone("hang").await;
    assert!(rest(&mut client).await.is_empty());
}

/// [FC-SES-09]: a drain waits for a call whose client is away.
#[tokio::test]
async fn a_drain_waits_for_a_call_without_client() {
    let mut house = house();
    let session = house.session("2025-11-25").await;
    let (client, _) = begin(&mut house, &session, "gate").await;
    drop(client);
    house.drain.start();
    let waited = house.drain.clone();
    let finished = waited.finished(Duration::from_secs(60));
    tokio::pin!(finished);
    assert!(futures_util::poll!(finished.as_mut()).is_pending());
    house.hall.gate.notify_one();
    house.gone("gate").await;
    assert!(finished.await);
}

/// What is over the bound of a stream is answered with an error that says so, never with silence; a client that reads it
/// as it comes is not touched by that.
#[tokio::test]
async fn an_answer_over_the_bound_becomes_an_error() {
    let replay = ReplayLimits { time: Duration::from_secs(60), stream_bytes: 256, session_bytes: 1 << 10 };
    let mut house =
        House::with(DownstreamSettings { keep_alive: Duration::from_millis(5), replay, ..Default::default() });
    let session = house.session("2025-11-25").await;
    for there in [true, false] {
        let (mut client, seen) = begin(&mut house, &session, "gate-large").await;
        if there {
            house.hall.gate.notify_one();
            assert!(event(&mut client).await.data.unwrap()["result"]["text"].as_str().unwrap().len() > 256);
        }
        drop(client);
        if !there {
            house.hall.gate.notify_one();
        }
        house.gone("gate-large").await;
        let missed = rest(&mut come_back(&house, &session, &seen[0].id).await).await;
        assert_eq!(missed.len(), 1);
        let answer = missed[0].data.as_ref().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31000)), "{there}");
    }
}

/// An answer that is passed on as it comes is kept whole where its client was away before it came, and is an error where
/// the connection was lost in the middle of it.
#[tokio::test]
async fn an_answer_that_nobody_looks_at_is_kept_whole() {
    let house = house();
    let replay = ReplayLimits { time: Duration::from_secs(60), stream_bytes: 1 << 10, session_bytes: 1 << 10 };
    let limits = SessionLimits { max: 1, per_principal_max: 1, idle: Duration::from_secs(60), replay };
    let client = ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(b"{}"));
    let (principal, endpoint) = (PrincipalId::new("alice"), Endpoint::All);
    let new = NewSession { principal, endpoint, client, told: Told::default() };
    let session = SessionStore::new(limits, house.clock.clone()).create(new).unwrap();
    for large in [false, true] {
        let kept = session.keep(RequestId::number(1), (Kind::Tools, "t".to_owned())).unwrap();
        let piece = |text: &str| Ok(Bytes::from(text.to_owned()));
        let rest =
            futures_util::stream::iter([piece("[1,"), piece(&"2".repeat(if large { 2000 } else { 2 })), piece("]}")]);
        let parts = [Bytes::from_static(br#"{"id":1,"x":"#)].into();
        let said = Said { parts, rest: Some(Box::pin(rest)), last: true, guards: Vec::new() };
        let (_, number) = kept.begin(Box::pin(futures_util::stream::iter([said])), Priming::On);
        let survive = Survive {
            tasks: house.tasks.clone(),
            seats: Seats::new(1, 1),
            principal: PrincipalId::new("p"),
            shared: false,
        };
        let before = house.tasks.len();
        drop(Driver { kept: Arc::clone(&kept), number, survive, slot: None });
        while house.tasks.len() > before {
            tokio::task::yield_now().await;
        }
        let (missed, _) = kept.resume(0).unwrap();
        let event = Event::read(std::str::from_utf8(&missed.concat()).unwrap());
        let answer = event.data.unwrap();
        match large {
            false => assert_eq!(answer, json!({"id": 1, "x": [1, 22]})),
            true => assert_eq!(answer["error"]["code"], json!(-31000)),
        }
    }
}
