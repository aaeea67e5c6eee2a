//! A hall that does what a tool's name says, and a client that shows bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, broadcast, mpsc};

use crate::clock::Clock;
use crate::downstream::{Downstream, DownstreamSettings};
use crate::exchange::{
    Answer, Call, Caller, Discovery, Endpoint, Event, Exchange, Handler, Handling, ListPage, Listen, OwnerKey,
    ReasonCode, Reject, RejectKind, Reply, Retry, Seen, Unseen, WatchEvent, Watching,
};
use crate::id::PrincipalId;
use crate::identity::Credential;
use crate::limit::Permit;
use crate::net::{Listener, Slots};
use crate::runtime::{Drain, Tasks};
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Capabilities, Era, Kind, Kinds, LogMessage};

pub(super) const LEGACY: &str = "Host: localhost\r\nx-api-key: alice\r\nContent-Type: application/json\r\n";

/// What the hall has noticed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// A call began.
    Began(String),
    /// A call's future or stream was dropped, or ended.
    Gone(String),
}

/// Endpoint, owner, `Mcp-Param-*` and tool of an exchange.
type Facts = (Endpoint, OwnerKey, Option<Vec<(String, String)>>, String);

pub(super) struct Hall {
    noticed: mpsc::Sender<Noticed>,
    /// Opens the tool `gate`.
    pub(super) gate: Arc<Notify>,
    /// Tells all listeners of a change.
    pub(super) changes: broadcast::Sender<()>,
    /// Whether anybody may call anything.
    pub(super) open: AtomicBool,
    /// Ends a stream of changes, as when a reload takes away what it lived by.
    pub(super) lost: Arc<Notify>,
    /// What the last client watches that has asked to, or listens.
    pub(super) watched: Mutex<Watching>,
    /// The facts of the last exchange.
    pub(super) last: Mutex<Option<Facts>>,
}

/// What the hall says it can do.
const CAN: Capabilities = Capabilities {
    lists: Kinds::NONE.with(Kind::Tools).with(Kind::Prompts),
    tells: Kinds::NONE.with(Kind::Tools),
    subscribe: false,
    completions: true,
    logging: false,
};
/// The same, as a client reads it.
pub(super) fn can() -> Value {
    json!({"completions": {}, "prompts": {}, "tools": {"listChanged": true}})
}

#[derive(Clone)]
pub(super) struct Guest(PrincipalId, bool);

struct Witness(String, mpsc::Sender<Noticed>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.1.try_send(Noticed::Gone(self.0.clone())).unwrap_or_default();
    }
}

impl Caller for Guest {
    fn principal(&self) -> &PrincipalId {
        &self.0
    }

    fn is_one_of_many(&self) -> bool {
        true
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::All => true,
            Endpoint::Server(name) => name.as_str() == "s",
        }
    }

    fn capabilities(&self, _: &Endpoint) -> Capabilities {
        CAN
    }

    fn may_call(&self, _: &Endpoint, _: Kind, _: &str) -> bool {
        self.1
    }

    fn seen(&self, _: &Endpoint) -> Seen {
        Seen([1; 4])
    }
}

pub(super) const KINDS: [(&str, RejectKind, u16, i64); 9] = [
    ("r-params", RejectKind::InvalidParams, 200, -32602),
    ("r-header", RejectKind::HeaderMismatch, 400, -32020),
    ("r-draining", RejectKind::Draining, 503, -31003),
    ("r-limit", RejectKind::Limit, 200, -31000),
    ("r-many", RejectKind::TooMany, 503, -31002),
    ("r-unknown", RejectKind::Unknown, 200, -32602),
    ("r-upstream", RejectKind::Upstream, 200, -32603),
    ("r-timeout", RejectKind::UpstreamTimeout, 200, -32603),
    ("r-method", RejectKind::MethodNotFound, 404, -32601),
];

fn answered(result: &str) -> Event {
    let response = Box::new(Response::with_result(&RequestId::number(99), result.as_bytes()));
    Event::Done(Ok(Answer::Upstream { response, era: Era::Legacy }))
}

fn note(method: &str, params: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#))
}

impl Handler for Hall {
    type Caller = Guest;

    fn identify(&self, credential: &Credential<'_>) -> Result<Guest, Reject> {
        let reject = |kind| Err(Reject::client(kind, "No", ReasonCode::Unauthenticated));
        match credential {
            Credential::ApiKey(key) if key.expose() == "nobody" => reject(RejectKind::NotMapped),
            Credential::ApiKey(key) => Ok(Guest(PrincipalId::new(key.expose()), self.open.load(Ordering::Relaxed))),
            Credential::Local(principal) => Ok(Guest(principal.clone(), true)),
            Credential::Malformed | Credential::None => reject(RejectKind::Unauthenticated),
        }
    }

