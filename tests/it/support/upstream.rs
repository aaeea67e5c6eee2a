//! A scripted MCP server over HTTP: what it speaks, how it answers, what it was asked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use portcullis::runtime::Tasks;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify, watch};

use super::rich;
use super::wire::{Head, Wire, raw};

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// 2025-11-25 alone.
    Legacy,
    /// 2026-07-28 alone.
    Stateless,
    /// Both.
    Both,
}

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is answered with an error.
    Fails,
    /// It is never answered.
    Hangs,
}

/// The server; it ends when it is dropped.
pub(crate) struct Upstream {
    addr: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
}

struct State {
    speaks: Speaks,
    sse: bool,
    tools: Mutex<Vec<String>>,
    changed: watch::Sender<u64>,
    requests: Mutex<Vec<String>>,
    sessions: AtomicU64,
    /// Streams on which changes are told.
    streams: AtomicU64,
    /// How many calls of `together` come together.
    together: Mutex<Option<Arc<Barrier>>>,
    /// Lets `hold` go on.
    gate: Notify,
    /// It has more than tools.
    rich: AtomicBool,
    /// The heads of all requests.
    heads: Mutex<Vec<Head>>,
    /// The tool `guarded` wants its argument as a header of this name.
    guard: Mutex<Option<String>>,
    /// The list that fails, or never comes.
    broken: Mutex<Option<(String, Broken)>>,
    /// What a tool answers with, whatever it is asked.
    answers: Mutex<Vec<(String, String)>>,
}

