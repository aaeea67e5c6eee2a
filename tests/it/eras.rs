//! Four mixtures of client and server era, over both transports [TRN-2, R86].

use crate::support::{Client, Era, HttpUpstream, TestApp, server_toml};

const ACCESS: &str = r#"
[mcp_bundles.all]
servers = ["s"]
[principals.alice]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90" }]
[principals.bob]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9" }]
"#;
/// What the scripted server writes into each result; it must arrive as it was spelled.
const SPELLED: &str =
    r#""n":12345678901234567890123,"d":1.10,"e":1e400,"z":-0.0,"s":"\ud800","null":null,"x-unknown":{ "b" :1, "a":2 }"#;
/// What the client writes into its arguments; likewise.
const ARGUMENTS: &str = r#"{"n":9007199254740993, "d" : 1.10,"s":"\ud800","k":1,"k":2,"o":{"z":null}}"#;

struct Case {
    app: TestApp,
    server: Era,
    _upstream: Option<HttpUpstream>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for server in Era::ALL {
        cases.push(Case { app: TestApp::start(&(server_toml("s", server, "") + ACCESS)), server, _upstream: None });
        let upstream = HttpUpstream::start(server);
        let app = TestApp::start(&(upstream.toml("s", "") + ACCESS));
        cases.push(Case { app, server, _upstream: Some(upstream) });
    }
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_call_work_in_all_mixtures_and_bytes_survive() {
    for case in cases() {
        for era in Era::ALL {
            let client = Client::connect(case.app.address, "/mcp", "alice", era).await;
            assert_eq!(client.list().await, ["s__echo", "s__mark", "s__ask", "s__die", "s__flood", "s__wait"]);
            let answer = client.call("s__echo", ARGUMENTS).await;
            assert!(answer.body.contains(SPELLED), "{era:?} to {:?}: {}", case.server, answer.body);
            let stateless = answer.body.contains("\"resultType\":\"complete\"");
            assert_eq!(stateless, era == Era::Stateless, "{}", answer.body);
            assert!(answer.body.contains("\"id\":7"), "{}", answer.body);
            let received = echoed(&answer.body);
            assert!(received.contains(ARGUMENTS), "{received}");
            assert!(received.contains("\"name\":\"echo\""), "{received}");
            let modern = received.contains("io.modelcontextprotocol/protocolVersion");
            assert_eq!(modern, case.server == Era::Stateless, "{received}");
            let alone = Client::connect(case.app.address, "/mcp/s", "alice", era).await;
            assert_eq!(alone.list().await, ["echo", "mark", "ask", "die", "flood", "wait"]);
            assert_eq!(alone.call("mark", r#"{"mark":"m"}"#).await.text(), "m");
            assert!(alone.call("s__mark", r#"{"mark":"m"}"#).await.body.contains("-32602"));
        }
        case.app.stop().await;
    }
}

/// The request as the server received it; the answer around it holds what no JSON reader takes.
fn echoed(body: &str) -> String {
    let start = body.find("\"text\":").unwrap() + 7;
    let mut values = serde_json::Deserializer::from_str(&body[start..]).into_iter::<String>();
    values.next().unwrap().unwrap()
}

/// [R91–R93, TRN-10]: a server's state is sealed on its way out, and comes back to it as it was.
#[tokio::test(flavor = "multi_thread")]
async fn input_required_passes_between_two_stateless_peers_alone() {
    let app = TestApp::start(&(server_toml("s", Era::Stateless, "") + ACCESS));
    let alice = Client::connect(app.address, "/mcp", "alice", Era::Stateless).await;
    let asked = alice.call("s__ask", r#"{"a":1}"#).await.json();
    assert_eq!(asked["result"]["resultType"], "input_required");
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    assert!(!state.contains("state-of"));
    let retry = |client: &Client, state: &str, arguments: &str| {
        let more = format!(r#","inputResponses":{{"k":{{"action":"accept"}}}},"requestState":"{state}""#);
        let body = client.call_body("8", "s__ask", arguments, &more, "");
        let client = client.clone();
        async move { client.post(&body, "tools/call", Some("s__ask")).await }
    };
    let done = retry(&alice, &state, r#"{"a":1}"#).await;
    assert_eq!(done.text(), r#"["state-of-the-server", {"k": {"action": "accept"}}]"#);
    let bob = Client::connect(app.address, "/mcp", "bob", Era::Stateless).await;
    for (client, state, arguments) in
        [(&bob, state.as_str(), r#"{"a":1}"#), (&alice, "x", r#"{"a":1}"#), (&alice, state.as_str(), r#"{"a":2}"#)]
    {
        assert_eq!(retry(client, state, arguments).await.json()["error"]["code"], -32602);
    }
    let legacy = Client::connect(app.address, "/mcp", "alice", Era::Legacy).await;
    let refused = legacy.call("s__ask", "{}").await.json();
    assert_eq!(refused["error"]["code"], -32603);
    assert!(refused["error"]["message"].as_str().unwrap().contains("input_required"), "{refused}");
    app.stop().await;
}
