//! Sessions of the `initialize` era.

use std::time::Duration;

use serde_json::json;

use super::support::{House, LEGACY, META, can, initialize, legacy_call};
use crate::downstream::DownstreamSettings;

const LIST: &str = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#;

/// [R33, R34, FC-CLI-02, FC-SES-02]
#[tokio::test]
async fn initialize_agrees_on_a_version() {
    let house = House::open();
    for (asked, agreed) in [
        ("\"2024-11-05\"", "2024-11-05"),
        ("\"2025-03-26\"", "2025-03-26"),
        ("\"2025-06-18\"", "2025-06-18"),
        ("\"2025-11-25\"", "2025-11-25"),
        ("\"1999-01-01\"", "2025-11-25"),
        ("\"2099-01-01\"", "2025-11-25"),
        ("\"2026-07-28\"", "2025-11-25"),
        ("5", "2025-11-25"),
        ("null", "2025-11-25"),
    ] {
        let got = house.post(&format!("{LEGACY}Mcp-Session-Id: stale\r\n"), &initialize(asked)).await;
        assert_eq!(
            got.json(),
            json!({"jsonrpc": "2.0", "id": "i", "result": {
                "protocolVersion": agreed, "capabilities": can(),
                "instructions": "Be \"kind\"",
                "serverInfo": {"name": "portcullis", "version": env!("CARGO_PKG_VERSION")},
            }}),
            "{asked}"
        );
        assert_eq!(got.header("mcp-session-id").unwrap().len(), 43);
    }
    let got = house.post(LEGACY, r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#).await;
    assert_eq!(got.json()["result"]["protocolVersion"], json!("2025-11-25"));
}

/// [R35, R36, R37, FC-SES-02, FC-AUT-07, R120]
#[tokio::test]
async fn a_session_is_its_own_clients() {
    let house = House::open();
    let session = house.session("2025-11-25").await;
    assert_eq!(house.post(&session, LIST).await.status, 200);
    let missing = house.post(LEGACY, LIST).await;
    assert_eq!((missing.code(), missing.json()["id"].clone()), ((400, -32600), json!(0)));
    let foreign = session.replace("alice", "bob");
    let unknown = format!("{LEGACY}Mcp-Session-Id: x\r\n");
    for (verb, body) in [("POST", LIST), ("GET", ""), ("DELETE", "")] {
        for (path, headers) in [("/mcp", &foreign), ("/mcp", &unknown), ("/mcp/s", &session)] {
            let got = house.ask(verb, path, headers, body).await;
            assert_eq!(got.code(), (404, -32600), "{verb} {path}");
            assert_eq!(got.json()["id"], if body.is_empty() { json!(null) } else { json!(0) });
        }
        let anonymous = session.replace("x-api-key: alice\r\n", "");
        assert_eq!(house.ask(verb, "/mcp", &anonymous, body).await.code(), (401, -31005));
    }
    assert_eq!(house.post(&session, LIST).await.status, 200);
    // What is there and cannot be read is not absent [POL-16].
    let twice = house.post(&format!("{session}Mcp-Session-Id: x\r\n"), LIST).await;
    assert_eq!(twice.code(), (400, -32600));
    assert!(twice.body.contains("must come once"), "{}", twice.body);
    let events = format!("{session}Accept: text/event-stream\r\nLast-Event-ID: \u{e9}\r\n");
    assert_eq!(house.ask("GET", "/mcp", &events, "").await.code(), (400, -32600));
}

/// [R38, FC-HTP-17]
#[tokio::test]
async fn delete_ends_a_session_once() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    let mut call = house.connect().await;
    call.send("POST", "/mcp", &session, &legacy_call("1", "hang")).await;
    house.began("hang").await;
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 200);
    house.gone("hang").await;
    // Its client still waits.
    let unanswered = call.response().await;
    assert_eq!((unanswered.code(), unanswered.json()["id"].clone()), ((404, -32600), json!(1)));
    assert_eq!(house.ask("DELETE", "/mcp", &session, "").await.status, 404);
    assert_eq!(house.ask("DELETE", "/mcp", LEGACY, "").await.status, 400);
    assert_eq!(house.post(&session, LIST).await.status, 404);
    assert_eq!(house.door.sessions(), 0);
}

/// [R40, FC-CLI-02]
#[tokio::test]
async fn the_version_header_must_be_a_legacy_one() {
    let house = House::open();
    let session = house.session("2025-06-18").await;
    for (version, status) in
        [("2025-06-18", 200), ("2025-11-25", 200), ("2026-07-28", 400), ("2099-01-01", 400), ("x", 400), ("", 400)]
    {
        let got = house.post(&format!("{session}MCP-Protocol-Version: {version}\r\n"), LIST).await;
        assert_eq!(got.status, status, "{version}");
    }
}

