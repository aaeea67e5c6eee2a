//! What a client reads that asks too often, or has too many calls under way.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;

use super::support::{House, LEGACY, call, initialize, legacy_call, modern};

/// [LIM-5, R125]: over its rate a principal is refused before its body is read.
#[tokio::test]
async fn a_request_over_its_rate_is_refused_before_its_body_is_read() {
    let house = House::open();
    let busy = LEGACY.replace("alice", "busy");
    let mut client = house.connect().await;
    // The body never comes.
    client.raw(&format!("POST /mcp HTTP/1.1\r\n{busy}Content-Length: 1000\r\n\r\n")).await;
    let got = client.response().await;
    assert_eq!((got.code(), got.header("retry-after")), ((429, -31001), Some("3")));
    assert_eq!(got.json(), json!({ "jsonrpc": "2.0", "error": { "code": -31001, "message": "Too often" } }));
    // An endpoint that is not there is no way to count a principal's requests.
    assert_eq!(house.ask("POST", "/mcp/other", &busy, "").await.status, 404);
    assert_eq!(house.post(LEGACY, &initialize("null")).await.status, 200);
}

/// [LIM-5]: a GET counts as a POST does, whether it opens a stream or comes back to one; a DELETE frees something, and is
/// never refused for its number.
#[tokio::test]
async fn a_get_counts_as_a_request() {
    let house = House::open();
    let session = house.session("2025-11-25").await.replace("alice", "busy");
    for headers in [session.clone(), format!("{session}Last-Event-ID: 0123456789abcdef.0\r\n")] {
        let got = house.ask("GET", "/mcp", &headers, "").await;
        assert_eq!((got.code(), got.header("retry-after")), ((429, -31001), Some("3")), "{headers}");
    }
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 404);
}

/// [LIM-5, POL-11]: a call that is refused later has a result, in its client's era; another request an error.
#[tokio::test]
async fn a_call_that_finds_no_room_has_a_result() {
    let house = House::open();
    let refusal = json!({ "code": "P309", "reason": "too_many_calls", "retry_after": 1 });
    let session = house.session("2025-06-18").await;
    let got = house.post(&session, &legacy_call("7", "no-room")).await;
    assert_eq!(got.status, 200);
    let content = json!([{ "type": "text", "text": "No room" }]);
    assert_eq!(
        got.json(),
        json!({ "jsonrpc": "2.0", "id": 7, "result": {
            "content": content, "isError": true, "_meta": { "portcullis/refusal": refusal },
        } })
    );
    let got = house.post(&modern("tools/call", Some("no-room")), &call("7", "no-room")).await;
    let result = &got.json()["result"];
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(true)));
    assert_eq!(result["_meta"]["portcullis/refusal"], refusal);
}

/// [LIM-4, LIM-6]: a client that never reads its answer is given up, and all that was held for it comes back.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let mut house = House::open();
    let mut client = house.connect().await;
    client.send("POST", "/mcp", &modern("tools/call", Some("large")), &call("1", "large")).await;
    house.began("large").await;
    house.gone("large").await;
    // The connection has gone with it: what was under way is all there is.
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.unwrap_or_default();
    assert!(rest.len() < 32 << 20, "{}", rest.len());
}

/// [LIM-6]: a body that comes byte by byte is not waited for, however long each byte takes.
#[tokio::test(start_paused = true)]
async fn a_body_that_dribbles_is_not_waited_for() {
    let house = House::open();
    let mut client = house.connect().await;
    client.raw(&format!("POST /mcp HTTP/1.1\r\n{LEGACY}Content-Length: 1000\r\n\r\n{{")).await;
    let mut sent = 1;
    let got = loop {
        tokio::select! {
            got = client.response() => break got,
            () = tokio::time::sleep(Duration::from_secs(7)) => {}
        }
        client.raw(" ").await;
        sent += 1;
        assert!(sent < 100, "it is still waited for");
    };
    assert_eq!(got.code(), (408, -32600));
    assert!(sent <= 6, "{sent} bytes, one each 7 s");
}
