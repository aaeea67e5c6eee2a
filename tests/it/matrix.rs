//! `matrix!`: everything that servers and clients say to each other, between each era of client and each era of server, with
//! the server over HTTP, as a child, and, in the older era, over HTTP+SSE, which is found out, as it is for clients of that
//! era; one test for each cell [protocol §4.2, TRN-1].
//!
//! One script (`support/whole.py`) is the server of all of them. A cell that no bridge can carry names the line of protocol
//! §5.5 that says so, and its scenario then proves the clean refusal.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::quiz::{ABLE, form, roots, sampling, visit, willing};
use crate::support::{Answer, Client, Era, Events, TestApp, folder, quoted, until, within_deadline};

const SCRIPT: &str = "tests/it/support/whole.py";
/// The client's credential: no server ever sees it.
const KEY: &str = "ann-alone-has-this";
const TOOLS: [&str; 7] = ["up__echo", "up__count", "up__logs", "up__hold", "up__quiz", "up__touch", "up__grow"];

/// One mixture.
struct Cell {
    client: Era,
    /// Where the client connects: `/mcp`, or `/sse` of HTTP+SSE.
    path: &'static str,
    server: Era,
    way: Way,
    /// The line of protocol §5.5 that makes it impossible.
    why_not: Option<&'static str>,
}

/// How the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Http,
    Sse,
    Stdio,
}

/// A gateway between its client and its server.
struct House {
    client: Client,
    app: TestApp,
    cell: Cell,
    log: PathBuf,
    _server: Option<Child>,
}

impl Cell {
    /// Starts all three; the client declares these capabilities.
    async fn open(self, able: &str) -> House {
        self.open_with(able, "").await
    }

    /// The same, with more lines in the server's table.
    async fn open_with(self, able: &str, more: &str) -> House {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT).display().to_string();
        let log = folder().join("whole.log");
        let how = match self.way {
            Way::Http => "http",
            Way::Sse => "sse",
            Way::Stdio => "stdio",
        };
        let args = [script, self.server.word().to_owned(), how.to_owned(), log.display().to_string()];
        let (lines, server) = if self.way == Way::Stdio {
            (format!("command = \"python3\"\nargs = [{}]", args.map(|arg| quoted(&arg)).join(", ")), None)
        } else {
            let mut server =
                Command::new("python3").args(args).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
            let mut port = String::new();
            let mut stdout = BufReader::new(server.stdout.take().unwrap());
            within_deadline("its port", stdout.read_line(&mut port)).await.unwrap();
            let path = if self.way == Way::Sse { "sse" } else { "mcp" };
            (format!("url = \"http://127.0.0.1:{}/{path}\"", port.trim()), Some(server))
        };
        let (tables, _) = TestApp::servers(&[("up", format!("{lines}\n{more}"))]);
        let key = TestApp::key(KEY);
        let grants = "[mcp_bundles.all]\nservers = [\"up\"]\n[principals.ann]\nmcp_bundles = [\"all\"]\n";
        let sse = if self.path == "/sse" { "http_sse = true\n" } else { "" };
        let app = TestApp::start("keys", &format!("{sse}{tables}{grants}{key}")).await;
        let client = Client::able(self.client, app.addr, self.path, Some(KEY), able).await;
        House { client, app, cell: self, log, _server: server }
    }
}

impl House {
    /// Asks for anything; `target` is what the params name.
    async fn ask(&self, method: &str, target: Option<&str>, meta: &str, members: &str) -> Answer {
        let mut fields = Vec::new();
        if self.cell.client == Era::Stateless {
            fields.push(("MCP-Protocol-Version", "2026-07-28".to_owned()));
            fields.push(("Mcp-Method", method.to_owned()));
            fields.extend(target.map(|target| ("Mcp-Name", target.to_owned())));
        }
        self.client.post(&fields, &self.client.body("1", method, meta, members)).await
    }

    /// Asks and returns the result, which is of the client's era.
    async fn result(&self, method: &str, target: Option<&str>, members: &str) -> Value {
        let answer = self.ask(method, target, "", members).await;
        let result = answer.value()["result"].clone();
        let kind = if self.cell.client == Era::Stateless { json!("complete") } else { Value::Null };
        assert!(result.is_object() && result["resultType"] == kind, "{method}: {answer:?}");
        result
    }

    /// What a list has in one member of its entries.
    async fn shown(&self, method: &str, list: &str, member: &str) -> Vec<String> {
        let result = self.result(method, None, "").await;
        result[list].as_array().unwrap().iter().map(|entry| entry[member].as_str().unwrap().to_owned()).collect()
    }

