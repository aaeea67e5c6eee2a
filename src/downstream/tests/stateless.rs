//! Requests of 2026-07-28.

use serde_json::json;

use super::support::{House, KINDS, LEGACY, META, call, can, legacy_call, modern};

/// [R4-R11]: each line disagrees with its body in one way.
#[tokio::test]
async fn headers_must_agree_with_the_body() {
    let house = House::open();
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let method = "Mcp-Method: tools/call\r\n";
    let name = "Mcp-Name: echo\r\n";
    for bad in [
        format!("{method}{name}"),
        format!("MCP-Protocol-Version: 2025-11-25\r\n{method}{name}"),
        format!("MCP-Protocol-Version: 2099-01-01\r\n{method}{name}"),
        format!("{version}{version}{method}{name}"),
        format!("{version}{name}"),
        format!("{version}Mcp-Method: TOOLS/CALL\r\n{name}"),
        format!("{version}Mcp-Method: tools/list\r\n{name}"),
        format!("{version}{method}{method}{name}"),
        format!("{version}{method}"),
        format!("{version}{method}Mcp-Name: Echo\r\n"),
        format!("{version}{method}{name}{name}"),
        format!("{version}{method}Mcp-Name: =?base64?!?=\r\n"),
        format!("{version}{method}Mcp-Name: =?BASE64?ZWNobw==?=\r\n"),
        format!("{version}{method}{name}Mcp-Param-A: 1\r\nMcp-Param-a: 2\r\n"),
    ] {
        let got = house.post(&format!("{LEGACY}{bad}"), &call("\"x\"", "echo")).await;
        assert_eq!(got.code(), (400, -32020), "{bad}");
        assert_eq!(got.json()["id"], json!("x"), "{bad}");
    }
    for good in [
        format!("{version}{method}{name}"),
        "mcp-PROTOCOL-version:   2026-07-28 \r\nMCP-METHOD:\ttools/call\r\nmcp-name:  echo  \r\n".to_owned(),
        format!("{version}{method}Mcp-Name: =?base64?ZWNobw==?=\r\n"),
    ] {
        let got = house.post(&format!("{LEGACY}{good}"), &call("1", "echo")).await;
        assert_eq!(got.status, 200, "{good} {got:?}");
    }
}

/// [R11, R12, R13]
#[tokio::test]
async fn meta_must_hold_version_and_capabilities() {
    let house = House::open();
    let headers = modern("tools/list", None);
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    for params in [
        String::new(),
        r#","params":{}"#.to_owned(),
        r#","params":{"_meta":{}}"#.to_owned(),
        format!(r#","params":{{"_meta":{{{version}}}}}"#),
        format!(r#","params":{{"_meta":{{{version},"io.modelcontextprotocol/clientCapabilities":1}}}}"#),
        r#","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1,"io.modelcontextprotocol/clientCapabilities":{}}}"#
            .to_owned(),
        format!(r#","params":{{{META},{META}}}"#),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tools/list"{params}}}"#);
        let got = house.post(&headers, &body).await;
        assert_eq!(got.code(), (400, -32602), "{params}");
        assert_eq!(got.json()["id"], json!(0));
    }
    let twice =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{META},"name":"a","name":"b"}}}}"#);
    assert_eq!(house.post(&modern("tools/call", Some("a")), &twice).await.code(), (400, -32602));
}

/// [R14] and the last but one row of protocol §2.8.
#[tokio::test]
async fn an_unserved_version_names_what_is_served() {
    let house = House::open();
    for version in ["2099-01-01", "2025-11-25"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
        let headers = modern("tools/list", None).replace("2026-07-28", version);
        let got = house.post(&headers, &body.replace("2026-07-28", version)).await;
        assert_eq!(got.code(), (400, -32022));
        assert_eq!(got.json()["error"]["data"], json!({"supported": ["2026-07-28"], "requested": version}));
    }
}

/// [R15, R16, R17, R22]
#[tokio::test]
async fn what_is_not_served_is_404() {
    let house = House::open();
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/result", "x/y", "TOOLS/LIST"]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1.50,"method":"{method}","params":{{{META}}}}}"#);
        let headers = format!("{}Mcp-Session-Id: stale\r\n", modern(method, None));
        let got = house.post(&headers, &body).await;
        assert_eq!(got.code(), (404, -32601), "{method}");
        assert!(got.body.contains("\"id\":1.50,"), "{got:?}");
        assert_eq!(got.header("mcp-session-id"), None);
    }
}

