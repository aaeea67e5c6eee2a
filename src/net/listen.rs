//! Listeners: bound sockets that hand on connections, never more at once than there are slots; one more waits for its slot.
//!
//! Not for: HTTP. Invariant: an accept error never ends a listener; a connection holds its slot until it is dropped.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use super::local::LocalListener;
use super::slots::{Slot, Slots};
use super::stream::{HttpStream, HttpVersion, Stream};
use super::tls::ServerTls;

/// How many connections the kernel may hold ready for us.
pub(super) const BACKLOG: i32 = 1024;
/// The shortest and the longest pause after a failed accept (out of descriptors, mostly).
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How long a connection may be silent before the kernel asks whether the peer is still there.
const PROBE_AFTER: Duration = Duration::from_secs(60);

/// A bound socket. A local one takes its file away when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Bound,
    tls: Option<ServerTls>,
    slots: Slots,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener, SocketAddr),
    Local(LocalListener),
}

/// A connection with its slot.
#[derive(Debug)]
pub struct Connection {
    /// The stream, before any TLS.
    pub stream: Stream,
    /// Who is at the other end; nothing is known of one on a local socket.
    pub peer: Option<SocketAddr>,
    /// Given back when it is dropped.
    pub slot: Slot,
    tls: Option<ServerTls>,
}

// === impl Listener ===

impl Listener {
    /// Binds; needs a runtime. An IPv6 address takes IPv6 connections alone.
    ///
    /// # Errors
    /// The address is in use or not ours.
    pub fn bind(address: SocketAddr, slots: Slots) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from_std(socket.into())?;
        let address = socket.local_addr()?;
        Ok(Self { socket: Bound::Tcp(socket, address), tls: None, slots })
    }

    /// Binds a local socket that only this user may connect to; needs a runtime. One that a process has left behind is
    /// replaced.
    ///
    /// # Errors
    /// Somebody listens there, or something else has that name, or the folder is not ours to write.
    pub fn bind_local(path: &Path, slots: Slots) -> io::Result<Self> {
        Ok(Self { socket: Bound::Local(LocalListener::bind(path)?), tls: None, slots })
    }

    /// Demands TLS of every TCP connection.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<ServerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Returns where it listens, with the port that was chosen for port 0; `None` for a local socket.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Bound::Tcp(_, address) => Some(*address),
            Bound::Local(_) => None,
        }
    }

    /// Says whether only this machine reaches it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address().is_none_or(|address| address.ip().is_loopback())
    }

    /// Waits for a connection, then for a slot for it. Errors are waited out with growing pauses.
    ///
    /// # Cancel safety
    /// A connection that waits for its slot is closed.
    pub async fn accept(&self) -> Connection {
        let mut pause = PAUSE.0;
        loop {
            match self.accept_now().await {
                Ok(Some((stream, peer))) => {
                    let slot = self.slots.take().await;
                    return Connection { stream, peer, slot, tls: self.tls.clone() };
                }
                Ok(None) => {}
                Err(err) if is_of_the_connection(&err) => {}
                Err(err) => {
                    tracing::warn!(%err, listener = %self, "cannot accept connections");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    async fn accept_now(&self) -> io::Result<Option<(Stream, Option<SocketAddr>)>> {
        match &self.socket {
            Bound::Tcp(socket, _) => {
                let (stream, peer) = socket.accept().await?;
                if let Err(err) = prepare(&stream) {
                    tracing::debug!(%err, "a connection was gone before it was served");
                    return Ok(None);
                }
                Ok(Some((Stream::Tcp(stream), Some(peer))))
            }
            Bound::Local(socket) => Ok(Some((Stream::Unix(socket.accept().await?), None))),
        }
    }
}

/// Where it listens, as a URL without path, or `unix:` and a path.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.socket, &self.tls) {
            (Bound::Tcp(_, address), Some(_)) => write!(f, "https://{address}"),
            (Bound::Tcp(_, address), None) => write!(f, "http://{address}"),
            (Bound::Local(socket), _) => write!(f, "unix:{}", socket.path().display()),
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Finishes what comes before HTTP: the TLS handshake, if one is demanded, and the first bytes, for which the client
    /// has `pause`. For the connection's own task: a client that stalls must not hold up the others.
    ///
    /// # Errors
    /// The client is gone, too slow, or does not speak TLS.
    pub async fn open(self, pause: Duration) -> io::Result<(HttpStream, HttpVersion, Slot)> {
        let (stream, version) = HttpStream::open(self.stream, self.tls.as_ref(), pause).await?;
        Ok((stream, version, self.slot))
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER))
}

/// Says whether an error ended one connection and says nothing of the socket.
fn is_of_the_connection(err: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    [Kind::ConnectionAborted, Kind::ConnectionReset, Kind::ConnectionRefused, Kind::Interrupted].contains(&err.kind())
}
