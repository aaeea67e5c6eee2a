//! What a client reads that asks too often, or has too many calls under way.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;

use super::support::{Client, House, LEGACY, META, call, initialize, legacy_call, modern};
use crate::downstream::DownstreamSettings;
use crate::downstream::server::ORPHANS_MAX;

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

/// The headers of a request of somebody else.
fn of(headers: &str, who: &str) -> String {
    headers.replace("alice", who)
}

/// [LIM-6]: one principal does not take all connections: over its share it is refused and its connection ends; those it has go
/// on, and others come in. What ends comes back.
#[tokio::test]
async fn a_principal_leaves_connections_for_the_others() {
    let house = House::with(DownstreamSettings { connections_max: 4, ..Default::default() });
    let headers = modern("tools/call", Some("echo"));
    let ask =
        async |client: &mut Client, who: &str| client.ask("POST", "/mcp", &of(&headers, who), &call("1", "echo")).await;
    let mut alices = [house.connect().await, house.connect().await];
    for client in &mut alices {
        assert_eq!(ask(client, "alice").await.status, 200);
    }
    let mut third = house.connect().await;
    let got = ask(&mut third, "alice").await;
    assert_eq!((got.code(), got.header("connection")), ((503, -31002), Some("close")));
    let words = "Too many connections: this principal has all 2 that it may have (half of what the others leave of \
                 limits.connections)";
    assert_eq!(got.json()["error"]["message"], words);
    assert!(third.closed().await);
    let mut bob = house.connect().await;
    assert_eq!(ask(&mut bob, "bob").await.status, 200);
    assert_eq!(ask(&mut alices[0], "alice").await.status, 200);
    // A connection is whose last request it carries: what a proxy sends over one is each its own client's.
    assert_eq!(ask(&mut alices[0], "carol").await.status, 200);
    assert_eq!(ask(&mut alices[0], "bob").await.code(), (503, -31002));
    assert_eq!(ask(&mut alices[0], "carol").await.status, 200, "who is refused there does not end it");
    drop((alices, bob));
    loop {
        let got = ask(&mut house.connect().await, "alice").await;
        if got.status == 200 {
            break;
        }
    }
}

/// [LIM-6]: who does not say who they are have a share together, so that no principal takes the rest without its name.
#[tokio::test]
async fn who_has_no_name_has_a_share() {
    let house = House::with(DownstreamSettings { connections_max: 4, ..Default::default() });
    let ask = async |client: &mut Client, path: &str, who: &str| {
        client.ask("POST", path, &of(LEGACY, who), &initialize("null")).await
    };
    let mut nobodys = [house.connect().await, house.connect().await];
    for client in &mut nobodys {
        assert_eq!(ask(client, "/mcp", "nobody").await.status, 403);
        assert_eq!(ask(client, "/else", "alice").await.header("connection"), None);
    }
    let mut third = house.connect().await;
    let got = ask(&mut third, "/else", "alice").await;
    assert_eq!((got.status, got.header("connection")), (404, Some("close")));
    assert!(third.closed().await);
    assert_eq!(ask(&mut nobodys[0], "/mcp", "alice").await.status, 200, "it is hers from here on");
    assert_eq!(ask(&mut house.connect().await, "/else", "alice").await.header("connection"), None);
}

/// [LIM-6]: a listen of the newer era counts as a session, for it is what a session's stream is elsewhere; its place comes back
/// with its end.
#[tokio::test]
async fn listens_count_as_sessions() {
    let mut house =
        House::with(DownstreamSettings { sessions_max: 4, sessions_per_principal_max: 3, ..Default::default() });
    let headers = modern("subscriptions/listen", None);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{{META},"notifications":{{}}}}}}"#
    );
    house.session("2025-11-25").await;
    let mut listen = house.connect().await;
    listen.send("POST", "/mcp", &headers, &body).await;
    assert_eq!(listen.head().await.0, 200);
    house.began("listen").await;
    let got = house.post(&headers, &body).await;
    assert_eq!(got.code(), (503, -31002));
    let words = "Too many sessions and streams: this principal has all 2 that it may have (half of what the others leave \
                 of limits.sessions)";
    assert_eq!(got.json()["error"]["message"], words);
    assert_eq!(house.post(LEGACY, &initialize("null")).await.code(), (503, -31002));
    // Others go on, and so does whoever listens already; other requests of this one too.
    let mut bob = house.connect().await;
    bob.send("POST", "/mcp", &of(&headers, "bob"), &body).await;
    assert_eq!(bob.head().await.0, 200);
    house.began("listen").await;
    assert_eq!(house.post(&modern("tools/call", Some("echo")), &call("1", "echo")).await.status, 200);
    house.began("echo").await;
    house.gone("echo").await;
    drop(listen);
    house.gone("listen").await;
    loop {
        let mut again = house.connect().await;
        again.send("POST", "/mcp", &headers, &body).await;
        if again.head().await.0 == 200 {
            break;
        }
    }
}

/// [LIM-6, R107]: so many calls go on whose clients are gone; one more ends with its connection, as a cancel would end it.
#[tokio::test]
async fn calls_without_a_client_are_bounded() {
    let mut house = House::open();
    let session = house.session("2025-06-18").await;
    for number in 0..=ORPHANS_MAX {
        let mut client = house.connect().await;
        client.send("POST", "/mcp", &session, &legacy_call(&number.to_string(), "hang")).await;
        house.began("hang").await;
    }
    house.gone("hang").await;
    // The rest goes on, to the end of the session.
    assert_eq!(house.post(&session, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await.status, 200);
    assert!(house.noticed.try_recv().is_err());
    house.door.close_sessions();
    for _ in 0..ORPHANS_MAX {
        house.gone("hang").await;
    }
}
