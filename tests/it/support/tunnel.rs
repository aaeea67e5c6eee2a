//! TLS by hand around plain peers: a way into the gateway for the plain client, and a front for the scripted server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use portcullis::runtime::Tasks;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::certs::Leaf;

/// A TLS connection of a client.
pub(crate) type Secured = tokio_rustls::client::TlsStream<TcpStream>;

/// A plain port whose connections go on elsewhere; it ends when it is dropped.
pub(crate) struct Tunnel {
    /// The plain port.
    pub(crate) addr: SocketAddr,
    tasks: Tasks,
}

impl Tunnel {
    /// Leads to a TLS port with a certificate of this authority.
    pub(crate) async fn to_tls(addr: SocketAddr, authority: &str) -> Self {
        let authority = authority.to_owned();
        Self::start(move |near| {
            let authority = authority.clone();
            async move { join(near, connect_tls(addr, &authority, &[b"http/1.1"]).await?).await }
        })
        .await
    }

    /// Leads to a local socket.
    pub(crate) async fn to_socket(path: PathBuf) -> Self {
        Self::start(move |near| {
            let path = path.clone();
            async move { join(near, UnixStream::connect(path).await?).await }
        })
        .await
    }

    /// Is a TLS port with this certificate, which leads to a plain one.
    pub(crate) async fn of_tls(leaf: &Leaf, to: SocketAddr) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        Self::start(move |near| {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            async move { join(TcpStream::connect(to).await?, acceptor.accept(near).await?).await }
        })
        .await
    }

    async fn start<F>(lead: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let all = tasks.clone();
        tasks.spawn("tunnel", async move {
            while let Ok((near, _)) = listener.accept().await {
                let led = lead(near);
                // A peer that ends a connection is what some tests are about.
                all.spawn("tunnelled connection", async move { led.await.unwrap_or_default() });
            }
        });
        Self { addr, tasks }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn join<A, B>(mut near: A, mut far: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    copy_bidirectional(&mut near, &mut far).await.map(|_| ())
}

/// Connects to `localhost` at this port with TLS, trusting this authority alone.
pub(crate) async fn connect_tls(addr: SocketAddr, authority: &str, alpn: &[&[u8]]) -> io::Result<Secured> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(addr).await?).await
}
