//! Watched resources at the door: subscribe and unsubscribe of sessions, filters of listens, and what is told.

use serde_json::{Value, json};

use super::support::{Client, House, LEGACY, META, modern};
use crate::exchange::WATCHED_MAX;

const UPDATED: &str = "notifications/resources/updated";

async fn event(client: &mut Client) -> Value {
    let chunk = client.chunk().await.expect("the stream has ended");
    serde_json::from_str(chunk.strip_prefix("event: message\ndata: ").unwrap().trim_end()).unwrap()
}

fn ask(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

fn listen(filter: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{{{META},"notifications":{filter}}}}}"#
    )
}

/// Protocol §3: `{}` once it is watched; told on the session's own stream, also of what has changed before it was open
/// [R42]; no more after `unsubscribe`, nor after the session's end.
#[tokio::test]
async fn a_session_watches_resources() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    for uri in ["a", "b"] {
        let got = house.post(&session, &ask("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#))).await;
        assert_eq!(got.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    }
    let watched = house.hall.watched.lock().unwrap().clone();
    assert_eq!(watched.watched(), ["a", "b"]);
    watched.updated("a", "a/1".to_owned());
    let mut stream = house.connect().await;
    stream.send("GET", "/mcp", &format!("{session}Accept: text/event-stream\r\n"), "").await;
    stream.head().await;
    house.began("listen").await;
    assert_eq!(event(&mut stream).await, json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a/1"}}));
    watched.updated("b", "b".to_owned());
    assert_eq!(event(&mut stream).await["params"], json!({"uri": "b"}));
    assert_eq!(house.post(&session, &ask("resources/unsubscribe", r#"{"uri":"a"}"#)).await.json()["result"], json!({}));
    assert_eq!(watched.watched(), ["b"]);
    for params in ["{}", r#"{"uri":1}"#, r#"{"uri":"hidden"}"#] {
        assert_eq!(house.post(&session, &ask("resources/subscribe", params)).await.code(), (200, -32602), "{params}");
    }
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 200);
    assert!(watched.watched().is_empty());
    assert_eq!(house.post(LEGACY, &ask("resources/subscribe", r#"{"uri":"a"}"#)).await.code(), (400, -32600));
    let stateless =
        house.post(&modern("resources/subscribe", None), &ask("resources/subscribe", &format!("{{{META}}}"))).await;
    assert_eq!(stateless.code(), (404, -32601));
}

/// [R101, R102, R103]: acknowledged first, with what is honoured; every message has the client's own id.
#[tokio::test]
async fn a_listen_names_resources() {
    let mut house = House::open();
    let mut client = house.connect().await;
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["a","hidden","b"]}"#;
    client.send("POST", "/mcp", &modern("subscriptions/listen", None), &listen(filter)).await;
    assert_eq!(client.head().await.0, 200);
    house.began("listen").await;
    let meta = json!({"io.modelcontextprotocol/subscriptionId": "l"});
    assert_eq!(
        event(&mut client).await,
        json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
            "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["a", "b"]}, "_meta": meta}})
    );
    house.hall.watched.lock().unwrap().updated("a", "a\"".to_owned());
    assert_eq!(
        event(&mut client).await,
        json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a\"", "_meta": meta}})
    );
    house.drain.start();
    assert_eq!(event(&mut client).await["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], json!("l"));
    assert_eq!(client.chunk().await, None);
    house.gone("listen").await;
}

#[tokio::test]
async fn a_filter_is_bounded_and_read_strictly() {
    let house = House::open();
    let many: Vec<String> = (0..=WATCHED_MAX).map(|count| format!("\"{count}\"")).collect();
    for filter in [
        r#"{"resourceSubscriptions":"a"}"#,
        r#"{"resourceSubscriptions":[1]}"#,
        &format!(r#"{{"resourceSubscriptions":[{}]}}"#, many.join(",")),
    ] {
        let got = house.post(&modern("subscriptions/listen", None), &listen(filter)).await;
        assert_eq!(got.code(), (200, -32602), "{filter}");
    }
}
