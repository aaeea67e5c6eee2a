//! Streams: notifications on the way, keep-alives, GET, listen, drain.

use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::support::{Client, House, LEGACY, META, call, initialize, legacy_call, modern};
use crate::downstream::DownstreamSettings;

async fn event(client: &mut Client) -> Value {
    let chunk = client.chunk().await.expect("the stream has ended");
    serde_json::from_str(chunk.strip_prefix("event: message\ndata: ").unwrap().trim_end()).unwrap()
}

fn with_meta(tool: &str, more: &str) -> String {
    call("1", tool).replace("\"_meta\":{", &format!("\"_meta\":{{{more}"))
}

/// [R25, R26, R27, FC-HTP-05]
#[tokio::test]
async fn notifications_make_a_stream_that_ends_in_the_answer() {
    let house = House::open();
    let level = |level: &str| format!(r#""io.modelcontextprotocol/logLevel":"{level}","#);
    for (more, count) in [(String::new(), 2), (level("error"), 3), (level("debug"), 4), (level("emergency"), 2)] {
        house.hall.gate.notify_one();
        let got = house.post(&modern("tools/call", Some("chatty")), &with_meta("chatty", &more)).await;
        assert_eq!(
            (got.header("content-type"), got.header("x-accel-buffering")),
            (Some("text/event-stream"), Some("no"))
        );
        assert_eq!(got.header("cache-control"), Some("no-cache, no-transform"));
        let events = got.events();
        assert_eq!(events.len(), count, "{more}");
        assert_eq!(events.last().unwrap()["id"], json!(1));
        assert!(!got.body.contains("id:"), "{got:?}");
    }
    let bad = house.post(&modern("tools/call", Some("chatty")), &with_meta("chatty", &level("loud"))).await;
    assert_eq!(bad.code(), (200, -32602));
    let session = house.session("2025-11-25").await;
    house.hall.gate.notify_one();
    assert_eq!(house.post(&session, &legacy_call("1", "chatty")).await.events().len(), 4);
    house.hall.gate.notify_one();
    let json_only = format!("{session}Accept: application/json\r\n");
    assert_eq!(house.post(&json_only, &legacy_call("1", "chatty")).await.json()["id"], json!(1));
}

/// [LIM-1]: what nobody looks at reaches every kind of client: as JSON, in one event, and in a batch.
#[tokio::test]
async fn an_answer_is_passed_on_as_it_comes() {
    let house = House::open();
    let session = house.session("2025-03-26").await;
    let whole = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": ["x"]}});
    let got = house.post(&session, &legacy_call("1", "unseen")).await;
    assert_eq!((got.header("content-type"), got.json()), (Some("application/json"), whole.clone()));
    let events = house.post(&format!("{session}Accept: text/event-stream\r\n"), &legacy_call("1", "unseen")).await;
    assert_eq!(events.events(), std::slice::from_ref(&whole));
    let batch = house.post(&session, &format!("[{}]", legacy_call("1", "unseen"))).await;
    assert_eq!(batch.json(), json!([whole]));
    let torn = house.post(&session, &format!("[{}]", legacy_call("1", "torn"))).await;
    assert_eq!(torn.json()[0]["error"]["message"], json!("torn"));
    // One that was begun cannot be taken back: the connection ends in the middle of it.
    let mut client = house.connect().await;
    client.send("POST", "/mcp", &session, &legacy_call("1", "torn")).await;
    // The test's client panics where a connection ends before its last chunk, and returns `None` at that.
    let end = async {
        client.head().await;
        while client.chunk().await.is_some() {}
    };
    assert!(std::panic::AssertUnwindSafe(end).catch_unwind().await.is_err());
}

/// Product §9: a silent POST becomes a stream, and keeps saying so.
#[tokio::test]
async fn a_silent_call_becomes_a_stream() {
    let house = House::with(DownstreamSettings { keep_alive: Duration::from_millis(5), ..Default::default() });
    let mut client = house.connect().await;
    client.send("POST", "/mcp", &modern("tools/call", Some("gate")), &call("1", "gate")).await;
    let (status, headers) = client.head().await;
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
    for _ in 0..3 {
        assert_eq!(client.chunk().await.unwrap(), ": keep-alive\n\n");
    }
    house.hall.gate.notify_one();
    let answer = loop {
        let chunk = client.chunk().await.unwrap();
        if chunk.starts_with("event") {
            break chunk;
        }
    };
    assert!(answer.contains("\"id\":1"), "{answer}");
    assert_eq!(client.chunk().await, None);
}

/// [R45 reversed]: a stateless call ends with its connection, before and after its head [R106].
#[tokio::test]
async fn a_stateless_call_ends_with_its_connection() {
    let mut house = House::open();
    for tool in ["hang", "chatty"] {
        let mut client = house.connect().await;
        let body = with_meta(tool, "");
        client.send("POST", "/mcp", &modern("tools/call", Some(tool)), &body).await;
        house.began(tool).await;
        if tool == "chatty" {
            client.head().await;
        }
        drop(client);
        house.gone(tool).await;
    }
}

/// [FC-SES-06, R42]
#[tokio::test]
async fn the_newest_get_stream_wins() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    assert_eq!(house.ask("GET", "/mcp", &format!("{session}Accept: application/json\r\n"), "").await.status, 406);
    let mut before: Option<Client> = None;
    for _ in 0..10 {
        let mut client = house.connect().await;
        client.send("GET", "/mcp", &format!("{session}Accept: text/event-stream\r\n"), "").await;
        assert_eq!(client.head().await.0, 200);
        house.began("listen").await;
        if let Some(mut before) = before.replace(client) {
            assert_eq!(before.chunk().await, None);
            house.gone("listen").await;
        }
    }
    let mut newest = before.unwrap();
    house.hall.changes.send(()).unwrap();
    assert_eq!(event(&mut newest).await, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 200);
    assert_eq!(newest.chunk().await, None);
}

