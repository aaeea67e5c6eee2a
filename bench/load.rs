//! A closed-loop load on one MCP endpoint that checks every answer: C connections, each with one call under way.
//!
//! Hand-written HTTP/1.1 on one thread, so that it costs less than what it measures. Each connection opens its own session
//! (2025-11-25) or none (2026-07-28) before the measured span. Prints one JSON object: calls, seconds, rps, latencies in µs,
//! errors, and the CPU seconds that the processes given with `--pid` (and their children) spent in the span.
//!
//! `load hold` opens sessions, says so, and holds them until its input ends. `load noise` is `call` that says when it runs,
//! and runs until its input ends.
#![expect(clippy::print_stdout, reason = "a program's own output")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, without the gateway's clock and task book")]

use std::cell::Cell;
use std::io::{self, Write as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "usage: load call|list|noise|hold --url http://HOST:PORT/PATH [--key KEY] [--era legacy|stateless] [--tool NAME] \
                     [--connections C] [--calls N | --seconds S] [--bytes-min N] [--events N] [--pid PID]…";

#[derive(Clone)]
struct Options {
    verb: String,
    host: String,
    path: String,
    key: String,
    stateless: bool,
    tool: String,
    connections: usize,
    calls: Option<u64>,
    seconds: f64,
    /// An answer must have so many bytes.
    bytes_min: usize,
    /// An answer must have come in so many events; 0: not as events.
    events: usize,
    pids: Vec<u32>,
}

fn options() -> Result<Options, Failure> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut options = Options {
        verb: words.next().ok_or(USAGE)?,
        host: String::new(),
        path: String::new(),
        key: String::new(),
        stateless: false,
        tool: String::new(),
        connections: 1,
        calls: None,
        seconds: 1.0,
        bytes_min: 0,
        events: 0,
        pids: Vec::new(),
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--url" => {
                let (host, path) = value.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or(USAGE)?;
                options.host = host.to_owned();
                options.path = format!("/{path}");
            }
            "--key" => options.key = value,
            "--era" => options.stateless = value == "stateless",
            "--tool" => options.tool = value,
            "--connections" => options.connections = value.parse()?,
            "--calls" => options.calls = Some(value.parse()?),
            "--seconds" => options.seconds = value.parse()?,
            "--bytes-min" => options.bytes_min = value.parse()?,
            "--events" => options.events = value.parse()?,
            "--pid" => options.pids.push(value.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// One connection.
struct Peer {
    options: Rc<Options>,
    stream: TcpStream,
    session: Option<String>,
    buffer: Vec<u8>,
    body: Vec<u8>,
    request: String,
}

/// The end of a request, from which the next one's time is not counted.
struct Head {
    status: u16,
    session: Option<String>,
    length: Option<usize>,
    events: bool,
    end: usize,
}

impl Peer {
    async fn open(options: Rc<Options>) -> Result<Self, Failure> {
        let stream = TcpStream::connect(&options.host).await?;
        stream.set_nodelay(true)?;
        let mut peer = Self {
            options,
            stream,
            session: None,
            buffer: Vec::with_capacity(64 << 10),
            body: Vec::new(),
            request: String::new(),
        };
        if !peer.options.stateless {
            peer.handshake().await?;
        }
        Ok(peer)
    }

    async fn handshake(&mut self) -> Result<(), Failure> {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
        self.session = None;
        self.post("initialize", "", hello);
        let head = self.exchange().await?;
        self.session = Some(head.session.ok_or("no session")?);
        self.post("", "", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let head = self.exchange().await?;
        if head.status != 202 { Err(format!("initialized: HTTP {}", head.status).into()) } else { Ok(()) }
    }

    /// Spells a request into `self.request`.
    fn post(&mut self, method: &str, name: &str, body: &str) {
        let Options { host, path, key, stateless, .. } = &*self.options;
        let mut lines = vec![
            format!("POST {path} HTTP/1.1"),
            format!("host: {host}"),
            "accept: application/json, text/event-stream".to_owned(),
            "content-type: application/json".to_owned(),
        ];
        if !key.is_empty() {
            lines.push(format!("authorization: Bearer {key}"));
        }
        if *stateless {
            lines.push("mcp-protocol-version: 2026-07-28".to_owned());
            lines.push(format!("mcp-method: {method}"));
            if !name.is_empty() {
                lines.push(format!("mcp-name: {name}"));
            }
        } else if let Some(session) = &self.session {
            lines.push("mcp-protocol-version: 2025-11-25".to_owned());
            lines.push(format!("mcp-session-id: {session}"));
        }
        lines.push(format!("content-length: {}\r\n\r\n{body}", body.len()));
        self.request = lines.join("\r\n");
    }

    /// Makes one call and checks its answer.
    async fn call(&mut self, number: u64) -> Result<(), Failure> {
        const META: &str = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
        let options = Rc::clone(&self.options);
        let meta = if options.stateless { META } else { "" };
        let (method, tool) = if options.verb == "list" { ("tools/list", "") } else { ("tools/call", &*options.tool) };
        let marker = format!("marker-{number:08}");
        let body = if options.verb == "list" {
            let meta = meta.trim_start_matches(',');
            format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/list","params":{{{meta}}}}}"#)
        } else {
            format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{marker}"}}{meta}}}}}"#
            )
        };
        self.post(method, tool, &body);
        let head = self.exchange().await?;
        let shown = || String::from_utf8_lossy(self.body.get(..300).unwrap_or(&self.body)).into_owned();
        if head.status != 200 {
            return Err(format!("HTTP {}: {}", head.status, shown()).into());
        }
        let id = format!("\"id\":{number}");
        let ends = [self.body.get(..256), self.body.get(self.body.len().saturating_sub(256)..)];
        let has_id = ends.iter().flatten().any(|end| find(end, id.as_bytes())) || find(&self.body, id.as_bytes());
        let marked = options.bytes_min > 0 || options.verb == "list" || find(&self.body, marker.as_bytes());
        // An event without a message only says where to resume.
        let events = if head.events { memchr::memmem::find_iter(&self.body, b"data: {").count() } else { 0 };
        // Noise starves by design, and an answer that is long in coming is made a stream of.
        let formed = events == options.events || options.verb == "noise" && events == 1;
        if !has_id || !marked || self.body.len() < options.bytes_min || !formed {
            return Err(format!("a wrong answer ({} bytes, {events} events): {}", self.body.len(), shown()).into());
        }
        Ok(())
    }

    /// Sends `self.request` and reads the response into `self.body`.
    async fn exchange(&mut self) -> Result<Head, Failure> {
        self.stream.write_all(self.request.as_bytes()).await?;
        self.buffer.clear();
        let mut head = loop {
            self.fill().await?;
            if let Some(head) = read_head(&self.buffer)? {
                break head;
            }
        };
        self.body.clear();
        match head.length {
            Some(length) => {
                while self.buffer.len() < head.end + length {
                    self.fill().await?;
                }
                std::mem::swap(&mut self.body, &mut self.buffer);
                self.body.drain(..head.end);
            }
            None => loop {
                if let Some(()) = self.dechunk(&mut head.end)? {
                    break;
                }
                self.fill().await?;
            },
        }
        Ok(head)
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        if self.buffer.capacity() - self.buffer.len() < 32 << 10 {
            self.buffer.reserve(256 << 10);
        }
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            Err("the peer closed the connection".into())
        } else {
            Ok(())
        }
    }

    /// Takes complete chunks from the buffer at `at`; `Some` at the end of the body.
    fn dechunk(&mut self, at: &mut usize) -> Result<Option<()>, Failure> {
        loop {
            let rest = self.buffer.get(*at..).unwrap_or_default();
            let Some(line) = memchr::memmem::find(rest, b"\r\n") else { return Ok(None) };
            let size = std::str::from_utf8(rest.get(..line).unwrap_or_default())?;
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
            let Some(chunk) = rest.get(line + 2..line + 2 + size) else { return Ok(None) };
            if rest.len() < line + 2 + size + 2 {
                return Ok(None);
            }
            self.body.extend_from_slice(chunk);
            *at += line + 2 + size + 2;
            if size == 0 {
                return Ok(Some(()));
            }
        }
    }
}

fn read_head(buffer: &[u8]) -> Result<Option<Head>, Failure> {
    let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(buffer.get(..end).unwrap_or_default())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status")?.parse()?;
    let mut head = Head { status, session: None, length: None, events: false, end: end + 4 };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.parse()?);
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("content-type") {
            head.events = value.starts_with("text/event-stream");
        }
    }
    Ok(Some(head))
}

