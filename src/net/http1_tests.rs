//! What ends where, what is refused, and what is never held.

use std::future::{Future as _, poll_fn};
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufStream, DuplexStream, ReadBuf, duplex,
};

use super::{Connection, ExchangeError, Framing, Head, Quiet};
use crate::runtime::TURN_BYTES;

impl Quiet for DuplexStream {}
impl Quiet for BufStream<DuplexStream> {}

/// A server that says `said` in pieces of the given sizes, and then closes, or waits.
fn peer(said: &[u8], pieces: Vec<usize>, closes: bool) -> Connection<DuplexStream> {
    let (ours, mut theirs) = duplex(1 << 16);
    let said = said.to_vec();
    #[expect(clippy::disallowed_methods, reason = "a test's own peer")]
    tokio::spawn(async move {
        let mut rest = &said[..];
        for piece in pieces.into_iter().chain(std::iter::repeat(usize::MAX)) {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            if theirs.write_all(now).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        if !closes {
            std::future::pending::<()>().await;
        }
    });
    Connection::new(ours)
}

async fn ask(connection: &mut Connection<DuplexStream>) -> Result<(Head, Vec<u8>), ExchangeError> {
    let mut head = connection.exchange(b"GET / HTTP/1.1\r\n", &Bytes::new()).await.map_err(|(err, _)| err)?;
    let mut body = Vec::new();
    while let Some(data) = poll_fn(|cx| connection.poll_data(cx, &mut head.framing)).await {
        body.extend_from_slice(&data?);
    }
    Ok((head, body))
}

#[tokio::test]
async fn the_end_of_a_body_is_known_by_one_rule() {
    let cases: [(&str, &str, bool); 12] = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length:5\r\n\r\nhello", "hello", true),
        (
            "HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n2;x=y\r\nhe\r\n003\r\nllo\r\n0\r\na: b\r\n\r\n",
            "hello",
            true,
        ),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", "", true),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", "", true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
            "x",
            true,
        ),
        ("HTTP/1.1 200 OK\r\nconnection: keep-alive, Close\r\ncontent-length: 1\r\n\r\nx", "x", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", "x", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxy", "x", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "x", false),
        ("HTTP/1.1 200 OK\n\nto the end", "to the end", false),
        ("HTTP/1.1 200 OK\r\n\r\n", "", false),
    ];
    for (said, wanted, reusable) in cases {
        let closes = !said.contains("length") && !said.contains("chunked") && !said.contains("Chunked");
        for piece in [1, 3, usize::MAX] {
            let mut connection = peer(said.as_bytes(), vec![piece; said.len()], closes);
            let (_, body) = ask(&mut connection).await.unwrap();
            assert_eq!(String::from_utf8(body).unwrap(), wanted, "{said:?}");
            // What is left over may still be on its way.
            if piece == usize::MAX {
                assert_eq!(connection.is_ready(), reusable, "{said:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_has_no_known_end_is_refused() {
    for said in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhell",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "",
    ] {
        let mut connection = peer(said.as_bytes(), Vec::new(), true);
        assert!(ask(&mut connection).await.is_err(), "{said:?}");
        assert!(!connection.is_ready(), "{said:?}");
    }
}

/// A server of https that is asked in plain HTTP says so in a record of TLS, and we say it in words.
#[tokio::test]
async fn an_answer_in_tls_is_known() {
    let alert = b"\x15\x03\x03\x00\x02\x02\x32";
    let mut connection = peer(alert, Vec::new(), true);
    let err = ask(&mut connection).await.unwrap_err();
    assert!(matches!(err, ExchangeError::Malformed(words) if words.contains("https")), "{err:?}");
}

/// No head, no chunk line and no trailer section grows without end.
#[tokio::test]
async fn endless_lines_are_cut() {
    let long = "x".repeat(1 << 17);
    let many = "a: b\r\n".repeat(101);
    for said in [
        format!("HTTP/1.1 200 OK\r\nx: {long}"),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;{long}"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: {long}"),
    ] {
        let mut connection = peer(said.as_bytes(), Vec::new(), false);
        assert!(matches!(ask(&mut connection).await, Err(ExchangeError::Malformed(_))));
    }
}

#[tokio::test]
async fn a_request_is_written_whole_and_an_early_answer_ends_the_connection() {
    let (ours, mut theirs) = duplex(1 << 10);
    let mut connection = Connection::new(ours);
    let body = Bytes::from("b".repeat(100_000));
    let length = body.len();
    let read = async {
        let mut text = vec![0; b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n".len() + length];
        theirs.read_exact(&mut text).await.unwrap();
        theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        text
    };
    let (sent, text) = tokio::join!(connection.exchange(b"POST / HTTP/1.1\r\n", &body), read);
    assert_eq!(sent.unwrap().framing, Framing::Done);
    assert!(text.starts_with(b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\nbbb") && connection.is_ready());
    // The server answers before it has read all of it.
    let answer = theirs.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n");
    let (sent, answer) = tokio::join!(connection.exchange(b"POST / HTTP/1.1\r\n", &body), answer);
    answer.unwrap();
    assert_eq!(sent.unwrap().status, 413);
    assert!(!connection.is_ready());
}

#[tokio::test]
async fn headers_are_found_in_any_case() {
    let said = b"HTTP/1.1 200 OK\r\nCoNtent-Type:  a/b \r\nx: 1\r\nX: 2\r\ncontent-length: 0\r\n\r\n";
    let mut connection = peer(said, Vec::new(), false);
    let (head, _) = ask(&mut connection).await.unwrap();
    assert_eq!(head.headers.get("content-type"), Some(&b"a/b"[..]));
    assert_eq!(head.headers.all("x").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.headers.get("y"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However a body is cut into chunks, and the chunks into packets, the same bytes come out.
    #[test]
    fn chunks_and_packets_do_not_matter(
        chunks in proptest::collection::vec(".{1,40}", 0..8),
        pieces in proptest::collection::vec(1..30_usize, 0..60),
    ) {
        let mut said = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            said.extend_from_slice(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
        }
        said.extend_from_slice(b"0\r\n\r\n");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = runtime.block_on(async { ask(&mut peer(&said, pieces, false)).await.unwrap().1 });
        prop_assert_eq!(String::from_utf8(body).unwrap(), chunks.concat());
    }

    /// [LIM-1]: whatever a server says, it is one answer or one failure, the same however it was cut, and never more than was said.
    #[test]
    fn any_bytes_cut_anywhere_are_the_same_answer(
        parts in proptest::collection::vec(part(), 0..14),
        pieces in proptest::collection::vec(1..30_usize, 0..60),
    ) {
        let said = parts.concat();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = |pieces: Vec<usize>| {
            let answered = runtime.block_on(async { ask(&mut peer(&said, pieces, true)).await });
            answered.ok().map(|(head, body)| (head.status, body))
        };
        let whole = answer(Vec::new());
        prop_assert!(whole.as_ref().is_none_or(|(_, body)| body.len() <= said.len()));
        prop_assert_eq!(&answer(pieces), &whole);
        prop_assert_eq!(&answer(vec![1; said.len()]), &whole);
    }
}

/// Something that may stand in a response.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 204 No Content\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.0 200 OK\r\n",
        "content-length: 5\r\n",
        "content-length: 6\r\n",
        "transfer-encoding: chunked\r\n",
        "connection: close\r\n",
        "x: y\r\n",
        "\r\n",
        "\r\n\r\n",
        "5\r\nhello\r\n",
        "hello",
        "0\r\n\r\n",
        "0\r\n",
        "ffffffffffffffff\r\n",
    ];
    prop_oneof![
        8 => proptest::sample::select(known.map(|text| text.as_bytes().to_vec()).to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

/// TLS takes more than it sends: without a flush the rest would never go out.
#[tokio::test]
async fn what_the_stream_holds_back_is_flushed() {
    let (ours, mut theirs) = duplex(64);
    let mut connection = Connection::buffering(BufStream::with_capacity(64, 1 << 10, ours));
    let server = async {
        let mut read = [0; 7];
        while !read.ends_with(b"request") {
            read.rotate_left(1);
            read[6] = theirs.read_u8().await.unwrap();
        }
        theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    };
    let request = Bytes::from_static(b"request");
    let (answered, ()) = tokio::join!(connection.exchange(b"POST / HTTP/1.1\r\n", &request), server);
    assert_eq!(answered.unwrap().framing, Framing::Done);
    assert!(connection.is_ready());
}

/// A stream that says it is ready and takes nothing.
struct Refusing;

impl AsyncRead for Refusing {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Refusing {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Err(ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Only of a plain socket is it known that a failed write has sent nothing, so that the request may go elsewhere.
#[tokio::test]
async fn a_failed_write_over_tls_may_have_sent_a_part() {
    for (mut connection, seen) in [(Connection::new(Refusing), false), (Connection::buffering(Refusing), true)] {
        let (err, written) = connection.exchange(b"POST / HTTP/1.1\r\n", &Bytes::new()).await.unwrap_err();
        assert_eq!((err.to_string().as_str(), written > 0), ("broken pipe", seen));
    }
}

/// [LIM-1] What means nothing is bounded too: interim heads, and trailers, each of them short.
#[tokio::test]
async fn interim_heads_and_trailers_have_an_end() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(4_000);
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
    let trailers = format!("{chunked}{}\r\n", "x: y\r\n".repeat(40_000));
    for (text, words) in [(interim, "interim"), (trailers, "trailers")] {
        let (near, mut far) = duplex(1 << 10);
        let writing = async { drop(tokio::io::AsyncWriteExt::write_all(&mut far, text.as_bytes()).await) };
        let reading = async {
            let mut connection = Connection::new(near);
            let head = match connection.exchange(b"GET / HTTP/1.1\r\n", &Bytes::new()).await {
                Ok(head) => head,
                Err((err, _)) => return err.to_string(),
            };
            let mut framing = head.framing;
            match poll_fn(|cx| connection.poll_data(cx, &mut framing)).await {
                Some(Err(err)) => err.to_string(),
                Some(Ok(_)) | None => "nothing".to_owned(),
            }
        };
        let ((), said) = futures_util::future::join(writing, reading).await;
        assert!(said.contains(words), "{said}");
    }
}

/// A body that is there all at once is read in turns, and all of it is shown as it comes.
#[tokio::test]
async fn a_large_body_is_read_in_turns() {
    let body = vec![b'x'; 3 * TURN_BYTES + TURN_BYTES / 2];
    let (ours, mut theirs) = duplex(4 * TURN_BYTES);
    theirs.write_all(&body).await.unwrap();
    let mut connection = Connection::new(ours);
    let (mut polls, mut shown) = (0, 0);
    let mut steps = Vec::new();
    let read = {
        let mut reading = std::pin::pin!(connection.read_exactly(body.len(), |so_far| steps.push(so_far.len())));
        poll_fn(|cx| {
            polls += 1;
            reading.as_mut().poll(cx)
        })
        .await
        .unwrap()
    };
    for step in steps {
        assert!(step - shown <= TURN_BYTES, "{step}");
        shown = step;
    }
    assert!(read == body);
    assert_eq!((polls, shown), (4, body.len()));
}
