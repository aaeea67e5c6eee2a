//! The listener's side: a certificate that is read again when its files change, and handshakes bounded in time.
//!
//! Not for: accepting, or how many there may be (`slots`: who is in its handshake gives way as the silent do). Invariants:
//! connections that are open keep the certificate they began with; what cannot be used never replaces what can.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use crate::codes::Code;
use crate::runtime::Tasks;

use super::file::{self, TlsFileError};
use super::{PROVIDER, pem, validity};

/// A connection after its handshake.
pub type ServerTlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// How long a client may take from its connection to the end of its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The pause between two looks at the files.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// What the listener offers, the best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What a client of plain HTTP is answered.
const WRONG_SCHEME: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n\
    Connection: close\r\n\r\nThis port speaks https: begin the URL with https.\n";
/// How much of its request is read after that, in bytes.
const REST_MAX: u64 = 64 << 10;

/// Where the listener's certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain, the leaf first, in PEM form.
    pub cert: PathBuf,
    /// Its private key, in PEM form, not encrypted.
    pub key: PathBuf,
}

/// What is doubtful of files that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Everybody on the machine may read the key.
    pub open_to_all: bool,
    /// A certificate has expired, or is not valid yet: which, and when.
    pub untimely: Option<String>,
}

/// What a second look at the files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reread {
    /// What is served already, or what was found unusable before.
    Same,
    /// Another certificate, which new connections get.
    New,
    /// Something that cannot be used; the one before stays.
    Kept(TlsFileError),
}

/// The TLS of a listener. Clones share it.
#[derive(Clone)]
pub struct ServerTls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    /// What the last look found, good or bad.
    seen: Mutex<Hash>,
}

/// The certificate of new connections.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

/// The SHA-256 of both files.
type Hash = [[u8; 32]; 2];

/// What a handshake came to.
pub(in crate::net) struct Handshake {
    pub(in crate::net) stream: Box<ServerTlsStream>,
    /// Whether HTTP/2 was agreed on; `None` if the client named no protocol.
    pub(in crate::net) http2: Option<bool>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

// === impl TlsFiles ===

impl TlsFiles {
    /// Says whether a listener could use the files now, and what is doubtful of them.
    ///
    /// # Errors
    /// [`TlsFileError`].
    pub fn check(&self) -> Result<Doubts, TlsFileError> {
        let (cert, key) = (file::read(&self.cert)?, file::read(&self.key)?);
        let certified = self.certified(&cert, &key)?;
        Ok(Doubts { open_to_all: key.open_to_all, untimely: validity::untimely(&certified.cert) })
    }

    fn certified(&self, cert: &file::Content, key: &file::Content) -> Result<CertifiedKey, TlsFileError> {
        let fail = |path: &Path, why: String| TlsFileError::new(path, why);
        let chain = pem::certificates(cert.bytes.expose()).map_err(|why| fail(&self.cert, why.to_owned()))?;
        let key = pem::private_key(key.bytes.expose()).map_err(|why| fail(&self.key, why.to_owned()))?;
        CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|err| {
            if let rustls::Error::InconsistentKeys(_) = err {
                return fail(&self.key, format!("is not the key of the certificate in {}", self.cert.display()));
            }
            let path = if let rustls::Error::InvalidCertificate(_) = err { &self.cert } else { &self.key };
            fail(path, format!("cannot be used: {err}"))
        })
    }
}