fn find(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// Sums the CPU time of processes and their descendants, in seconds.
fn cpu(pids: &[u32]) -> f64 {
    let mut all = pids.to_vec();
    let mut seen = 0;
    while let Some(&pid) = all.get(seen) {
        seen += 1;
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    let mut total = 0_u64;
    for pid in all {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let spent = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            total += spent.split(' ').next().and_then(|spent| spent.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Duration::from_nanos(total).as_secs_f64()
}

/// When a connection makes its last call.
#[derive(Clone)]
enum End {
    After(u64),
    At(Instant),
    /// When the input has ended.
    Told(Rc<Cell<bool>>),
}

impl End {
    fn of(options: &Options) -> Result<Self, Failure> {
        if options.verb == "noise" {
            println!("running");
            io::stdout().flush()?;
            let ended = Rc::new(Cell::new(false));
            let tell = Rc::clone(&ended);
            tokio::task::spawn_local(async move {
                drop(tokio::io::stdin().read_to_end(&mut Vec::new()).await);
                tell.set(true);
            });
            return Ok(Self::Told(ended));
        }
        let after = options.calls.map(|calls| Self::After(calls / options.connections as u64));
        Ok(after.unwrap_or_else(|| Self::At(Instant::now() + Duration::from_secs_f64(options.seconds))))
    }

    fn is_reached(&self, now: Instant, calls: u64) -> bool {
        match self {
            Self::After(share) => calls >= *share,
            Self::At(end) => now >= *end,
            Self::Told(ended) => ended.get(),
        }
    }
}

/// What one connection saw: latencies in nanoseconds, and failed calls.
#[derive(Default)]
struct Seen {
    spent: Vec<u32>,
    errors: u64,
    first_error: Option<String>,
}

/// Makes calls, one after the other.
async fn keep_calling(mut peer: Peer, mut number: u64, end: End) -> Seen {
    let mut seen = Seen::default();
    loop {
        let began = Instant::now();
        if end.is_reached(began, seen.spent.len() as u64 + seen.errors) {
            return seen;
        }
        number += 1;
        match peer.call(number).await {
            Ok(()) => seen.spent.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX)),
            Err(err) => {
                seen.errors += 1;
                seen.first_error.get_or_insert_with(|| err.to_string());
                match Peer::open(Rc::clone(&peer.options)).await {
                    Ok(new) => peer = new,
                    Err(_) => return seen,
                }
            }
        }
    }
}

async fn measure(options: Rc<Options>) -> Result<(), Failure> {
    let mut peers = Vec::new();
    for _ in 0..options.connections {
        peers.push(Peer::open(Rc::clone(&options)).await?);
    }
    // One call each before the clock runs: server-side sessions and connections are made. Noise need not be exact.
    if options.verb != "noise" {
        for (index, peer) in peers.iter_mut().enumerate() {
            peer.call(90_000_000 + index as u64).await?;
        }
    }
    let before = cpu(&options.pids);
    let start = Instant::now();
    let end = End::of(&options)?;
    let peers = peers.into_iter().zip(0_u64..);
    let calling = peers.map(|(peer, index)| keep_calling(peer, index * 1_000_000, end.clone()));
    let tasks: Vec<_> = calling.map(tokio::task::spawn_local).collect();
    let mut all = Seen::default();
    for task in tasks {
        let mut seen = task.await?;
        all.spent.append(&mut seen.spent);
        all.errors += seen.errors;
        all.first_error = all.first_error.or(seen.first_error);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu(&options.pids) - before;
    let Seen { mut spent, errors, first_error } = all;
    spent.sort_unstable();
    let at = |percent: usize| {
        let index = (spent.len() * percent / 100).min(spent.len().saturating_sub(1));
        f64::from(spent.get(index).copied().unwrap_or(0)) / 1000.0
    };
    println!(
        "{}",
        serde_json::json!({
            "calls": spent.len(), "seconds": seconds, "rps": spent.len() as f64 / seconds,
            "p50_us": at(50), "p95_us": at(95), "p99_us": at(99), "errors": errors, "first_error": first_error,
            "cpu_seconds": cpu,
        })
    );
    Ok(())
}

/// Opens one session per `--calls`, over one connection, and holds them.
async fn hold(options: Rc<Options>) -> Result<(), Failure> {
    let mut peer = Peer::open(Rc::clone(&options)).await?;
    for _ in 1..options.calls.unwrap_or(1) {
        peer.handshake().await?;
    }
    println!("held");
    io::stdout().flush()?;
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let options = Rc::new(options()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        match options.verb.as_str() {
            "call" | "list" | "noise" => measure(options).await,
            "hold" => hold(options).await,
            _ => Err(USAGE.into()),
        }
    })
}
