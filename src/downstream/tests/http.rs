//! What is judged before a message is read.

use super::support::{House, LEGACY, META, call, initialize, legacy_call, modern};
use crate::downstream::DownstreamSettings;

/// [R1, R2, TRN-6, FC-SEC-01]
#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_verb() {
    let house = House::open();
    for verb in ["POST", "GET", "DELETE", "OPTIONS", "PUT"] {
        for path in ["/mcp", "/mcp/s", "/elsewhere"] {
            for headers in [
                "Host: evil.example\r\n",
                "Host: evil.example:7800\r\n",
                "Host: localhost\r\nOrigin: https://evil.example\r\n",
                "Host: localhost\r\nOrigin: null\r\n",
                "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n",
            ] {
                let got = house.ask(verb, path, headers, "").await;
                assert_eq!(got.status, 403, "{verb} {path} {headers}");
                assert_eq!(got.header("access-control-allow-origin"), None);
            }
        }
    }
    for host in ["localhost:7800", "127.0.0.1:7800", "[::1]:7800"] {
        let headers = LEGACY.replace("localhost", host);
        assert_eq!(house.post(&headers, &initialize("null")).await.status, 200, "{host}");
    }
}

/// [R30, FC-HTP-13]
#[tokio::test]
async fn a_preflight_is_answered_before_credentials() {
    let house = House::open();
    let headers = "Host: localhost\r\nOrigin: http://localhost:3000\r\nAccess-Control-Request-Method: DELETE\r\n\
                   Access-Control-Request-Headers: mcp-param-region, x-other\r\n";
    let got = house.ask("OPTIONS", "/mcp", headers, "").await;
    assert_eq!(got.status, 204);
    assert_eq!(got.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!(got.header("access-control-allow-credentials"), None);
    let allowed = got.header("access-control-allow-headers").unwrap().to_lowercase();
    for name in [
        "content-type",
        "authorization",
        "mcp-protocol-version",
        "mcp-session-id",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
    ] {
        assert!(allowed.contains(name), "{name}");
    }
    assert!(!allowed.contains("x-other"));
    let got = house.post(&format!("{LEGACY}Origin: http://localhost:3000\r\n"), &initialize("null")).await;
    assert_eq!(got.header("access-control-expose-headers"), Some("Mcp-Session-Id, Retry-After, WWW-Authenticate"));
}

/// [AUT-1, POL-16, R24, R114, R115]
#[tokio::test]
async fn credentials_come_from_headers_alone() {
    let house = House::open();
    let ask = |path: &'static str, key: &'static str| {
        let headers = LEGACY.replace("x-api-key: alice\r\n", key);
        let house = &house;
        async move { house.ask("POST", path, &headers, &initialize("null")).await }
    };
    for key in ["", "x-api-key: \r\n", "Authorization: Basic YTpi\r\n", "x-api-key: a\r\nx-api-key: a\r\n"] {
        let got = ask("/mcp?x-api-key=alice", key).await;
        assert_eq!(got.code(), (401, -31005), "{key}");
        assert_eq!(got.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(ask("/mcp", "x-api-key: nobody\r\n").await.code(), (403, -31005));
    assert_eq!(ask("/mcp", "Authorization: bearer bob\r\n").await.status, 200);
}

/// [NAM-5, POL-11]
#[tokio::test]
async fn what_is_not_granted_is_as_unknown() {
    let house = House::open();
    let init = initialize("null");
    let bodies: Vec<_> = futures_util::future::join_all(
        ["/mcp/other", "/mcp/other/", "/mcp/a__b", "/mcp/a/b"]
            .map(|path| async { house.ask("POST", path, LEGACY, &init).await }),
    )
    .await
    .into_iter()
    .map(|got| (got.status, got.body))
    .collect();
    assert!(bodies.iter().all(|got| *got == bodies[0] && got.0 == 404), "{bodies:?}");
    assert_eq!(house.ask("POST", "/", LEGACY, &init).await.status, 404);
    assert_eq!(house.ask("POST", "/mcp/s", LEGACY, &init).await.status, 200);
}

/// [R21, FC-HTP-08]
#[tokio::test]
async fn verbs_without_a_session_are_not_allowed() {
    let house = House::open();
    let got = house.ask("GET", "/mcp", LEGACY, "").await;
    assert_eq!((got.status, got.header("allow")), (405, Some("POST")));
    let modern = format!("{LEGACY}MCP-Protocol-Version: 2026-07-28\r\n");
    assert_eq!(house.ask("DELETE", "/mcp", &modern, "").await.status, 405);
    assert_eq!(house.ask("PUT", "/mcp", LEGACY, "").await.status, 405);
}

/// [FC-HTP-10, FC-HTP-11]
#[tokio::test]
async fn the_form_follows_accept() {
    let house = House::open();
    let headers = modern("tools/call", Some("echo"));
    for (accept, kind) in [
        ("", Some("application/json")),
        ("Accept: */*\r\n", Some("application/json")),
        ("Accept: application/json\r\n", Some("application/json")),
        ("Accept: APPLICATION/JSON;q=0.5, text/event-stream\r\n", Some("application/json")),
        ("Accept: text/event-stream, application/json;charset=utf-8\r\n", Some("application/json")),
        ("Accept: text/event-stream\r\nAccept: application/json\r\n", Some("application/json")),
        ("Accept: text/event-stream\r\n", Some("text/event-stream")),
        ("Accept: application/json;q=0, text/event-stream\r\n", Some("text/event-stream")),
        ("Accept: text/html\r\n", None),
    ] {
        let got = house.post(&format!("{headers}{accept}"), &call("1", "echo")).await;
        let Some(kind) = kind else {
            assert_eq!(got.status, 406);
            continue;
        };
        assert_eq!((got.status, got.header("content-type")), (200, Some(kind)), "{accept}");
        if kind == "text/event-stream" {
            assert_eq!(got.events().len(), 1);
        }
    }
    // A session's client says by weight or order what it would rather have; one without a session is not asked.
    let session = house.session("2025-11-25").await;
    for (accept, kind) in [
        ("", "application/json"),
        ("Accept: application/json, text/event-stream\r\n", "application/json"),
        ("Accept: */*\r\n", "application/json"),
        ("Accept: text/event-stream;q=0.5, application/json\r\n", "application/json"),
        ("Accept: text/event-stream, application/json\r\n", "text/event-stream"),
        ("Accept: text/event-stream, */*\r\n", "text/event-stream"),
        ("Accept: application/json;q=0.5, text/event-stream\r\n", "text/event-stream"),
    ] {
        for body in [legacy_call("1", "echo"), r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#.to_owned()] {
            let got = house.post(&format!("{session}{accept}"), &body).await;
            assert_eq!((got.status, got.header("content-type")), (200, Some(kind)), "{accept}");
            // A call's can be had again, and nothing else of a session.
            let primed = got.body.contains("\nretry: ");
            assert_eq!(primed, kind == "text/event-stream" && body.contains("tools/call"), "{accept} {got:?}");
        }
    }
    for (kind, status) in
        [("application/json; charset=utf-8", 200), ("Application/JSON;charset=\"UTF-8\"", 200), ("text/plain", 415)]
    {
        let headers = headers.replace("Content-Type: application/json", &format!("Content-Type: {kind}"));
        assert_eq!(house.post(&headers, &call("1", "echo")).await.status, status, "{kind}");
    }
}

/// [FC-HTP-15]
#[tokio::test]
async fn a_body_over_its_cap_is_not_read() {
    let house = House::with(DownstreamSettings { body_bytes_max: 6_000_000, ..Default::default() });
    for size in [99_000, 150_000, 5_000_000] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{META},"name":"echo","arguments":{{"a":"{}"}}}}}}"#,
            "x".repeat(size)
        );
        assert_eq!(house.post(&modern("tools/call", Some("echo")), &body).await.status, 200, "{size}");
    }
    let mut claims = house.connect().await;
    claims.raw(&format!("POST /mcp HTTP/1.1\r\n{LEGACY}Content-Length: 6000001\r\n\r\n")).await;
    assert_eq!(claims.response().await.code(), (413, -32600));
    let house = House::with(DownstreamSettings { body_bytes_max: 100, ..Default::default() });
    let mut endless = house.connect().await;
    let chunk = format!("65\r\n{}\r\n", "x".repeat(0x65));
    endless.raw(&format!("POST /mcp HTTP/1.1\r\n{LEGACY}Transfer-Encoding: chunked\r\n\r\n{chunk}")).await;
    assert_eq!(endless.response().await.code(), (413, -32600));
}

/// [LIM-6]
#[tokio::test]
async fn a_head_over_its_cap_is_refused() {
    let house = House::open();
    let many = "x-a: b\r\n".repeat(101);
    assert_eq!(house.post(&format!("{LEGACY}{many}"), "").await.status, 431);
    let mut large = house.connect().await;
    large.raw(&format!("POST /mcp HTTP/1.1\r\nx-a: {}", "b".repeat(70_000))).await;
    assert_eq!(large.head().await.0, 431);
}
