//! What comes of a call piece by piece, under its time, which runs whether or not its client takes the pieces [LIM-4].
//!
//! Not for: the wait for the first piece (`dispatch`). Invariants: one last piece, and nothing after it; a call whose time
//! is over is cancelled at its server, also if nobody asks for its next piece: then a sweep does it, and whoever asks
//! later is told.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::exchange::{Asked, Event, Reject, RejectKind};
use crate::runtime::Bell;
use crate::upstream::Lease;

use super::Gateway;
use super::standing::Standing;

/// How often a call that waits is asked whether a reload has taken away what it lives by. Longer than the two seconds
/// between two looks at the files: a timer that is the next to fire has to wake the event loop, one system call each.
pub(super) const LOOK: Duration = Duration::from_secs(3);
/// How often calls are looked at of which nobody takes the next piece.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of one call's time.
#[derive(Debug)]
pub(super) struct Limits {
    /// Without progress.
    pub(super) idle: Duration,
    /// In all.
    pub(super) max: Duration,
    /// Keeps a server that a reload replaces until the call is over.
    pub(super) lease: Arc<Lease>,
}

/// A piece of what comes of a call.
pub(super) trait Piece: Send + Sized + 'static {
    /// Spells the end that a refusal is.
    fn refused(reject: Reject) -> Self;

    /// Says what follows from it for the call.
    fn sense(&self) -> Sense;

    /// Returns the question that it is.
    fn question(&self) -> Option<Asked> {
        None
    }

    /// Spells the end where the server has left it out; `None` where it is none of the server's.
    fn missing(limits: &Limits) -> Option<Self>;
}

/// What a piece means for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    /// It is the last.
    Last,
    /// The call goes on, and its time begins anew.
    Progress,
    /// The call goes on.
    Talk,
}

/// A call's pieces under its time.
pub(super) struct Timed<T>(Arc<Held<T>>);

/// The calls whose pieces are under way.
#[derive(Default)]
pub(super) struct AllTimed {
    all: Mutex<Vec<Weak<dyn Overdue>>>,
    news: Notify,
}

/// A call that may have to be ended though nobody asks for its next piece.
trait Overdue: Send + Sync {
    fn sweep(&self, now: Instant);
}

struct Held<T> {
    open: Mutex<Open<T>>,
    limits: Limits,
    gateway: Arc<Gateway>,
}

struct Open<T> {
    /// What the pieces come from; dropping it cancels the call.
    source: Option<Pin<Box<dyn Stream<Item = T> + Send>>>,
    timer: Timer,
    standing: Standing,
    /// Somebody waits for the next piece; the timer wakes them.
    waited: bool,
    /// The server's questions that are out.
    questions: Vec<Asked>,
    /// A piece that the sweep has found.
    found: Option<T>,
    /// What is said last, where the sweep has ended the call.
    end: Option<Reject>,
}

/// The time of one call: progress extends it, up to the maximum.
#[derive(Debug)]
struct Timer {
    /// Rings at the deadline, and before that to look around. A piece moves the deadline alone: the bell rings too early
    /// then, and is set anew.
    bell: Bell,
    deadline: Instant,
    end: Instant,
}

// === impl Limits ===

impl Limits {
    /// The refusal of a call that has had no progress for too long.
    pub(super) fn idle_over(&self) -> Reject {
        let seconds = self.idle.as_secs();
        self.exceeded(&format!("did not answer within {seconds} s (tool_timeout_secs)"))
    }

    fn over(&self, timer: &Timer) -> Reject {
        if timer.deadline < timer.end {
            return self.idle_over();
        }
        let seconds = self.max.as_secs();
        self.exceeded(&format!("did not end its answer within {seconds} s (tool_max_secs)"))
    }

    fn exceeded(&self, what: &str) -> Reject {
        let words = format!("server '{}' {what}; the call was cancelled", self.lease.server());
        Reject::upstream(RejectKind::UpstreamTimeout, words, "")
    }
}

// === impl Piece ===

impl Piece for Event {
    fn refused(reject: Reject) -> Self {
        Self::Done(Err(reject))
    }

    fn sense(&self) -> Sense {
        match self {
            Self::Done(_) => Sense::Last,
            Self::Progress(_) => Sense::Progress,
            Self::Ask(_) => Sense::Progress,
            Self::Changed(_) | Self::Log(_) | Self::Paused | Self::Said(_) | Self::Watch(_) => Sense::Talk,
        }
    }

    fn question(&self) -> Option<Asked> {
        let Self::Ask(question) = self else { return None };
        Some(question.responder.asked())
    }

    fn missing(limits: &Limits) -> Option<Self> {
        let words = format!("server '{}' ended its answer too early", limits.lease.server());
        Some(Self::Done(Err(Reject::upstream(RejectKind::Upstream, words, ""))))
    }
}

impl Piece for Result<Bytes, Reject> {
    fn refused(reject: Reject) -> Self {
        Err(reject)
    }

    fn sense(&self) -> Sense {
        if self.is_ok() { Sense::Progress } else { Sense::Last }
    }

    fn missing(_: &Limits) -> Option<Self> {
        None
    }
}

// === impl Timed ===

impl<T: Piece> Timed<T> {
    /// Takes over what comes of a call, which must be over at `end`.
    pub(super) fn new(
        source: Pin<Box<dyn Stream<Item = T> + Send>>,
        (limits, end): (Limits, Instant),
        standing: Standing,
        gateway: Arc<Gateway>,
    ) -> Self {
        let timer = Timer::start(&limits, end);
        let (source, questions) = (Some(source), Vec::new());
        let open = Open { source, timer, standing, waited: false, questions, found: None, end: None };
        let held = Arc::new(Held { open: Mutex::new(open), limits, gateway });
        let weak: Weak<Held<T>> = Arc::downgrade(&held);
        held.gateway.timed.add(weak);
        Self(held)
    }
}

