//! One client connection: TLS and the first bytes, then HTTP/1.1 or HTTP/2, to its end or the drain's.
//!
//! Not for: what a request means (`server`). Invariants: whatever a client leaves unfinished is bounded in time; the drain
//! never waits for a connection on which nothing is asked.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::exchange::Handler;
use crate::net::{Connection, HttpStream, HttpVersion, Silence};
use crate::runtime::{Hushable, Tasks, sleep};

use super::account::Account;
use super::body::{Body, BrokenOff};
use super::origin::Reach;
use super::respond::bare;
use super::server::Door;

/// How long a client may take for a request's head, and be silent between two requests.
const HEAD_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The smallest buffer hyper works with.
const HEAD_BYTES_MIN: usize = 8 << 10;
/// How many requests one HTTP/2 connection may have open; more wait at the client.
const STREAMS_MAX: u32 = 100;
/// How much of the bodies nobody has read yet one HTTP/2 connection may hold, in bytes; of one request, and of all.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);
/// How often a peer is asked whether it is still there, and how long it has to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// How exactly silence is measured: a busy connection is looked at so often.
const LOOK: Duration = Duration::from_secs(5);
/// How long an HTTP/2 client has to take its leave, once nothing is open.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// How long an HTTP/1.1 client has at a stop, once nothing is open, for a head it has begun and an answer it still reads.
const REST_MAX: Duration = Duration::from_secs(5);

/// How much of an answer is handed to an HTTP/2 connection at once: what a client that is slow, and not stalled, takes in its
/// time.
const PIECE_BYTES: usize = 64 << 10;
/// Into how many parts the time is cut in which a client may take nothing of an answer.
const STALL_TICKS: u32 = 4;

/// The requests that are open on one connection.
#[derive(Debug)]
struct Open {
    /// It ends with the first.
    silence: Silence,
    /// Those whose answer has not ended.
    now: AtomicUsize,
    /// All so far.
    ever: AtomicUsize,
    /// Counts the parts of a client's time.
    tick: AtomicU32,
    /// Their answers, as far as they have begun.
    answers: Mutex<Vec<Weak<AtomicU32>>>,
    /// Whose the connection is.
    account: Account,
}

/// Counted among the open requests until it is dropped.
#[derive(Debug)]
struct Counted(Arc<Open>);

/// An answer's body that counts as open until it has been sent.
#[derive(Debug)]
struct CountedBody {
    body: Body,
    open: Counted,
    /// Over HTTP/2, the tick at which the client was given its last piece and has not asked for more; 0 while it waits for
    /// us.
    given: Option<Arc<AtomicU32>>,
    /// What is left of the last piece.
    left: Bytes,
}

/// Starts hyper's tasks where all tasks live.
#[derive(Clone, Debug)]
struct InTasks(Tasks);

// === impl Open ===

impl Open {
    fn new(silence: Silence) -> Arc<Self> {
        let (now, ever, tick) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU32::new(0));
        Arc::new(Self { silence, now, ever, tick, answers: Mutex::default(), account: Account::default() })
    }

    fn begin(self: &Arc<Self>) -> Counted {
        self.now.fetch_add(1, Ordering::Relaxed);
        if self.ever.fetch_add(1, Ordering::Relaxed) == 0 {
            self.silence.ends();
        }
        Counted(Arc::clone(self))
    }

    fn is_idle(&self) -> bool {
        self.now.load(Ordering::Relaxed) == 0
    }

    /// Begins an answer.
    fn answer(&self) -> Arc<AtomicU32> {
        let given = Arc::new(AtomicU32::new(self.now_tick()));
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|given| given.strong_count() > 0);
        answers.push(Arc::downgrade(&given));
        given
    }

    fn now_tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed).max(1)
    }

    /// Counts a tick; says whether a client has taken nothing of an answer for all of its time.
    fn stalls(&self) -> bool {
        let tick = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().filter_map(Weak::upgrade).any(|given| match given.load(Ordering::Relaxed) {
            0 => false,
            given => tick.saturating_sub(given) > STALL_TICKS,
        })
    }
}

impl Counted {
    /// Goes on counting until the answer has been sent.
    fn with(self, response: Response<Body>) -> Response<CountedBody> {
        response.map(|body| CountedBody { body, open: self, given: None, left: Bytes::new() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        let Some(given) = &this.given else { return Pin::new(&mut this.body).poll_frame(cx) };
        if this.left.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.left = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                Poll::Ready(end) => return Poll::Ready(end),
                Poll::Pending => {
                    given.store(0, Ordering::Relaxed);
                    return Poll::Pending;
                }
            }
        }
        // Over HTTP/2 no more is asked for while the client has closed its window, and its connection writes on.
        given.store(this.open.0.now_tick(), Ordering::Relaxed);
        let piece = this.left.split_to(this.left.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F> hyper::rt::Executor<F> for InTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn("client request", future);
    }
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Serves a connection to its end.
    pub(super) async fn connection(self: Arc<Self>, connection: Connection, reach: Reach) {
        let silence = connection.slot.silence();
        let mut served = pin!(self.serve_to_its_end(connection, &silence, reach));
        let mut gives_way = pin!(silence.gives_way());
        // By hand: it is polled twice per call.
        let gave_way = poll_fn(|cx| match served.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => gives_way.as_mut().poll(cx).map(|()| true),
        });
        if gave_way.await {
            tracing::debug!("a client that says nothing has made room for another one");
        }
    }