    fn renewed(&self, caller: Guest) -> Guest {
        caller
    }

    fn check(
        self: &Arc<Self>,
        _: Guest,
        _: Exchange,
    ) -> impl Future<Output = Result<Option<Permit>, Reject>> + Send + 'static {
        std::future::ready(Ok(None))
    }

    /// Who is called `busy` has asked too often.
    fn admit(&self, caller: &Guest) -> Result<(), Reject> {
        if caller.0.as_str() != "busy" {
            return Ok(());
        }
        let reject = Reject::client(RejectKind::Busy, "Too often", ReasonCode::RateLimited);
        Err(Reject { retry: Retry::After(Duration::from_millis(2_500)), ..reject })
    }

    fn admit_end(&self, _: &Guest) -> Result<(), Reject> {
        Ok(())
    }

    fn call(self: &Arc<Self>, _: Guest, exchange: Exchange) -> Handling {
        let hall = Arc::clone(self);
        Box::pin(async move {
            let name = match &exchange.call {
                Call::Discover => {
                    let instructions = Some("Be \"kind\"".to_owned());
                    return Reply::once(Ok(Answer::Discovery(Discovery { instructions, capabilities: CAN })));
                }
                Call::List { kind, cursor, .. } => {
                    let items = Bytes::from_static(br#"[{"name":"a","inputSchema":{}}]"#);
                    let page = ListPage { kind: *kind, items, next_cursor: cursor.clone(), ttl_ms: 0, private: true };
                    return Reply::once(Ok(Answer::Page(page)));
                }
                Call::Listen(listen) => {
                    *hall.watched.lock().unwrap() = listen.watching.clone();
                    "listen".to_owned()
                }
                Call::Watch { uri, .. } if uri == "hidden" => {
                    return Reply::once(Err(Reject::client(RejectKind::InvalidParams, "No", ReasonCode::Unknown)));
                }
                Call::Watch { uri, watching } => {
                    watching.begin(uri).unwrap();
                    *hall.watched.lock().unwrap() = watching.clone();
                    return Reply::once(Ok(Answer::Ended));
                }
                Call::ToServer(call) => call.params.name.clone(),
            };
            let headers = match &exchange.call {
                Call::ToServer(call) => call.param_headers.clone(),
                Call::Discover | Call::Listen(_) | Call::List { .. } | Call::Watch { .. } => None,
            };
            let resources = match exchange.call {
                Call::Listen(listen) => Some(listen).filter(|listen| !listen.resources.is_empty()),
                Call::Discover | Call::List { .. } | Call::ToServer(_) | Call::Watch { .. } => None,
            };
            let facts = (exchange.endpoint, exchange.owner.key, headers, name.clone());
            *hall.last.lock().unwrap() = Some(facts);
            // The receiver lives until the changes are subscribed to: what is sent after `Began` is heard.
            let changes = hall.changes.subscribe();
            hall.noticed.try_send(Noticed::Began(name.clone())).unwrap();
            let witness = Witness(name.clone(), hall.noticed.clone());
            let reply = match resources {
                Some(listen) => listen_to(listen),
                None => hall.play(&name, changes).await,
            };
            reply.with_guard(witness)
        })
    }
}

/// More than any socket takes at once.
fn large() -> Reply {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let rest = futures_util::stream::iter((0..512).map(move |_| Ok(piece.clone())));
    let head = vec![Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}"#)];
    Reply::once(Ok(Answer::Unseen(Box::new(Unseen { head, length: None, rest: Box::pin(rest) }))))
}

fn no_room() -> Reject {
    let reject = Reject::client(RejectKind::Busy, "No room", ReasonCode::TooManyCalls);
    Reject { retry: Retry::After(Duration::from_secs(1)), ..reject }
}

/// Says that tools or watched resources have changed.
fn changing(changes: broadcast::Receiver<()>, watching: Watching, lost: Arc<Notify>) -> Reply {
    Reply::events(Box::pin(futures_util::stream::unfold((changes, watching), move |(mut changes, watching)| {
        let lost = Arc::clone(&lost);
        async move {
            loop {
                if let Some(uri) = watching.next_updated() {
                    return Some((Event::Watch(WatchEvent::Updated(uri)), (changes, watching)));
                }
                tokio::select! {
                    change = changes.recv() => {
                        return change.ok().map(|()| (Event::Changed(Kind::Tools), (changes, watching)));
                    }
                    () = watching.news() => {}
                    () = lost.notified() => return Some((Event::Done(Ok(Answer::Ended)), (changes, watching))),
                }
            }
        }
    })))
}

