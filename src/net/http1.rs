//! One HTTP/1.1 connection to a server: a request written, its response read within bounds (RFC 9112).
//!
//! Ours, and not a library's, because it is half of what a call costs: the request's head is spelled once per session, and
//! a body is read into the one buffer it is handed on in. Not for: pooling (`client`), redirects, decompression. Invariants:
//! a response's length is known by exactly one rule of RFC 9112 §6.3 or it is refused; a connection on which anything was
//! odd is not used again.

use std::future::{Future as _, poll_fn};
use std::io::{Error, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use http::StatusCode;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::runtime::Turn;
use crate::wire::json::Decimal;

/// The longest head of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How many headers a response may have.
const HEADERS_MAX: usize = 100;
/// The longest line that begins a chunk, and the longest one of a trailer section.
const CHUNK_LINE_MAX: usize = 4 << 10;
/// How much room a read has at least.
const READ_BYTES: usize = 8 << 10;
/// How much room a read has at most.
const PIECE_BYTES: usize = 256 << 10;
/// A larger body is not copied behind its head.
const JOIN_BYTES_MAX: usize = 16 << 10;
/// What a record of TLS begins with, an alert or a handshake, and no head of HTTP does.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The connection failed.
    #[error("{0}")]
    Broken(#[from] Error),
    /// It was closed before the response.
    #[error("the connection was closed before a response")]
    Closed,
    /// What came is no response that can be read.
    #[error("{0}")]
    Malformed(&'static str),
}

/// A stream that tells, without waiting, whether its other end has said nothing.
pub(super) trait Quiet: AsyncRead + Unpin {
    /// Says whether nothing can be read, the end included. What it finds is lost.
    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(self).poll_read(&mut cx, &mut ReadBuf::new(&mut [0])).is_pending()
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    read: BytesMut,
    /// The request that is sent, with a small body; kept as room for the next.
    out: Vec<u8>,
    /// What the stream takes is not sent at once, and a write that fails may have sent a part.
    buffers: bool,
    /// All that was said on it so far leaves it usable.
    clean: bool,
    /// The buffer has grown for a large body.
    grown: bool,
    head: Coming,
    /// The bytes of what means nothing in the response that is read: interim heads, trailers.
    aside: usize,
}

/// How a head comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    /// All of it at once, as far as is known.
    Whole,
    /// Its end was not there when it was read for the first time.
    InPieces,
}

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: Headers,
    pub(super) framing: Framing,
}

/// The headers of a response, as they came.
#[derive(Debug)]
pub struct Headers {
    text: Bytes,
    lines: SmallVec<[(Range<u32>, Range<u32>); 12]>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// It has ended.
    Done,
    /// So many bytes are left.
    Length(u64),
    /// So many bytes of a chunk are left; 0 before a chunk's line.
    Chunked(u64),
    /// The bytes of a chunk have been read, not yet the line break after them.
    ChunkEnd,
    /// The last chunk has been read; trailers follow.
    Trailers,
    /// It ends with the connection.
    Close,
}

// === impl Headers ===

impl Headers {
    /// Returns the values of a header, given in lower case, in the order they came.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(|(key, _)| self.is(key, name)).map(|(_, value)| self.part(value))
    }

    /// Returns the first value of a header, given in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.lines.iter().find(|(key, _)| self.is(key, name)).map(|(_, value)| self.part(value))
    }

    /// Returns the length of the body where one readable `Content-Length` is all that is said of it, and nothing of the
    /// connection.
    fn only_length(&self) -> Option<u64> {
        let mut length = None;
        for (key, value) in &self.lines {
            match key.end - key.start {
                10 if self.is(key, "connection") => return None,
                14 if self.is(key, "content-length") && length.replace(value).is_some() => return None,
                17 if self.is(key, "transfer-encoding") => return None,
                _ => {}
            }
        }
        decimal(self.part(length?))
    }

    fn part(&self, at: &Range<u32>) -> &[u8] {
        self.text.get(at.start as usize..at.end as usize).unwrap_or_default()
    }

    fn is(&self, key: &Range<u32>, name: &str) -> bool {
        // Most differ in length, which needs no look at the text.
        (key.end - key.start) as usize == name.len() && self.part(key).eq_ignore_ascii_case(name.as_bytes())
    }
}

// === impl Head ===