    /// What the server was told, in order.
    fn heard(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["from"] == "gateway" && line["environment"].is_null()).collect()
    }

    /// The messages of a method that the server was told.
    fn told(&self, method: &str) -> Vec<Value> {
        let messages = self.heard().into_iter().map(|line| line["message"].clone());
        messages.filter(|message| message["method"] == method).collect()
    }

    /// The ids of the calls that it holds, or has held.
    fn held(&self) -> Vec<Value> {
        let calls = self.told("tools/call").into_iter().filter(|call| call["params"]["name"] == "hold");
        calls.map(|call| call["id"].clone()).collect()
    }

    /// Waits until the server has heard of the end of a call that it holds, as its era and its transport say it.
    async fn hears_of_the_end(&self) {
        if self.cell.server == Era::Stateless && self.cell.way == Way::Http {
            until("the closed connection", || self.heard().iter().any(|line| line["message"] == "is gone")).await;
            assert!(self.told("notifications/cancelled").is_empty());
        } else {
            until("the cancel", || !self.told("notifications/cancelled").is_empty()).await;
            let held = self.held();
            let cancels = self.told("notifications/cancelled");
            assert!(cancels.len() <= held.len(), "{cancels:?} of {held:?}");
            assert!(
                cancels.iter().all(|cancel| held.contains(&cancel["params"]["requestId"])),
                "{cancels:?} of {held:?}"
            );
        }
    }

    /// Stops, and judges what the server heard: its own era, and nothing of the client's credential [R47, R68, R117].
    async fn close(self) {
        let lines = self.heard();
        self.app.stop().await;
        let text = std::fs::read_to_string(&self.log).unwrap();
        assert!(!text.contains(KEY), "the client's credential reached the server");
        for line in lines {
            let message = &line["message"];
            let version = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
            match (self.cell.server, message["method"].as_str()) {
                (Era::Stateless, None) => assert!(message.is_string(), "an answer to a stateless server: {message}"),
                (Era::Stateless, Some("notifications/initialized" | "logging/setLevel" | "resources/subscribe")) => {
                    panic!("{message} to a stateless server");
                }
                (Era::Stateless, Some(method)) if method != "initialize" && message.get("id").is_some() => {
                    assert_eq!(version, "2026-07-28")
                }
                // What it speaks is found out by asking; notifications have no version.
                (Era::Legacy, Some("server/discover")) | (Era::Stateless, Some(_)) => {}
                (Era::Legacy, _) => assert!(version.is_null(), "{message}"),
            }
        }
    }
}

/// The notifications of a method in front of an answer.
fn notes(answer: &Answer, method: &str) -> Vec<Value> {
    let messages = answer.messages.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
    messages.filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
}

/// The params of the next event of a method; others are passed over.
async fn next_of(stream: &mut Events, method: &str) -> Value {
    loop {
        let event = within_deadline(method, stream.next()).await.expect("the stream has ended");
        let event: Value = serde_json::from_str(&event).unwrap();
        if event["method"] == method {
            return event["params"].clone();
        }
    }
}

/// `tools/list`, `tools/call`: the list is the same before and after a call and for another connection [R75].
async fn tools(cell: Cell) {
    let house = cell.open("{}").await;
    assert_eq!(house.shown("tools/list", "tools", "name").await, TOOLS);
    let first = house.ask("tools/list", None, "", "").await.raw("result.tools");
    let arguments = r#""name":"up__echo","arguments":{"a":1.5,"b":null}"#;
    let result = house.result("tools/call", Some("up__echo"), arguments).await;
    assert_eq!(result["content"][0]["text"], "echo");
    assert_eq!(result["structuredContent"], json!({ "a": 1.5, "b": null }));
    assert_eq!(house.client.call_with("up__none", "{}").await.code(), -32602);
    assert_eq!(house.told("tools/call").len(), 1);
    let other = Client::connect(house.cell.client, house.app.addr, house.cell.path, Some(KEY)).await;
    assert_eq!(other.names().await, TOOLS);
    assert_eq!(house.ask("tools/list", None, "", "").await.raw("result.tools"), first);
    house.close().await;
}

