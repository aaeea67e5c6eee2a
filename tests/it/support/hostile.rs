//! Servers that do harm, byte by byte, over every transport, and the siege in which a gateway bears them.
//!
//! A server is the same script over stdio (`hostile.py`) and over HTTP (`hostile_http`): what it does to a call is a list of steps,
//! chosen by the call's argument `how`. In each siege one gateway, as a process, stands before all of them and before one
//! good server, whose calls must go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use portcullis::runtime::Tasks;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::hostile_http::Http;
use super::process::{Gateway, folder, lives, peak_memory_kib, until, within_deadline};
use super::upstream::{Speaks, Upstream};
use super::wire::raw;
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

/// What requests meet at a server; without steps it is a good answer.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// By the argument `how` of a call.
    pub(super) calls: BTreeMap<String, Vec<Step>>,
    /// The same for what a call is posted with, over HTTP+SSE.
    pub(super) posts: BTreeMap<String, Vec<Step>>,
    pub(super) lists: Option<Vec<Step>>,
    /// A stream that belongs to no call; over HTTP.
    pub(super) streams: Option<Vec<Step>>,
    /// Large requests are not read; over HTTP.
    pub(super) deaf: bool,
    changes: usize,
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
    async fn start(framing: Framing, era: Era, number: usize) -> Self {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let name = format!("{framing:?}-{}{number}", era.word()).to_lowercase();
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
            http.put(facts.clone());
        }
        *self.facts.lock().unwrap() = facts;
    }

    /// Sets what a call with this `how` meets.
    pub(crate) fn meets(&self, how: &str, steps: Vec<Step>) {
        self.edit(|facts| drop(facts.calls.insert(how.to_owned(), steps)));
    }

    /// Sets what the response to a call's POST is. Over HTTP+SSE nothing comes on the stream then; elsewhere it is what the
    /// call meets.
    pub(crate) fn responds(&self, how: &str, steps: Vec<Step>) {
        if self.framing != Framing::Events {
            return self.meets(how, steps);
        }
        self.edit(|facts| {
            facts.calls.insert(how.to_owned(), Vec::new());
            facts.posts.insert(how.to_owned(), steps);
        });
    }

    /// Sets what a stream meets that belongs to no call, `None` being a good one; those that are open end. Over HTTP+SSE it
    /// is the stream of a session.
    pub(crate) fn streams(&self, steps: Option<Vec<Step>>) {
        self.edit(|facts| facts.streams = steps);
    }

    /// Sets whether it leaves large requests unread.
    pub(crate) fn deaf(&self, deaf: bool) {
        self.edit(|facts| facts.deaf = deaf);
    }

    fn edit(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock().unwrap().clone();
        change(&mut facts);
        self.put(facts);
    }

    /// Sets what a list meets, `None` being a good one, and says that the list has changed.
    pub(crate) fn lists(&self, steps: Option<Vec<Step>>) {
        self.edit(|facts| (facts.lists, facts.changes) = (steps, facts.changes + 1));
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

    /// How many of its hostile streams are over.
    pub(crate) fn streamed(&self) -> usize {
        self.http.as_ref().map_or(0, |http| http.state.streams.load(Ordering::SeqCst))
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

// === impl Siege ===

impl Siege {
    /// Starts a gateway before hostile servers of these framings, in their eras, and a good one; `lines` stand in the table of
    /// each hostile one.
    pub(crate) async fn begin(framings: &[Framing], lines: &str) -> Self {
        Self::begin_with(framings, lines, "").await
    }

    /// The same with tables of the configuration beside the servers'.
    pub(crate) async fn begin_with(framings: &[Framing], lines: &str, tables: &str) -> Self {
        let mut bad = Vec::new();
        for framing in framings {
            // HTTP+SSE has the older era alone.
            let eras: &[Era] = if *framing == Framing::Events { &[Era::Legacy] } else { &super::ERAS };
            for era in eras.iter().copied() {
                bad.push(Hostile::start(*framing, era, 0).await);
            }
        }
        Self::before(bad, lines, tables).await
    }

    /// Starts a gateway before so many hostile servers of HTTP+SSE, and a good one: each may lose its session once, for
    /// whoever loses one again and again is held back.
    pub(crate) async fn of_streams(count: usize, lines: &str) -> Self {
        let mut bad = Vec::new();
        for number in 0..count {
            bad.push(Hostile::start(Framing::Events, Era::Legacy, number).await);
        }
        Self::before(bad, lines, "").await
    }

    async fn before(bad: Vec<Hostile>, lines: &str, tables: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
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
