//! Servers that ask, and clients that answer: one script for both eras and both transports.
//!
//! The tool `quiz` takes `rounds`, a list of lists of questions; its result's `answers` holds what was answered, round by
//! round. A question with `withdraw` is cancelled by its server at once; one with `beside` is asked on the session's own
//! stream; the visit of one with `over` is said to be over once all are answered, on the stream of its call or, with `"over":"beside"`, on the
//! session's own. A legacy server sends requests, a stateless one ends calls with `input_required`. `asking` is `quiz` for clients that
//! declared elicitation; no others are shown it, or may call it. `visit`, over HTTP and of
//! the older era, asks for a visit by an error as often as its argument `times` says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use portcullis::runtime::Tasks;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::client::{Answer, Client, Events};
use super::wire::{Wire, raw};
use super::{Era, folder};

const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
/// The session of clients that declared elicitation.
const ABLE_SESSION: &str = "able";
/// Everything a client can declare.
pub(crate) const ABLE: &str =
    r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}"#;

/// A server that asks.
pub(crate) enum Quiz {
    /// Over HTTP.
    Http(SocketAddr, Arc<Script>, Tasks),
    /// A child of the gateway.
    Stdio(Era, PathBuf),
}

/// What an HTTP server knows.
pub(crate) struct Script {
    era: Era,
    log: Mutex<Vec<String>>,
    answers: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    last: AtomicU64,
    beside: Mutex<Option<mpsc::Sender<String>>>,
    /// How often a visit was asked for.
    visits: AtomicU64,
}

/// A question of a script: what, with which message.
pub(crate) fn form(message: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form", "message": message, "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } },
    }})
}

/// A visit to a URL.
pub(crate) fn visit(era: Era) -> Value {
    let mut params = json!({ "mode": "url", "message": "Visit", "url": "https://example.com/x" });
    if era == Era::Legacy {
        params["elicitationId"] = json!("e-1");
    }
    json!({ "method": "elicitation/create", "params": params })
}

/// A question for a completion.
pub(crate) fn sampling(text: &str) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }], "maxTokens": 9,
    }})
}

/// A question for roots.
pub(crate) fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// What a willing client answers.
pub(crate) fn willing(method: &str, _: &Value) -> Value {
    match method {
        "elicitation/create" => json!({ "action": "accept", "content": { "a": "b" } }),
        "roots/list" => json!({ "roots": [{ "uri": "file:///x" }] }),
        _ => json!({ "role": "assistant", "content": { "type": "text", "text": "ok" }, "model": "m" }),
    }
}

