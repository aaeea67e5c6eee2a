//! Servers behind Streamable HTTP: the connector, a link per era.
//!
//! Not for: choosing or pooling links (`upstream::server`), TLS, redirects, or the HTTP+SSE transport of 2024-11-05.

mod call;
mod listen;
mod probe;
mod reader;
mod session;
mod stateless;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use http::uri::Scheme;

use crate::net::HttpClient;
use crate::runtime::Tasks;

use super::link::{BoxFuture, Connector, StartError, Started, Want};
use super::settings::{EraChoice, ServerSettings, Transport};
use target::{Pauses, Target};

/// Opens links to one HTTP server.
#[derive(Debug)]
pub(super) struct HttpServer {
    target: Arc<Target>,
    tasks: Tasks,
    era: EraChoice,
    start_timeout: Duration,
    probe_timeout: Duration,
}

impl HttpServer {
    /// Takes the settings of a server; sends nothing.
    ///
    /// # Errors
    /// The settings are of another transport, or hold what cannot be sent.
    pub(super) fn new(settings: &ServerSettings, client: HttpClient, tasks: Tasks) -> Result<Self, StartError> {
        let Transport::Http { uri, headers, .. } = &settings.transport else {
            return Err(StartError::Failed("not an HTTP server".to_owned()));
        };
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(StartError::Failed("only http:// URLs are served yet".to_owned()));
        }
        let mut configured = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value.expose())
                .map_err(|_| StartError::Failed(format!("the value of header '{name}' cannot be sent")))?;
            value.set_sensitive(true);
            configured.append(name, value);
        }
        let target = Target {
            name: settings.name.clone(),
            uri: uri.clone(),
            configured,
            client,
            cap: settings.max_response_bytes,
            pauses: Pauses::NORMAL,
        };
        Ok(Self {
            target: Arc::new(target),
            tasks,
            era: settings.era,
            start_timeout: settings.start_timeout,
            probe_timeout: settings.probe_timeout,
        })
    }
}

impl Connector for HttpServer {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(async move {
            let opening =
                probe::open(Arc::clone(&self.target), self.tasks.clone(), (self.era, want), self.probe_timeout);
            tokio::time::timeout(self.start_timeout, opening).await.unwrap_or_else(|_| {
                let seconds = self.start_timeout.as_secs_f32();
                Err(StartError::Failed(format!("the handshake did not end within {seconds} s")))
            })
        })
    }
}
