//! Event streams that a session's client may come back to: what was said on each, numbered, and the call that goes on.
//!
//! Not for: starting tasks; who polls a stream is its holder's business. Invariants: a stream has one holder at a time,
//! the newest; an event is numbered once and kept in order; of one stream never an event of another [R43]; no more is kept
//! than the limits say, and an answer that is not kept is replaced by an error that says so.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::clock::{Clock, Moment};
use crate::wire::json;
use crate::wire::jsonrpc::{RequestId, Response, code};
use crate::wire::mcp::Kind;
use crate::wire::sse::{self, EventId, Head};

use super::told::{Batch, Frames, Numbering, Source, Told, size};

/// How many streams one session keeps; over it new ones have no ids.
const STREAMS_MAX: usize = 64;
/// How long a client is asked to wait before it comes back, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// Room for the event that a stream begins with.
const PRIMER_BYTES: usize = 64;

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
    /// `None` once the session has ended.
    streams: Mutex<Option<Streams>>,
}

#[derive(Debug)]
struct Streams {
    /// Oldest first.
    all: VecDeque<Arc<Kept>>,
    /// The part of ids that is the next stream's own. The first of a session is random: an id from another session is
    /// not taken for one of this.
    next: u64,
}

/// A stream that its client may come back to.
pub struct Kept {
    /// Its own part of its events' ids.
    key: u64,
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
    /// Since when the call is over and its client has gone, for the first time.
    left: Option<Moment>,
}

struct Event {
    number: u64,
    frames: Frames,
    last: bool,
    /// Its bytes lie in one buffer with those of the event before it.
    shares: bool,
}

// === impl Shelf ===

impl Shelf {
    /// Makes a shelf whose first stream's ids begin with `first`.
    pub(super) fn new(limits: ReplayLimits, clock: Clock, first: u64) -> Arc<Self> {
        let streams = Streams { all: VecDeque::new(), next: first };
        Arc::new(Self { limits, clock, bytes: AtomicUsize::new(0), streams: Mutex::new(Some(streams)) })
    }

    /// Makes room for the stream of a request; `None` if there is none, or the session has ended.
    pub(super) fn place(self: &Arc<Self>, request: RequestId, target: (Kind, String)) -> Option<Arc<Kept>> {
        let mut streams = self.streams();
        let Streams { all, next } = streams.as_mut()?;
        if all.len() >= STREAMS_MAX {
            let over = all.iter().position(|stream| stream.is_over())?;
            if let Some(over) = all.remove(over) {
                self.forget(&over);
            }
        }
        let kept = Arc::new(Kept {
            key: *next,
            request,
            target,
            shelf: Arc::downgrade(self),
            limits: self.limits,
            clock: self.clock.clone(),
            state: Mutex::default(),
        });
        *next = next.wrapping_add(1);
        all.push_back(Arc::clone(&kept));
        Some(kept)
    }

    /// Finds the stream of an event's id, and the event's number.
    pub(super) fn find(&self, id: &str) -> Option<(Arc<Kept>, u64)> {
        let (key, number) = Numbering::read(id)?;
        let now = self.clock.now();
        let streams = self.streams();
        let kept = streams.as_ref()?.all.iter().find(|kept| kept.key == key && !kept.is_stale(now))?;
        Some((Arc::clone(kept), number))
    }

    /// Drops the streams whose time is over.
    pub(super) fn prune(&self, now: Moment) {
        if let Some(streams) = self.streams().as_mut() {
            streams.all.retain(|kept| {
                let stale = kept.is_stale(now);
                if stale {
                    self.forget(kept);
                }
                !stale
            });
        }
    }

    /// Drops all, and takes no more.
    pub(super) fn close(&self) {
        let streams = self.streams().take();
        for kept in streams.into_iter().flat_map(|streams| streams.all) {
            kept.end();
        }
    }

    /// Makes room for what a stream has just kept: the oldest that are over go first.
    fn make_room(&self, newest: &Kept) {
        let mut streams = self.streams();
        let Some(Streams { all, .. }) = streams.as_mut() else { return };
        while self.bytes.load(Ordering::Relaxed) > self.limits.session_bytes {
            let over = |kept: &Arc<Kept>| !std::ptr::eq(Arc::as_ptr(kept), newest) && kept.is_over();
            let Some(over) = all.iter().position(over).and_then(|at| all.remove(at)) else { return };
            self.forget(&over);
        }
    }

    fn forget(&self, kept: &Kept) {
        self.bytes.fetch_sub(kept.state().clear(), Ordering::Relaxed);
    }