impl Quiz {
    /// Starts, or prepares, a server.
    pub(crate) async fn start(era: Era, stdio: bool) -> Self {
        if stdio {
            return Self::Stdio(era, folder().join("quiz.log"));
        }
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let script = Arc::new(Script {
            era,
            log: Mutex::default(),
            answers: Mutex::default(),
            last: AtomicU64::new(0),
            beside: Mutex::default(),
            visits: AtomicU64::new(0),
        });
        let (all, serving) = (tasks.clone(), Arc::clone(&script));
        tasks.spawn("quiz server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn("quiz connection", Arc::clone(&serving).serve(Wire::new(stream)));
            }
        });
        Self::Http(addr, script, tasks)
    }

    /// The lines of its table.
    pub(crate) fn lines(&self) -> String {
        match self {
            Self::Http(addr, ..) => format!("url = \"http://{addr}/mcp\""),
            Self::Stdio(era, log) => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/quiz.py");
                let args = [script.display().to_string(), era.word().to_owned(), log.display().to_string()];
                format!("command = \"python3\"\nargs = [{}]", args.map(|arg| super::quoted(&arg)).join(", "))
            }
        }
    }

    /// The same for a child that asks as soon as it is told that it is initialized.
    pub(crate) fn lines_of_early(&self) -> String {
        let lines = self.lines();
        format!("{}, \"early\"]", lines.strip_suffix(']').expect("a child"))
    }

    /// Every message that it was sent.
    pub(crate) fn log(&self) -> Vec<String> {
        match self {
            Self::Http(_, script, _) => script.log.lock().unwrap().clone(),
            Self::Stdio(_, log) => {
                std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
            }
        }
    }

    /// How many messages hold all these words.
    pub(crate) fn count(&self, words: &[&str]) -> usize {
        self.log().iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl Drop for Quiz {
    fn drop(&mut self) {
        if let Self::Http(_, _, tasks) = self {
            tasks.cancel();
        }
    }
}

impl Script {
    async fn serve(self: Arc<Self>, mut wire: Wire) {
        while let Some(head) = wire.head().await {
            let body = wire.body(head.rest(true)).await;
            if head.line.starts_with("GET") {
                return self.stream(&mut wire).await;
            }
            self.log.lock().unwrap().push(body.clone());
            let message: Value = serde_json::from_str(&body).unwrap_or_default();
            let (method, id) = (message["method"].as_str(), raw(&body, "id"));
            match (method, id) {
                (None, Some(id)) => {
                    let answer = [&message["result"], &message["error"]].into_iter().find(|one| !one.is_null());
                    let waiting = self.answers.lock().unwrap().remove(&id);
                    if let (Some(waiting), Some(answer)) = (waiting, answer) {
                        let _heard = waiting.send(answer.clone()).is_ok();
                    }
                    reply(&mut wire, "202 Accepted", "", "").await;
                }
                (None, None) | (Some(_), None) => reply(&mut wire, "202 Accepted", "", "").await,
                (Some(method), Some(id)) => {
                    let able = match message["params"]["_meta"].get("io.modelcontextprotocol/clientCapabilities") {
                        Some(capabilities) => capabilities["elicitation"].is_object(),
                        None => head.field("mcp-session-id") == Some(ABLE_SESSION),
                    };
                    if !self.request(&mut wire, (method, &id, able), &message).await {
                        return;
                    }
                }
            }
        }
    }

    /// Says that a visit is over, where the script wants it.
    async fn over(&self, wire: &mut Wire, question: &Value) {
        if question["over"].is_null() {
            return;
        }
        let params = json!({ "elicitationId": question["params"]["elicitationId"] });
        let over = json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params });
        let over = format!("data: {over}\n\n");
        if question["over"] == "beside" {
            self.beside.lock().unwrap().as_ref().expect("a stream").try_send(over).unwrap();
        } else {
            wire.write(over.as_bytes()).await;
        }
    }

    fn visited(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }

    async fn stream(&self, wire: &mut Wire) {
        let (sender, mut questions) = mpsc::channel::<String>(16);
        *self.beside.lock().unwrap() = Some(sender);
        wire.write(EVENTS).await;
        loop {
            tokio::select! {
                question = questions.recv() => match question {
                    Some(question) => { wire.write(question.as_bytes()).await; }
                    None => return,
                },
                () = wire.gone() => return,
            }
        }
    }

    /// Answers a request; `false` if the connection is used up.
    async fn request(&self, wire: &mut Wire, (method, id, able): (&str, &str, bool), message: &Value) -> bool {
        let stateless = message.to_string().contains("io.modelcontextprotocol/protocolVersion");
        if stateless != (self.era == Era::Stateless) {
            let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#);
            reply(wire, "400 Bad Request", "", &error).await;
            return true;
        }
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let (field, result) = match (method, tool) {
            ("initialize", _) => (
                if message["params"]["capabilities"]["elicitation"].is_object() {
                    "Mcp-Session-Id: able\r\n"
                } else {
                    "Mcp-Session-Id: s\r\n"
                },
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "quiz", "version": "1" } }),
            ),
            ("server/discover", _) => (
                "",
                json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "public" }),
            ),
            ("tools/list", _) => {
                let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                let names = ["quiz", "plain", "hold", "visit", "asking"].into_iter().take(if able { 5 } else { 4 });
                let mut result = json!({ "tools": names.map(tool).collect::<Vec<_>>() });
                if stateless {
                    result["resultType"] = json!("complete");
                    result["ttlMs"] = json!(0);
                    result["cacheScope"] = json!("public");
                }
                ("", result)
            }
            ("tools/call", "hold") => {
                wire.gone().await;
                return false;
            }
            ("tools/call", "asking") if !able => {
                return refuse(wire, id, &json!({ "code": -32602, "message": "no such tool for you" })).await;
            }
            ("tools/call", "visit") if message["params"]["arguments"]["times"].as_u64() > Some(self.visited()) => {
                return refuse(wire, id, &visit_first(self.visits.fetch_add(1, Ordering::SeqCst))).await;
            }
            ("tools/call", "quiz" | "asking") if !stateless => return self.quiz(wire, id, message).await,
            ("tools/call", "quiz" | "asking") => ("", stateless_round(message)),
            _ if stateless => ("", json!({ "resultType": "complete", "content": [] })),
            _ => ("", json!({ "content": [] })),
        };
        reply(wire, "200 OK", field, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await;
        true
    }

    /// A legacy call: each round's questions go out on its stream, and all answers are waited for.
    async fn quiz(&self, wire: &mut Wire, id: &str, message: &Value) -> bool {
        wire.write(EVENTS).await;
        let mut answers = Vec::new();
        for round in message["params"]["arguments"]["rounds"].as_array().unwrap() {
            let mut waiting = Vec::new();
            for question in round.as_array().unwrap() {
                let number = self.last.fetch_add(1, Ordering::SeqCst) + 1000;
                let (sender, answer) = oneshot::channel();
                self.answers.lock().unwrap().insert(number.to_string(), sender);
                let (method, params) = (&question["method"], &question["params"]);
                let asked = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
                let asked = format!("data: {asked}\n\n");
                if question["beside"] == true {
                    self.beside.lock().unwrap().as_ref().expect("a stream").try_send(asked).unwrap();
                } else {
                    wire.write(asked.as_bytes()).await;
                }
                if question["withdraw"] == true {
                    let params = format!(r#"{{"requestId":{number}}}"#);
                    let taken_back =
                        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
                    wire.write(format!("data: {taken_back}\n\n").as_bytes()).await;
                    let waiting = self.answers.lock().unwrap().remove(&number.to_string()).unwrap();
                    waiting.send(json!("withdrawn")).unwrap();
                }
                waiting.push(answer);
            }
            let mut given = Vec::new();
            for answer in waiting {
                tokio::select! {
                    answer = answer => given.push(answer.unwrap()),
                    () = wire.gone() => return false,
                }
            }
            for question in round.as_array().unwrap() {
                self.over(wire, question).await;
            }
            answers.push(given);
        }
        let result = json!({ "content": [], "answers": answers });
        wire.write(format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n").as_bytes()).await;
        false
    }
}

/// What a stateless server answers: the next round, or all that was answered; its state is what it was told so far.
fn stateless_round(message: &Value) -> Value {
    let params = &message["params"];
    let rounds = params["arguments"]["rounds"].as_array().unwrap();
    let mut answers: Vec<Value> = match params["requestState"].as_str() {
        Some(state) => serde_json::from_str(state).unwrap(),
        None => Vec::new(),
    };
    if params["requestState"].is_string() {
        let asked = rounds[answers.len()].as_array().unwrap().len();
        let given = |at: usize| params["inputResponses"][format!("k{at}")].clone();
        answers.push((0..asked).map(given).collect());
    }
    let state = Value::from(answers.clone()).to_string();
    match rounds.get(answers.len()) {
        None => json!({ "resultType": "complete", "content": [], "answers": answers }),
        Some(round) => {
            let mut requests = serde_json::Map::new();
            for (at, question) in round.as_array().unwrap().iter().enumerate() {
                let entry = json!({ "method": question["method"], "params": question["params"] });
                requests.insert(format!("k{at}"), entry);
            }
            let mut result = json!({ "resultType": "input_required", "requestState": state });
            if !requests.is_empty() {
                result["inputRequests"] = Value::Object(requests);
            }
            result
        }
    }
}

/// The error that asks for a visit.
fn visit_first(number: u64) -> Value {
    let visit = json!({ "mode": "url", "elicitationId": format!("e-{number}"), "url": "https://example.com/v", "message": "Sign in" });
    json!({ "code": -32042, "message": "visit first", "data": { "elicitations": [visit] } })
}

async fn refuse(wire: &mut Wire, id: &str, error: &Value) -> bool {
    reply(wire, "200 OK", "", &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)).await;
    true
}

