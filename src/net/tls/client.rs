//! The upstream side: chain, expiry and host name are always verified, by authorities that are read anew [TRN-5].
//!
//! Not for: dialling (`net::dial`). Invariants: there is no switch that turns a check off; no session is resumed, because
//! a resumed one would skip the checks; only HTTP/1.1 is offered.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::runtime::Tasks;

use super::file::{self, TlsFileError};
use super::{PROVIDER, roots};

/// A connection to a server whose certificate was found good.
pub type ClientTlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// What one server's certificate is judged by. Clones share it.
#[derive(Clone)]
pub struct ClientTls(Arc<Judge>);

struct Judge {
    /// The server's own `tls_ca_cert_path`.
    ca: Option<PathBuf>,
    made: Mutex<Option<Made>>,
}

/// A configuration, and the hash of the file's content it was made from, where there is a file.
struct Made {
    of: Option<[u8; 32]>,
    config: Arc<ClientConfig>,
}

/// Why there is no TLS connection. The words name no address and no content of a file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsFailure {
    /// `tls_ca_cert_path` cannot be used.
    #[error("tls_ca_cert_path: {0}")]
    File(#[from] TlsFileError),
    /// The host of the URL is nothing that a certificate can name.
    #[error("its host name is not one that a certificate can be for")]
    Name,
    /// The certificate, or the handshake, is not good.
    #[error("{0}")]
    Handshake(String),
}

impl ClientTls {
    /// Takes the path of authorities that are trusted beside the default ones; reads nothing yet.
    #[must_use]
    pub fn new(ca: Option<PathBuf>) -> Self {
        Self(Arc::new(Judge { ca, made: Mutex::default() }))
    }

    /// Makes the handshake. The file of authorities is read first, so that each connection is judged by what it holds
    /// then.
    ///
    /// # Errors
    /// [`TlsFailure`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the socket.
    pub async fn connect(&self, host: &str, socket: TcpStream, tasks: &Tasks) -> Result<ClientTlsStream, TlsFailure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsFailure::Name)?;
        let config = match self.0.ready() {
            Some(config) => config,
            None => {
                let judge = Arc::clone(&self.0);
                let made = tasks.blocking(move || judge.config()).await;
                made.map_err(|_| TlsFailure::Handshake("the gateway is stopping".to_owned()))??
            }
        };
        let connected = TlsConnector::from(config).connect(name, socket).await;
        connected.map_err(|err| TlsFailure::Handshake(words(&err)))
    }
}

impl Judge {
    /// Returns what is made already, where no file can have changed it.
    fn ready(&self) -> Option<Arc<ClientConfig>> {
        if self.ca.is_some() {
            return None;
        }
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref().map(|made| Arc::clone(&made.config))
    }

    /// Reads the file, if there is one, and makes the configuration if its content is new. Blocks.
    fn config(&self) -> Result<Arc<ClientConfig>, TlsFailure> {
        let content = self.ca.as_ref().map(|path| Ok::<_, TlsFileError>((path, file::read(path)?))).transpose()?;
        let hash = content.as_ref().map(|(_, content)| content.hash);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| made.of == hash) {
            return Ok(Arc::clone(&made.config));
        }
        let roots = match &content {
            Some((path, content)) => Arc::new(roots::with(path, content)?),
            None => roots::defaults(),
        };
        let config = Arc::new(configure(roots)?);
        *made = Some(Made { of: hash, config: Arc::clone(&config) });
        Ok(config)
    }
}

fn configure(roots: Arc<RootCertStore>) -> Result<ClientConfig, TlsFailure> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .map_err(|err| TlsFailure::Handshake(err.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Says which check failed.
fn words(err: &std::io::Error) -> String {
    let Some(cause) = err.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) else {
        return format!("the TLS handshake broke off: {err}");
    };
    if let Error::InvalidMessage(_) = cause {
        return "it does not speak TLS".to_owned();
    }
    let Error::InvalidCertificate(why) = cause else { return format!("the TLS handshake failed: {cause}") };
    if let CertificateError::Expired | CertificateError::ExpiredContext { .. } = why {
        return "its certificate has expired".to_owned();
    }
    if let CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } = why {
        return "its certificate is not valid yet".to_owned();
    }
    if let CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } = why {
        // The host may be part of a secret: it is not repeated.
        return "its certificate is not for the host of its url".to_owned();
    }
    // An authority that was made anew under its old name has another key.
    if let CertificateError::UnknownIssuer | CertificateError::BadSignature = why {
        return "its certificate is of no authority that is trusted here (tls_ca_cert_path adds one)".to_owned();
    }
    format!("its certificate is not accepted: {why}")
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("ca", &self.0.ca).finish_non_exhaustive()
    }
}