/// [R39, R46, FC-IDS-10, FC-HTP-07]
#[tokio::test]
async fn methods_of_a_session() {
    let house = House::open();
    let session = house.session("2025-11-25").await;
    let ping = house.post(&session, r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#).await;
    assert_eq!(ping.json(), json!({"jsonrpc": "2.0", "id": "", "result": {}}));
    for method in ["x", "server/discover", "subscriptions/listen"] {
        let got = house.post(&session, &LIST.replace("tools/list", method)).await;
        assert_eq!((got.code(), got.json()["id"].clone()), ((200, -32601), json!(0)), "{method}");
    }
    for (level, code) in [("\"warning\"", 0), ("\"loud\"", -32602), ("7", -32602), ("null", -32602)] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":{level}}}}}"#);
        assert_eq!(house.post(&session, &body).await.code(), (200, code), "[R112] {level}");
    }
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/strange"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        let got = house.post(&session, body).await;
        assert_eq!((got.status, got.body.as_str(), got.header("content-type")), (202, "", None), "{body}");
    }
    let list = house.post(&session, LIST).await.json();
    assert_eq!(list["result"], json!({"tools": [{"name": "a", "inputSchema": {}}]}));
    let got = house.post(&session, &legacy_call("3", "echo")).await;
    assert_eq!(
        got.body,
        r#"{"jsonrpc":"2.0","id":3,"result":{"content":[],"structuredContent":{"big":12345678901234567890}}}"#
    );
    let (_, owner, headers, _) = house.hall.last.lock().unwrap().clone().unwrap();
    assert_eq!((format!("{owner:?}").as_str(), headers), ("Session(1)", None));
}

/// [FC-CON-01, FC-IDS-01, FC-IDS-03, FC-IDS-05, R108]: a slow call holds up nothing, and is cancelled by its exact id.
#[tokio::test]
async fn cancel_is_exact_and_a_duplicate_is_refused() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    let mut slow = house.connect().await;
    slow.send("POST", "/mcp", &session, &legacy_call("0", "hang")).await;
    house.began("hang").await;
    assert_eq!(house.post(&session, &legacy_call("0", "echo")).await.code(), (400, -32600));
    let cancel =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    assert_eq!(house.post(&session, &cancel("\"0\"")).await.status, 202);
    assert_eq!(house.post(&session, &legacy_call("\"0\"", "echo")).await.status, 200);
    house.began("echo").await;
    house.gone("echo").await;
    let other = house.session("2025-11-25").await;
    assert_eq!(house.post(&other, &cancel("0")).await.status, 202);
    assert_eq!(house.post(&session, LIST.replace(":0,", ":5,").as_str()).await.status, 200);
    assert_eq!(house.post(&session, &cancel("0")).await.status, 202);
    house.gone("hang").await;
    assert_eq!(slow.response().await.status, 202);
    assert_eq!(house.post(&session, &legacy_call("0", "echo")).await.status, 200);
}

/// [R45, FC-CON-05]: a lost connection is no cancel; the cancel still reaches the call.
#[tokio::test]
async fn a_call_outlives_its_connection() {
    let mut house = House::open();
    let session = house.session("2025-11-25").await;
    let mut client = house.connect().await;
    client.send("POST", "/mcp", &session, &legacy_call("1", "hang")).await;
    house.began("hang").await;
    drop(client);
    // The id stays taken for as long as the call runs; a stateless call is gone at once.
    for _ in 0..50 {
        assert_eq!(house.post(&session, &legacy_call("1", "echo")).await.code(), (400, -32600));
    }
    house.clock.advance(Duration::from_secs(10_000));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(house.post(&session, cancel).await.status, 202);
    house.gone("hang").await;
}

/// [R41, FC-SEC-04]
#[tokio::test]
async fn batches_are_for_2025_03_26_alone() {
    let house = House::open();
    let session = house.session("2025-03-26").await;
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let batch = format!(
        r#" [{ping},{note},{LIST},{},{},{{}},{},{{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{{{META}}}}}]"#,
        legacy_call("1", "echo"),
        legacy_call("2", "r-unknown"),
        initialize("\"2025-03-26\"")
    );
    let got = house.post(&session, &batch).await;
    let answers = got.json();
    let brief: Vec<String> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| format!("{} {}", answer["id"], answer["error"]["code"].as_i64().unwrap_or(0)))
        .collect();
    assert_eq!(brief, ["\"p\" 0", "0 0", "1 0", "2 -32602", "null -32600", "\"i\" -32600", "9 -32600"]);
    assert_eq!(house.post(&session, &format!("[{note},{note}]")).await.status, 202);
    assert_eq!(house.post(&session, "[]").await.code(), (400, -32600));
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = house.session(version).await;
        assert_eq!(house.post(&session, &format!("[{ping}]")).await.code(), (400, -32600), "{version}");
    }
    assert_eq!(house.post(LEGACY, &format!("[{ping}]")).await.code(), (400, -32600));
}

/// [FC-SES-04]
#[tokio::test]
async fn sessions_have_caps() {
    let settings = DownstreamSettings { sessions_per_principal_max: 1, sessions_max: 2, ..Default::default() };
    let house = House::with(settings);
    house.session("2025-11-25").await;
    let init = initialize("\"2025-11-25\"");
    assert_eq!(house.post(LEGACY, &init).await.code(), (503, -31002));
    assert_eq!(house.post(&LEGACY.replace("alice", "bob"), &init).await.status, 200);
    assert_eq!(house.post(&LEGACY.replace("alice", "carol"), &init).await.code(), (503, -31002));
}