impl Upstream {
    /// Starts a server; `sse` says whether it answers calls in event streams.
    pub(crate) async fn start(speaks: Speaks, sse: bool, tools: &[&str]) -> Self {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            speaks,
            sse,
            tools: Mutex::default(),
            changed: watch::Sender::new(0),
            requests: Mutex::default(),
            sessions: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            together: Mutex::default(),
            gate: Notify::new(),
            rich: AtomicBool::new(false),
            heads: Mutex::default(),
            guard: Mutex::default(),
            broken: Mutex::default(),
            answers: Mutex::default(),
        });
        let upstream = Self { addr, state: Arc::clone(&state), tasks: tasks.clone() };
        upstream.set(tools);
        let all = tasks.clone();
        tasks.spawn("scripted server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn("scripted connection", Arc::clone(&state).serve(Wire::new(stream)));
            }
        });
        upstream
    }

    /// Starts a server that has prompts, resources, templates, completion and logs too.
    pub(crate) async fn rich(speaks: Speaks, sse: bool, tools: &[&str]) -> Self {
        let upstream = Self::start(speaks, sse, tools).await;
        upstream.state.rich.store(true, Ordering::SeqCst);
        upstream
    }

    /// Breaks the list of a method.
    pub(crate) fn break_list(&self, method: &str, broken: Broken) {
        *self.state.broken.lock().unwrap() = Some((method.to_owned(), broken));
    }

    /// Lets the tool `guarded` be called with its argument `a` in this header alone; its list says so, but nobody is told.
    pub(crate) fn guard(&self, header: &str) {
        *self.state.guard.lock().unwrap() = Some(header.to_owned());
        let schema =
            format!(r#"{{"type":"object","properties":{{"a":{{"type":"string","x-mcp-header":"{header}"}}}}}}"#);
        self.set(&[&format!(r#"{{"name":"guarded","inputSchema":{schema}}}"#)]);
    }

    /// The values of a field of all requests so far that are of a method.
    pub(crate) fn fields(&self, method: &str, field: &str) -> Vec<Option<String>> {
        let wanted = format!("\"method\":\"{method}\"");
        let requests = self.state.requests.lock().unwrap().clone();
        let heads = self.state.heads.lock().unwrap();
        let all = requests.iter().zip(heads.iter()).filter(|(body, _)| body.contains(&wanted));
        all.map(|(_, head)| head.field(field).map(str::to_owned)).collect()
    }

    /// Where it listens.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The lines of its table.
    pub(crate) fn lines(&self) -> String {
        format!("url = \"http://{}/mcp\"", self.addr)
    }

    fn set(&self, tools: &[&str]) {
        let spelled =
            |tool: &&str| if tool.starts_with(r#"{"name":"#) { (*tool).to_owned() } else { super::quoted(tool) };
        *self.state.tools.lock().unwrap() = tools.iter().map(spelled).collect();
    }

    /// Changes the tools, and says so.
    pub(crate) fn change(&self, tools: &[&str]) {
        self.set(tools);
        self.state.changed.send_modify(|count| *count += 1);
    }

    /// How many streams wait for changes.
    pub(crate) fn streams(&self) -> u64 {
        self.state.streams.load(Ordering::SeqCst)
    }

    /// Holds each call of `together` until so many are there.
    pub(crate) fn gather(&self, count: usize) {
        *self.state.together.lock().unwrap() = Some(Arc::new(Barrier::new(count)));
    }

    /// Lets a tool answer with this result.
    pub(crate) fn answer_with(&self, tool: &str, result: &str) {
        self.state.answers.lock().unwrap().push((super::quoted(tool), result.to_owned()));
    }

    /// Lets one call of `hold` go on.
    pub(crate) fn release(&self) {
        self.state.gate.notify_one();
    }

    /// The bodies of all `tools/call` so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.asked("tools/call")
    }

    /// How often its tools have been listed.
    pub(crate) fn lists(&self) -> usize {
        self.asked("tools/list").len()
    }

    /// The bodies of all requests of a method so far.
    pub(crate) fn asked(&self, method: &str) -> Vec<String> {
        let wanted = format!("\"method\":\"{method}\"");
        self.state.requests.lock().unwrap().iter().filter(|body| body.contains(&wanted)).cloned().collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl State {
    async fn serve(self: Arc<Self>, mut wire: Wire) {
        while let Some(head) = wire.head().await {
            let body = wire.body(head.rest(true)).await;
            self.heads.lock().unwrap().push(head.clone());
            self.requests.lock().unwrap().push(body.clone());
            if head.line.starts_with("GET") {
                return self.tell(&mut wire, String::new()).await;
            }
            if head.line.starts_with("DELETE") {
                json(&mut wire, "200 OK", "", "").await;
                continue;
            }
            let Some(id) = raw(&body, "id") else {
                json(&mut wire, "202 Accepted", "", "").await;
                continue;
            };
            let method = raw(&body, "method").unwrap_or_default();
            let stateless = body.contains(VERSION_KEY);
            let speaks = self.speaks == Speaks::Both || (self.speaks == Speaks::Stateless) == stateless;
            if !speaks {
                let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#);
                json(&mut wire, "400 Bad Request", "", &error).await;
                continue;
            }
            match self.broken(method.trim_matches('"')) {
                Some(Broken::Fails) => {
                    let error =
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"broken"}}}}"#);
                    json(&mut wire, "200 OK", "", &error).await;
                    continue;
                }
                Some(Broken::Hangs) => return wire.gone().await,
                None => {}
            }
            match method.trim_matches('"') {
                "subscriptions/listen" => {
                    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
                    return self.tell(&mut wire, meta).await;
                }
                "tools/call" if self.refuses(&head, &body) => {
                    let error =
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32020,"message":"header"}}}}"#);
                    json(&mut wire, "400 Bad Request", "", &error).await;
                }
                "tools/call" => {
                    if !self.call(&mut wire, &id, &body, stateless).await {
                        return;
                    }
                }
                method => self.plain(&mut wire, &id, (method, &body), stateless).await,
            }
        }
    }

    /// Says what is wrong with a method.
    fn broken(&self, method: &str) -> Option<Broken> {
        self.broken.lock().unwrap().as_ref().filter(|(broken, _)| broken == method).map(|(_, how)| *how)
    }

    /// Answers a request that opens no stream and is no call.
    async fn plain(&self, wire: &mut Wire, id: &str, (method, body): (&str, &str), stateless: bool) {
        let session = self.sessions.fetch_add(1, Ordering::SeqCst);
        let can = if self.rich.load(Ordering::SeqCst) { rich::ALL } else { r#"{"tools":{"listChanged":true}}"# };
        let (field, result) = match method {
            "initialize" => (
                format!("Mcp-Session-Id: s-{session}\r\n"),
                format!(
                    r#"{{"protocolVersion":"2025-11-25","capabilities":{can},"serverInfo":{{"name":"up","version":"1"}}}}"#
                ),
            ),
            "server/discover" => (
                String::new(),
                format!(
                    r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{can},"ttlMs":0,"cacheScope":"public"}}"#
                ),
            ),
            "tools/list" => (String::new(), self.listed(stateless)),
            other => (String::new(), rich::answer(other, body, stateless).expect("a method of this server")),
        };
        let text = match result.strip_prefix('!') {
            Some(error) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
            None => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        };
        json(wire, "200 OK", &field, &text).await;
    }

    /// Says whether a call lacks the header that its tool wants.
    fn refuses(&self, head: &Head, body: &str) -> bool {
        let guard = self.guard.lock().unwrap().clone();
        let guard = guard.filter(|_| body.contains(r#""name":"guarded""#));
        guard.is_some_and(|header| head.field(&format!("mcp-param-{}", header.to_lowercase())).is_none())
    }

    fn listed(&self, stateless: bool) -> String {
        let tools = self.tools.lock().unwrap();
        let tools: Vec<String> = tools
            .iter()
            .map(|tool| match tool.starts_with(r#"{"name":"#) {
                true => tool.clone(),
                false => format!(r#"{{"name":{tool},"inputSchema":{{"type":"object"}},"x":1.10}}"#),
            })
            .collect();
        let more = if stateless { r#""resultType":"complete","ttlMs":0,"cacheScope":"public","# } else { "" };
        format!(r#"{{{more}"tools":[{}]}}"#, tools.join(","))
    }

    /// Says that the tools have changed whenever they have.
    async fn tell(&self, wire: &mut Wire, meta: String) {
        let mut changed = self.changed.subscribe();
        if !wire.write(EVENTS).await {
            return;
        }
        if !meta.is_empty() {
            let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},{meta}}}"#);
            wire.write(&event(&notification("subscriptions/acknowledged", &params))).await;
        }
        self.streams.fetch_add(1, Ordering::SeqCst);
        loop {
            tokio::select! {
                () = wire.gone() => break,
                told = changed.changed() => {
                    told.unwrap();
                    if !wire.write(&event(&notification("tools/list_changed", &format!("{{{meta}}}")))).await {
                        break;
                    }
                }
            }
        }
        self.streams.fetch_sub(1, Ordering::SeqCst);
    }

    /// Answers a call; `false` if the connection is used up.
    async fn call(&self, wire: &mut Wire, id: &str, body: &str, stateless: bool) -> bool {
        let name = raw(body, "params.name").unwrap();
        let arguments = raw(body, "params.arguments").unwrap_or_else(|| "null".to_owned());
        let complete = format!(r#"{{"echo":{arguments},{ODDITIES}}}"#);
        let set = self.answers.lock().unwrap().iter().find(|(tool, _)| *tool == name).map(|(_, result)| result.clone());
        let result = match name.trim_matches('"') {
            _ if set.is_some() => set.unwrap_or_default(),
            "endless" if self.sse => return endless(wire, EVENTS, b"data: ").await,
            "endless" => return endless(wire, ENDLESS_JSON, b"{\"jsonrpc\":\"2.0\",\"x\":\"").await,
            "ask" => match raw(body, "params.requestState") {
                None => format!(
                    r#"{{"resultType":"input_required","inputRequests":{{"q":{{"method":"elicitation/create","params":{{"mode":"form","message":"?","requestedSchema":{{"type":"object","properties":{{}}}}}}}}}},"requestState":{STATE}}}"#
                ),
                Some(state) => format!(r#"{{"resultType":"complete","content":[],"state":{state}}}"#),
            },
            "links" if stateless => format!(r#"{{"resultType":"complete",{}}}"#, rich::LINKS),
            "links" => format!("{{{}}}", rich::LINKS),
            "say" if stateless => format!("{{{STATELESS_HEAD},{}", arguments.trim_start_matches('{')),
            "say" => arguments.clone(),
            "fail" => format!("!{arguments}"),
            name => {
                if name == "hold" {
                    self.gate.notified().await;
                }
                let together = self.together.lock().unwrap().clone();
                if let Some(together) = together.filter(|_| name == "together") {
                    together.wait().await;
                }
                if stateless { format!("{{{STATELESS_HEAD},{}", complete.trim_start_matches('{')) } else { complete }
            }
        };
        let answer = match result.strip_prefix('!') {
            Some(error) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
            None => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        };
        if !self.sse {
            return json(wire, "200 OK", "", &answer).await;
        }
        let mut text = EVENTS.to_vec();
        if name == "\"log\"" {
            text.extend(rich::LOGS.iter().flat_map(|log| event(&notification("message", log))));
        }
        if let Some(token) = raw(body, "params._meta.progressToken") {
            for progress in 1..=2 {
                let message = super::quoted(&arguments);
                let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{message}}}"#);
                text.extend(event(&notification("progress", &params)));
            }
        }
        text.extend(event(&answer));
        wire.write(&text).await;
        false
    }
}

/// What must survive in a result.
pub(crate) const ODDITIES: &str = r#""big":123456789012345678901234567890,"n":1.10,"e":1E+2,"s":"\ud800 \u00e9\/","none":null,"content":[{"type":"text","text":"\udfff","y":-0.0}],"isError":false"#;
/// What a stateless result begins with.
pub(crate) const STATELESS_HEAD: &str =
    r#""resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"},"a/b":1.0}"#;
/// The server's own state.
pub(crate) const STATE: &str = r#""st\u00e9 \ud83d\ude00 \"q\" \/ 1.10""#;

const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
const ENDLESS_JSON: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";

async fn endless(wire: &mut Wire, head: &[u8], start: &[u8]) -> bool {
    wire.write(&[head, start].concat()).await;
    let block = vec![b'x'; 64 << 10];
    while wire.write(&block).await {}
    false
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#)
}

fn event(message: &str) -> Vec<u8> {
    format!("data: {message}\n\n").into_bytes()
}

async fn json(wire: &mut Wire, status: &str, fields: &str, body: &str) -> bool {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    wire.write(text.as_bytes()).await
}
