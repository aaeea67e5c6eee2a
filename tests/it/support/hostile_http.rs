//! Hostile servers over HTTP: Streamable HTTP of both eras, and HTTP+SSE.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis::runtime::Tasks;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::Era;
use super::hostile::{Facts, Framing, Step};
use super::wire::{Head, Rest, Wire, raw};

/// From so many bytes on a body is one that a deaf server does not read.
const LARGE: usize = 1 << 20;

/// The server and its connections; they end when this is dropped.
pub(super) struct Http {
    pub(super) addr: SocketAddr,
    pub(super) state: Arc<HttpState>,
    tasks: Tasks,
}

/// What its connections share.
pub(super) struct HttpState {
    framing: Framing,
    era: Era,
    facts: watch::Sender<Facts>,
    /// The method of which one answer ends after so many bytes.
    dies: Mutex<Option<(&'static str, usize)>>,
    /// How long the last answer was that was cut.
    pub(super) cut: AtomicUsize,
    /// The requests of tools/call, those of hostile lists, and the hostile streams that are over.
    pub(super) calls: AtomicUsize,
    pub(super) lists: AtomicUsize,
    pub(super) streams: AtomicUsize,
    pub(super) changes: tokio::sync::Notify,
    /// The answers to what it asked.
    pub(super) told: Mutex<Vec<String>>,
    /// What is to be said on the stream of each session of HTTP+SSE.
    sessions: Mutex<HashMap<String, mpsc::Sender<Job>>>,
}

/// What a request meets, on the stream of its session.
struct Job {
    steps: Vec<Step>,
    id: String,
    body: String,
}

// === impl Http ===

impl Http {
    /// Starts it on a free port.
    pub(super) async fn start(framing: Framing, era: Era) -> Self {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(HttpState {
            framing,
            era,
            facts: watch::Sender::default(),
            dies: Mutex::default(),
            cut: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
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

    /// Changes what requests meet. Streams that are open end if what streams meet is another thing now.
    pub(super) fn put(&self, facts: Facts) {
        self.state.facts.send_replace(facts);
    }

    /// Lets the next answer to this method end after so many bytes, and its connection with it.
    pub(super) fn dies(&self, method: &'static str, bytes: usize) {
        *self.state.dies.lock().unwrap() = Some((method, bytes));
    }

    /// Says whether that is yet to come.
    pub(super) fn is_to_die(&self) -> bool {
        self.state.dies.lock().unwrap().is_some()
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
            let Some(body) = self.body(&mut wire, &head).await else { return };
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
            let facts = self.facts.borrow().clone();
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

    /// Reads a body; `None`, after a while, if this server is deaf and it is large.
    async fn body(&self, wire: &mut Wire, head: &Head) -> Option<String> {
        let rest = head.rest(true);
        if matches!(rest, Rest::Length(length) if length >= LARGE) && self.facts.borrow().deaf {
            let _heard = self.facts.subscribe().wait_for(|facts| !facts.deaf).await.is_ok();
            return None;
        }
        Some(wire.body(rest).await)
    }

    /// What a request meets, if it is no good answer; it is counted.
    fn met(&self, facts: &Facts, method: &str, body: &str) -> Option<Vec<Step>> {
        let dies = self.dies.lock().unwrap().take_if(|(dies, _)| *dies == method);
        if let Some((_, bytes)) = dies {
            return Some(vec![Step::Cut(bytes)]);
        }
        match method {
            "tools/list" => {
                let steps = facts.lists.clone()?;
                self.lists.fetch_add(1, Ordering::SeqCst);
                Some(steps)
            }
            "tools/call" => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                facts.calls.get(&how(body)).cloned()
            }
            _ => None,
        }
    }

    /// Serves HTTP+SSE: what a request meets happens on the stream of its session.
    async fn serve_two_urls(&self, mut wire: Wire) {
        while let Some(head) = wire.head().await {
            let Some(body) = self.body(&mut wire, &head).await else { return };
            if head.line.starts_with("GET") {
                return self.speak(&mut wire).await;
            }
            let session = head.line.split(' ').nth(1).and_then(|path| path.strip_prefix("/say?s="));
            let session = session.and_then(|session| self.sessions.lock().unwrap().get(session).cloned());
            let facts = self.facts.borrow().clone();
            let (id, method) = (raw(&body, "id"), raw(&body, "method"));
            let post = facts.posts.get(&how(&body)).filter(|_| session.is_some());
            if post.is_none() {
                let status = if session.is_some() { "202 Accepted" } else { "405 Method Not Allowed" };
                wire.write(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            }
            let (Some(session), Some(id)) = (session, id) else { continue };
            let Some(method) = method else {
                self.told.lock().unwrap().push(body);
                continue;
            };
            let method = method.trim_matches('"');
            let steps = self
                .met(&facts, method, &body)
                .unwrap_or_else(|| vec![Step::Say(self.framing.message(&self.answer(&id, good(method))))]);
            // The session may be over.
            let _over = session.try_send(Job { steps, id: id.clone(), body: body.clone() }).is_err();
            if let Some(steps) = post {
                self.run(&mut wire, steps, &id, &body).await;
                return;
            }
        }
    }

    /// Keeps the stream of a session.
    async fn speak(&self, wire: &mut Wire) {
        static SESSIONS: AtomicUsize = AtomicUsize::new(0);
        if self.is_met(wire).await {
            return;
        }
        let mut facts = self.facts.subscribe();
        let (session, mut jobs) = mpsc::channel(1024);
        let number = SESSIONS.fetch_add(1, Ordering::SeqCst).to_string();
        self.sessions.lock().unwrap().insert(number.clone(), session);
        let begin = Framing::Sse.begin();
        wire.write(format!("{begin}event: endpoint\ndata: /say?s={number}\n\n").as_bytes()).await;
        loop {
            let goes_on = tokio::select! {
                () = wire.gone() => false,
                () = hostile(&mut facts) => false,
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

    /// Has a stream that is opened meet what it is to meet; `false` if that is nothing.
    async fn is_met(&self, wire: &mut Wire) -> bool {
        let Some(steps) = self.facts.borrow().streams.clone() else { return false };
        self.run(wire, &steps, "0", "{}").await;
        self.streams.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Keeps a stream on which list changes are told.
    async fn tell(&self, wire: &mut Wire, id: &str) {
        if self.is_met(wire).await {
            return;
        }
        let mut facts = self.facts.subscribe();
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
                () = hostile(&mut facts) => return,
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
        let method = raw(body, "method").unwrap_or_default();
        let good = self.answer(id, good(method.trim_matches('"')));
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
                    self.cut.store(text.len(), Ordering::SeqCst);
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

/// Waits until streams are to meet something else than they should.
async fn hostile(facts: &mut watch::Receiver<Facts>) {
    let _gone = facts.wait_for(|facts| facts.streams.is_some()).await.is_err();
}

/// What a call is to meet, by its arguments.
fn how(body: &str) -> String {
    raw(body, "params.arguments.how").unwrap_or_default().trim_matches('"').to_owned()
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
