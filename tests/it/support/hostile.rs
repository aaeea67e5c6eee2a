//! Servers that do harm, byte by byte, over every transport, and the siege in which a gateway bears them.
//!
//! A server is the same script over stdio (`hostile.py`) and over HTTP (here): what it does to a call is a list of steps,
//! chosen by the call's argument `how`. In each siege one gateway, as a process, stands before all of them and before one
//! good server, whose calls must go on.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis::runtime::Tasks;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::client::{Answer, Client};
use super::process::{Gateway, folder, lives, peak_memory_kib, until, within_deadline};
use super::upstream::{Speaks, Upstream};
use super::wire::{Wire, raw};
use super::{Era, quoted};

/// How long a call of the good server may be under way in a siege.
const GOOD_CALLS: usize = 3;

/// What a server does next. In texts, `@ID@` is the request's id, `@TOKEN@` its progress token, `@GOOD@` the answer it should
/// have, and `@N@` the number of a repetition.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes a text.
    Say(String),
    /// Writes a text so often.
    Number(String, usize),
    /// Writes a text until the peer has gone.
    Forever(String),
    /// Writes a text byte by byte, with a pause of so many milliseconds behind each.
    Slow(String, u64),
    /// Writes that many bytes of the whole good answer, and ends: the process, or the connection.
    Cut(usize),
    /// Reads and writes nothing more.
    Hold,
    /// Writes a text to stderr so often; on a pipe alone.
    Stderr(String, usize),
    /// Starts so many children, each with two of its own; on a pipe alone.
    Fork(usize),
    /// Ends by neither the end of its input nor TERM; on a pipe alone.
    Stubborn,
}

/// How messages are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Lines on a pipe.
    Line,
    /// One JSON body.
    Json,
    /// An event stream.
    Sse,
    /// The one event stream of a session of HTTP+SSE, which its requests share.
    Events,
}

/// A hostile server.
pub(crate) struct Hostile {
    pub(crate) framing: Framing,
    pub(crate) era: Era,
    /// Its name in the configuration.
    pub(crate) name: String,
    facts: Mutex<Facts>,
    folder: PathBuf,
    http: Option<Http>,
}

#[derive(Clone, Default)]
struct Facts {
    calls: BTreeMap<String, Vec<Step>>,
    lists: Option<Vec<Step>>,
    changes: usize,
}

struct Http {
    addr: SocketAddr,
    state: Arc<HttpState>,
    tasks: Tasks,
}

struct HttpState {
    framing: Framing,
    era: Era,
    facts: Mutex<Facts>,
    /// The requests of tools/call, and those of hostile lists.
    calls: AtomicUsize,
    lists: AtomicUsize,
    changes: tokio::sync::Notify,
    /// The answers to what it asked.
    told: Mutex<Vec<String>>,
    /// What is to be said on the stream of each session of HTTP+SSE.
    sessions: Mutex<HashMap<String, mpsc::Sender<Job>>>,
}

/// What a request meets, on the stream of its session.
struct Job {
    steps: Vec<Step>,
    id: String,
    body: String,
}

/// A gateway under siege.
pub(crate) struct Siege {
    pub(crate) gateway: Gateway,
    pub(crate) bad: Vec<Hostile>,
    pub(crate) client: Client,
    good: Upstream,
    mark: String,
    processes: usize,
    descriptors: usize,
    tasks: Tasks,
}

// === impl Step ===

impl Step {
    /// Writes a text.
    pub(crate) fn say(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }

    fn json(&self) -> Value {
        match self {
            Self::Say(text) => json!(["say", text]),
            Self::Number(text, count) => json!(["number", text, count]),
            Self::Forever(text) => json!(["forever", text]),
            Self::Slow(text, pause) => json!(["slow", text, pause]),
            Self::Cut(bytes) => json!(["cut", bytes]),
            Self::Hold => json!(["hold"]),
            Self::Stderr(text, count) => json!(["stderr", text, count]),
            Self::Fork(count) => json!(["fork", count]),
            Self::Stubborn => json!(["stubborn"]),
        }
    }
}

// === impl Framing ===

impl Framing {
    /// What stands before the first message.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            Self::Line | Self::Events => "",
            Self::Json => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
            Self::Sse => "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
        }
    }

    /// What stands around each message.
    pub(crate) const fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::Line => ("", "\n"),
            Self::Json => ("", ""),
            Self::Sse | Self::Events => ("data: ", "\n\n"),
        }
    }

    /// Frames a message.
    pub(crate) fn message(self, text: &str) -> String {
        let (before, after) = self.around();
        format!("{before}{text}{after}")
    }

    /// Says whether requests share it: what ends one does not end it.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Line | Self::Events)
    }

    /// Says whether it carries more than the answer.
    pub(crate) const fn carries_more(self) -> bool {
        !matches!(self, Self::Json)
    }
}

