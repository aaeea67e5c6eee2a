//! Two probes over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::net::Listener;
use crate::runtime::{Drain, Ready, Tasks};

/// The admin listener.
#[derive(Clone, Debug)]
pub struct Admin {
    ready: Ready,
    drain: Drain,
    tasks: Tasks,
}

impl Admin {
    /// Makes the listener's service.
    #[must_use]
    pub const fn new(ready: Ready, drain: Drain, tasks: Tasks) -> Self {
        Self { ready, drain, tasks }
    }

    /// Serves until all tasks are cancelled: probes are answered during a drain too.
    pub async fn serve(self, listener: Listener) {
        let admin = Arc::new(self);
        loop {
            let connection = listener.accept().await;
            let admin = Arc::clone(&admin);
            let tasks = admin.tasks.clone();
            tasks.spawn("admin connection", async move {
                let silence = connection.slot.silence();
                let asked = silence.clone();
                let service = service_fn(move |request| {
                    asked.ends();
                    let answer = admin.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let io = TokioIo::new(connection.stream);
                let served = http1::Builder::new().timer(TokioTimer::new()).serve_connection(io, service);
                let ended = tokio::select! {
                    biased;
                    ended = served => ended,
                    () = silence.gives_way() => Ok(()),
                };
                if let Err(err) = ended {
                    tracing::debug!(%err, "admin connection");
                }
                drop(connection.slot);
            });
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let waiting = self.ready.waiting_for();
        let (status, text) = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
            (&Method::GET | &Method::HEAD, "/readyz") if self.drain.is_draining() => {
                (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned())
            }
            (&Method::GET | &Method::HEAD, "/readyz") if waiting.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
            (&Method::GET | &Method::HEAD, "/readyz") => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", waiting.join(", ")))
            }
            (_, "/healthz" | "/readyz") => (StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".to_owned()),
            _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    }
}
