//! Event streams that a session's client may come back to: what was said on each, numbered, and the call that goes on.
//!
//! Not for: starting tasks; who polls a stream is its holder's business. Invariants: a stream has one holder at a time,
//! the newest; an event is numbered once and kept in order; of one stream never an event of another [R43]; no more is kept
//! than the limits say, and an answer that is not kept is replaced by an error that says so.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_core::Stream;

use crate::clock::{Clock, Moment};
use crate::exchange::ByteStream;
use crate::seal;
use crate::wire::json;
use crate::wire::jsonrpc::{RequestId, Response, code};
use crate::wire::mcp::Kind;
use crate::wire::sse::{self, EventId, Head};

/// How many streams one session keeps; over it new ones have no ids.
const STREAMS_MAX: usize = 64;
/// How long a client is asked to wait before it comes back, in milliseconds.
const RETRY_MS: u64 = 1_000;

const TOO_LARGE: &str = "The answer was not read before its connection was lost, and is larger than what is kept";
const NOT_WHOLE: &str = "The connection was lost before the answer was whole, and it is not kept";

/// How much is kept of what a client may have missed, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    /// How long after the call is over and its client gone.
    pub time: Duration,
    /// The most bytes of one stream.
    pub stream_bytes: usize,
    /// The most bytes of one session.
    pub session_bytes: usize,
}

/// What a call says, in the order it says it.
pub type Source = Pin<Box<dyn Stream<Item = Said> + Send>>;

/// One message of a call, or a pause: nothing is said, and the client may leave and come back.
pub struct Said {
    /// Its JSON text, in parts.
    pub parts: Vec<Bytes>,
    /// What follows the parts, of an answer that nobody looks at; then no part has a line end.
    pub rest: Option<ByteStream>,
    /// Whether it is the answer: nothing follows.
    pub last: bool,
    /// Given back when the answer has been sent.
    pub guards: Vec<Box<dyn Send>>,
}

/// One message of a kept stream, spelled as an event; or a pause.
pub struct Told {
    /// The event's bytes.
    pub frames: Vec<Bytes>,
    /// The rest of its payload, of an answer that nobody looks at.
    pub rest: Option<ByteStream>,
    /// Given back when the answer has been sent.
    pub guards: Vec<Box<dyn Send>>,
}

/// Whether a stream begins with an event that has an id and nothing else [R44].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priming {
    /// It does, with the pause before coming back.
    On,
    /// Clients of this revision would take it for a broken message.
    Off,
}

/// The kept streams of one session.
#[derive(Debug)]
pub(super) struct Shelf {
    limits: ReplayLimits,
    clock: Clock,
    /// What all streams hold together.
    bytes: AtomicUsize,
    /// Oldest first; `None` once the session has ended.
    streams: Mutex<Option<Vec<Arc<Kept>>>>,
}

/// A stream that its client may come back to.
pub struct Kept {
    key: String,
    request: RequestId,
    target: (Kind, String),
    shelf: Weak<Shelf>,
    limits: ReplayLimits,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The call, until it is over.
    source: Option<Source>,
    /// The number of who may poll the call; whoever had a lower one has to let go.
    holder: u64,
    /// Wakes the holder.
    waker: Option<Waker>,
    events: VecDeque<Event>,
    /// The number of the last event.
    number: u64,
    bytes: usize,
    /// Since when the call is over and nobody reads.
    left: Option<Moment>,
}

struct Event {
    number: u64,
    frames: Vec<Bytes>,
    last: bool,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").field("parts", &self.parts).field("last", &self.last).finish_non_exhaustive()
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("bytes", &size(&self.frames)).finish_non_exhaustive()
    }
}

// === impl Said ===

impl Said {
    /// Makes a pause.
    #[must_use]
    pub const fn pause() -> Self {
        Self { parts: Vec::new(), rest: None, last: false, guards: Vec::new() }
    }
}

// === impl Told ===