// === impl Hostile ===

impl Hostile {
    async fn start(framing: Framing, era: Era) -> Self {
        let name = format!("{framing:?}-{}", era.word()).to_lowercase();
        let http = if framing == Framing::Line { None } else { Some(Http::start(framing, era).await) };
        let hostile = Self { framing, era, name, facts: Mutex::default(), folder: folder(), http };
        hostile.put(Facts::default());
        hostile
    }

    fn put(&self, facts: Facts) {
        let steps = |steps: &Vec<Step>| steps.iter().map(Step::json).collect::<Vec<_>>();
        let calls: BTreeMap<_, _> = facts.calls.iter().map(|(how, all)| (how, steps(all))).collect();
        let text = json!({ "calls": calls, "lists": facts.lists.as_ref().map(steps), "tools": ["attack"], "changes": facts.changes });
        let text = text.to_string();
        // Replaced whole, because the child may read at any moment.
        std::fs::write(self.folder.join("new"), text).unwrap();
        std::fs::rename(self.folder.join("new"), self.folder.join("facts")).unwrap();
        if let Some(http) = &self.http {
            *http.state.facts.lock().unwrap() = facts.clone();
        }
        *self.facts.lock().unwrap() = facts;
    }

    /// Sets what a call with this `how` meets.
    pub(crate) fn meets(&self, how: &str, steps: Vec<Step>) {
        let mut facts = self.facts.lock().unwrap().clone();
        facts.calls.insert(how.to_owned(), steps);
        self.put(facts);
    }

    /// Sets what a list meets, `None` being a good one, and says that the list has changed.
    pub(crate) fn lists(&self, steps: Option<Vec<Step>>) {
        let mut facts = self.facts.lock().unwrap().clone();
        (facts.lists, facts.changes) = (steps, facts.changes + 1);
        self.put(facts);
        if let Some(http) = &self.http {
            http.state.changes.notify_one();
        }
    }

    /// How many calls it has read; of servers over HTTP.
    pub(crate) fn calls(&self) -> usize {
        self.http.as_ref().map_or(0, |http| http.state.calls.load(Ordering::SeqCst))
    }

    /// How many of its hostile lists have been asked for.
    pub(crate) fn listed(&self) -> usize {
        match &self.http {
            Some(http) => http.state.lists.load(Ordering::SeqCst),
            None => std::fs::read(self.folder.join("facts.lists")).unwrap_or_default().len(),
        }
    }

    /// The answers to what it asked.
    pub(crate) fn told(&self) -> Vec<String> {
        match &self.http {
            Some(http) => http.state.told.lock().unwrap().clone(),
            None => {
                let told = std::fs::read_to_string(self.folder.join("facts.told")).unwrap_or_default();
                told.lines().map(str::to_owned).collect()
            }
        }
    }

