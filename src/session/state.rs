//! One legacy session: who opened it, what it has in flight, when it was last used.
//!
//! Invariants: an id is in flight at most once; a call or a stream in flight keeps the session from being idle.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::exchange::{Aside, ClientFacts, Endpoint, Owner, OwnerKey, Responder, Told, Watching};
use crate::id::{PrincipalId, SessionId};
use crate::limit::Seat;
use crate::runtime::Stop;
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Kind, Level};

use super::questions::Questions;
use super::replay::{Kept, Shelf};

/// No severity.
pub(super) const UNSET: u8 = u8::MAX;

/// A legacy client's session.
#[derive(Debug)]
pub struct Session {
    /// Its id, a secret between this client and us.
    pub id: SessionId,
    /// Its number in this process, never reused.
    pub number: u64,
    /// Who opened it; nobody else may use it.
    pub principal: PrincipalId,
    /// On which path.
    pub endpoint: Endpoint,
    /// What the client said of itself, with the version agreed on.
    pub client: ClientFacts,
    /// What the client was told last of its tools.
    pub told: Told,
    /// From which severity on it wants logs, as [`Level::index`]; [`UNSET`] as long as it has not said.
    pub(super) log: AtomicU8,
    /// The resources it watches, and what has changed of them.
    pub watching: Watching,
    /// What passes between it and its servers beside its calls.
    pub aside: Arc<Aside>,
    /// Cancelled when the session ends.
    pub ended: CancellationToken,
    pub(super) last_used: AtomicU64,
    /// It was used since then.
    pub(super) touched: AtomicBool,
    pub(super) live: Mutex<Live>,
    pub(super) questions: Questions,
    pub(super) shelf: Arc<Shelf>,
}

/// What is in flight.
#[derive(Debug, Default)]
pub(super) struct Live {
    calls: HashMap<RequestId, Stop>,
    ended: bool,
    stream: Option<(u64, CancellationToken)>,
    streams_opened: u64,
    /// Among the sessions that there may be, until it ends.
    place: Option<Arc<Seat>>,
}

/// A request in flight; its id is free again when this is dropped.
#[derive(Debug)]
pub struct CallGuard {
    session: Arc<Session>,
    id: RequestId,
    stop: Stop,
}

/// The session's newest GET stream.
#[derive(Debug)]
pub struct StreamGuard {
    session: Arc<Session>,
    number: u64,
    token: CancellationToken,
}

// === impl Session ===

impl Session {
    /// Takes a request's id; `None` if it is in flight already.
    #[must_use]
    pub fn begin(self: &Arc<Self>, id: &RequestId) -> Option<CallGuard> {
        let stop = Stop::default();
        let mut live = self.live();
        match live.calls.entry(id.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(stop.clone()),
        };
        if live.ended {
            stop.stop();
        }
        drop(live);
        Some(CallGuard { session: Arc::clone(self), id: id.clone(), stop })
    }

    /// Cancels the request of that id, type and spelling exact; says whether there was one [IDS].
    pub fn cancel(&self, id: &RequestId) -> bool {
        let call = self.live().calls.get(id).cloned();
        call.map(|call| call.stop()).is_some()
    }

    /// Opens the GET stream; the one before is closed [FC-SES-06].
    #[must_use]
    pub fn open_stream(self: &Arc<Self>) -> StreamGuard {
        let token = self.ended.child_token();
        let mut live = self.live();
        live.streams_opened += 1;
        let number = live.streams_opened;
        let before = live.stream.replace((number, token.clone()));
        drop(live);
        if let Some((_, before)) = before {
            before.cancel();
        }
        StreamGuard { session: Arc::clone(self), number, token }
    }

    /// Notes a question to this client; returns the id it is asked with, `None` if it is refused: too many are out.
    #[must_use]
    pub fn ask(&self, responder: Responder) -> Option<u64> {
        self.questions.ask(responder)
    }

    /// Hands the client's answer to its question; says whether there was one.
    pub fn answer(&self, response: &Response) -> bool {
        self.touch();
        self.questions.answer(response)
    }

    /// Refuses a question that is still out.
    pub fn forget(&self, id: u64) {
        self.questions.forget(id);
    }

    /// Makes room for a stream that the client may come back to [R45]: of a request, for what it names
    /// by the client's name. `None` where there is no room.
    #[must_use]
    pub fn keep(&self, request: RequestId, target: (Kind, String)) -> Option<Arc<Kept>> {
        self.shelf.place(request, target)
    }

    /// Finds the stream that an event's id is of, and the event's number in it [R43].
    #[must_use]
    pub fn kept(&self, event_id: &str) -> Option<(Arc<Kept>, u64)> {
        self.shelf.find(event_id)
    }

    /// Takes note from which severity on the client wants logs.
    pub fn set_log(&self, level: Level) {
        self.log.store(level.index(), Ordering::Release);
    }

    /// Returns from which severity on the client wants logs; `None` as long as it has not said.
    #[must_use]
    pub fn log(&self) -> Option<Level> {
        Level::from_index(self.log.load(Ordering::Acquire))
    }

    /// Returns what is known of the client now.
    #[must_use]
    pub fn facts(&self) -> ClientFacts {
        self.client.clone().logging(self.log())
    }

    /// Returns the owner of the server-side state this session opens.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            key: OwnerKey::Session(self.number),
            ended: Some(self.ended.clone()),
            aside: Some(Arc::clone(&self.aside)),
        }
    }

    /// Says whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.live().ended
    }

    /// Ends all that is in flight, and all that begins later.
    pub(super) fn end(&self) {
        let mut live = self.live();
        live.ended = true;
        let calls: Vec<Stop> = live.calls.values().cloned().collect();
        let place = live.place.take();
        drop(live);
        for call in calls {
            call.stop();
        }
        self.questions.end();
        self.shelf.close();
        self.watching.clear();
        self.ended.cancel();
        drop(place);
    }

    /// Takes note of a use; when it was, is found out by whoever looks next.
    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Says whether nobody has used it for so long, since it was last looked at.
    pub(super) fn is_idle(&self, now: Moment, limit: Duration) -> bool {
        let live = self.live();
        let still = live.calls.is_empty() && live.stream.is_none();
        if self.touched.swap(false, Ordering::Relaxed) {
            self.last_used.store(now.as_millis(), Ordering::Relaxed);
        }
        still && now.since(Moment::from_millis(self.last_used.load(Ordering::Relaxed))) >= limit
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Live ===

impl Live {
    pub(super) fn at(place: Arc<Seat>) -> Self {
        Self { place: Some(place), ..Self::default() }
    }
}

// === impl CallGuard ===

impl CallGuard {
    /// Returns what is stopped by `notifications/cancelled`, or with the session.
    #[must_use]
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.session.live().calls.remove(&self.id);
        self.session.touch();
    }
}

// === impl StreamGuard ===

impl StreamGuard {
    /// Returns the token that is cancelled by a newer stream or with the session.
    #[must_use]
    pub const fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut live = self.session.live();
        if live.stream.as_ref().is_some_and(|(number, _)| *number == self.number) {
            live.stream = None;
        }
        drop(live);
        self.session.touch();
    }
}