impl Head {
    /// Takes a head off what was read, if it is there whole; says whether the connection can be used again after the body.
    fn take(read: &mut BytesMut) -> Result<Option<(Self, bool)>, ExchangeError> {
        let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let length = match parser.parse_response_with_uninit_headers(&mut response, read, &mut lines) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(ExchangeError::Malformed("too many headers")),
            Err(_) if read.first().is_some_and(|first| TLS_RECORDS.contains(first)) => {
                return Err(ExchangeError::Malformed("it answers in TLS, so its url must begin with https"));
            }
            Err(_) => return Err(ExchangeError::Malformed("no HTTP/1.1 response")),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(ExchangeError::Malformed("no status"))?;
        let modern = response.version == Some(1);
        let begin = read.as_ptr() as usize;
        let place = |part: &[u8]| {
            let start = (part.as_ptr() as usize).wrapping_sub(begin);
            let packed = |place| u32::try_from(place).unwrap_or(u32::MAX);
            packed(start)..packed(start + part.len())
        };
        let lines = response.headers.iter().map(|line| (place(line.name.as_bytes()), place(line.value))).collect();
        let headers = Headers { text: read.split_to(length).freeze(), lines };
        // Nearly always there is one length, and nothing else that tells of the body or the connection.
        if let Some(length) = headers.only_length()
            && modern
            && has_body(status)
        {
            let framing = if length == 0 { Framing::Done } else { Framing::Length(length) };
            return Ok(Some((Self { status, headers, framing }, true)));
        }
        let (framing, sound) = framing(status, &headers, modern)?;
        let closes = headers.all("connection").flat_map(tokens).any(|token| token.eq_ignore_ascii_case(b"close"));
        let reusable = sound && modern && !closes && framing != Framing::Close;
        Ok(Some((Self { status, headers, framing }, reusable)))
    }
}

/// Says whether a response of this status has a body, be it empty.
fn has_body(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Finds the one rule that tells where the body ends (RFC 9112 §6.3), and whether the connection can be trusted after it.
fn framing(status: StatusCode, headers: &Headers, modern: bool) -> Result<(Framing, bool), ExchangeError> {
    if !has_body(status) {
        return Ok((Framing::Done, true));
    }
    let mut codings = headers.all("transfer-encoding").flat_map(tokens);
    let coded = codings.next();
    let mut lengths = headers.all("content-length").flat_map(tokens);
    let length = lengths.next();
    if let Some(coding) = coded {
        if !modern || codings.next().is_some() || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(ExchangeError::Malformed("a transfer coding that was not asked for"));
        }
        // With a length beside it, somebody on the way may have read another message.
        return Ok((Framing::Chunked(0), length.is_none()));
    }
    let Some(length) = length else { return Ok((Framing::Close, false)) };
    match decimal(length) {
        Some(parsed) if lengths.all(|other| other == length) => {
            Ok((if parsed == 0 { Framing::Done } else { Framing::Length(parsed) }, true))
        }
        _ => Err(ExchangeError::Malformed("no readable Content-Length")),
    }
}

/// Reads a number of digits alone.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