fn listen(id: &str, filter: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{META},"notifications":{filter}}}}}"#
    )
}

/// Protocol §2.11: acknowledged first, the id's type kept, an orderly end on drain [FC-SES-09, R101, R102, R105].
#[tokio::test]
async fn a_listen_is_acknowledged_told_and_ended() {
    let mut house = House::open();
    let headers = modern("subscriptions/listen", None);
    for (id, value) in [("7", json!(7)), ("\"7\"", json!("7"))] {
        let mut client = house.connect().await;
        client
            .send("POST", "/mcp", &headers, &listen(id, r#"{"toolsListChanged":true,"promptsListChanged":true}"#))
            .await;
        assert_eq!(client.head().await.0, 200);
        house.began("listen").await;
        let meta = json!({"io.modelcontextprotocol/subscriptionId": value});
        assert_eq!(
            event(&mut client).await,
            json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": {"notifications": {"toolsListChanged": true}, "_meta": meta}})
        );
        house.hall.changes.send(()).unwrap();
        assert_eq!(
            event(&mut client).await,
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}})
        );
        drop(client);
        house.gone("listen").await;
    }
    assert_eq!(house.post(&headers, &listen("1", "{\"toolsListChanged\":1}")).await.code(), (200, -32602));
    let mut client = house.connect().await;
    client.send("POST", "/mcp", &headers, &listen("1", "{}")).await;
    client.head().await;
    house.began("listen").await;
    assert_eq!(event(&mut client).await["params"]["notifications"], json!({}));
    house.drain.start();
    let end = event(&mut client).await;
    assert_eq!(end["id"], json!(1));
    assert_eq!(end["result"]["resultType"], json!("complete"));
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], json!(1));
    assert_eq!(client.chunk().await, None);
    assert!(client.closed().await);
}

/// [FC-SES-09]: what runs is finished, what is new is refused, streams close.
#[tokio::test]
async fn a_drain_finishes_what_runs() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    let mut get = house.connect().await;
    get.send("GET", "/mcp", &session, "").await;
    get.head().await;
    house.began("listen").await;
    let mut running = house.connect().await;
    running.send("POST", "/mcp", &session, &legacy_call("1", "gate")).await;
    house.began("gate").await;
    let mut slow = house.connect().await;
    let body = initialize("null");
    slow.raw(&format!("POST /mcp HTTP/1.1\r\n{LEGACY}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len()))
        .await;
    assert_eq!(slow.head().await.0, 100);
    house.drain.start();
    assert_eq!(get.chunk().await, None);
    slow.raw(&body).await;
    assert_eq!(slow.response().await.code(), (503, -31003));
    house.hall.gate.notify_one();
    assert_eq!(running.response().await.status, 200);
    assert!(house.drain.finished(Duration::from_secs(60)).await);
}