/// Says which resources are listened to, and then which have changed.
fn listen_to(listen: Listen) -> Reply {
    let honoured: Vec<String> = listen.resources.iter().filter(|uri| *uri != "hidden").cloned().collect();
    honoured.iter().for_each(|uri| assert!(listen.watching.begin(uri).unwrap()));
    let first = Event::Watch(WatchEvent::Honoured { kinds: listen.kinds, resources: honoured });
    let rest = futures_util::stream::unfold(listen.watching, |watching| async move {
        loop {
            if let Some(uri) = watching.next_updated() {
                return Some((Event::Watch(WatchEvent::Updated(uri)), watching));
            }
            watching.news().await;
        }
    });
    Reply::events(Box::pin(futures_util::stream::iter([first]).chain(rest)))
}

impl Hall {
    async fn play(&self, name: &str, changes: broadcast::Receiver<()>) -> Reply {
        if let Some((_, kind, ..)) = KINDS.iter().find(|(kind, ..)| *kind == name) {
            return Reply::once(Err(Reject::client(*kind, "No", ReasonCode::BadRequest)));
        }
        if let Some(code) = name.strip_prefix("code") {
            let response =
                Response::with_error(None, format!(r#"{{"code":{code},"message":"m","data":{{}}}}"#).as_bytes());
            return Reply::once(Ok(Answer::Upstream { response: Box::new(response), era: Era::Stateless }));
        }
        match name {
            "listen" => changing(changes, self.watched.lock().unwrap().clone(), Arc::clone(&self.lost)),
            "large" => large(),
            "no-room" => Reply::once(Err(no_room())),
            "hang" => std::future::pending().await,
            "panic" => panic!("a tool that panics the hall"),
            "pretty" => {
                let Event::Done(outcome) = answered("{\r\n  \"content\": [],\n  \"text\": \"a\\nb\"\n}") else {
                    panic!()
                };
                Reply::once(outcome)
            }
            "unseen" | "torn" => {
                let piece = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
                let end = match name {
                    "torn" => Err(Reject::upstream(RejectKind::Upstream, "torn", "")),
                    _ => piece("\n\"x\"]}}"),
                };
                let rest = Box::pin(futures_util::stream::iter([piece("\"content\":["), end]));
                let head = vec![Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"#)];
                Reply::once(Ok(Answer::Unseen(Box::new(Unseen { head, length: None, rest }))))
            }
            "gate" => {
                self.gate.notified().await;
                let Event::Done(outcome) = answered(r#"{"content":[]}"#) else { panic!() };
                Reply::once(outcome)
            }
            "gate-large" => {
                self.gate.notified().await;
                let Event::Done(outcome) = answered(&format!(r#"{{"content":[],"text":"{}"}}"#, "x".repeat(300)))
                else {
                    panic!()
                };
                Reply::once(outcome)
            }
            "chatty" | "pauses" => {
                let gate = Arc::clone(&self.gate);
                let before = if name == "pauses" { vec![Event::Paused] } else { chatter() };
                let done = futures_util::stream::once(async move {
                    gate.notified().await;
                    answered(r#"{"content":[]}"#)
                });
                Reply::events(Box::pin(futures_util::stream::iter(before).chain(done)))
            }
            _ => {
                let Event::Done(outcome) =
                    answered(r#"{"content":[],"structuredContent":{"big":12345678901234567890}}"#)
                else {
                    panic!()
                };
                Reply::once(outcome)
            }
        }
    }
}

fn chatter() -> Vec<Event> {
    vec![
        Event::Log(LogMessage::text(note("message", r#"{"level":"debug","data":1}"#))),
        Event::Progress(note("progress", r#"{"progressToken":"p","progress":1}"#)),
        Event::Log(LogMessage::text(note("message", r#"{"level":"error","data":"a\nb"}"#))),
    ]
}

/// A door that is open.
pub(super) struct House {
    pub(super) hall: Arc<Hall>,
    pub(super) noticed: mpsc::Receiver<Noticed>,
    pub(super) door: Downstream<Hall>,
    pub(super) address: SocketAddr,
    pub(super) drain: Drain,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
}

impl House {
    pub(super) fn open() -> Self {
        Self::with(DownstreamSettings::default())
    }

    pub(super) fn with(settings: DownstreamSettings) -> Self {
        let (sender, noticed) = mpsc::channel(256);
        let (changes, _) = broadcast::channel(16);
        let (gate, open, last) = (Arc::default(), AtomicBool::new(true), Mutex::default());
        let watched = Mutex::default();
        let hall = Arc::new(Hall { noticed: sender, gate, changes, open, lost: Arc::default(), watched, last });
        let (tasks, drain, clock) = (Tasks::new(), Drain::new(), Clock::manual());
        let door = Downstream::new(settings, Arc::clone(&hall), tasks.clone(), drain.clone(), clock.clone());
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(64)).unwrap();
        let address = listener.address().unwrap();
        let serving = door.clone();
        tasks.spawn("accept", async move { serving.serve(listener).await });
        Self { hall, noticed, door, address, drain, clock, tasks }
    }

    pub(super) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), seen: Vec::new() }
    }

    /// One request on a connection of its own.
    pub(super) async fn ask(&self, verb: &str, path: &str, headers: &str, body: &str) -> Got {
        self.connect().await.ask(verb, path, headers, body).await
    }

    /// One POST to `/mcp` with these headers.
    pub(super) async fn post(&self, headers: &str, body: &str) -> Got {
        self.ask("POST", "/mcp", headers, body).await
    }

    /// Opens a legacy session; returns the headers that go with it.
    pub(super) async fn session(&self, version: &str) -> String {
        let got = self.post(LEGACY, &initialize(&format!("\"{version}\""))).await;
        assert_eq!(got.status, 200, "{got:?}");
        format!("{LEGACY}Mcp-Session-Id: {}\r\n", got.header("mcp-session-id").unwrap())
    }

    pub(super) async fn expect(&mut self, noticed: Noticed) {
        assert_eq!(self.noticed.recv().await.unwrap(), noticed);
    }

    pub(super) async fn began(&mut self, name: &str) {
        self.expect(Noticed::Began(name.to_owned())).await;
    }

    pub(super) async fn gone(&mut self, name: &str) {
        self.expect(Noticed::Gone(name.to_owned())).await;
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

pub(super) fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":{version},"capabilities":{{}},"clientInfo":{{"name":"c"}}}}}}"#
    )
}

pub(super) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The headers of a stateless request.
pub(super) fn modern(method: &str, name: Option<&str>) -> String {
    let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    format!("{LEGACY}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}")
}

/// The body of a stateless call.
pub(super) fn call(id: &str, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{META},"name":"{tool}"}}}}"#)
}

/// The body of a legacy call.
pub(super) fn legacy_call(id: &str, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

/// A response.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|err| panic!("{err}: {self:?}"))
    }

    /// The status and the error's code.
    pub(super) fn code(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap_or_default())
    }

    /// The messages of an event stream that has ended.
    pub(super) fn events(&self) -> Vec<Value> {
        let blocks = self.body.split("\n\n").filter(|block| block.starts_with("event: message\n"));
        let data =
            |block: &str| block.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>().join("\n");
        blocks.map(data).filter(|data| !data.is_empty()).map(|data| serde_json::from_str(&data).unwrap()).collect()
    }
}

/// A connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    seen: Vec<u8>,
}

impl Client {
    pub(super) async fn send(&mut self, verb: &str, path: &str, headers: &str, body: &str) {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.raw(&format!("{verb} {path} HTTP/1.1\r\n{headers}{length}\r\n{body}")).await;
    }

    pub(super) async fn raw(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(super) async fn ask(&mut self, verb: &str, path: &str, headers: &str, body: &str) -> Got {
        self.send(verb, path, headers, body).await;
        self.response().await
    }

    pub(super) async fn response(&mut self) -> Got {
        let (status, headers) = self.head().await;
        let mut got = Got { status, headers, body: String::new() };
        if let Some(length) = got.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            while self.seen.len() < length {
                assert!(self.more().await, "cut off: {got:?}");
            }
            got.body = String::from_utf8(self.seen.drain(..length).collect()).unwrap();
        } else if got.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                got.body.push_str(&chunk);
            }
        }
        got
    }

    pub(super) async fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let head = self.until(b"\r\n\r\n").await;
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.filter_map(|line| line.split_once(": "));
        (status, fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect())
    }

    /// The next chunk of a chunked body, `None` at its end.
    pub(super) async fn chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n").await;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        while self.seen.len() < size + 2 {
            assert!(self.more().await, "cut off in a chunk");
        }
        let chunk: Vec<u8> = self.seen.drain(..size + 2).take(size).collect();
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// Says whether the peer has closed.
    pub(super) async fn closed(&mut self) -> bool {
        self.seen.is_empty() && !self.more().await
    }

    async fn until(&mut self, mark: &[u8]) -> String {
        loop {
            if let Some(at) = self.seen.windows(mark.len()).position(|window| window == mark) {
                return String::from_utf8(self.seen.drain(..at + mark.len()).collect()).unwrap();
            }
            assert!(self.more().await, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.seen).await.unwrap_or(0) > 0
    }
}