/// [R18, R19, R20, FC-HTP-07, FC-SEC-04]
#[tokio::test]
async fn only_single_requests_and_notifications_are_taken() {
    let house = House::open();
    let headers = modern("tools/list", None);
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    for (bad, code) in [
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), -32600),
        (format!("[{list}]"), -32600),
        (format!("  [{list}]"), -32600),
        ("[]".to_owned(), -32600),
        ("[[]]".to_owned(), -32600),
        ("{}".to_owned(), -32600),
        ("{".to_owned(), -32700),
        (format!("\u{feff}[{list}]"), -32700),
        (format!("[{}]", vec![list.as_str(); 10_000].join(",")), -32600),
    ] {
        let got = house.post(&headers, &bad).await;
        assert_eq!(got.code(), (400, code), "{}", bad.chars().take(60).collect::<String>());
        assert!(got.json()["id"].is_null());
    }
    for headers in [headers, format!("{LEGACY}MCP-Protocol-Version: 2026-07-28\r\n")] {
        let got = house.post(&headers, r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#).await;
        assert_eq!((got.status, got.body.as_str(), got.header("content-type")), (202, "", None));
    }
}

/// [R28, R29, R31, R32, FC-HTP-11, R78]
#[tokio::test]
async fn discover_and_list_have_their_shapes() {
    let house = House::open();
    let info =
        json!({"io.modelcontextprotocol/serverInfo": {"name": "portcullis", "version": env!("CARGO_PKG_VERSION")}});
    let body = format!(r#"{{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{{{META}}}}}"#);
    let got = house.post(&modern("server/discover", None), &body).await;
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(
        got.json(),
        json!({"jsonrpc": "2.0", "id": "d", "result": {
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": can(), "instructions": "Be \"kind\"",
            "ttlMs": 0, "cacheScope": "private", "_meta": info,
        }})
    );
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META},"cursor":"c"}}}}"#);
    assert_eq!(
        house.post(&modern("tools/list", None), &body).await.json(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {
            "resultType": "complete", "tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "c",
            "ttlMs": 0, "cacheScope": "private", "_meta": info,
        }})
    );
    let body = body.replace(r#""cursor":"c""#, r#""cursor":1"#);
    assert_eq!(house.post(&modern("tools/list", None), &body).await.code(), (200, -32602));
}

/// [R27, R28, R29, R53]
#[tokio::test]
async fn a_call_carries_its_facts_and_its_answer() {
    let house = House::open();
    let headers = format!("{}Mcp-Param-Region: eu\r\n", modern("tools/call", Some("echo")));
    let got = house.ask("POST", "/mcp/s/", &headers, &call("\"0\"", "echo")).await;
    assert!(got.body.contains("12345678901234567890"), "{got:?}");
    assert_eq!(got.json()["id"], json!("0"));
    assert_eq!(got.json()["result"]["resultType"], json!("complete"));
    let (endpoint, owner, headers, _) = house.hall.last.lock().unwrap().clone().unwrap();
    assert_eq!(format!("{endpoint:?} {owner:?}"), "Server(UpstreamName(s)) Principal(PrincipalId(alice))");
    assert_eq!(headers, Some(vec![("region".to_owned(), "eu".to_owned())]));
    let missing = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{META}}}}}"#);
    assert_eq!(house.post(&modern("tools/call", None), &missing).await.code(), (200, -32602));
}

/// [R23, R61-R64, design §13]
#[tokio::test]
async fn refusals_and_errors_keep_their_status() {
    let house = House::open();
    let session = house.session("2025-11-25").await;
    for (tool, _, status, code) in KINDS {
        let got = house.post(&modern("tools/call", Some(tool)), &call("7", tool)).await;
        assert_eq!((got.code(), got.json()["id"].clone()), ((status, code), json!(7)), "{tool}");
        let got = house.post(&session, &legacy_call("7", tool)).await;
        assert_eq!(got.code(), (if status == 404 { 200 } else { status }, code), "{tool}");
    }
    for (tool, modern_code, legacy_code) in [
        ("code-32601", (404, -32601), (200, -32601)),
        ("code-32021", (200, -32603), (200, -32603)),
        ("code-32050", (200, -32603), (200, -32603)),
        ("code-32042", (200, -32603), (200, -32042)),
        ("code-32002", (200, -32602), (200, -32002)),
        ("code-1", (200, -1), (200, -1)),
    ] {
        assert_eq!(house.post(&modern("tools/call", Some(tool)), &call("1", tool)).await.code(), modern_code, "{tool}");
        assert_eq!(house.post(&session, &legacy_call("1", tool)).await.code(), legacy_code, "{tool}");
    }
}