impl<T: Piece> Stream for Timed<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let held = &*self.get_mut().0;
        let mut open = held.open();
        let piece = ready!(held.poll_piece(&mut open, cx));
        open.waited = false;
        Poll::Ready(piece)
    }
}

// === impl Held ===

impl<T: Piece> Held<T> {
    fn open(&self) -> MutexGuard<'_, Open<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_piece(&self, open: &mut Open<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(found) = open.found.take() {
            return Poll::Ready(Some(found));
        }
        if let Some(end) = open.end.take() {
            return Poll::Ready(Some(T::refused(end)));
        }
        loop {
            let Some(source) = &mut open.source else { return Poll::Ready(None) };
            // Before the timer: what has arrived counts, however late it is asked for.
            if let Poll::Ready(piece) = source.as_mut().poll_next(cx) {
                return Poll::Ready(self.take(open, piece));
            }
            open.waited = true;
            let over = ready!(open.timer.poll_rings(cx));
            if let Some(reject) = open.standing.lost(&self.gateway) {
                open.source = None;
                return Poll::Ready(Some(T::refused(reject)));
            }
            if over && !open.waits_for_answers(&self.limits) {
                open.source = None;
                return Poll::Ready(Some(T::refused(self.limits.over(&open.timer))));
            }
        }
    }

    /// Takes a piece in, or the end.
    fn take(&self, open: &mut Open<T>, piece: Option<T>) -> Option<T> {
        if let Some(reject) = open.standing.lost(&self.gateway) {
            open.source = None;
            return Some(T::refused(reject));
        }
        let piece = piece.or_else(|| T::missing(&self.limits));
        if let Some(asked) = piece.as_ref().and_then(Piece::question) {
            note(&mut open.questions, asked);
        }
        match piece.as_ref().map_or(Sense::Last, Piece::sense) {
            Sense::Last => open.source = None,
            Sense::Progress => open.timer.extend(&self.limits),
            Sense::Talk => {}
        }
        piece
    }
}

impl<T: Piece> Overdue for Held<T> {
    fn sweep(&self, now: Instant) {
        let source = {
            let mut open = self.open();
            // Whoever waits is woken by the bell, and asks again unless something else holds them up: a client that reads
            // nothing.
            let waits = open.waited && now < open.timer.bell.deadline() + SWEEP_PAUSE;
            if waits || open.source.is_none() {
                return;
            }
            let lost = open.standing.lost(&self.gateway);
            if lost.is_none() && (now < open.timer.deadline || open.waits_for_answers(&self.limits)) {
                return;
            }
            if lost.is_none() && open.found.is_none() && self.find(&mut open, now) {
                return;
            }
            open.end = Some(lost.unwrap_or_else(|| self.limits.over(&open.timer)));
            open.source.take()
        };
        // Outside of the lock, for it may do anything.
        drop(source);
    }
}

impl<T: Piece> Held<T> {
    /// Looks whether there is a piece that nobody has asked for, which counts; says whether the call goes on, or has its
    /// end by it.
    fn find(&self, open: &mut Open<T>, now: Instant) -> bool {
        let Some(source) = &mut open.source else { return true };
        let Poll::Ready(piece) = source.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) else {
            return false;
        };
        open.found = self.take(open, piece);
        open.source.is_none() || now < open.timer.deadline
    }
}

// === impl Open ===

impl<T> Open<T> {
    /// Says whether the server waits for a person: then its time does not run.
    fn waits_for_answers(&mut self, limits: &Limits) -> bool {
        self.questions.retain(|asked| !asked.is_over());
        let waits = !self.questions.is_empty();
        if waits {
            self.timer.hold(limits);
        }
        waits
    }
}

// === impl AllTimed ===

impl AllTimed {
    fn add(&self, held: Weak<dyn Overdue>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let first = all.is_empty();
        all.push(held);
        drop(all);
        if first {
            self.news.notify_one();
        }
    }

    /// Counts those that are looked at.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Looks at them every second, as long as there are any.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            self.news.notified().await;
            while self.sweep() {
                tokio::time::sleep(SWEEP_PAUSE).await;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline of tokio's own timer")]
    fn sweep(&self) -> bool {
        let all: Vec<Arc<dyn Overdue>> = {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|held| held.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let now = Instant::now();
        all.iter().for_each(|held| held.sweep(now));
        !all.is_empty()
    }
}

// === impl Timer ===

impl Timer {
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn start(limits: &Limits, end: Instant) -> Self {
        let now = Instant::now();
        let deadline = (now + limits.idle).min(end);
        Self { bell: Bell::at(deadline.min(now + LOOK)), deadline, end }
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn extend(&mut self, limits: &Limits) {
        self.deadline = (Instant::now() + limits.idle).min(self.end);
    }

    /// Gives the whole time of an answer anew, also past the maximum: the server waits for us.
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn hold(&mut self, limits: &Limits) {
        self.end = self.end.max(Instant::now() + limits.idle);
        self.extend(limits);
    }

    /// Waits until it rings; says whether the time is over.
    fn poll_rings(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        ready!(Pin::new(&mut self.bell).poll(cx));
        let rang = self.bell.deadline();
        self.bell.reset(self.deadline.min(rang + LOOK));
        Poll::Ready(rang >= self.deadline)
    }
}

/// Takes note of a question. Those that are over go: a server may ask and take back for as long as its call lives.
fn note(questions: &mut Vec<Asked>, asked: Asked) {
    questions.retain(|asked| !asked.is_over());
    questions.push(asked);
}

#[cfg(test)]
#[path = "timed_tests.rs"]
mod tests;
