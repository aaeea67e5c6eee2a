//! Clients whose connections end in the middle of a call, through the whole gateway [R45, R106, R107, FC-IDS-11].
//!
//! Order is the proof: the server writes down what it sees, and is asked for that.

use serde_json::{Value, json};

use crate::support::watched::{How, Watched};
use crate::support::{Client, ERAS, Era, Events, TestApp, within_deadline};

const HOLD: &str = r#""name":"up__hold","arguments":{}"#;

/// What the server has seen of calls, in order.
async fn log(client: &Client) -> Vec<String> {
    let answer = client.call_with("up__log", "{}").await;
    let log = &answer.value()["result"]["structuredContent"]["log"];
    log.as_array()
        .unwrap_or_else(|| panic!("{answer:?}"))
        .iter()
        .map(|seen| seen.as_str().unwrap().to_owned())
        .collect()
}

async fn until_log(client: &Client, wanted: &[&str]) {
    let polling = async {
        while log(client).await.len() < wanted.len() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_deadline(&format!("{wanted:?}"), polling).await;
    assert_eq!(log(client).await, wanted);
}

async fn call(client: &Client) -> Events {
    client.open("tools/call", Some("up__hold"), r#""progressToken":"p""#, HOLD).await
}

async fn stateless(server: Era, how: How) {
    let upstream = Watched::start(server, how).await;
    let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let mut stream = call(&client).await;
    assert!(within_deadline("progress", stream.next()).await.unwrap().contains("notifications/progress"));
    drop(stream);
    until_log(&client, &["hold", "cancelled"]).await;
    app.stop().await;
}

/// [R106, R107]: a stateless client's disconnect is its cancel, and the next thing that the server sees of the call.
#[tokio::test]
async fn a_stateless_client_that_goes_cancels() {
    for server in ERAS {
        for how in [How::Http, How::Stdio] {
            within_deadline(&format!("{server:?} {how:?}"), stateless(server, how)).await;
        }
    }
}

/// [R44, R59]: where a server closes a call's stream before its answer, its client is told how to come back and let go too;
/// the gateway comes back to the server by itself.
#[tokio::test]
async fn a_server_that_lets_go_is_come_back_to() {
    let upstream = Watched::start(Era::Legacy, How::Http).await;
    let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    let pause = r#""name":"up__pause","arguments":{}"#;
    let mut stream = client.open("tools/call", Some("up__pause"), "", pause).await;
    while let Some(said) = within_deadline("the end of the stream", stream.next()).await {
        assert_eq!(said, "");
    }
    let last = stream.last_id().unwrap();
    until_log(&client, &["hold", "back"]).await;
    let mut stream = client.come_back(&last).await;
    assert!(client.call_with("up__release", "{}").await.is_result());
    let answer = within_deadline("the answer", stream.next()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["held"]), (&json!("open"), &json!(true)));
    assert_eq!(within_deadline("the end", stream.next()).await, None);
    app.stop().await;
}

async fn legacy(server: Era, how: How) {
    let upstream = Watched::start(server, how).await;
    let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    let mut stream = call(&client).await;
    assert!(within_deadline("progress", stream.next()).await.unwrap().contains("notifications/progress"));
    let mut last = stream.last_id().unwrap();
    drop(stream);
    assert!(client.call_with("up__release", "{}").await.is_result());
    until_log(&client, &["hold", "released"]).await;
    // Twice: what was read is not said again.
    for wanted in [1, 0] {
        let mut stream = client.come_back(&last).await;
        let mut got = Vec::new();
        while let Some(message) = within_deadline("the rest", stream.next()).await {
            got.push(serde_json::from_str::<Value>(&message).unwrap());
        }
        assert_eq!(got.len(), wanted, "{got:?}");
        for answer in &got {
            assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["held"]), (&json!("open"), &json!(true)));
        }
        last = stream.last_id().unwrap_or(last);
    }
    // A cancel by name still reaches a call whose client is away.
    let mut stream = call(&client).await;
    assert!(within_deadline("progress", stream.next()).await.is_some());
    drop(stream);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"open"}}"#;
    assert_eq!(client.post(&[], cancel).await.status, 202);
    until_log(&client, &["hold", "released", "hold", "cancelled"]).await;
    app.stop().await;
}

/// [R45]: a session's client that goes cancels nothing, comes back, and has its answer exactly once.
#[tokio::test]
async fn a_sessions_client_that_goes_comes_back() {
    for server in ERAS {
        for how in [How::Http, How::Stdio] {
            within_deadline(&format!("{server:?} {how:?}"), legacy(server, how)).await;
        }
    }
}
