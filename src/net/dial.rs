//! Dials upstreams: names to addresses, the first address that answers, TLS where the URL says so.
//!
//! Not for: HTTP, pools, choosing which server. Invariants: all of it together is bounded in time; a dialer that demands
//! TLS opens no plain connection, whoever names the URL [TRN-5]; addresses are judged after the name is looked up, and once
//! more when the connection stands.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use http::uri::Scheme;
use tokio::net::TcpStream;

use crate::runtime::Tasks;

use super::http1::Quiet;
use super::reach::Reach;
use super::stream::byte_stream;
use super::tls::{ClientTls, ClientTlsStream, Leave as _, TlsFailure};

/// How long a connection may take: name, addresses, TLS handshake (product §9).
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long the next address waits for the one before (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 16;

/// Dials one server. Clones share its TLS.
#[derive(Clone, Debug)]
pub struct Dialer {
    tls: ClientTls,
    demand: Demand,
    reach: Reach,
    tasks: Tasks,
}

/// Whether a connection may be without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The URL's scheme decides.
    Scheme,
    /// A plain URL is refused, before anything is sent.
    Tls,
}

/// A connection to a server. Over TLS it takes its leave when it is dropped.
#[derive(Debug)]
pub enum DialedStream {
    /// TCP, without TLS.
    Plain(TcpStream),
    /// TLS; apart, because its state is large.
    Tls(Box<ClientTlsStream>),
}

byte_stream!(DialedStream: Plain, Tls);

impl Quiet for DialedStream {
    fn is_quiet(&mut self) -> bool {
        match self {
            // Unlike a poll, this leaves the waker of whoever reads in its place.
            Self::Plain(socket) => socket.try_read(&mut [0]).is_err_and(|err| err.kind() == io::ErrorKind::WouldBlock),
            Self::Tls(stream) => stream.is_quiet(),
        }
    }
}

impl Quiet for ClientTlsStream {}

impl Drop for DialedStream {
    fn drop(&mut self) {
        if let Self::Tls(stream) = self {
            stream.leave();
        }
    }
}

/// Why there is no connection; the server has seen nothing of a request. The words name no address.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The URL has no host, or a scheme that is not spoken.
    #[error("its URL has no host, or neither http nor https")]
    Url,
    /// TLS is demanded, and the URL is plain.
    #[error("a plain http URL is refused: this server is spoken to over https alone")]
    Plain,
    /// The name has no address.
    #[error("its name cannot be looked up: {0}")]
    Name(io::Error),
    /// It has no address that may be dialled.
    #[error("it is at no public address: allow_private_redirects = true on the server would allow it")]
    Private,
    /// No address takes a connection.
    #[error("it takes no connection: {0}")]
    Refused(io::Error),
    /// There is no TLS with it.
    #[error(transparent)]
    Tls(#[from] TlsFailure),
    /// It took too long.
    #[error("no connection within {} s", CONNECT_MAX.as_secs())]
    Slow,
}

impl Dialer {
    /// Makes a dialer; nothing is read or sent yet.
    #[must_use]
    pub fn new(tls: ClientTls, demand: Demand, tasks: &Tasks) -> Self {
        Self { tls, demand, reach: Reach::Any, tasks: tasks.clone() }
    }

    /// Dials no further than `reach`: for URLs that a server names.
    #[must_use]
    pub const fn with_reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Says whether a plain URL is refused.
    #[must_use]
    pub fn demands_tls(&self) -> bool {
        self.demand == Demand::Tls
    }

    /// Opens a connection to the origin of a URL, its handshake included. HTTP/1.1 is what is spoken on it.
    ///
    /// # Errors
    /// [`DialError`].
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn dial(&self, url: &Uri) -> Result<DialedStream, DialError> {
        let secure = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(_) | None => return Err(DialError::Url),
        };
        if self.demand == Demand::Tls && !secure {
            return Err(DialError::Plain);
        }
        let host = url.host().map(bare).filter(|host| !host.is_empty()).ok_or(DialError::Url)?;
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let opened = tokio::time::timeout(CONNECT_MAX, self.open(host, port, secure)).await;
        opened.unwrap_or(Err(DialError::Slow))
    }

    async fn open(&self, host: &str, port: u16, secure: bool) -> Result<DialedStream, DialError> {
        let name = host.strip_suffix('.').unwrap_or(host);
        let mut found = addresses(name, port).await.map_err(DialError::Name)?;
        // Of what the name came to, however it was spelled: no check of a text is enough.
        let known = !found.is_empty();
        found.retain(|address| self.reach.takes(address.ip()));
        if known && found.is_empty() {
            return Err(DialError::Private);
        }
        let socket = first_of(in_turns(found)).await.map_err(DialError::Refused)?;
        if !self.reach.takes(socket.peer_addr().map_err(DialError::Refused)?.ip()) {
            return Err(DialError::Private);
        }
        socket.set_nodelay(true).map_err(DialError::Refused)?;
        if !secure {
            return Ok(DialedStream::Plain(socket));
        }
        let stream = self.tls.connect(name, socket, &self.tasks).await?;
        Ok(DialedStream::Tls(Box::new(stream)))
    }
}

/// Takes the brackets off an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Finds the addresses of a name. `localhost` is both loopback addresses, whatever the machine's files say (RFC 6761).
async fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name.eq_ignore_ascii_case("localhost") {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    Ok(tokio::net::lookup_host((name, port)).await?.collect())
}

/// Orders addresses so that the two families take turns; the first stays first.
fn in_turns(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (one, two): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut one, mut two) = (one.into_iter(), two.into_iter());
    let turns = std::iter::from_fn(|| {
        let pair = [one.next(), two.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    turns.flatten().flatten().take(ADDRESSES_MAX).collect()
}

/// Connects to the first address that answers: each begins when the one before has failed or had its start.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut trying = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    if let Some(address) = waiting.next() {
        trying.push(TcpStream::connect(address));
    }
    loop {
        let more = !waiting.as_slice().is_empty();
        tokio::select! {
            tried = trying.next() => match tried {
                Some(Ok(socket)) => return Ok(socket),
                Some(Err(err)) => failure = err,
                None if !more => return Err(failure),
                None => {}
            },
            () = tokio::time::sleep(HEAD_START), if more => {}
        }
        if let Some(address) = waiting.next() {
            trying.push(TcpStream::connect(address));
        }
    }
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