    async fn serve_to_its_end(self: &Arc<Self>, connection: Connection, silence: &Silence, reach: Reach) {
        let peer = connection.peer;
        let opened = tokio::select! {
            biased;
            opened = connection.open(HEAD_PAUSE_MAX) => opened,
            // Nothing has been asked yet.
            () = self.drain.started() => return,
        };
        let (stream, version, slot) = match opened {
            Ok((stream, version, slot)) => (stream.with_write_timeout(self.settings.write_timeout), version, slot),
            Err(err) => {
                tracing::debug!(%err, peer = peer.map(tracing::field::display), "a client connection was not opened");
                return;
            }
        };
        let ended = match version {
            HttpVersion::One => self.serve_one(stream, &Open::new(silence.clone()), reach).await,
            HttpVersion::Two => self.serve_two(stream, Open::new(silence.clone()), reach).await,
        };
        if let Err(err) = ended {
            tracing::debug!(%err, peer = peer.map(tracing::field::display), "a client connection ended");
        }
        drop(slot);
    }

    async fn serve_one(self: &Arc<Self>, stream: HttpStream, open: &Arc<Open>, reach: Reach) -> hyper::Result<()> {
        let service = service_fn(|request| {
            let (door, counted) = (Arc::clone(self), open.begin());
            async move {
                let response = door.serve(request, reach, &counted.0.account).await;
                Ok::<_, Infallible>(counted.with(response))
            }
        });
        // Its own timer for heads is started and stopped with each request, which ours is not.
        let served = http1::Builder::new()
            .max_headers(self.settings.headers_max)
            .max_buf_size(self.settings.header_bytes_max.max(HEAD_BYTES_MIN))
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
        // Here hyper wakes the connection for bodies that have come whole. Over HTTP/2 the same wake-up makes room for more.
        let hushable = Hushable::new(async move {
            let mut served = pin!(served);
            tokio::select! {
                biased;
                ended = served.as_mut() => return ended,
                () = unused(open, HEAD_PAUSE_MAX) => return Ok(()),
                () = self.drain.started() => served.as_mut().graceful_shutdown(),
            }
            tokio::select! {
                biased;
                ended = served => ended,
                // A head that does not come to its end.
                () = unused(open, REST_MAX) => Ok(()),
            }
        });
        hushable.await
    }

    async fn serve_two(self: &Arc<Self>, stream: HttpStream, open: Arc<Open>, reach: Reach) -> hyper::Result<()> {
        let service = service_fn(|request: Request<Incoming>| {
            let (door, counted) = (Arc::clone(self), open.begin());
            async move {
                let response = if request.headers().len() > door.settings.headers_max {
                    bare(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
                } else {
                    door.serve(request, reach, &counted.0.account).await
                };
                let given = Some(counted.0.answer());
                Ok::<_, Infallible>(counted.with(response).map(|body| CountedBody { given, ..body }))
            }
        });
        let header_bytes = u32::try_from(self.settings.header_bytes_max).unwrap_or(u32::MAX);
        // The limits against floods (resets, pings, empty frames) are hyper's own and stay as they are.
        let served = http2::Builder::new(InTasks(self.tasks.clone()))
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(header_bytes)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .serve_connection(TokioIo::new(stream), service);
        let mut served = pin!(served);
        let mut stalled = pin!(stalled(&open, self.settings.write_timeout));
        tokio::select! {
            biased;
            ended = served.as_mut() => return ended,
            () = stalled.as_mut() => return Ok(()),
            () = self.drain.started() => {}
            // Over HTTP/1.1 the answer says so itself.
            () = open.account.ends() => {}
            () = unused(&open, HEAD_PAUSE_MAX) => {}
        }
        served.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            ended = served.as_mut() => ended,
            () = stalled.as_mut() => Ok(()),
            // It does not take its leave.
            () = unused(&open, LEAVE_MAX) => Ok(()),
        }
    }
}

/// Waits until the client has taken nothing of an answer for so long.
async fn stalled(open: &Open, most: Duration) {
    loop {
        tokio::time::sleep(most / STALL_TICKS).await;
        if open.stalls() {
            return tracing::debug!("the client takes nothing of its answer");
        }
    }
}

/// Waits until no request has been open for `pause`, or up to [`LOOK`] longer.
async fn unused(open: &Open, pause: Duration) {
    let (mut before, mut still) = (None, Duration::ZERO);
    loop {
        let now = open.is_idle().then(|| open.ever.load(Ordering::Relaxed));
        if now.is_none() || now != before {
            still = Duration::ZERO;
        }
        if still >= pause {
            return;
        }
        // What is quiet is looked at once more, and not before it is time.
        let next = if still.is_zero() { pause.min(LOOK) } else { pause - still };
        before = now;
        sleep(next).await;
        still += next;
    }
}
