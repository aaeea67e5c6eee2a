//! A pooled HTTP/1.1 client: bounded connecting, short idling, its tasks tracked.
//!
//! Not for: redirects, cookies, decompression, dialling (`dial`). Invariant: a request is written to at most one connection.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioTimer;

use crate::runtime::Tasks;

use super::connector::Connector;
use super::dial::Dialer;

/// Shorter than the keep-alive of common servers (Node: 5 s), so that an idle connection is ours to close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The client. Clones share the pool.
#[derive(Clone, Debug)]
pub struct HttpClient(Client<Connector, Full<Bytes>>);

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
    /// Makes a client whose connections are dialled by `dialer` and live in `tasks`.
    #[must_use]
    pub fn new(dialer: Dialer, tasks: &Tasks) -> Self {
        let client = Client::builder(InTasks(tasks.clone()))
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(Connector(dialer));
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