    fn streams(&self) -> MutexGuard<'_, Option<Streams>> {
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
            Priming::On => {
                let mut primer = BytesMut::with_capacity(PRIMER_BYTES);
                sse::encode_message::<&[u8]>(head(&self.id(0), Some(RETRY_MS)), &[], &mut primer);
                Some(primer.freeze())
            }
            Priming::Off => None,
        };
        (primer, state.holder)
    }

    /// Polls for what is said by now, as one write behind `lead`; `None` when the call is over, or another has become the
    /// holder.
    pub fn poll(&self, holder: u64, lead: &[u8], cx: &mut Context<'_>) -> Poll<Option<Told>> {
        let mut state = self.state();
        if state.holder != holder {
            return Poll::Ready(None);
        }
        let Some(source) = &mut state.source else { return Poll::Ready(None) };
        let mut batch = Batch::default();
        let told = match batch.poll_fill(cx, |cx| source.as_mut().poll_next(cx)) {
            Poll::Ready(true) => Some(batch.spell(lead, Some(Numbering { key: self.key, last: state.number }))),
            Poll::Ready(false) => None,
            Poll::Pending => {
                if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
        };
        let over = if told.as_ref().is_none_or(|told| told.last) { state.source.take() } else { None };
        if let Some(told) = &told {
            self.keep(&mut state, told, lead.len());
        }
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
            // Who comes back again and again does not keep it for ever.
            state.left.get_or_insert_with(|| self.clock.now());
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
        let before = state.bytes;
        state.number += 1;
        let number = state.number;
        state.grow(Event { number, frames: self.stand_in(number, words), last: true, shares: false });
        state.keep_to(self.limits.stream_bytes);
        self.count(before, state.bytes);
        drop(state);
        drop(source);
        self.stay_in_bounds();
    }

    /// Replaces the error that stands for the answer by the answer, once it is whole.
    pub fn complete(&self, told: &[Bytes]) {
        let mut state = self.state();
        if size(told) > self.limits.stream_bytes || !state.events.back().is_some_and(|event| event.last) {
            return;
        }
        let before = state.bytes;
        state.replace_last(told.into());
        state.keep_to(self.limits.stream_bytes);
        self.count(before, state.bytes);
        drop(state);
        self.stay_in_bounds();
    }

    /// Returns the most bytes that are kept of one stream.
    #[must_use]
    pub const fn bytes_max(&self) -> usize {
        self.limits.stream_bytes
    }

    /// Keeps what is told. Small events share the buffer they are written from, as long as all of it is kept.
    fn keep(&self, state: &mut State, told: &Told, lead: usize) {
        let most = self.limits.stream_bytes;
        let (before, whole) = (state.bytes, told.large.is_empty());
        let apart = told.joined.len() > most;
        let mut start = lead;
        state.events.reserve(told.ends.len() + 1);
        for (at, end) in told.ends.iter().enumerate() {
            state.number += 1;
            let number = state.number;
            let last = whole && told.last && at + 1 == told.ends.len();
            let event = told.joined.get(start..*end).unwrap_or_default();
            start = *end;
            let frames = match event.len() <= most {
                true if apart => [Bytes::copy_from_slice(event)].into(),
                true => [told.joined.slice_ref(event)].into(),
                false if last => self.stand_in(number, TOO_LARGE),
                false => continue,
            };
            state.grow(Event { number, frames, last, shares: at > 0 && !apart });
        }
        if !whole {
            state.number += 1;
            let number = state.number;
            let frames = match &told.rest {
                Some(_) => Some(self.stand_in(number, NOT_WHOLE)),
                None if size(&told.large) <= most => Some(told.large.clone()),
                None => told.last.then(|| self.stand_in(number, TOO_LARGE)),
            };
            if let Some(frames) = frames {
                state.grow(Event { number, frames, last: told.last, shares: false });
            }
        }
        state.keep_to(most);
        self.count(before, state.bytes);
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
        while too_much() {
            let before = state.bytes;
            let dropped = state.drop_oldest();
            if !dropped && let Some(last) = state.events.back_mut() {
                let stand_in = self.stand_in(last.number, TOO_LARGE);
                state.replace_last(stand_in);
            }
            self.count(before, state.bytes);
            if !dropped {
                return;
            }
        }
    }

    /// Takes note in the session's sum that this stream holds so much.
    fn count(&self, before: usize, now: usize) {
        if let Some(shelf) = self.shelf.upgrade() {
            shelf.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    fn stand_in(&self, number: u64, words: &str) -> Frames {
        let words = json::quoted(words);
        let error = [format!(r#"{{"code":{},"message":"#, code::LIMIT.0).as_bytes(), &words, b"}"].concat();
        let id = self.id(number);
        sse::message(head(&id, None), &[Response::with_error(Some(&self.request), &error).raw]).into()
    }

    fn id(&self, number: u64) -> String {
        Numbering { key: self.key, last: 0 }.id(number)
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

    fn grow(&mut self, event: Event) {
        self.bytes += size(&event.frames);
        self.events.push_back(event);
    }

    fn replace_last(&mut self, frames: Frames) {
        let Some(last) = self.events.back_mut() else { return };
        self.bytes = self.bytes - size(&last.frames) + size(&frames);
        (last.frames, last.shares) = (frames, false);
    }

    /// Drops the oldest events, but not the answer, until no more than `most` bytes are left.
    fn keep_to(&mut self, most: usize) {
        while self.bytes > most && self.drop_oldest() {}
    }

    /// Drops the oldest event that is no answer; `false` if there is none. What shares its buffer gets one of its own.
    fn drop_oldest(&mut self) -> bool {
        let Some(event) = self.events.pop_front_if(|event| !event.last) else { return false };
        self.bytes -= size(&event.frames);
        if let Some(next) = self.events.front_mut().filter(|next| next.shares) {
            next.frames = next.frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
            next.shares = false;
        }
        true
    }
}

fn head(id: &str, retry_ms: Option<u64>) -> Head<'_> {
    Head { id: EventId::new(id), retry_ms }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