// === impl ServerTls ===

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`].
    pub fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        let (cert, key) = (file::read(&files.cert)?, file::read(&files.key)?);
        let seen = Mutex::new([cert.hash, key.hash]);
        let current = Arc::new(Current(ArcSwap::from_pointee(files.certified(&cert, &key)?)));
        let resolver = Arc::clone(&current);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()
            .map_err(|err| TlsFileError::new(&files.cert, format!("cannot be used: {err}")))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        Ok(Self(Arc::new(Shared { files, config: Arc::new(config), current, seen })))
    }

    /// Looks at the files again. Their content decides, not their times or names, so that a swapped symbolic link is
    /// seen and a touched file is not. Blocks.
    #[must_use]
    pub fn reread(&self) -> Reread {
        match self.0.look() {
            Ok(true) => Reread::New,
            Ok(false) => Reread::Same,
            Err(err) => Reread::Kept(err),
        }
    }

    /// Says whether the certificate of new connections has expired, or is not valid yet.
    fn untimely(&self) -> Option<String> {
        validity::untimely(&self.0.current.0.load().cert)
    }

    /// Starts the task that looks at the files every 2 s and says in the log what it found, and that the certificate has
    /// expired. What is so from the start has been said of the configuration.
    pub fn watch(&self, tasks: &Tasks) {
        let (tls, blocking) = (self.clone(), tasks.clone());
        tasks.spawn("watch the certificate", async move {
            let mut ticks = tokio::time::interval(LOOK_PAUSE);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let (mut unreadable, mut untimely) = (None, tls.untimely());
            loop {
                ticks.tick().await;
                let looked = tls.clone();
                let look = move || (looked.reread(), looked.untimely());
                let Ok((found, timely)) = blocking.blocking(look).await else { return };
                unreadable = tls.tell(found, unreadable.as_ref());
                if let Some(why) = timely.as_ref().filter(|why| untimely.as_ref() != Some(why)) {
                    let cert = tls.0.files.cert.display();
                    tracing::warn!(tls_cert = %cert, code = Code::Doubtful.id(), "{why}: clients refuse it");
                }
                untimely = timely;
            }
        });
    }

    /// Writes what a look found, a failure that repeats itself once; returns that failure.
    fn tell(&self, found: Reread, before: Option<&TlsFileError>) -> Option<TlsFileError> {
        match found {
            Reread::Same => None,
            Reread::New => {
                tracing::info!(tls_cert = %self.0.files.cert.display(), "new connections get the new certificate");
                None
            }
            Reread::Kept(err) => {
                if before != Some(&err) {
                    tracing::error!(%err, "the new certificate cannot be used: the one before stays");
                }
                Some(err)
            }
        }
    }

    /// Makes the handshake with a client, within 10 s.
    pub(in crate::net) async fn accept(&self, socket: TcpStream) -> io::Result<Handshake> {
        let shaken = tokio::time::timeout(HANDSHAKE_MAX, self.shake(socket)).await;
        shaken.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")))
    }

    async fn shake(&self, socket: TcpStream) -> io::Result<Handshake> {
        let mut first = [0];
        // Looked at and not taken. A message of TLS begins with its type, which is no letter (RFC 8446 §5.1).
        socket.peek(&mut first).await?;
        if first.iter().all(u8::is_ascii_uppercase) {
            return Err(turn_away(socket).await);
        }
        let started = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let stream = started.into_stream(Arc::clone(&self.0.config)).await?;
        let http2 = stream.get_ref().1.alpn_protocol().map(|protocol| Some(&protocol) == ALPN.first());
        Ok(Handshake { stream: Box::new(stream), http2 })
    }
}

/// Tells a client of plain HTTP, in its own language, that this is the wrong one.
async fn turn_away(mut socket: TcpStream) -> io::Error {
    let peer = socket.peer_addr().ok();
    tracing::info!(peer = peer.map(tracing::field::display), "a client speaks plain http to a port of https: refused");
    if socket.write_all(WRONG_SCHEME).await.is_ok() && socket.shutdown().await.is_ok() {
        // A socket that closes over unread bytes is reset, and the answer may be lost.
        let _rest = tokio::io::copy(&mut socket.take(REST_MAX), &mut tokio::io::sink()).await.is_ok();
    }
    io::Error::new(io::ErrorKind::InvalidData, "the client speaks plain http to a port of https")
}

impl Shared {
    /// Says whether there is a new certificate that is good, and takes it.
    fn look(&self) -> Result<bool, TlsFileError> {
        let (cert, key) = (file::read(&self.files.cert)?, file::read(&self.files.key)?);
        let hash = [cert.hash, key.hash];
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == hash {
            return Ok(false);
        }
        *seen = hash;
        let certified = self.files.certified(&cert, &key)?;
        self.current.0.store(Arc::new(certified));
        Ok(true)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.0.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
