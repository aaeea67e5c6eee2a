//! Both eras on both sides, over both transports [TRN-9, R86].

use crate::support::{
    Child, Client, ERAS, Era, ODDITIES, STATE, STATELESS_HEAD, Speaks, TestApp, Upstream, raw, within_deadline,
};

/// What the clients declare: the server asks.
const ABLE: &str = r#"{"elicitation":{"form":{}}}"#;

/// What must survive in arguments.
const ARGUMENTS: &str =
    r#"{ "big":123456789012345678901234567890,"n":1.10, "z":{"b":1,"a":null,"e":[1E+2,-0.0]},"s":"\ud800 \u00e9\/" }"#;

enum Server {
    Http(Upstream),
    Stdio(Child),
}

impl Server {
    async fn start(era: Era, stdio: bool, sse: bool) -> Self {
        const TOOLS: [&str; 2] = ["echo", "ask"];
        if stdio {
            return Self::Stdio(Child::new(era, &TOOLS));
        }
        let speaks = if era == Era::Legacy { Speaks::Legacy } else { Speaks::Stateless };
        Self::Http(Upstream::start(speaks, sse, &TOOLS).await)
    }

    fn lines(&self) -> String {
        match self {
            Self::Http(upstream) => upstream.lines(),
            Self::Stdio(child) => child.lines(),
        }
    }

    fn calls(&self) -> Vec<String> {
        match self {
            Self::Http(upstream) => upstream.calls(),
            Self::Stdio(child) => child.calls(),
        }
    }
}

