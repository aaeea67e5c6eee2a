//! An HTTP/1.1 client with a pool of its own: connections without tasks, given back where their response ends.
//!
//! hyper speaks; this file decides which connection, and who drives it. A connection in the pool is driven by nobody: the
//! future that sends a request drives it, then the body does, and whoever reads the body to its end puts it back. So a
//! call costs no task and no wake-up beyond those of its socket. Not for: redirects, cookies, decompression, TLS (yet).
//! Invariant: a request is written to at most one connection.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::runtime::{Tasks, hushed};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection is closed after one to two of these: sooner than common servers do it (Node: 5 s), so that it is
/// ours to close.
const IDLE_TICK: Duration = Duration::from_secs(2);
/// How many idle connections are kept for one server.
const IDLE_MAX: usize = 256;

/// A client of one server. Clones share the pool.
#[derive(Clone)]
pub struct HttpClient(Arc<Pool>);

struct Pool {
    authority: Authority,
    tasks: Tasks,
    idle: Mutex<Vec<(u64, Box<Connection>)>>,
    /// Counts the reaper's rounds: the age of an idle connection.
    round: AtomicU64,
    reaping: AtomicBool,
}

/// Why there is no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// There was no connection: the server has seen nothing.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection ended first: the server may have read the request.
    #[error("the connection ended before a response: {0}")]
    Ended(String),
}

/// A connection, and what drives it. Boxed: it is large, and moves from hand to hand.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<TcpStream>, Full<Bytes>>,
    /// The driver has ended.
    over: bool,
}

/// The body of a response. Dropping it before its end closes the connection.
pub struct ResponseBody {
    body: Incoming,
    connection: Option<(Box<Connection>, Arc<Pool>)>,
}

// === impl HttpClient ===

impl HttpClient {
    /// Makes a client of the server at `authority` (port 80 where it names none).
    #[must_use]
    pub fn new(tasks: &Tasks, authority: Authority) -> Self {
        let (round, reaping) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Pool { authority, tasks: tasks.clone(), idle: Mutex::default(), round, reaping }))
    }

    /// Sends a request in origin form, its `Host` included; the response's body is still to be read.
    ///
    /// # Errors
    /// [`SendError`]; its text names causes, not the URL.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection if the request was written.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<ResponseBody>, SendError> {
        let mut request = request;
        // One that turns out to be closed has seen nothing of the request.
        while let Some(connection) = self.0.checkout() {
            request = match self.0.exchange(connection, request).await? {
                Ok(response) => return Ok(response),
                Err(unsent) => unsent,
            };
        }
        let connection = Connection::open(&self.0.authority).await?;
        let unsent = || SendError::Connect("the connection was closed at once".to_owned());
        self.0.exchange(connection, request).await?.map_err(|_| unsent())
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("idle", &self.0.idle().len()).finish_non_exhaustive()
    }
}

// === impl Pool ===

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<(u64, Box<Connection>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last, if it is still open.
    fn checkout(&self) -> Option<Box<Connection>> {
        loop {
            let (_, mut connection) = self.idle().pop()?;
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn give_back(self: Arc<Self>, mut connection: Box<Connection>) {
        if !connection.is_ready() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push((self.round.load(Ordering::Relaxed), connection));
        }
        drop(idle);
        if !self.reaping.swap(true, Ordering::AcqRel) {
            let pool = Arc::clone(&self);
            self.tasks.spawn("idle http connections", pool.reap());
        }
    }

    /// Closes connections that have been idle for a round; ends when there are none.
    async fn reap(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_TICK).await;
            let round = self.round.fetch_add(1, Ordering::Relaxed);
            let (old, none) = {
                let mut idle = self.idle();
                let old: Vec<_> = idle.extract_if(.., |(since, _)| *since < round).collect();
                if idle.is_empty() {
                    self.reaping.store(false, Ordering::Release);
                }
                (old, idle.is_empty())
            };
            drop(old);
            if none {
                return;
            }
        }
    }

    /// Sends a request on a connection; gives the request back if nothing of it was sent.
    async fn exchange(
        self: &Arc<Self>,
        mut connection: Box<Connection>,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Response<ResponseBody>, Request<Full<Bytes>>>, SendError> {
        let answer = connection.sender.try_send_request(request);
        let mut answer = pin!(answer);
        let answer = std::future::poll_fn(|cx| {
            connection.drive(cx);
            // The answer comes out of the driver, so there is nothing else to be woken by.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if connection.over => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        match answer.await {
            Some(Ok(response)) => Ok(Ok(response.map(|body| ResponseBody::new(body, connection, Arc::clone(self))))),
            Some(Err(mut err)) => match err.take_message() {
                Some(unsent) => Ok(Err(unsent)),
                None => Err(SendError::Ended(causes(err.error()))),
            },
            None => Err(SendError::Ended("the connection ended".to_owned())),
        }
    }
}

// === impl Connection ===

impl Connection {
    async fn open(authority: &Authority) -> Result<Box<Self>, SendError> {
        let failed = |err: &dyn fmt::Display| SendError::Connect(err.to_string());
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let connecting = TcpStream::connect((host, authority.port_u16().unwrap_or(80)));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| SendError::Connect(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|err| failed(&err))?;
        stream.set_nodelay(true).map_err(|err| failed(&err))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|err| failed(&err))?;
        Ok(Box::new(Self { sender, driver, over: false }))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.over {
            self.over = Pin::new(&mut self.driver).poll(cx).is_ready();
        }
    }

    /// Says whether a request can be sent: the connection is open, and the exchange before has ended. Wakes nobody later.
    fn is_ready(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.over && self.sender.is_ready()
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    fn new(body: Incoming, connection: Box<Connection>, pool: Arc<Pool>) -> Self {
        let mut new = Self { body, connection: Some((connection, pool)) };
        new.settle();
        new
    }

    /// Gives the connection back where the body has ended.
    fn settle(&mut self) {
        if self.body.is_end_stream()
            && let Some((connection, pool)) = self.connection.take()
        {
            pool.give_back(connection);
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        // What has been read already comes first, then the driver is asked for more.
        let poll = |body: &mut Incoming| {
            // Who takes a frame drives the connection too, so it needs no wake-up for that.
            hushed(|| Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())))
        };
        let mut frame = poll(&mut this.body);
        if frame.is_pending() {
            if let Some((connection, _)) = &mut this.connection {
                connection.drive(cx);
            }
            frame = poll(&mut this.body);
        }
        match &frame {
            Poll::Ready(Some(Ok(_))) => this.settle(),
            Poll::Ready(Some(Err(_))) => this.connection = None,
            Poll::Ready(None) => {
                if let Some((connection, pool)) = this.connection.take() {
                    pool.give_back(connection);
                }
            }
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

fn causes(err: &hyper::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
