//! A client's connection as bytes, and which HTTP it speaks.
//!
//! Not for: accepting (`listen`), HTTP itself. Invariant: a plain connection costs nothing that only TLS or HTTP/2 needs.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;

use crate::runtime::Turn;

use super::tls::{Handshake, Leave as _, ServerTls, ServerTlsStream};

/// What a client of HTTP/2 sends first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads and writes through the variants of an enum.
macro_rules! byte_stream {
    ($name:ident: $($variant:ident),+) => {
        impl tokio::io::AsyncRead for $name {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(io) => std::pin::Pin::new(io).poll_read(cx, buf),)+
                }
            }
        }

        impl tokio::io::AsyncWrite for $name {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                match self.get_mut() {
                    $(Self::$variant(io) => std::pin::Pin::new(io).poll_write(cx, buf),)+
                }
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                match self.get_mut() {
                    $(Self::$variant(io) => std::pin::Pin::new(io).poll_write_vectored(cx, bufs),)+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $(Self::$variant(io) => io.is_write_vectored(),)+
                }
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(io) => std::pin::Pin::new(io).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(io) => std::pin::Pin::new(io).poll_shutdown(cx),)+
                }
            }
        }
    };
}
pub(super) use byte_stream;

/// An accepted connection.
#[derive(Debug)]
pub enum Stream {
    /// TCP, without TLS.
    Tcp(TcpStream),
    /// TCP after its TLS handshake; apart, because its state is large and the others' is not.
    Tls(Box<ServerTlsStream>),
    /// A local socket.
    Unix(UnixStream),
}

byte_stream!(Stream: Tcp, Tls, Unix);

/// Which HTTP a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0 or HTTP/1.1.
    One,
    /// HTTP/2, by ALPN or by prior knowledge.
    Two,
}

/// A connection that is ready for HTTP: what was read of it to find out which, and the rest. Over TLS it takes its leave when
/// it is dropped.
#[derive(Debug)]
pub struct HttpStream {
    first: Bytes,
    stream: Stream,
    stall: Stall,
    turn: Turn,
}

/// How long a client may take nothing of what is to be written to it. Costs a compare where it takes everything.
#[derive(Debug, Default)]
struct Stall {
    most: Option<Duration>,
    /// Set while it takes nothing.
    bell: Option<Pin<Box<Sleep>>>,
}

impl HttpStream {
    fn new(first: Bytes, stream: Stream) -> Self {
        Self { first, stream, stall: Stall::default(), turn: Turn::new() }
    }

    /// Fails a write of which the client takes nothing for so long.
    #[must_use]
    pub const fn with_write_timeout(mut self, most: Duration) -> Self {
        self.stall.most = Some(most);
        self
    }

    /// Finishes what comes before HTTP: the TLS handshake, and the first bytes, for which the client has `pause`.
    pub(super) async fn open(
        stream: Stream,
        tls: Option<&ServerTls>,
        pause: Duration,
    ) -> io::Result<(Self, HttpVersion)> {
        let (stream, agreed) = match (tls, stream) {
            (Some(tls), Stream::Tcp(socket)) => {
                let Handshake { stream, http2 } = tls.accept(socket).await?;
                (Stream::Tls(stream), http2)
            }
            (_, stream) => (stream, None),
        };
        let opened = Self::new(Bytes::new(), stream);
        match agreed {
            Some(true) => Ok((opened, HttpVersion::Two)),
            Some(false) => Ok((opened, HttpVersion::One)),
            None => {
                let told = tokio::time::timeout(pause, opened.by_first_bytes()).await;
                told.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")))
            }
        }
    }

    /// Reads no further than it takes to tell.
    async fn by_first_bytes(mut self) -> io::Result<(Self, HttpVersion)> {
        let mut first = BytesMut::with_capacity(PREFACE.len());
        while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
            let room = PREFACE.len() - first.len();
            if self.stream.read_buf(&mut (&mut first).limit(room)).await? == 0 {
                break;
            }
        }
        let version = if first == PREFACE { HttpVersion::Two } else { HttpVersion::One };
        self.first = first.freeze();
        Ok((self, version))
    }
}