// === impl Connection ===

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes a stream whose writes are sent as they are taken: a socket.
    pub(super) fn new(stream: S) -> Self {
        let (read, out) = (BytesMut::new(), Vec::new());
        Self { stream, read, out, buffers: false, clean: true, grown: false, head: Coming::Whole, aside: 0 }
    }

    /// Takes a stream that holds back what it takes, and sends parts of a write that fails: TLS.
    pub(super) fn buffering(stream: S) -> Self {
        Self { buffers: true, ..Self::new(stream) }
    }

    /// Says whether nothing that was said leaves the connection unusable; an idle one holds no large buffer.
    pub(super) fn is_clean(&mut self) -> bool {
        if self.grown && self.read.is_empty() {
            // An idle connection does not hold it.
            self.read = BytesMut::new();
            self.grown = false;
        }
        if self.out.capacity() > READ_BYTES {
            self.out = Vec::new();
        }
        self.clean && self.read.is_empty()
    }

    /// Says whether a request can be sent: nothing is left over, and the server has neither spoken nor closed.
    pub(super) fn is_ready(&mut self) -> bool
    where
        S: Quiet,
    {
        self.is_clean() && self.stream.is_quiet()
    }

    /// Sends a request and reads the head of its response. `head` ends before the `Content-Length` of `body`.
    ///
    /// # Errors
    /// [`ExchangeError`] and how many bytes were written at most: with 0 the server has seen nothing.
    pub(super) async fn exchange(&mut self, head: &[u8], body: &Bytes) -> Result<Head, (ExchangeError, usize)> {
        let mut body = spell(&mut self.out, head, body);
        let mut of_out = 0;
        self.clean = false;
        self.head = Coming::Whole;
        self.aside = 0;
        let mut written = 0;
        let mut refused = None;
        let mut flushed = !self.buffers;
        let answered = poll_fn(|cx| {
            while refused.is_none() && !(of_out == self.out.len() && body.is_empty()) {
                let head = self.out.get(of_out..).unwrap_or_default();
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                match Pin::new(&mut self.stream).poll_write_vectored(cx, &parts) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(0)) => refused = Some(Error::from(ErrorKind::WriteZero)),
                    // A server that reads no more may have answered before: its answer is looked for.
                    Poll::Ready(Err(err)) => {
                        written += usize::from(self.buffers);
                        refused = Some(err);
                    }
                    Poll::Ready(Ok(count)) => {
                        written += count;
                        let of_head = count.min(head.len());
                        of_out += of_head;
                        body = body.get(count - of_head..).unwrap_or_default();
                    }
                }
            }
            if self.buffers && !flushed && refused.is_none() && of_out == self.out.len() && body.is_empty() {
                match Pin::new(&mut self.stream).poll_flush(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => flushed = true,
                    Poll::Ready(Err(err)) => refused = Some(err),
                }
            }
            self.poll_head(cx)
        })
        .await;
        let sent = of_out == self.out.len() && body.is_empty() && flushed;
        match answered {
            Ok((head, reusable)) => {
                self.clean = reusable && sent;
                Ok(head)
            }
            Err(err) => Err((refused.map_or(err, ExchangeError::Broken), written)),
        }
    }

    /// Reads until a head that is no interim one is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Head, bool), ExchangeError>> {
        loop {
            // Nearly always it has come whole. One that has not is looked through for its end before it is read again.
            while !self.read.is_empty() && (self.head == Coming::Whole || head_end(&self.read)) {
                // An empty line before a head means nothing, wherever it is cut.
                if let Some(b'\r' | b'\n') = self.read.first() {
                    self.read.advance(1);
                    self.skip(1)?;
                    continue;
                }
                let Some((head, reusable)) = Head::take(&mut self.read)? else {
                    if std::mem::replace(&mut self.head, Coming::InPieces) == Coming::InPieces {
                        return Poll::Ready(Err(ExchangeError::Malformed("the head is cut")));
                    }
                    break;
                };
                self.head = Coming::Whole;
                match head.status {
                    StatusCode::SWITCHING_PROTOCOLS => {
                        return Poll::Ready(Err(ExchangeError::Malformed("a switch of protocols nobody asked for")));
                    }
                    status if status.is_informational() => self.skip(head.headers.text.len())?,
                    _ => return Poll::Ready(Ok((head, reusable))),
                }
            }
            if self.read.len() > HEAD_BYTES_MAX {
                return Poll::Ready(Err(ExchangeError::Malformed("the head is too large")));
            }
            if ready!(self.poll_read(cx, READ_BYTES))? == 0 {
                return Poll::Ready(Err(ExchangeError::Closed));
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Result<usize, Error>> {
        self.grown |= room > READ_BYTES;
        self.read.reserve(room);
        poll_read_into(&mut self.stream, cx, &mut self.read)
    }

    /// Reads the next bytes of a body; `None` at its end.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        framing: &mut Framing,
    ) -> Poll<Option<Result<Bytes, ExchangeError>>> {
        loop {
            match self.step(framing) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::More) => {}
                Err(err) => return Poll::Ready(Some(Err(self.spoilt(err)))),
            }
            let room = match framing {
                // Large pieces of a large body: each costs a turn through all the rooms.
                Framing::Length(left) => usize::try_from(*left).unwrap_or(PIECE_BYTES).clamp(READ_BYTES, PIECE_BYTES),
                Framing::Done | Framing::Chunked(_) | Framing::ChunkEnd | Framing::Trailers | Framing::Close => {
                    READ_BYTES
                }
            };
            match ready!(self.poll_read(cx, room)) {
                Ok(0) if *framing == Framing::Close => {
                    *framing = Framing::Done;
                    return Poll::Ready(None);
                }
                Ok(0) => return Poll::Ready(Some(Err(self.spoilt(ExchangeError::Closed)))),
                Ok(_) => {}
                Err(err) => return Poll::Ready(Some(Err(self.spoilt(err.into())))),
            }
        }
    }

    /// Reads a body of known length to its end, into one buffer of that size; in turns. `seen` is shown what there is each
    /// time that some has come.
    pub(super) async fn read_exactly(
        &mut self,
        length: usize,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<Bytes, ExchangeError> {
        self.read.reserve(length.saturating_sub(self.read.len()));
        let mut turn = Turn::new();
        poll_fn(|cx| {
            while self.read.len() < length {
                let room = ready!(turn.poll_share(cx, length - self.read.len()));
                match ready!(poll_read_into(&mut self.stream, cx, &mut (&mut self.read).limit(room))) {
                    Ok(0) => return Poll::Ready(Err(self.spoilt(ExchangeError::Closed))),
                    Ok(count) => turn.took(count),
                    Err(err) => return Poll::Ready(Err(self.spoilt(err.into()))),
                }
                seen(&self.read);
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        // A large buffer goes along with the body instead of staying with the connection.
        if length > READ_BYTES && self.read.len() == length {
            return Ok(std::mem::take(&mut self.read).freeze());
        }
        Ok(self.read.split_to(length).freeze())
    }

    fn spoilt(&mut self, err: ExchangeError) -> ExchangeError {
        self.clean = false;
        err
    }

    /// Takes what is in the buffer.
    fn step(&mut self, framing: &mut Framing) -> Result<Step, ExchangeError> {
        loop {
            match framing {
                Framing::Done => return Ok(Step::End),
                Framing::Close if self.read.is_empty() => return Ok(Step::More),
                Framing::Close => return Ok(Step::Data(self.read.split().freeze())),
                Framing::Length(left) | Framing::Chunked(left @ 1..) => {
                    let count = self.read.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    if count == 0 {
                        return Ok(Step::More);
                    }
                    *left -= count as u64;
                    let data = self.read.split_to(count).freeze();
                    if *left == 0 {
                        let chunk = matches!(framing, Framing::Chunked(_));
                        *framing = if chunk { Framing::ChunkEnd } else { Framing::Done };
                    }
                    return Ok(Step::Data(data));
                }
                Framing::ChunkEnd => match self.line()? {
                    None => return Ok(Step::More),
                    Some(line) if line.is_empty() => *framing = Framing::Chunked(0),
                    Some(_) => return Err(ExchangeError::Malformed("a chunk that is longer than it says")),
                },
                Framing::Chunked(_) => match self.line()? {
                    None => return Ok(Step::More),
                    Some(line) => {
                        let size = chunk_size(&line).ok_or(ExchangeError::Malformed("no readable chunk size"))?;
                        *framing = if size == 0 { Framing::Trailers } else { Framing::Chunked(size) };
                    }
                },
                // Trailers mean nothing here.
                Framing::Trailers => match self.line()? {
                    None => return Ok(Step::More),
                    Some(line) if line.is_empty() => *framing = Framing::Done,
                    Some(line) => self.skip(line.len())?,
                },
            }
        }
    }

    /// Passes over what means nothing, of which there may be as much as of a head.
    fn skip(&mut self, bytes: usize) -> Result<(), ExchangeError> {
        self.aside = self.aside.saturating_add(bytes);
        if self.aside > HEAD_BYTES_MAX {
            return Err(ExchangeError::Malformed("interim responses or trailers without an end"));
        }
        Ok(())
    }

    /// Takes a line without its break.
    fn line(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        let Some(end) = memchr::memchr(b'\n', &self.read) else {
            return if self.read.len() > CHUNK_LINE_MAX {
                Err(ExchangeError::Malformed("a chunk's line that does not end"))
            } else {
                Ok(None)
            };
        };
        let line = self.read.split_to(end + 1).freeze();
        let text = line.strip_suffix(b"\r\n").ok_or(ExchangeError::Malformed("a chunk's line without CRLF"))?;
        Ok(Some(line.slice_ref(text)))
    }
}

/// What the buffer held.
enum Step {
    Data(Bytes),
    End,
    More,
}

/// Spells a request: its head with its end, and a small body behind it. Returns a body that is not small. A request without a
/// body says nothing of it.
fn spell<'a>(out: &mut Vec<u8>, head: &[u8], body: &'a [u8]) -> &'a [u8] {
    let nothing: &[u8] = &[];
    let (small, large) = if body.len() <= JOIN_BYTES_MAX { (body, nothing) } else { (nothing, body) };
    out.clear();
    out.reserve(head.len() + 48 + small.len());
    out.extend_from_slice(head);
    if !body.is_empty() {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(Decimal::new(body.len() as u64).as_slice());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(small);
    large
}

fn poll_read_into<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut (impl BufMut + ?Sized),
) -> Poll<Result<usize, Error>> {
    let mut reading = std::pin::pin!(tokio::io::AsyncReadExt::read_buf(stream, buffer));
    reading.as_mut().poll(cx)
}

/// Says whether the empty line is there that ends a head.
fn head_end(text: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', text).any(|at| match (text.get(at + 1), text.get(at + 2)) {
        (Some(b'\n'), _) | (Some(b'\r'), Some(b'\n')) => true,
        (_, _) => false,
    })
}

/// Reads the size that begins a chunk; extensions are ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
#[path = "http1_tests.rs"]
mod tests;
