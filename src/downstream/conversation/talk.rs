//! A conversation, from its first message to its end.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::downstream::AccessLog;
use crate::downstream::server::Door;
use crate::exchange::Handler;
use crate::limit::Seat;
use crate::session::{Session, StreamGuard};

use super::call::{Call, InFlight};
use super::lines::Lines;

/// How many batches may be in flight; each holds up to 64 requests.
const BATCHES_MAX: usize = 16;

/// What brings the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::downstream) enum Carrier {
    /// HTTP requests: their rate is asked and their access line written as such.
    Http,
    /// A pair of pipes.
    Pipe,
}

/// A conversation.
pub(in crate::downstream) struct Talk<H> {
    pub(in crate::downstream) door: Arc<Door<H>>,
    pub(in crate::downstream) lines: Lines,
    pub(super) carrier: Carrier,
    pub(super) in_flight: InFlight,
    pub(super) session: Option<Open>,
    /// Among the sessions that there may be: of all that this conversation has, one after the other.
    pub(super) place: Option<Arc<Seat>>,
    /// Nothing more is heard.
    pub(super) over: CancellationToken,
    /// Ends what carries it: given when the hall ends its session's stream of changes.
    pub(super) cut: CancellationToken,
    /// Bounds the batches in flight, whose requests are not in the table.
    pub(super) batches: Arc<Semaphore>,
    calls: TaskTracker,
}

/// The legacy session of a conversation.
pub(super) struct Open {
    pub(super) session: Arc<Session>,
    /// Keeps it from being idle until its client listens.
    pub(super) awake: Option<StreamGuard>,
}

// === impl Talk ===

impl<H: Handler> Talk<H> {
    /// Begins.
    pub(in crate::downstream) fn new(door: Arc<Door<H>>, lines: Lines, carrier: Carrier) -> Self {
        Self {
            door,
            lines,
            carrier,
            in_flight: InFlight::default(),
            session: None,
            place: None,
            over: CancellationToken::new(),
            cut: CancellationToken::new(),
            batches: Arc::new(Semaphore::new(BATCHES_MAX)),
            calls: TaskTracker::new(),
        }
    }

    /// Has a place already, and cuts what carries it when the hall ends it [CFG-4].
    pub(in crate::downstream) fn at(self, place: Seat, cut: CancellationToken) -> Self {
        Self { place: Some(Arc::new(place)), cut, ..self }
    }

    /// Says whether nothing has begun that goes on by itself: a session has once its client listens.
    pub(in crate::downstream) fn is_idle(&self) -> bool {
        self.session.as_ref().is_none_or(|open| open.awake.is_some()) && self.calls.is_empty()
    }

    /// Says whether answers write access lines here.
    pub(in crate::downstream) fn access(&self) -> AccessLog {
        match self.carrier {
            Carrier::Http => AccessLog::Off,
            Carrier::Pipe => self.door.settings.access,
        }
    }

    /// Lets a call run beside the others.
    pub(super) fn start(&self, call: Call) {
        self.spawn(call.run(self.lines.clone(), self.access()));
    }

    /// Starts what the end of the conversation waits for.
    pub(in crate::downstream) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.door.tasks.spawn("call of a conversation", self.calls.track_future(work));
    }

    /// Takes its leave: streams of changes end, and the queue of what is said ends with the last call. Returns what waits
    /// for that.
    pub(in crate::downstream) fn leave(&mut self) -> impl Future<Output = ()> + Send + use<H> {
        self.over.cancel();
        self.calls.close();
        self.lines.close();
        let calls = self.calls.clone();
        async move { calls.wait().await }
    }

    /// Ends it, with what is still in flight.
    pub(in crate::downstream) fn end(self) {
        self.over.cancel();
        self.in_flight.cancel_all();
        if let Some(open) = self.session {
            self.door.sessions.remove(&open.session);
        }
    }
}