impl Told {
    /// Says whether it is a pause.
    #[must_use]
    pub const fn is_pause(&self) -> bool {
        self.frames.is_empty() && self.rest.is_none()
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn new(limits: ReplayLimits, clock: Clock) -> Arc<Self> {
        Arc::new(Self { limits, clock, bytes: AtomicUsize::new(0), streams: Mutex::new(Some(Vec::new())) })
    }

    /// Makes room for the stream of a request; `None` if there is none, or the session has ended.
    pub(super) fn place(self: &Arc<Self>, request: RequestId, target: (Kind, String)) -> Option<Arc<Kept>> {
        let key = URL_SAFE_NO_PAD.encode(seal::random::<16>().ok()?);
        let kept = Arc::new(Kept {
            key,
            request,
            target,
            shelf: Arc::downgrade(self),
            limits: self.limits,
            clock: self.clock.clone(),
            state: Mutex::default(),
        });
        let mut streams = self.streams();
        let streams = streams.as_mut()?;
        self.drop_stale(streams, self.clock.now());
        if streams.len() >= STREAMS_MAX {
            let over = streams.iter().position(|stream| stream.is_over())?;
            self.forget(&streams.remove(over));
        }
        streams.push(Arc::clone(&kept));
        Some(kept)
    }

    /// Finds the stream of an event's id, and the event's number.
    pub(super) fn find(&self, id: &str) -> Option<(Arc<Kept>, u64)> {
        let (key, number) = id.rsplit_once('.')?;
        let number = number.parse().ok()?;
        let now = self.clock.now();
        let streams = self.streams();
        let kept = streams.as_ref()?.iter().find(|kept| kept.key == key && !kept.is_stale(now))?;
        Some((Arc::clone(kept), number))
    }

    /// Drops the streams whose time is over.
    pub(super) fn prune(&self, now: Moment) {
        if let Some(streams) = self.streams().as_mut() {
            self.drop_stale(streams, now);
        }
    }

    /// Drops all, and takes no more.
    pub(super) fn close(&self) {
        let streams = self.streams().take();
        for kept in streams.into_iter().flatten() {
            kept.end();
        }
    }

    fn drop_stale(&self, streams: &mut Vec<Arc<Kept>>, now: Moment) {
        streams.retain(|kept| {
            let stale = kept.is_stale(now);
            if stale {
                self.forget(kept);
            }
            !stale
        });
    }

    /// Makes room for what a stream has just kept: the oldest that are over go first.
    fn make_room(&self, newest: &Kept) {
        let mut streams = self.streams();
        let Some(streams) = streams.as_mut() else { return };
        while self.bytes.load(Ordering::Relaxed) > self.limits.session_bytes {
            let over = |kept: &Arc<Kept>| !std::ptr::eq(Arc::as_ptr(kept), newest) && kept.is_over();
            let Some(at) = streams.iter().position(over) else { return };
            self.forget(&streams.remove(at));
        }
    }

    fn forget(&self, kept: &Kept) {
        self.bytes.fetch_sub(kept.state().clear(), Ordering::Relaxed);
    }

    fn streams(&self) -> MutexGuard<'_, Option<Vec<Arc<Kept>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Kept ===

impl Kept {
    /// Returns what is called, got or read, by the client's name for it.
    #[must_use]
    pub fn target(&self) -> (Kind, &str) {
        (self.target.0, &self.target.1)
    }

    /// Begins; returns what the stream begins with, and the holder's number.
    pub fn begin(&self, source: Source, priming: Priming) -> (Option<Bytes>, u64) {
        let mut state = self.state();
        state.source = Some(source);
        state.holder += 1;
        let primer = match priming {
            Priming::On => sse::message(head(&self.id(0), Some(RETRY_MS)), &[]).pop(),
            Priming::Off => None,
        };
        (primer, state.holder)
    }

    /// Polls for the next event; `None` when the call is over, or another has become the holder.
    pub fn poll(&self, holder: u64, cx: &mut Context<'_>) -> Poll<Option<Told>> {
        let mut state = self.state();
        if state.holder != holder {
            return Poll::Ready(None);
        }
        let Some(source) = &mut state.source else { return Poll::Ready(None) };
        let said = source.as_mut().poll_next(cx);
        let said = match said {
            Poll::Ready(said) => said,
            Poll::Pending => {
                if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
        };
        let over = if said.as_ref().is_none_or(|said| said.last) { state.source.take() } else { None };
        let told = said.map(|said| self.keep(&mut state, said));
        drop(state);
        drop(over);
        self.stay_in_bounds();
        Poll::Ready(told)
    }

    /// Takes the stream over for a client that has read up to event `after`; returns what it has missed, and the holder's
    /// number. `None` if there was no such event.
    pub fn resume(&self, after: u64) -> Option<(Vec<Bytes>, u64)> {
        let mut state = self.state();
        if after > state.number {
            return None;
        }
        state.holder += 1;
        state.left = None;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        let missed = state.events.iter().filter(|event| event.number > after);
        Some((missed.flat_map(|event| event.frames.iter().cloned()).collect(), state.holder))
    }

    /// Lets go of the stream; returns the number of the one who must go on with the call, if it is not over.
    pub fn let_go(&self, holder: u64) -> Option<u64> {
        let mut state = self.state();
        if state.holder != holder {
            return None;
        }
        if state.source.is_none() {
            state.left = Some(self.clock.now());
            return None;
        }
        state.holder += 1;
        Some(state.holder)
    }

    /// Ends a call that nobody goes on with; who comes back gets these words.
    pub fn give_up(&self, holder: u64, words: &str) {
        let mut state = self.state();
        if state.holder != holder {
            return;
        }
        let source = state.source.take();
        state.left = Some(self.clock.now());
        let number = state.number + 1;
        let stand_in = self.stand_in(number, words);
        state.number = number;
        self.grow(&mut state, Event { number, frames: stand_in, last: true });
        drop(state);
        drop(source);
        self.stay_in_bounds();
    }

    /// Replaces the error that stands for the answer by the answer, once it is whole.
    pub fn complete(&self, told: &[Bytes]) {
        let mut state = self.state();
        let Some(last) = state.events.back_mut().filter(|event| event.last) else { return };
        let before = size(&last.frames);
        let now = size(told);
        if now > self.limits.stream_bytes {
            return;
        }
        last.frames = told.to_vec();
        state.bytes = state.bytes - before + now;
        self.count(now, before);
        drop(state);
        self.stay_in_bounds();
    }

    /// Returns the most bytes that are kept of one stream.
    #[must_use]
    pub const fn bytes_max(&self) -> usize {
        self.limits.stream_bytes
    }

    fn keep(&self, state: &mut State, said: Said) -> Told {
        let Said { parts, rest, last, guards } = said;
        if parts.is_empty() && rest.is_none() {
            return Told { frames: Vec::new(), rest, guards };
        }
        state.number += 1;
        let number = state.number;
        let id = self.id(number);
        let head = head(&id, None);
        let frames = match &rest {
            None => sse::message(head, &parts),
            Some(_) => std::iter::once(sse::begin_message(head)).chain(parts).collect(),
        };
        let kept = match (&rest, last) {
            (Some(_), _) => Some(self.stand_in(number, NOT_WHOLE)),
            (None, true) if size(&frames) > self.limits.stream_bytes => Some(self.stand_in(number, TOO_LARGE)),
            (None, false) if size(&frames) > self.limits.stream_bytes => None,
            (None, _) => Some(frames.clone()),
        };
        if let Some(kept) = kept {
            self.grow(state, Event { number, frames: kept, last });
        }
        Told { frames, rest, guards }
    }

    fn grow(&self, state: &mut State, event: Event) {
        let bytes = size(&event.frames);
        state.bytes += bytes;
        state.events.push_back(event);
        self.count(bytes, 0);
        while state.bytes > self.limits.stream_bytes && self.drop_oldest(state) {}
    }

    /// Drops the oldest event that is no answer.
    fn drop_oldest(&self, state: &mut State) -> bool {
        let Some(event) = state.events.pop_front_if(|event| !event.last) else { return false };
        let bytes = size(&event.frames);
        state.bytes -= bytes;
        self.count(0, bytes);
        true
    }

    /// Keeps the session's sum: first what is over goes, then what this stream has said before its answer, then the answer.
    fn stay_in_bounds(&self) {
        let Some(shelf) = self.shelf.upgrade() else { return };
        let too_much = || shelf.bytes.load(Ordering::Relaxed) > self.limits.session_bytes;
        if !too_much() {
            return;
        }
        shelf.make_room(self);
        let mut state = self.state();
        while too_much() && self.drop_oldest(&mut state) {}
        if let Some(last) = state.events.back_mut().filter(|_| too_much()) {
            let before = size(&last.frames);
            last.frames = self.stand_in(last.number, TOO_LARGE);
            let now = size(&last.frames);
            state.bytes = state.bytes - before + now;
            self.count(now, before);
        }
    }

    fn count(&self, more: usize, less: usize) {
        if let Some(shelf) = self.shelf.upgrade() {
            shelf.bytes.fetch_add(more, Ordering::Relaxed);
            shelf.bytes.fetch_sub(less, Ordering::Relaxed);
        }
    }

    fn stand_in(&self, number: u64, words: &str) -> Vec<Bytes> {
        let words = json::quoted(words);
        let error = [format!(r#"{{"code":{},"message":"#, code::LIMIT.0).as_bytes(), &words, b"}"].concat();
        let id = self.id(number);
        sse::message(head(&id, None), &[Response::with_error(Some(&self.request), &error).raw])
    }

    fn id(&self, number: u64) -> String {
        format!("{}.{number}", self.key)
    }

    fn is_over(&self) -> bool {
        self.state().left.is_some()
    }

    fn is_stale(&self, now: Moment) -> bool {
        self.state().left.is_some_and(|left| now.since(left) >= self.limits.time)
    }

    fn end(&self) {
        let mut state = self.state();
        state.holder += 1;
        let (source, waker) = (state.source.take(), state.waker.take());
        state.clear();
        drop(state);
        drop(source);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key: who has it, and the session's id, can read the stream.
        f.debug_struct("Kept").field("target", &self.target).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Forgets what was said; returns how many bytes that was.
    fn clear(&mut self) -> usize {
        self.events.clear();
        std::mem::take(&mut self.bytes)
    }
}

fn head(id: &str, retry_ms: Option<u64>) -> Head<'_> {
    Head { id: EventId::new(id), retry_ms }
}

fn size(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