/// `notifications/progress`: the client's own token, growing [R109].
async fn progress(cell: Cell) {
    let house = cell.open("{}").await;
    let answer = house.client.call("1", "up__count", r#""progressToken":"p""#, "").await;
    let told = notes(&answer, "notifications/progress");
    assert!(told.iter().all(|note| note["progressToken"] == "p"), "{answer:?}");
    let values: Vec<f64> = told.iter().map(|note| note["progress"].as_f64().unwrap()).collect();
    assert_eq!(values, [1.0, 2.0, 3.0], "{answer:?}");
    assert!(answer.is_result());
    let without = house.client.call_with("up__count", "{}").await;
    assert!(notes(&without, "notifications/progress").is_empty(), "{without:?}");
    house.close().await;
}

/// `logging/setLevel`, `_meta.logLevel`, `notifications/message` [R111, R112, R124].
async fn logs(cell: Cell) {
    let house = cell.open("{}").await;
    let levels = |answer: &Answer| -> Vec<String> {
        let notes = notes(answer, "notifications/message");
        notes.iter().map(|note| note["level"].as_str().unwrap().to_owned()).collect()
    };
    let level = |word: &str| format!(r#""io.modelcontextprotocol/logLevel":"{word}""#);
    if house.cell.client == Era::Legacy {
        let set = house.ask("logging/setLevel", None, "", r#""level":"warning""#).await;
        assert_eq!(set.value()["result"], json!({}), "{set:?}");
        assert_eq!(levels(&house.client.call_with("up__logs", "{}").await), ["error"]);
    } else {
        assert!(levels(&house.client.call_with("up__logs", "{}").await).is_empty());
        assert_eq!(levels(&house.client.call("1", "up__logs", &level("warning"), "").await), ["error"]);
        assert_eq!(house.client.call("1", "up__logs", &level("loud"), "").await.code(), -32602);
    }
    house.close().await;
}

/// `notifications/cancelled`, or a closed connection: the server hears of it in its own way [R106, R107].
async fn cancel(cell: Cell) {
    let house = cell.open("{}").await;
    let mut held = Box::pin(house.client.tries("up__hold"));
    tokio::select! {
        answer = &mut held => panic!("{answer:?}"),
        () = until("the call", || house.told("tools/call").len() == 1) => {}
    }
    if house.cell.client == Era::Legacy {
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(house.client.post(&[], cancel).await.status, 202);
        if house.cell.path == "/mcp" {
            let answer = within_deadline("the end of the call", held).await;
            assert!(!answer.is_some_and(|answer| answer.text().contains("\"result\"")));
        } else {
            // Nothing more is said of it on the one stream.
            drop(held);
        }
    } else {
        drop(held);
    }
    house.hears_of_the_end().await;
    house.close().await;
}

/// A call whose time is over: its server hears of it in its own way, its client is told, and its place is another's [LIM-4,
/// LIM-5, R106, R107].
async fn overtime(cell: Cell) {
    let house = cell.open_with("{}", "tool_timeout_secs = 1\nmax_concurrent_calls = 1").await;
    // On a busy machine the second may be over before the server has the call: then it is called again.
    while house.held().is_empty() {
        let answer = within_deadline("the end of the call", house.client.call("1", "up__hold", "", "")).await;
        assert_eq!(answer.value()["error"]["code"], -32603, "{answer:?}");
        assert!(answer.text().contains("tool_timeout_secs"), "{answer:?}");
    }
    house.hears_of_the_end().await;
    let echoed = async { while !house.client.call_with("up__echo", "{}").await.is_result() {} };
    within_deadline("the place of the call", echoed).await;
    house.close().await;
}

/// `prompts/list`, `prompts/get`.
async fn prompts(cell: Cell) {
    let house = cell.open("{}").await;
    assert_eq!(house.shown("prompts/list", "prompts", "name").await, ["up__greet"]);
    let members = r#""name":"up__greet","arguments":{"who":"Ann"}"#;
    let result = house.result("prompts/get", Some("up__greet"), members).await;
    assert_eq!(result["messages"], json!([{ "role": "user", "content": { "type": "text", "text": "greet Ann" } }]));
    let unknown = house.ask("prompts/get", Some("up__none"), "", r#""name":"up__none""#).await;
    assert_eq!(unknown.code(), -32602, "{unknown:?}");
    house.close().await;
}

/// `resources/list`, `resources/templates/list`, `resources/read` [R61, R88].
async fn resources(cell: Cell) {
    let house = cell.open("{}").await;
    assert_eq!(house.shown("resources/list", "resources", "uri").await, ["up+test://a"]);
    let templates = house.shown("resources/templates/list", "resourceTemplates", "uriTemplate").await;
    assert_eq!(templates, ["up+test://t/{id}"]);
    for (uri, original) in [("up+test://a", "test://a"), ("up+test://t/7", "test://t/7")] {
        let result = house.result("resources/read", Some(uri), &format!(r#""uri":"{uri}""#)).await;
        assert_eq!(result["contents"][0]["uri"], uri);
        assert_eq!(house.told("resources/read").pop().unwrap()["params"]["uri"], original);
    }
    let missing = house.ask("resources/read", Some("up+test://missing"), "", r#""uri":"up+test://missing""#).await;
    let older = house.cell.client == Era::Legacy && house.cell.server == Era::Legacy;
    assert_eq!(missing.code(), if older { -32002 } else { -32602 }, "{missing:?}");
    house.close().await;
}

/// `completion/complete`, for prompts and for templates.
async fn completion(cell: Cell) {
    let house = cell.open("{}").await;
    for (reference, original) in [
        (json!({ "type": "ref/prompt", "name": "up__greet" }), "greet"),
        (json!({ "type": "ref/resource", "uri": "up+test://t/{id}" }), "test://t/{id}"),
    ] {
        let members = format!(r#""ref":{reference},"argument":{{"name":"who","value":"A"}}"#);
        let result = house.result("completion/complete", None, &members).await;
        assert_eq!(result["completion"]["values"], json!([original, "A"]));
    }
    house.close().await;
}

/// A question of each round of `quiz`, as its server was answered.
async fn asked(house: &House, question: Value, answer: impl Fn(&str, &Value) -> Value) -> Value {
    let method = question["method"].clone();
    let told = within_deadline("the answer", house.client.quiz("up__quiz", json!([[question]]), answer)).await;
    // On a stream that carries everything, a change of lists may come in between.
    let asked: Vec<_> = told.asked.iter().filter(|(said, _)| !said.ends_with("/list_changed")).collect();
    assert_eq!(asked.len(), 1, "{told:?}");
    assert_eq!(asked[0].0, method.as_str().unwrap());
    assert_eq!(asked[0].1["_meta"]["portcullis/server"], "up", "{told:?}");
    told.answers()[0][0].clone()
}

/// `elicitation/create` with a form: accepted, declined, cancelled.
async fn elicitation(cell: Cell) {
    let house = cell.open(ABLE).await;
    for answer in
        [willing("elicitation/create", &Value::Null), json!({ "action": "decline" }), json!({ "action": "cancel" })]
    {
        assert_eq!(asked(&house, form("?"), |_, _| answer.clone()).await, answer);
    }
    house.close().await;
}

/// `elicitation/create` with a URL.
async fn visits(cell: Cell) {
    let house = cell.open(ABLE).await;
    let question = visit(house.cell.server);
    assert_eq!(asked(&house, question, |_, _| json!({ "action": "accept" })).await["action"], "accept");
    house.close().await;
}

/// `sampling/createMessage`.
async fn sampled(cell: Cell) {
    let house = cell.open(ABLE).await;
    let answer = willing("sampling/createMessage", &Value::Null);
    assert_eq!(asked(&house, sampling("?"), willing).await, answer);
    house.close().await;
}

/// `roots/list`.
async fn rooted(cell: Cell) {
    let house = cell.open(ABLE).await;
    assert_eq!(asked(&house, roots(), willing).await, willing("roots/list", &Value::Null));
    house.close().await;
}

/// A client's error is an answer, where both can say it.
async fn errors_of_clients(cell: Cell) {
    let house = cell.open(ABLE).await;
    let no = json!({ "code": -1, "message": "no" });
    let refuses = |_: &str, _: &Value| no.clone();
    if house.cell.client == Era::Legacy {
        let told = within_deadline("the end", house.client.quiz("up__quiz", json!([[sampling("?")]]), refuses)).await;
        if house.cell.why_not.is_some() {
            assert_eq!(told.answer["error"]["code"], -32603, "{told:?}");
            assert_eq!(house.told("tools/call").len(), 1, "the server is not called again");
        } else {
            assert_eq!(told.answers()[0][0], no, "{told:?}");
        }
    } else {
        assert!(house.cell.why_not.is_some());
        let arguments = json!({ "rounds": [[sampling("?")]] });
        let first = house.client.call_with("up__quiz", &arguments.to_string()).await.value();
        let (key, _) = first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let state = &first["result"]["requestState"];
        let members = format!(r#""arguments":{arguments},"inputResponses":{{"{key}":{no}}},"requestState":{state}"#);
        let second = house.client.call("2", "up__quiz", "", &members).await.value();
        if house.cell.server == Era::Legacy {
            // It is no answer: the same is asked again.
            assert_eq!(second["result"]["resultType"], "input_required", "{second}");
        } else {
            assert_eq!(second["result"]["answers"][0][0], no, "the server judges its answers itself: {second}");
        }
    }
    house.close().await;
}

/// `resources/subscribe` and `subscriptions/listen`, `notifications/resources/updated`.
async fn updates(cell: Cell) {
    let house = cell.open("{}").await;
    let (mut stream, watched) = house.client.watch(&["up+test://a", "up__none"]).await;
    assert_eq!(watched, ["up+test://a"]);
    assert!(house.client.call_with("up__touch", r#"{"uri":"test://b"}"#).await.is_result());
    assert!(house.client.call_with("up__touch", r#"{"uri":"test://a"}"#).await.is_result());
    assert_eq!(next_of(&mut stream, "notifications/resources/updated").await["uri"], "up+test://a");
    drop(stream);
    house.close().await;
}

/// `notifications/*/list_changed`: what is told of is listed [R81].
async fn changes(cell: Cell) {
    let house = cell.open("{}").await;
    if house.cell.server == Era::Stateless {
        until("the gateway's own listen", || !house.told("subscriptions/listen").is_empty()).await;
    }
    assert_eq!(house.shown("tools/list", "tools", "name").await, TOOLS);
    let mut stream = house.client.listen().await;
    assert!(house.client.call_with("up__grow", "{}").await.is_result());
    next_of(&mut stream, "notifications/tools/list_changed").await;
    assert_eq!(house.shown("tools/list", "tools", "name").await.pop().unwrap(), "up__grown-0");
    for (method, list, member, grown) in [
        ("prompts/list", "prompts", "name", "up__grown-0"),
        ("resources/list", "resources", "uri", "up+test://grown-0"),
    ] {
        let listed = async {
            while house.shown(method, list, member).await.pop().unwrap() != grown {
                tokio::task::yield_now().await;
            }
        };
        within_deadline(grown, listed).await;
    }
    drop(stream);
    house.close().await;
}

/// One test for each cell of each scenario; after a scenario's name the cells that protocol §5.5 rules out, and its words.
macro_rules! matrix {
    ($($name:ident $(, $client:ident to $server:ident: $line:literal)*;)*) => { $(
        mod $name {
            use super::{Cell, Era, Way};
            use crate::support::within_deadline;

            async fn carry_out((client, path): (Era, &'static str), server: Era, way: Way) {
                let lines: &[(Era, Era, &'static str)] = &[$((Era::$client, Era::$server, $line)),*];
                let why_not = lines.iter().find(|line| (line.0, line.1) == (client, server)).map(|line| line.2);
                within_deadline(stringify!($name), super::$name(Cell { client, path, server, way, why_not })).await;
            }

            matrix! { @cells
                legacy_to_legacy_over_http Legacy "/mcp" Legacy Http;
                legacy_to_legacy_over_sse Legacy "/mcp" Legacy Sse;
                legacy_to_legacy_over_stdio Legacy "/mcp" Legacy Stdio;
                legacy_to_stateless_over_http Legacy "/mcp" Stateless Http;
                legacy_to_stateless_over_stdio Legacy "/mcp" Stateless Stdio;
                stateless_to_legacy_over_http Stateless "/mcp" Legacy Http;
                stateless_to_legacy_over_sse Stateless "/mcp" Legacy Sse;
                stateless_to_legacy_over_stdio Stateless "/mcp" Legacy Stdio;
                stateless_to_stateless_over_http Stateless "/mcp" Stateless Http;
                stateless_to_stateless_over_stdio Stateless "/mcp" Stateless Stdio;
                legacy_by_sse_to_legacy_over_http Legacy "/sse" Legacy Http;
                legacy_by_sse_to_legacy_over_sse Legacy "/sse" Legacy Sse;
                legacy_by_sse_to_legacy_over_stdio Legacy "/sse" Legacy Stdio;
                legacy_by_sse_to_stateless_over_http Legacy "/sse" Stateless Http;
                legacy_by_sse_to_stateless_over_stdio Legacy "/sse" Stateless Stdio;
            }
        }
    )* };
    (@cells $($cell:ident $client:ident $path:literal $server:ident $way:ident;)*) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $cell() {
            carry_out((Era::$client, $path), Era::$server, Way::$way).await;
        }
    )* };
}

matrix! {
    tools;
    progress;
    logs;
    cancel;
    overtime;
    prompts;
    resources;
    completion;
    elicitation;
    visits;
    sampled;
    rooted;
    errors_of_clients,
        Legacy to Stateless: "JSON-RPC error answers to MRTR inputs",
        Stateless to Legacy: "JSON-RPC error answers to MRTR inputs",
        Stateless to Stateless: "JSON-RPC error answers to MRTR inputs";
    updates;
    changes;
}