async fn reply(wire: &mut Wire, status: &str, fields: &str, body: &str) {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    wire.write(text.as_bytes()).await;
}

/// What a conversation with a server that asks came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Every question, in order: its method and params.
    pub(crate) asked: Vec<(String, Value)>,
    /// The questions that were taken back, by their place in `asked`.
    pub(crate) taken_back: usize,
    /// The answer of the call: a result, or an error.
    pub(crate) answer: Value,
}

impl Client {
    /// Calls `quiz` and answers whatever is asked: on the stream of the call, or by trying again.
    pub(crate) async fn quiz(&self, name: &str, rounds: Value, answer: impl Fn(&str, &Value) -> Value) -> Told {
        self.asked(name, json!({ "rounds": rounds }), answer).await
    }

    /// Calls a tool and answers whatever is asked.
    pub(crate) async fn asked(&self, name: &str, arguments: Value, answer: impl Fn(&str, &Value) -> Value) -> Told {
        let arguments = arguments.to_string();
        match self.era {
            Era::Legacy => self.answers_on_the_way(name, &arguments, answer).await,
            Era::Stateless => self.answers_by_retry(name, &arguments, answer).await,
        }
    }

    async fn answers_on_the_way(&self, name: &str, arguments: &str, answer: impl Fn(&str, &Value) -> Value) -> Told {
        let mut told = Told::default();
        let mut events: Events = self.opens("\"q\"", name, arguments).await;
        while let Some(event) = events.next().await {
            let message: Value = serde_json::from_str(&event).unwrap();
            match message["method"].as_str() {
                None => told.answer = message,
                Some("notifications/cancelled") => told.taken_back += 1,
                Some(method) => {
                    let given = answer(method, &message["params"]);
                    told.asked.push((method.to_owned(), message["params"].clone()));
                    if !given.is_null() {
                        let member = if given.get("code").is_some() { "error" } else { "result" };
                        let id = &message["id"];
                        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{given}}}"#);
                        assert_eq!(self.post(&[], &text).await.status, 202);
                    }
                }
            }
        }
        told
    }

    async fn answers_by_retry(&self, name: &str, arguments: &str, answer: impl Fn(&str, &Value) -> Value) -> Told {
        let mut told = Told::default();
        let mut members = format!(r#""arguments":{arguments}"#);
        loop {
            let got: Answer = self.call("\"q\"", name, "", &members).await;
            told.answer = got.value();
            if told.answer["result"]["resultType"] != "input_required" {
                return told;
            }
            let mut given = serde_json::Map::new();
            for (key, request) in told.answer["result"]["inputRequests"].as_object().into_iter().flatten() {
                let method = request["method"].as_str().unwrap();
                given.insert(key.clone(), answer(method, &request["params"]));
                told.asked.push((method.to_owned(), request["params"].clone()));
            }
            let state = &told.answer["result"]["requestState"];
            members =
                format!(r#""arguments":{arguments},"inputResponses":{},"requestState":{state}"#, Value::Object(given));
        }
    }
}

impl Told {
    /// What the server was answered, round by round.
    pub(crate) fn answers(&self) -> &Value {
        &self.answer["result"]["answers"]
    }
}
