//! Opens links to one HTTP server.
//!
//! Not for: finding out the era (`probe`) or sending (`target`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{HeaderMap, HeaderValue};
use http::uri::Scheme;

use crate::net::{ClientTls, Demand, Dialer, HttpClient};
use crate::runtime::Tasks;
use crate::wire::mcp::Era;

use super::redirect::Redirects;
use super::target::Target;
use super::{probe, sse};
use crate::upstream::link::{BoxFuture, Connector, StartError, Started, Want};
use crate::upstream::secrets::Secrets;
use crate::upstream::settings::{HttpKind, ServerSettings, Transport};

/// Makes the connector of one HTTP server; what cannot be sent shows when it is opened.
pub(in crate::upstream) fn connector(settings: Arc<ServerSettings>, tasks: Tasks) -> Arc<dyn Connector> {
    match HttpServer::new(settings, tasks) {
        Ok(server) => Arc::new(server),
        Err(err) => Arc::new(Unusable(err)),
    }
}

/// Makes what connects to the server. One that is configured with https, or with an authority of its own, is never
/// spoken to without TLS, whatever URL it names later [TRN-5].
pub(super) fn dialer(settings: &ServerSettings, tasks: &Tasks) -> Dialer {
    let ca = settings.tls_ca_cert_path.clone();
    let https = matches!(&settings.transport, Transport::Http { uri, .. } if uri.scheme() == Some(&Scheme::HTTPS));
    let demand = if https || ca.is_some() { Demand::Tls } else { Demand::Scheme };
    Dialer::new(ClientTls::new(ca), demand, tasks)
}

/// A server whose settings cannot be used.
#[derive(Debug)]
struct Unusable(StartError);

/// Opens links to one HTTP server.
#[derive(Debug)]
struct HttpServer {
    target: Arc<Target>,
    tasks: Tasks,
    settings: Arc<ServerSettings>,
    /// It was one of HTTP+SSE when it was opened last; a hint, for another may stand there now (protocol §2.8).
    is_sse: AtomicBool,
}

impl HttpServer {
    /// Takes the settings of a server; sends nothing.
    ///
    /// # Errors
    /// The settings are of another transport, or hold what cannot be sent.
    fn new(settings: Arc<ServerSettings>, tasks: Tasks) -> Result<Self, StartError> {
        let Transport::Http { uri, headers, .. } = &settings.transport else {
            return Err(StartError::Failed("not an HTTP server".to_owned()));
        };
        let mut configured = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value.expose())
                .map_err(|_| StartError::Failed(format!("the value of header '{name}' cannot be sent")))?;
            value.set_sensitive(true);
            configured.append(name, value);
        }
        let dialer = dialer(&settings, &tasks);
        let redirects = Redirects::new(uri.clone(), dialer.clone(), settings.redirects, tasks.clone());
        let client = HttpClient::new(&tasks, dialer, uri.clone());
        let target = Target::new(settings.name.clone(), uri, configured, client, settings.max_response_bytes)
            .with_inspect(settings.inspect)
            .with_redirects(redirects)
            .with_secrets(Secrets::of(&settings));
        Ok(Self { target: Arc::new(target), tasks, settings, is_sse: AtomicBool::new(false) })
    }

    /// Opens a link: at once where the transport is known, else by finding it out.
    async fn start(&self, want: Want) -> Result<Started, StartError> {
        let (target, settings) = (&self.target, &self.settings);
        let configured = settings.http == HttpKind::Sse;
        if want.era == Some(Era::Stateless) && configured {
            return Err(StartError::Era(Era::Stateless, "HTTP+SSE has none".to_owned()));
        }
        // Taken back until it has come true again: a start that hangs is not begun in the same way twice.
        if configured || (want.era != Some(Era::Stateless) && self.is_sse.swap(false, Ordering::Relaxed)) {
            let opened = sse::open(target, Arc::clone(settings), &self.tasks, want.features).await;
            self.is_sse.store(opened.is_ok(), Ordering::Relaxed);
            if opened.is_ok() || configured {
                return opened;
            }
        }
        let wanted = (want.era, want.features);
        let started = probe::open(Arc::clone(target), self.tasks.clone(), Arc::clone(settings), wanted).await?;
        self.is_sse.store(started.link.is_channel(), Ordering::Relaxed);
        Ok(started)
    }
}

impl Connector for Unusable {
    fn open(self: Arc<Self>, _: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(std::future::ready(Err(self.0.clone())))
    }
}

impl Connector for HttpServer {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(async move {
            let limit = self.settings.start_timeout;
            tokio::time::timeout(limit, self.start(want)).await.unwrap_or_else(|_| {
                let seconds = limit.as_secs_f32();
                Err(StartError::Failed(format!("the handshake did not end within {seconds} s")))
            })
        })
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