async fn mixture(client_era: Era, server_era: Era, stdio: bool, sse: bool) {
    let context = format!("client {client_era:?}, server {server_era:?}, stdio {stdio}, sse {sse}");
    let server = Server::start(server_era, stdio, sse).await;
    let app = TestApp::open(&[("up", server.lines())]).await;
    for (path, prefix) in [("/mcp", "up__"), ("/mcp/up", "")] {
        let client = Client::able(client_era, app.addr, path, None, ABLE).await;
        let tools = client.list().await;
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, [format!("{prefix}echo"), format!("{prefix}ask")], "{context}");

        let name = format!("{prefix}echo");
        let before = server.calls().len();
        let members = format!(r#""arguments":{ARGUMENTS},"unknown":{{"k":1.10}}"#);
        let answer = client.call("\"c-1\"", &name, r#""x/y":[1.0]"#, &members).await;
        assert_eq!(answer.status, 200, "{context}: {answer:?}");
        assert_eq!(answer.raw("id"), "\"c-1\"", "{context}");
        let calls = server.calls();
        assert_eq!(calls.len(), before + 1, "{context}");
        let sent = calls.last().unwrap();

        // Arguments and unknown members are the client's bytes in every mixture.
        assert_eq!(raw(sent, "params.arguments").unwrap(), ARGUMENTS, "{context}");
        assert_eq!(raw(sent, "params.unknown").unwrap(), r#"{"k":1.10}"#, "{context}");
        assert_eq!(raw(sent, "params.name").unwrap(), "\"echo\"", "{context}");
        assert_eq!(raw(sent, "params._meta").and_then(|meta| raw(&meta, "x/y")).unwrap(), "[1.0]", "{context}");
        let reserved = sent.contains("io.modelcontextprotocol/");
        assert_eq!(reserved, server_era == Era::Stateless, "{context}: {sent}");

        let body = format!(r#""echo":{ARGUMENTS},{ODDITIES}"#);
        let info = concat!(r#"{"name":"portcullis","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
        let ours = STATELESS_HEAD.replace(r#"{"name":"up","version":"1"}"#, info);
        let result = answer.raw("result");
        match (client_era, server_era) {
            (Era::Legacy, Era::Legacy) => {
                assert_eq!(result, format!("{{{body}}}"), "{context}");
                let id = raw(sent, "id").unwrap();
                let unknown = client.body(&id, "tools/call", r#""x/y":[1.0]"#, &format!(r#""name":"echo",{members}"#));
                assert_eq!(*sent, unknown, "{context}");
            }
            (Era::Stateless, Era::Stateless) => assert_eq!(result, format!("{{{ours},{body}}}"), "{context}"),
            (Era::Legacy, Era::Stateless) => {
                // Only what this client's revision does not know is gone.
                assert_eq!(result, format!(r#"{{"_meta":{{"a/b":1.0}},{body}}}"#), "{context}");
            }
            (Era::Stateless, Era::Legacy) => {
                assert_eq!(raw(&result, "resultType").unwrap(), "\"complete\"", "{context}");
                assert!(result.contains(info) && result.ends_with(&format!("{body}}}")), "{context}: {result}");
            }
        }
        if client_era == Era::Stateless || server_era == Era::Stateless {
            ask(&client, &name.replace("echo", "ask"), server_era, &context).await;
        }
    }
    app.stop().await;
}

/// `input_required` passes between two stateless peers [TRN-10, R92]; `questions.rs` has the other mixtures.
async fn ask(client: &Client, name: &str, server_era: Era, context: &str) {
    if server_era == Era::Legacy || client.era == Era::Legacy {
        return;
    }
    let asked = client.call("7", name, "", r#""arguments":{}"#).await;
    assert_eq!(asked.raw("result.resultType"), "\"input_required\"", "{context}: {asked:?}");
    assert!(asked.raw("result.inputRequests.q").contains("elicitation/create"), "{context}");
    let sealed = asked.raw("result.requestState");
    assert_ne!(sealed, STATE, "{context}");
    let retry = format!(r#""arguments":{{}},"inputResponses":{{"q":{{"action":"accept"}}}},"requestState":{sealed}"#);
    let answer = client.call("8", name, "", &retry).await;
    assert_eq!(answer.raw("result.state"), STATE, "{context}: {answer:?}");
}

/// The matrix over HTTP [TRN-1, TRN-2, TRN-9].
#[tokio::test]
async fn all_mixtures_over_http() {
    for client in ERAS {
        for server in ERAS {
            for sse in [false, true] {
                within_deadline("a mixture", mixture(client, server, false, sse)).await;
            }
        }
    }
}

/// The matrix over stdio [TRN-1, TRN-2, TRN-9].
#[tokio::test]
async fn all_mixtures_over_stdio() {
    for client in ERAS {
        for server in ERAS {
            within_deadline("a mixture", mixture(client, server, true, false)).await;
        }
    }
}

/// [TRN-1, TRN-2, R33]: a server of each revision, found out, before a client of each: what is agreed on either side is its
/// own, and calls pass.
#[tokio::test]
async fn every_revision_meets_every_other() {
    const SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let all = SESSIONS.into_iter().chain(["2026-07-28"]);
    let ways = all.map(|revision| ("http", "mcp", revision)).chain(SESSIONS.map(|revision| ("sse", "sse", revision)));
    for (how, path, server) in ways {
        let whole = crate::two_urls::Whole::of(how, server).await;
        let app = TestApp::open(&[("up", format!("url = \"{}/{path}\"", whole.origin()))]).await;
        let mut clients = vec![Client::connect(Era::Stateless, app.addr, "/mcp", None).await];
        for revision in SESSIONS {
            // Its answer to `initialize` names the revision that it has asked for.
            clients.push(Client::older(revision, app.addr, "{}").await);
        }
        for (at, client) in clients.iter().enumerate() {
            let context = format!("{how}, server {server}, client {at}");
            let names = within_deadline(&context, client.names()).await;
            assert!(names.contains(&"up__echo".to_owned()), "{context}: {names:?}");
            let answer = within_deadline(&context, client.call_with("up__echo", r#"{"k":1.5}"#)).await;
            assert!(answer.is_result() && answer.text().contains("1.5"), "{context}: {answer:?}");
        }
        app.stop().await;
    }
}

/// A sealed state is one principal's, one call's, and nobody may touch it [TRN-10, R92].
#[tokio::test]
async fn a_state_that_is_not_the_callers_is_refused() {
    let upstream = Upstream::start(Speaks::Stateless, false, &["ask", "other"]).await;
    let (tables, _) = TestApp::servers(&[("up", upstream.lines())]);
    let mut rest = format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n");
    for name in ["ann", "ben"] {
        rest.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(name)));
    }
    let app = TestApp::start("keys", &rest).await;
    let ann = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), ABLE).await;
    let ben = Client::able(Era::Stateless, app.addr, "/mcp", Some("ben"), ABLE).await;
    let sealed = ann.call_with("up__ask", "{}").await.raw("result.requestState");
    let before = upstream.calls().len();

    let retry = |state: &str, arguments: &str| format!(r#""arguments":{arguments},"requestState":{state}"#);
    let mut tampered = sealed.clone().into_bytes();
    let middle = tampered.len() / 2;
    tampered[middle] = if tampered[middle] == b'A' { b'B' } else { b'A' };
    let tampered = String::from_utf8(tampered).unwrap();
    let refused = [
        ("tampered", ann.call("1", "up__ask", "", &retry(&tampered, "{}")).await),
        ("made up", ann.call("1", "up__ask", "", &retry("\"mine\"", "{}")).await),
        ("the server's own", ann.call("1", "up__ask", "", &retry(STATE, "{}")).await),
        ("no string", ann.call("1", "up__ask", "", &retry("1", "{}")).await),
        ("another principal's", ben.call("1", "up__ask", "", &retry(&sealed, "{}")).await),
        ("another call's", ann.call("1", "up__ask", "", &retry(&sealed, r#"{"a":1}"#)).await),
        ("another tool's", ann.call("1", "up__other", "", &retry(&sealed, "{}")).await),
    ];
    for (why, answer) in refused {
        assert_eq!((answer.status, answer.code()), (200, -32602), "{why}: {answer:?}");
    }
    assert_eq!(upstream.calls().len(), before, "the server was asked");
    let answer = ann.call("1", "up__ask", "", &retry(&sealed, "{}")).await;
    assert_eq!(answer.raw("result.state"), STATE);
    app.stop().await;
}

/// [R53] A client over HTTP mirrors what the list annotates, also where the tool's server sits behind a pipe.
#[tokio::test(flavor = "multi_thread")]
async fn a_stdio_servers_annotated_argument_must_agree_with_its_header() {
    const TOOL: &str = r#"{"name":"mirrored","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    for server_era in ERAS {
        let child = Child::new(server_era, &[TOOL]);
        let app = TestApp::open(&[("up", child.lines())]).await;
        let client = Client::connect(Era::Stateless, app.addr, "/mcp/up", None).await;
        let call = async |arguments: &str, header: Option<&str>| {
            let mut fields = vec![
                ("MCP-Protocol-Version", "2026-07-28".to_owned()),
                ("Mcp-Method", "tools/call".to_owned()),
                ("Mcp-Name", "mirrored".to_owned()),
            ];
            fields.extend(header.map(|value| ("Mcp-Param-Region", value.to_owned())));
            let members = format!(r#""name":"mirrored","arguments":{arguments}"#);
            let answer = client.post(&fields, &client.body("1", "tools/call", "", &members)).await;
            (answer.status, answer.text().contains(r#""code":-32020"#))
        };
        for (arguments, header) in [
            (r#"{"region":"eu"}"#, Some("eu")),
            (r#"{"region":"Zürich"}"#, Some("=?base64?WsO8cmljaA==?=")),
            (r#"{"region":null}"#, None),
            ("{}", None),
        ] {
            assert_eq!(call(arguments, header).await, (200, false), "{server_era:?} {arguments} {header:?}");
        }
        let reached = child.calls().len();
        for (arguments, header) in [
            (r#"{"region":"eu"}"#, None),
            (r#"{"region":"eu"}"#, Some("us")),
            (r#"{"region":"eu"}"#, Some("=?base64?ZXU?=")),
            ("{}", Some("eu")),
        ] {
            assert_eq!(call(arguments, header).await, (400, true), "{server_era:?} {arguments} {header:?}");
        }
        assert_eq!(child.calls().len(), reached, "a refused call reaches no server");

        // Clients of before do not know the annotation.
        let legacy = Client::connect(Era::Legacy, app.addr, "/mcp/up", None).await;
        assert_eq!(legacy.call_with("mirrored", r#"{"region":"eu"}"#).await.status, 200);
    }
}
