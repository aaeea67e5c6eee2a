//! Listeners: bound sockets that hand on connections, never more at once than there are slots.
//!
//! Not for: HTTP. Invariant: an accept error never ends a listener; a connection holds its slot until it is dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections the kernel may hold ready for us.
const BACKLOG: i32 = 1024;
/// The shortest and the longest pause after a failed accept (out of descriptors, mostly).
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How long a connection may be silent before the kernel asks whether the peer is still there.
const PROBE_AFTER: Duration = Duration::from_secs(60);

/// The connections that may be open at once; clones share them, so that several sockets have one bound.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Semaphore>);

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    slots: Slots,
}

/// A connection with its slot.
#[derive(Debug)]
pub struct Connection {
    /// The stream.
    pub stream: TcpStream,
    /// Who is at the other end.
    pub peer: SocketAddr,
    /// Given back when it is dropped.
    pub slot: OwnedSemaphorePermit,
}

// === impl Slots ===

impl Slots {
    /// Makes `max` slots.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }
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
        Ok(Self { socket, address, slots })
    }

    /// Returns where it listens, with the port that was chosen for port 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a free slot, then for a connection. Errors are waited out with growing pauses.
    ///
    /// # Cancel safety
    /// Safe: what is dropped is a slot; no connection is lost.
    pub async fn accept(&self) -> Connection {
        let slot = match Arc::clone(&self.slots.0).acquire_owned().await {
            Ok(slot) => slot,
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        };
        let mut pause = PAUSE.0;
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    if let Err(err) = prepare(&stream) {
                        tracing::debug!(%err, "a connection was gone before it was served");
                        continue;
                    }
                    return Connection { stream, peer, slot };
                }
                Err(err) if is_of_the_connection(&err) => {}
                Err(err) => {
                    tracing::warn!(%err, address = %self.address, "cannot accept connections");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use futures_util::FutureExt as _;
    use tokio::net::TcpStream;

    use super::{Listener, Slots};

    #[tokio::test]
    async fn a_slot_bounds_connections_and_comes_back() {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(1)).unwrap();
        let _one = TcpStream::connect(listener.address()).await.unwrap();
        let _two = TcpStream::connect(listener.address()).await.unwrap();
        let first = listener.accept().await;
        assert!(listener.accept().now_or_never().is_none());
        drop(first);
        listener.accept().await;
    }
}
