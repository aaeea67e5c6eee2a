//! An HTTP/1.1 client of one server, with its pool.
//!
//! Connections have no task: who sends a request reads its response, and gives the connection back where that ends. Not
//! for: redirects, cookies, decompression, dialling (`dial`). Invariant: a request is written to at most one connection.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, Uri};

use crate::runtime::Tasks;

use super::dial::{DialedStream, Dialer};
use super::http1::{Connection, Framing, Headers};

/// An idle connection is closed after one to two of these: sooner than common servers do it (Node: 5 s), so that it is
/// ours to close.
const IDLE_TICK: Duration = Duration::from_secs(2);
/// How many idle connections are kept for one server.
const IDLE_MAX: usize = 256;

/// A client of one server. Clones share the pool.
#[derive(Clone)]
pub struct HttpClient(Arc<Pool>);

struct Pool {
    dialer: Dialer,
    uri: Uri,
    tasks: Tasks,
    idle: Mutex<Vec<(u64, Idle)>>,
    idle_max: usize,
    /// Counts the reaper's rounds: the age of an idle connection.
    round: AtomicU64,
    reaping: AtomicBool,
}

/// Boxed: it moves from hand to hand.
type Idle = Box<Connection<DialedStream>>;

/// Why there is no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// There was no connection: the server has seen nothing.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection ended first, or what came was no response: the server may have read the request.
    #[error("the connection ended before a response: {0}")]
    Ended(String),
}

/// Why a body cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection failed, or the body is malformed.
    #[error("{0}")]
    Broken(String),
    /// It is larger than allowed.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
}

/// A response whose head has been read.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: ResponseBody,
}

/// The body of a response. Dropping it before its end closes the connection.
pub struct ResponseBody {
    framing: Framing,
    connection: Option<(Idle, Arc<Pool>)>,
}

// === impl HttpClient ===

impl HttpClient {
    /// Makes a client of the server at the origin of `uri`, which `dialer` connects to.
    #[must_use]
    pub fn new(tasks: &Tasks, dialer: Dialer, uri: Uri) -> Self {
        Self::keeping(IDLE_MAX, tasks, dialer, uri)
    }

    fn keeping(idle_max: usize, tasks: &Tasks, dialer: Dialer, uri: Uri) -> Self {
        let (round, reaping) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Pool { dialer, uri, tasks: tasks.clone(), idle: Mutex::default(), idle_max, round, reaping }))
    }

    /// Sends a request and reads the head of its response. `head` is the request line and the header lines, each with its
    /// CRLF, but for the `Content-Length` of `body`.
    ///
    /// # Errors
    /// [`SendError`]; its text names causes, not the URL.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection if the request was written.
    pub async fn send(&self, head: &[u8], body: &Bytes) -> Result<Response, SendError> {
        // One that turns out to be closed has seen nothing of the request.
        while let Some(mut connection) = self.0.checkout() {
            match connection.exchange(head, body).await {
                Ok(head) => return Ok(Response::new(head, connection, &self.0)),
                Err((_, 0)) => {}
                Err((err, _)) => return Err(SendError::Ended(err.to_string())),
            }
        }
        // Boxed, so that a call that finds a connection does not carry the room that this needs.
        let mut connection = Box::pin(self.0.open()).await?;
        match connection.exchange(head, body).await {
            Ok(head) => Ok(Response::new(head, connection, &self.0)),
            Err((err, 0)) => Err(SendError::Connect(err.to_string())),
            Err((err, _)) => Err(SendError::Ended(err.to_string())),
        }
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("idle", &self.0.idle().len()).finish_non_exhaustive()
    }
}