    fn lines(&self, mark: &str) -> String {
        match &self.http {
            Some(http) => format!("url = \"http://{}/mcp\"", http.addr),
            None => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/hostile.py");
                let facts = self.folder.join("facts").display().to_string();
                let args = [script.display().to_string(), self.era.word().to_owned(), facts].map(|arg| quoted(&arg));
                format!("command = \"python3\"\nargs = [{}]\nenv = {{ SIEGE = \"{mark}\" }}", args.join(", "))
            }
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

// === impl Http ===

impl Http {
    async fn start(framing: Framing, era: Era) -> Self {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(HttpState {
            framing,
            era,
            facts: Mutex::default(),
            calls: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            changes: tokio::sync::Notify::new(),
            told: Mutex::default(),
            sessions: Mutex::default(),
        });
        let (all, shared) = (tasks.clone(), Arc::clone(&state));
        tasks.spawn("hostile server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = Arc::clone(&shared);
                all.spawn("hostile connection", async move { serving.serve(Wire::new(stream)).await });
            }
        });
        Self { addr, state, tasks }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// An answer with its length, after which the connection can be used again.
fn whole(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

impl HttpState {
    fn answer(&self, id: &str, result: &str) -> String {
        let head =
            if self.era == Era::Stateless { r#""resultType":"complete","ttlMs":0,"cacheScope":"public","# } else { "" };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{head}{result}}}}}"#)
    }

    async fn serve(self: Arc<Self>, mut wire: Wire) {
        if self.framing == Framing::Events {
            return self.serve_two_urls(wire).await;
        }
        while let Some(head) = wire.head().await {
            // A call may meet somebody who does not read it.
            let body = wire.body(head.rest(true)).await;
            if head.line.starts_with("GET") {
                return self.tell(&mut wire, "").await;
            }
            let Some(id) = raw(&body, "id") else {
                wire.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
                continue;
            };
            let Some(method) = raw(&body, "method") else {
                self.told.lock().unwrap().push(body);
                wire.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
                continue;
            };
            let stateless = body.contains("io.modelcontextprotocol/protocolVersion");
            if stateless != (self.era == Era::Stateless) {
                let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#);
                wire.write(whole(&error).replace("200 OK", "400 Bad Request").as_bytes()).await;
                continue;
            }
            let facts = self.facts.lock().unwrap().clone();
            let method = method.trim_matches('"');
            if method == "subscriptions/listen" {
                return self.tell(&mut wire, &id).await;
            }
            if let Some(steps) = self.met(&facts, method, &body) {
                self.run(&mut wire, &steps, &id, &body).await;
                return;
            }
            if !wire.write(whole(&self.answer(&id, good(method))).as_bytes()).await {
                return;
            }
        }
    }

    /// What a request meets, if it is no good answer; it is counted.
    fn met(&self, facts: &Facts, method: &str, body: &str) -> Option<Vec<Step>> {
        match method {
            "tools/list" => {
                let steps = facts.lists.clone()?;
                self.lists.fetch_add(1, Ordering::SeqCst);
                Some(steps)
            }
            "tools/call" => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                let how = raw(body, "params.arguments.how").unwrap_or_default();
                facts.calls.get(how.trim_matches('"')).cloned()
            }
            _ => None,
        }
    }

    /// Serves HTTP+SSE: what a request meets happens on the stream of its session.
    async fn serve_two_urls(&self, mut wire: Wire) {
        while let Some(head) = wire.head().await {
            let body = wire.body(head.rest(true)).await;
            if head.line.starts_with("GET") {
                return self.speak(&mut wire).await;
            }
            let session = head.line.split(' ').nth(1).and_then(|path| path.strip_prefix("/say?s="));
            let session = session.and_then(|session| self.sessions.lock().unwrap().get(session).cloned());
            let status = if session.is_some() { "202 Accepted" } else { "405 Method Not Allowed" };
            wire.write(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            let (Some(session), Some(id)) = (session, raw(&body, "id")) else { continue };
            let Some(method) = raw(&body, "method") else {
                self.told.lock().unwrap().push(body);
                continue;
            };
            let method = method.trim_matches('"');
            let facts = self.facts.lock().unwrap().clone();
            let steps = self
                .met(&facts, method, &body)
                .unwrap_or_else(|| vec![Step::Say(self.framing.message(&self.answer(&id, good(method))))]);
            // The session may be over.
            let _over = session.try_send(Job { steps, id, body }).is_err();
        }
    }

    /// Keeps the stream of a session.
    async fn speak(&self, wire: &mut Wire) {
        static SESSIONS: AtomicUsize = AtomicUsize::new(0);
        let (session, mut jobs) = mpsc::channel(1024);
        let number = SESSIONS.fetch_add(1, Ordering::SeqCst).to_string();
        self.sessions.lock().unwrap().insert(number.clone(), session);
        let begin = Framing::Sse.begin();
        wire.write(format!("{begin}event: endpoint\ndata: /say?s={number}\n\n").as_bytes()).await;
        loop {
            let goes_on = tokio::select! {
                () = wire.gone() => false,
                Some(Job { steps, id, body }) = jobs.recv() => self.run(wire, &steps, &id, &body).await,
                () = self.changes.notified() => {
                    let text = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
                    wire.write(self.framing.message(text).as_bytes()).await
                }
            };
            if !goes_on {
                self.sessions.lock().unwrap().remove(&number);
                return;
            }
        }
    }

    /// Keeps a stream on which list changes are told.
    async fn tell(&self, wire: &mut Wire, id: &str) {
        let meta = if id.is_empty() {
            String::new()
        } else {
            format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#)
        };
        let said = |method: &str, params: &str| {
            Framing::Sse
                .message(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}}"#))
        };
        let mut text = Framing::Sse.begin().to_owned();
        if !id.is_empty() {
            text +=
                &said("subscriptions/acknowledged", &format!(r#""notifications":{{"toolsListChanged":true}},{meta}"#));
        }
        if !wire.write(text.as_bytes()).await {
            return;
        }
        loop {
            tokio::select! {
                () = wire.gone() => return,
                () = self.changes.notified() => {
                    if !wire.write(said("tools/list_changed", &meta).as_bytes()).await {
                        return;
                    }
                }
            }
        }
    }

    /// Does what the steps say; `false` if they end the connection. One that is no shared stream is used up in any case.
    async fn run(&self, wire: &mut Wire, steps: &[Step], id: &str, body: &str) -> bool {
        let token = raw(body, "params._meta.progressToken").unwrap_or_else(|| "null".to_owned());
        let good = self.answer(id, r#""content":[{"type":"text","text":"ok"}]"#);
        let filled = |text: &str| text.replace("@ID@", id).replace("@TOKEN@", &token).replace("@GOOD@", &good);
        for step in steps {
            let goes_on = match step {
                Step::Say(text) => wire.write(filled(text).as_bytes()).await,
                Step::Number(text, count) => {
                    let text = filled(text);
                    let mut goes_on = true;
                    let mut at = 0;
                    while goes_on && at < *count {
                        let end = (at + 1000).min(*count);
                        let part: String = (at..end).map(|at| text.replace("@N@", &at.to_string())).collect();
                        goes_on = wire.write(part.as_bytes()).await;
                        at = end;
                    }
                    goes_on
                }
                Step::Forever(text) => {
                    let text = filled(text);
                    let text = text.repeat((65536 / text.len()).max(1));
                    while wire.write(text.as_bytes()).await {}
                    false
                }
                Step::Slow(text, pause) => {
                    let mut goes_on = true;
                    for byte in filled(text).as_bytes() {
                        goes_on = goes_on && wire.write(&[*byte]).await;
                        tokio::time::sleep(Duration::from_millis(*pause)).await;
                    }
                    goes_on
                }
                Step::Cut(bytes) => {
                    let text = match self.framing {
                        Framing::Sse => format!("{}{}", Framing::Sse.begin(), Framing::Sse.message(&good)),
                        Framing::Events => self.framing.message(&good),
                        Framing::Json | Framing::Line => whole(&good),
                    };
                    wire.write(text.as_bytes().get(..*bytes).unwrap_or(text.as_bytes())).await;
                    false
                }
                Step::Hold => {
                    wire.gone().await;
                    false
                }
                Step::Stderr(..) | Step::Fork(_) | Step::Stubborn => panic!("{step:?} is for pipes"),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }
}

/// The good result of a request.
fn good(method: &str) -> &'static str {
    match method {
        "initialize" => {
            r#""protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"bad","version":"1"}"#
        }
        "server/discover" => r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}"#,
        "tools/list" => r#""tools":[{"name":"attack","inputSchema":{"type":"object"}}]"#,
        "tools/call" => r#""content":[{"type":"text","text":"ok"}]"#,
        _ => "",
    }
}

// === impl Siege ===

impl Siege {
    /// Starts a gateway before hostile servers of these framings, in their eras, and a good one; `lines` stand in the table of
    /// each hostile one.
    pub(crate) async fn begin(framings: &[Framing], lines: &str) -> Self {
        Self::begin_with(framings, lines, "").await
    }

    /// The same with tables of the configuration beside the servers'.
    pub(crate) async fn begin_with(framings: &[Framing], lines: &str, tables: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
        let mut bad = Vec::new();
        for framing in framings {
            // HTTP+SSE has the older era alone.
            let eras: &[Era] = if *framing == Framing::Events { &[Era::Legacy] } else { &super::ERAS };
            for era in eras.iter().copied() {
                bad.push(Hostile::start(*framing, era).await);
            }
        }
        let mut servers = vec![("good".to_owned(), good.lines())];
        servers.extend(bad.iter().map(|one| (one.name.clone(), format!("{lines}\n{}", one.lines(&mark)))));
        servers.last_mut().expect("a server").1.push_str(&format!("\n{tables}"));
        let servers: Vec<(&str, String)> = servers.iter().map(|(name, lines)| (name.as_str(), lines.clone())).collect();
        let (mut gateway, tasks) = (Gateway::start(&servers).await, Tasks::new());
        gateway.overhear(&tasks);
        let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", None).await;
        let mut siege = Self { gateway, bad, client, good, mark, processes: 0, descriptors: 0, tasks };
        for one in &siege.bad {
            siege.recovers(one).await;
        }
        assert!(siege.client.call_with("good__echo", "{}").await.is_result());
        // A child that was opened for a list gives way to the caller's own.
        let children = siege.bad.iter().filter(|one| one.framing == Framing::Line).count();
        until("each has one child", || siege.marked().len() == children).await;
        siege.processes = children;
        siege.descriptors = siege.descriptors();
        siege
    }

    /// Calls a hostile server once, with this `how`; meanwhile calls of the good one are answered. The answer is one.
    pub(crate) async fn call(&self, bad: &Hostile, how: &str) -> Answer {
        self.calls(bad, how, "").await
    }

    /// The same with more arguments, each with a comma before it.
    pub(crate) async fn calls(&self, bad: &Hostile, how: &str, more: &str) -> Answer {
        self.calls_as(&self.client, bad, how, more).await
    }

    /// The same by another client.
    pub(crate) async fn calls_as(&self, client: &Client, bad: &Hostile, how: &str, more: &str) -> Answer {
        let over = AtomicBool::new(false);
        let what = format!("{} {how}", bad.name);
        let calling = async {
            let members = format!(r#""arguments":{{"how":{}{more}}}"#, quoted(how));
            let meta = r#""progressToken":"p""#;
            let answer = client.call("\"h\"", &format!("{}__attack", bad.name), meta, &members).await;
            over.store(true, Ordering::SeqCst);
            answer
        };
        let mut good = 0;
        let beside = async {
            while !over.load(Ordering::SeqCst) || good < GOOD_CALLS {
                let answer = self.client.call_with("good__echo", r#"{"k":1.10}"#).await;
                assert_eq!(answer.raw("result.echo"), r#"{"k":1.10}"#, "{what}: the good server is hurt");
                good += 1;
            }
        };
        let (answer, ()) = within_deadline(&what, futures_util::future::join(calling, beside)).await;
        let about = |message: &&String| raw(message, "id").as_deref() == Some("\"h\"");
        assert_eq!(answer.messages.iter().filter(about).count(), 1, "{what}: {:.2000?}", answer.messages);
        assert_eq!(raw(answer.text(), "id").as_deref(), Some("\"h\""), "{what}: something came after the answer");
        assert!(lives(self.gateway.pid()), "{what}: the gateway is gone");
        answer
    }

    /// Waits until a hostile server answers a plain call again.
    pub(crate) async fn recovers(&self, bad: &Hostile) {
        let name = format!("{}__attack", bad.name);
        let again = async {
            loop {
                let answer = self.client.call_with(&name, "{}").await;
                if answer.is_result() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within_deadline(&format!("{name} recovers"), again).await;
    }

    /// Ends the siege: processes and descriptors come back to what they were, and the gateway has never held more than so
    /// many MiB; it ends in order and leaves nothing.
    pub(crate) async fn end(self, mib: u64) {
        for one in &self.bad {
            self.recovers(one).await;
        }
        self.end_unrecovered(mib).await;
    }

    /// The same where a server never answers again.
    pub(crate) async fn end_unrecovered(mut self, mib: u64) {
        self.settles(mib).await;
        self.gateway.terminate();
        let mark = std::mem::take(&mut self.mark);
        assert_eq!(self.gateway.ended().await, Some(0));
        until("every process of a server has ended", || marked(&mark).is_empty()).await;
        self.tasks.cancel();
        drop(self.good);
    }

    /// Waits until processes and descriptors are what they were, and looks at the memory.
    pub(crate) async fn settles(&self, mib: u64) {
        let (mut processes, mut descriptors) = (Vec::new(), 0);
        let settled = async {
            loop {
                (processes, descriptors) = (self.marked(), self.descriptors());
                if processes.len() <= self.processes && descriptors <= self.descriptors {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), settled).await.is_err() {
            panic!(
                "{} processes, there were {}; {descriptors} descriptors, there were {}",
                processes.len(),
                self.processes,
                self.descriptors
            );
        }
        let peak = peak_memory_kib(self.gateway.pid());
        assert!(peak < mib << 10, "it has held {peak} KiB, {mib} MiB is the bound");
    }

    /// The processes of its servers, with all their descendants.
    pub(crate) fn marked(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.gateway.pid())).unwrap().count()
    }
}

/// The living processes that carry a mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let needle = format!("SIEGE={mark}");
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let carries = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|one| one == needle.as_bytes()) && lives(*pid)
    };
    pids.filter(carries).collect()
}
