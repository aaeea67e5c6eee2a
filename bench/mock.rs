//! The upstream of every measurement: an MCP server that answers at once, over HTTP or stdio, in either era.
//!
//! `mock http [--era any|legacy|stateless]` prints its address; the path says how many tools it lists: `/mcp` 10,
//! `/mcp100` 100, `/mcp1000` 1,000. `mock stdio [--era …]` speaks lines. Tools: `echo` (its argument `text`), `big` (1 MiB
//! of text), `events` (5 log messages, then the answer; HTTP: one event stream, written at once).
//!
//! Not for: testing. It refuses what a server of its era refuses, so that a gateway which skips a handshake is found out.
#![expect(clippy::print_stdout, reason = "a program's own output")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, without the gateway's task book")]

use std::convert::Infallible;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const BIG_BYTES: usize = 1 << 20;
const EVENTS: usize = 5;
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const STATELESS: &str = "2026-07-28";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Any,
    Legacy,
    Stateless,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

/// What a request is answered with.
enum Answer {
    Nothing,
    One(Vec<u8>),
    /// Whole messages; the last is the answer.
    Many(Vec<Vec<u8>>),
}

struct Mock {
    era: Era,
    /// The `tools` arrays of 10, 100 and 1,000 tools.
    lists: [String; 3],
    big: String,
}

impl Mock {
    fn new(era: Era) -> Self {
        Self { era, lists: [list(10), list(100), list(1000)], big: "x".repeat(BIG_BYTES) }
    }

    fn answer(&self, body: &[u8], list: usize, stateless: bool) -> Result<Answer, Failure> {
        let message: Message<'_> = serde_json::from_slice(body)?;
        let (Some(id), Some(method)) = (message.id, message.method) else { return Ok(Answer::Nothing) };
        let complete = if stateless { r#""resultType":"complete","# } else { "" };
        let cache = if stateless { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
        let params = message.params.unwrap_or(Params { name: None, arguments: None });
        let result = match (method, params.name) {
            ("initialize", _) if self.era == Era::Stateless => return Ok(Answer::One(error(id, -32022))),
            ("server/discover", _) if self.era == Era::Legacy => return Ok(Answer::One(error(id, -32601))),
            ("initialize", _) => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"mock","version":"1"}}"#.to_owned(),
            ("server/discover", _) => format!(
                r#"{{"resultType":"complete","supportedVersions":["{STATELESS}"],"capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"mock","version":"1"}},"ttlMs":0,"cacheScope":"private"}}"#
            ),
            ("ping", _) => "{}".to_owned(),
            ("tools/list", _) => {
                let tools = self.lists.get(list).map_or("[]", String::as_str);
                format!(r#"{{{complete}"tools":{tools}{cache}}}"#)
            }
            ("tools/call", Some("echo" | "events")) => {
                let text = params.arguments.and_then(|arguments| arguments.text).map_or("\"\"", RawValue::get);
                format!(r#"{{{complete}"content":[{{"type":"text","text":{text}}}],"isError":false}}"#)
            }
            ("tools/call", Some("big")) => {
                format!(r#"{{{complete}"content":[{{"type":"text","text":"{}"}}],"isError":false}}"#, self.big)
            }
            ("tools/call", _) => return Ok(Answer::One(error(id, -32602))),
            _ => return Ok(Answer::One(error(id, -32601))),
        };
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get()).into_bytes();
        if params.name == Some("events") {
            let note = |number| {
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","logger":"mock","data":"step {number} of {EVENTS}"}}}}"#
                )
                .into_bytes()
            };
            return Ok(Answer::Many((1..=EVENTS).map(note).chain([answer]).collect()));
        }
        Ok(Answer::One(answer))
    }
}

fn error(id: &RawValue, code: i32) -> Vec<u8> {
    let data = if code == -32022 { r#","data":{"supported":["2026-07-28"]}"# } else { "" };
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"refused"{data}}}}}"#, id.get()).into_bytes()
}

