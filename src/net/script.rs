//! A scripted HTTP/1.1 server for tests: it reads a request, writes the bytes it is told to, and keeps a record.
//!
//! Not for: being right. What it writes is as raw as the test wants it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use crate::runtime::Tasks;
use crate::wire::json as members;

/// What the server does next on the connection of a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes bytes.
    Write(Vec<u8>),
    /// Writes these bytes over and over until the peer is gone.
    Endless(Vec<u8>),
    /// Waits for a permit.
    Wait(Arc<Notify>),
    /// Writes what others say, until they end or the peer is gone.
    Relay(Arc<tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>>),
    /// Waits until the peer is gone.
    Hang,
    /// Closes the connection in order.
    Close,
    /// Resets the connection.
    Reset,
}

/// A request as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The method.
    pub(crate) method: String,
    /// The path and query.
    pub(crate) path: String,
    /// The headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

/// The server; it ends with its tasks.
#[derive(Debug)]
pub(crate) struct ScriptedServer {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
    written: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

type Script = Arc<dyn Fn(&Recorded) -> Vec<Step> + Send + Sync>;

// === impl Recorded ===

impl Recorded {
    /// Returns the first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the JSON body's member as text: of a string without quotes; empty if there is none.
    pub(crate) fn member(&self, name: &str) -> String {
        let Ok(members) = members::members(self.body.as_bytes()) else { return String::new() };
        let found = members.iter().find(|(key, _)| **key == *name.as_bytes()).map(|(_, value)| value);
        found.map_or_else(String::new, |value| {
            members::text(value)
                .map_or_else(|| String::from_utf8_lossy(value.get()).into_owned(), std::borrow::Cow::into_owned)
        })
    }

    /// Returns `method` of the body, or the HTTP method if there is none.
    pub(crate) fn kind(&self) -> String {
        let method = self.member("method");
        if method.is_empty() { self.method.clone() } else { method }
    }
}

// === impl ScriptedServer ===

impl ScriptedServer {
    /// Starts a server whose script is asked at each request.
    pub(crate) async fn start(tasks: &Tasks, script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Self {
            addr,
            requests: Arc::default(),
            written: Arc::default(),
            gone: Arc::default(),
            connections: Arc::default(),
        };
        let connections = Arc::clone(&server.connections);
        let (requests, written, gone) =
            (Arc::clone(&server.requests), Arc::clone(&server.written), Arc::clone(&server.gone));
        let script: Script = Arc::new(script);
        let all = tasks.clone();
        tasks.spawn("scripted server", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, written, gone) = (Arc::clone(&requests), Arc::clone(&written), Arc::clone(&gone));
                let script = Arc::clone(&script);
                all.spawn("scripted connection", async move {
                    serve(stream, &script, &requests, &written, &gone).await;
                });
            }
        });
        server
    }

    /// Returns what has been read so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns what has been read so far, as [`Recorded::kind`].
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.requests().iter().map(Recorded::kind).collect()
    }

    /// Returns how many response bytes the socket has taken.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    /// Returns how many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns how often a peer was gone in the middle of [`Step::Hang`] or [`Step::Endless`].
    pub(crate) fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

/// Waits until a condition holds; fails after 20 s, so that a hang is a failure.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A response with `Content-Length`.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Vec<Step> {
    let text = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    vec![Step::Write(text.into_bytes())]
}

/// A JSON response.
pub(crate) fn json(status: &str, body: &str) -> Vec<Step> {
    response(status, "Content-Type: application/json\r\n", body)
}

/// The head of an event stream that ends with its connection, and the beginning of its body.
pub(crate) fn stream(body: &str) -> Step {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    Step::Write([head, body].concat().into_bytes())
}

async fn serve(
    mut stream: TcpStream,
    script: &Script,
    requests: &Mutex<Vec<Recorded>>,
    written: &AtomicUsize,
    gone: &AtomicUsize,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        requests.lock().unwrap().push(request.clone());
        for step in script(&request) {
            let went_on = match step {
                Step::Write(bytes) => write(&mut stream, &bytes, written).await,
                Step::Wait(notify) => {
                    notify.notified().await;
                    true
                }
                Step::Endless(bytes) => {
                    while write(&mut stream, &bytes, written).await {}
                    gone.fetch_add(1, Ordering::SeqCst);
                    false
                }
                Step::Relay(said) => {
                    let mut said = said.lock().await;
                    let mut rest = [0; 1024];
                    loop {
                        tokio::select! {
                            text = said.recv() => match text {
                                Some(text) => if !write(&mut stream, &text, written).await { break },
                                None => break,
                            },
                            read = stream.read(&mut rest) => if read.is_ok_and(|count| count > 0) { continue } else {
                                gone.fetch_add(1, Ordering::SeqCst);
                                break;
                            },
                        }
                    }
                    false
                }
                Step::Hang => {
                    let mut rest = [0; 1024];
                    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                    gone.fetch_add(1, Ordering::SeqCst);
                    false
                }
                Step::Close => false,
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    false
                }
            };
            if !went_on {
                return;
            }
        }
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8], written: &AtomicUsize) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest).await {
            Ok(count) if count > 0 => {
                written.fetch_add(count, Ordering::SeqCst);
                rest = &rest[count..];
            }
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Recorded> {
    loop {
        if let Some(at) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..at].to_vec()).unwrap();
            let mut lines = head.lines();
            let mut first = lines.next()?.split(' ').map(str::to_owned);
            let (method, path) = (first.next()?, first.next().unwrap_or_default());
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            if buffer.len() >= at + 4 + length {
                let body = String::from_utf8(buffer[at + 4..at + 4 + length].to_vec()).unwrap();
                buffer.drain(..at + 4 + length);
                return Some(Recorded { method, path, headers, body });
            }
        }
        let mut chunk = vec![0; 16 * 1024];
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => buffer.extend_from_slice(&chunk[..count]),
            Ok(_) | Err(_) => return None,
        }
    }
}