impl HttpStream {
    fn wrote(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &polled {
            self.turn.took(*count);
        }
        self.stall.judge(cx, polled)
    }
}

/// Returns the first `most` bytes; `None` if there are no more than that.
fn cut<'a>(bufs: &'a [io::IoSlice<'a>], most: usize) -> Option<SmallVec<[io::IoSlice<'a>; 4]>> {
    let mut left = most;
    let mut part = SmallVec::new();
    for (at, buf) in bufs.iter().enumerate() {
        match left.checked_sub(buf.len()) {
            Some(rest) => left = rest,
            None => {
                part.extend(bufs.get(..at).unwrap_or_default().iter().copied());
                part.push(io::IoSlice::new(buf.get(..left).unwrap_or_default()));
                return Some(part);
            }
        }
    }
    None
}

impl Drop for HttpStream {
    fn drop(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.leave();
        }
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            // Who looks for a request begins a turn: the next answer does not wait for what the one before was.
            this.turn.renew();
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let count = this.first.len().min(buf.remaining());
        buf.put_slice(&this.first.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let part = buf.get(..ready!(this.turn.poll_share(cx, buf.len()))).unwrap_or(buf);
        let polled = Pin::new(&mut this.stream).poll_write(cx, part);
        this.wrote(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        let share = ready!(this.turn.poll_share(cx, bytes));
        let part = if share < bytes { cut(bufs, share) } else { None };
        let polled = match part {
            None => Pin::new(&mut this.stream).poll_write_vectored(cx, bufs),
            Some(part) => Pin::new(&mut this.stream).poll_write_vectored(cx, &part),
        };
        this.wrote(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        this.stall.judge(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.stall.judge(cx, polled)
    }
}

impl Stall {
    /// Passes on what came of a write, unless nothing has for too long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match (polled, self.most) {
            (Poll::Pending, Some(most)) => {
                let bell = self.bell.get_or_insert_with(|| Box::pin(tokio::time::sleep(most)));
                ready!(bell.as_mut().poll(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
            }
            (polled, _) => {
                if self.bell.is_some() {
                    self.bell = None;
                }
                polled
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
    use tokio::net::UnixStream;

    use super::{HttpStream, HttpVersion, PREFACE, Stream};
    use crate::runtime::TURN_BYTES;

    /// Every way to cut the first bytes leads to the same finding, and no byte is lost.
    #[tokio::test]
    async fn the_first_bytes_tell_the_version_and_are_read_again() {
        let two = [PREFACE, b"rest"].concat();
        let cases: [(&[u8], HttpVersion); 6] = [
            (b"POST /mcp HTTP/1.1\r\n\r\n", HttpVersion::One),
            (b"PRI * HTTP/1.1\r\n\r\n and more to come", HttpVersion::One),
            (b"PR", HttpVersion::One),
            (b"", HttpVersion::One),
            (&two, HttpVersion::Two),
            (PREFACE, HttpVersion::Two),
        ];
        for (text, expected) in cases {
            for cut in 0..=text.len() {
                let (mut client, server) = UnixStream::pair().unwrap();
                let opened = async { HttpStream::open(Stream::Unix(server), None, Duration::from_secs(60)).await };
                let sent = async {
                    client.write_all(&text[..cut]).await.unwrap();
                    tokio::task::yield_now().await;
                    client.write_all(&text[cut..]).await.unwrap();
                    client.shutdown().await.unwrap();
                };
                let (opened, ()) = futures_util::future::join(opened, sent).await;
                let (mut stream, version) = opened.unwrap();
                let mut read = Vec::new();
                stream.read_to_end(&mut read).await.unwrap();
                assert_eq!((version, read.as_slice()), (expected, text), "cut at {cut}");
            }
        }
    }

    /// [LIM-4, LIM-6]: a write of which nothing is taken fails in time; what is taken in between begins the time anew.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let most = Duration::from_secs(60);
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut stream = HttpStream::new(bytes::Bytes::new(), Stream::Unix(server)).with_write_timeout(most);
        let block = vec![b'x'; 64 << 10];
        let fill = async |stream: &mut HttpStream| {
            let mut written = 0;
            loop {
                match tokio::time::timeout(Duration::from_secs(59), stream.write(&block)).await {
                    Ok(Ok(count)) => written += count,
                    Ok(Err(err)) => panic!("{err}"),
                    Err(_) => return written,
                }
            }
        };
        let mut rest = fill(&mut stream).await;
        assert!(rest > 0);
        while rest > 0 {
            let mut taken = vec![0; rest.min(64 << 10)];
            rest -= client.read(&mut taken).await.unwrap();
        }
        // 59 s are gone: one more is enough, were they not forgotten.
        assert!(fill(&mut stream).await > 0);
        let err = stream.write(&block).await.unwrap_err();
        assert_eq!(err.kind(), std::io::ErrorKind::TimedOut);
    }

    /// However much a client would take at once: after a turn's bytes all others have theirs, and no byte is lost.
    #[tokio::test]
    async fn a_large_body_is_written_in_turns() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, accepted) =
            tokio::join!(tokio::net::TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let mut client = client.unwrap();
        let mut stream = HttpStream::new(bytes::Bytes::new(), Stream::Tcp(accepted.unwrap().0));
        let body: Vec<u8> = (0..=250).cycle().take(3 * TURN_BYTES + 7).collect();
        let (head, rest) = body.split_at(100);
        let mut parts = [IoSlice::new(head), IoSlice::new(rest)];
        let mut left = parts.as_mut_slice();
        let mut most = 0;
        let written = std::future::poll_fn(|cx| {
            let mut turn = 0;
            // hyper asks more than once in a poll.
            for _ in 0..3 {
                if left.is_empty() {
                    return Poll::Ready(());
                }
                if let Poll::Ready(count) = Pin::new(&mut stream).poll_write_vectored(cx, left) {
                    turn += count.as_ref().unwrap();
                    IoSlice::advance_slices(&mut left, count.unwrap());
                }
                most = most.max(turn);
            }
            Poll::Pending
        });
        let mut read = vec![0; body.len()];
        let (_, read_all) = tokio::join!(written, client.read_exact(&mut read));
        read_all.unwrap();
        assert!(read == body);
        assert!(most <= TURN_BYTES + TURN_BYTES / 4, "{most}");
    }

    /// What the answer before was costs the next one no turn; whoever owes one keeps owing it.
    #[tokio::test]
    async fn a_look_for_a_request_begins_a_turn() {
        let (_client, server) = UnixStream::pair().unwrap();
        let mut stream = HttpStream::new(bytes::Bytes::new(), Stream::Unix(server));
        std::future::poll_fn(|cx| {
            let mut room = [0; 8];
            let mut room = ReadBuf::new(&mut room);
            stream.turn.took(TURN_BYTES);
            assert!(Pin::new(&mut stream).poll_read(cx, &mut room).is_pending());
            assert!(Pin::new(&mut stream).poll_write(cx, b"x").is_ready());
            stream.turn.took(TURN_BYTES);
            assert!(Pin::new(&mut stream).poll_write(cx, b"x").is_pending());
            assert!(Pin::new(&mut stream).poll_read(cx, &mut room).is_pending());
            assert!(Pin::new(&mut stream).poll_write(cx, b"x").is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up() {
        let (_client, server) = UnixStream::pair().unwrap();
        let err = HttpStream::open(Stream::Unix(server), None, Duration::from_secs(30)).await.unwrap_err();
        assert_eq!(err.kind(), std::io::ErrorKind::TimedOut);
    }
}