/// Definitions of about 410 bytes each, as real servers write them.
fn list(count: usize) -> String {
    let names = ["echo", "big", "events"].into_iter().map(str::to_owned);
    let names = names.chain((0..).map(|number| format!("tool_{number:04}"))).take(count);
    let tools: Vec<String> = names
        .map(|name| {
            format!(
                r#"{{"name":"{name}","title":"The tool {name}","description":"Does what a tool of this name would do, with the text it is given. Returns one text block; fails if the text is too long for it or the tool has been told to.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"What it is done with"}},"count":{{"type":"integer"}}}},"required":["text"]}}}}"#
            )
        })
        .collect();
    format!("[{}]", tools.join(","))
}

// --- HTTP ---

async fn http(mock: Arc<Mock>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mock = Arc::clone(&mock);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let mock = Arc::clone(&mock);
                async move { Ok::<_, Infallible>(serve(&mock, request).await) }
            });
            // A peer that closes its connection is no news.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn serve(mock: &Mock, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let list = match request.uri().path() {
        "/mcp" => 0,
        "/mcp100" => 1,
        "/mcp1000" => 2,
        _ => return status(StatusCode::NOT_FOUND),
    };
    match *request.method() {
        Method::POST => {}
        Method::DELETE => return status(StatusCode::OK),
        _ => return status(StatusCode::METHOD_NOT_ALLOWED),
    }
    let stateless = request.headers().get(VERSION).is_some_and(|version| version == STATELESS);
    let session = request.headers().contains_key(SESSION);
    let Ok(body) = request.into_body().collect().await else { return status(StatusCode::BAD_REQUEST) };
    let body = body.to_bytes();
    let opens = memchr::memmem::find(&body, b"\"initialize\"").is_some();
    let refused = match mock.era {
        Era::Legacy => stateless,
        Era::Stateless => !stateless,
        Era::Any => false,
    };
    if refused || !(stateless || session || opens) {
        return status(StatusCode::BAD_REQUEST);
    }
    match mock.answer(&body, list, stateless) {
        Err(_) => status(StatusCode::BAD_REQUEST),
        Ok(Answer::Nothing) => status(StatusCode::ACCEPTED),
        Ok(Answer::One(body)) => {
            let mut response = Response::builder().header("content-type", "application/json");
            if opens {
                response = response.header(SESSION, "0123456789abcdef0123456789abcdef");
            }
            response.body(Full::from(body)).unwrap_or_default()
        }
        Ok(Answer::Many(messages)) => {
            let mut events = Vec::new();
            for message in messages {
                events.extend_from_slice(b"event: message\ndata: ");
                events.extend_from_slice(&message);
                events.extend_from_slice(b"\n\n");
            }
            let response = Response::builder().header("content-type", "text/event-stream");
            response.body(Full::from(events)).unwrap_or_default()
        }
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).unwrap_or_default()
}

// --- stdio ---

fn stdio(mock: &Mock) -> Result<(), Failure> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let stateless = memchr::memmem::find(&line, STATELESS.as_bytes()).is_some();
        let messages = match mock.answer(&line, 0, stateless)? {
            Answer::Nothing => Vec::new(),
            Answer::One(message) => vec![message],
            Answer::Many(messages) => messages,
        };
        for mut message in messages {
            message.push(b'\n');
            output.write_all(&message)?;
        }
        output.flush()?;
        line.clear();
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (door, era) = match words.as_slice() {
        [door] => (*door, Era::Any),
        [door, "--era", "any"] => (*door, Era::Any),
        [door, "--era", "legacy"] => (*door, Era::Legacy),
        [door, "--era", "stateless"] => (*door, Era::Stateless),
        _ => ("", Era::Any),
    };
    let mock = Mock::new(era);
    match door {
        "http" => tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(http(Arc::new(mock))),
        "stdio" => stdio(&mock),
        _ => Err("usage: mock http|stdio [--era any|legacy|stateless]".into()),
    }
}