// === impl Pool ===

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<(u64, Idle)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<Idle, SendError> {
        let dialed = self.dialer.dial(&self.uri).await.map_err(|err| SendError::Connect(err.to_string()))?;
        Ok(Box::new(match dialed {
            DialedStream::Plain(_) => Connection::new(dialed),
            DialedStream::Tls(_) => Connection::buffering(dialed),
        }))
    }

    /// Takes the connection that was used last, if it is still open.
    fn checkout(&self) -> Option<Idle> {
        loop {
            let (_, mut connection) = self.idle().pop()?;
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn give_back(self: Arc<Self>, mut connection: Idle) {
        // Whether the server has closed it is looked at when it is taken again.
        if !connection.is_clean() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < self.idle_max {
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
}

// === impl Response ===

impl Response {
    fn new(head: super::http1::Head, connection: Idle, pool: &Arc<Pool>) -> Self {
        let super::http1::Head { status, headers, framing } = head;
        let mut body = ResponseBody { framing, connection: Some((connection, Arc::clone(pool))) };
        body.settle();
        Self { status, headers, body }
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Gives the connection back where the body has ended.
    fn settle(&mut self) {
        if self.framing == Framing::Done
            && let Some((connection, pool)) = self.connection.take()
        {
            pool.give_back(connection);
        }
    }

    /// Returns the next bytes as they come, `None` at the end.
    ///
    /// # Errors
    /// [`BodyError::Broken`]; nothing follows it.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn data(&mut self) -> Result<Option<Bytes>, BodyError> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Polls for the next bytes.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let Some((connection, _)) = &mut self.connection else { return Poll::Ready(Ok(None)) };
        let data = ready!(connection.poll_data(cx, &mut self.framing));
        Poll::Ready(match data.transpose() {
            Ok(data) => {
                self.settle();
                Ok(data)
            }
            Err(err) => {
                self.connection = None;
                Err(BodyError::Broken(err.to_string()))
            }
        })
    }

    /// Returns how many bytes are left, if that was announced.
    #[must_use]
    pub const fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Done => Some(0),
            Framing::Length(left) => Some(left),
            Framing::Chunked(_) | Framing::ChunkEnd | Framing::Trailers | Framing::Close => None,
        }
    }

    /// Reads the rest of a body of which `begun` has been read.
    ///
    /// # Errors
    /// As [`Self::collect`]; `bytes_max` bounds both together.
    pub async fn collect_after(self, begun: Bytes, bytes_max: usize) -> Result<Bytes, BodyError> {
        let left = bytes_max.checked_sub(begun.len()).ok_or(BodyError::TooLarge(bytes_max))?;
        let rest = self.collect(left).await.map_err(|err| match err {
            BodyError::TooLarge(_) => BodyError::TooLarge(bytes_max),
            broken @ BodyError::Broken(_) => broken,
        })?;
        let mut whole = BytesMut::with_capacity(begun.len() + rest.len());
        whole.extend_from_slice(&begun);
        whole.extend_from_slice(&rest);
        Ok(whole.freeze())
    }

    /// Reads the whole body. One whose length is announced is read into one buffer of that size.
    ///
    /// # Errors
    /// [`BodyError`]; too large is found before more than `bytes_max` are held.
    pub async fn collect(self, bytes_max: usize) -> Result<Bytes, BodyError> {
        self.collect_seen(bytes_max, |_| {}).await
    }

    /// The same; where its length is announced, `seen` is shown what there is each time that some has come.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub async fn collect_seen(mut self, bytes_max: usize, seen: impl FnMut(&[u8])) -> Result<Bytes, BodyError> {
        if let (Framing::Length(length), Some((connection, _))) = (self.framing, &mut self.connection) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > bytes_max {
                return Err(BodyError::TooLarge(bytes_max));
            }
            let whole =
                connection.read_exactly(length, seen).await.map_err(|err| BodyError::Broken(err.to_string()))?;
            self.framing = Framing::Done;
            self.settle();
            return Ok(whole);
        }
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(data) = self.data().await? {
            if first.len() + rest.len() + data.len() > bytes_max {
                return Err(BodyError::TooLarge(bytes_max));
            }
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("framing", &self.framing).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
