//! A pooled HTTP/1.1 client: bounded connecting, short idling, its tasks tracked.
//!
//! Not for: redirects, cookies, decompression, TLS (yet). Invariant: a request is written to at most one connection.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;

use crate::runtime::Tasks;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const HAPPY_EYEBALLS: Duration = Duration::from_millis(300);
/// Shorter than the keep-alive of common servers (Node: 5 s), so that an idle connection is ours to close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The client. Clones share the pool.
#[derive(Clone, Debug)]
pub struct HttpClient(Client<HttpConnector, Full<Bytes>>);

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

#[derive(Clone, Debug)]
struct InTasks(Tasks);

impl<F> Executor<F> for InTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.0.spawn("http connection", async move {
            future.await;
        });
    }
}

impl HttpClient {
    /// Makes a client whose connections live in `tasks`.
    #[must_use]
    pub fn new(tasks: &Tasks) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_happy_eyeballs_timeout(Some(HAPPY_EYEBALLS));
        let client = Client::builder(InTasks(tasks.clone()))
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Self(client)
    }

    /// Sends a request; the response's body is still to be read.
    ///
    /// # Errors
    /// [`SendError`]; its text names causes, not the URL.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection if the request was written.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        self.0.request(request).await.map_err(|err| {
            let mut text = err.to_string();
            let mut cause = err.source();
            while let Some(next) = cause {
                text.push_str(": ");
                text.push_str(&next.to_string());
                cause = next.source();
            }
            if err.is_connect() { SendError::Connect(text) } else { SendError::Ended(text) }
        })
    }
}
