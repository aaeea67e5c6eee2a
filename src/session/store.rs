//! All legacy sessions of the process.
//!
//! Invariants: a session is found only by the principal and on the path that opened it; nothing hands out a reference
//! into the map; whoever removes a session cancels its `ended`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::exchange::{ClientFacts, Endpoint, Told, Watching};
use crate::id::{PrincipalId, SessionId};
use crate::limit::{NoSeat, Seat, Seats};
use crate::seal;

use super::Session;
use super::questions::Questions;
use super::replay::{ReplayLimits, Shelf};
use super::state::{Live, UNSET};

/// How many sessions there may be, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The most in all.
    pub max: usize,
    /// The most of one principal.
    pub per_principal_max: usize,
    /// How long one may be idle.
    pub idle: Duration,
    /// What is kept for a client whose connection was lost.
    pub replay: ReplayLimits,
}

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Who opens it.
    pub principal: PrincipalId,
    /// On which path.
    pub endpoint: Endpoint,
    /// What the client says of itself, with the version agreed on.
    pub client: ClientFacts,
    /// What the client can see now.
    pub told: Told,
}

/// Why there is no new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The machine gives no random bytes.
    #[error("no random bytes for a session id")]
    Random,
    /// There are too many, in all or of this principal.
    #[error("too many sessions")]
    TooMany(NoSeat),
}

/// The store.
#[derive(Debug)]
pub struct SessionStore {
    sessions: DashMap<SessionId, Arc<Session>, RandomState>,
    seats: Seats,
    numbers: AtomicU64,
    limits: SessionLimits,
    clock: Clock,
}

// === impl SessionStore ===

impl SessionStore {
    /// Makes an empty store.
    #[must_use]
    pub fn new(limits: SessionLimits, clock: Clock) -> Self {
        let seats = Seats::new(limits.max, limits.per_principal_max);
        Self { sessions: DashMap::default(), seats, numbers: AtomicU64::new(0), limits, clock }
    }

    /// Makes an id that nobody can guess.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn new_id() -> Result<SessionId, SessionError> {
        let random = seal::random::<32>().map_err(|_| SessionError::Random)?;
        Ok(SessionId::new(&URL_SAFE_NO_PAD.encode(random)))
    }

    /// Takes a place among the sessions; where principals are several (`shared`), each has no more than its share.
    ///
    /// # Errors
    /// [`SessionError::TooMany`].
    pub fn place(&self, principal: &PrincipalId, shared: bool) -> Result<Seat, SessionError> {
        self.seats.take(principal, shared).map_err(SessionError::TooMany)
    }

    /// Opens a session at a place of its own.
    ///
    /// # Errors
    /// [`SessionError`]: a cap, or no randomness.
    pub fn create(&self, new: NewSession) -> Result<Arc<Session>, SessionError> {
        let place = self.place(&new.principal, true)?;
        self.create_at(Arc::new(place), new)
    }

    /// Opens a session at the place of what carries it, which sessions one after the other share.
    ///
    /// # Errors
    /// [`SessionError::Random`].
    pub fn create_at(&self, place: Arc<Seat>, new: NewSession) -> Result<Arc<Session>, SessionError> {
        let first_stream = u64::from_le_bytes(seal::random().map_err(|_| SessionError::Random)?);
        let session = Arc::new(Session {
            id: Self::new_id()?,
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            principal: new.principal,
            endpoint: new.endpoint,
            client: new.client,
            told: new.told,
            log: AtomicU8::new(UNSET),
            watching: Watching::default(),
            aside: Arc::default(),
            ended: CancellationToken::new(),
            last_used: AtomicU64::new(self.clock.now().as_millis()),
            touched: AtomicBool::new(false),
            live: Mutex::new(Live::at(place)),
            questions: Questions::default(),
            shelf: Shelf::new(self.limits.replay, self.clock.clone(), first_stream),
        });
        self.sessions.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// Finds a session and takes note of its use; one of another principal or path is as unknown [R37].
    #[must_use]
    pub fn get(&self, id: &str, principal: &PrincipalId, endpoint: &Endpoint) -> Option<Arc<Session>> {
        let found = self.sessions.get(id)?;
        if found.principal != *principal || found.endpoint != *endpoint {
            tracing::info!(session = ?found.id, %principal, "a session id of another principal or path was presented");
            return None;
        }
        // Under the shard's lock, so that a reaper either sees this use or has been first.
        found.touch();
        Some(Arc::clone(&found))
    }

    /// Ends a session; says whether it was this call that did.
    pub fn remove(&self, session: &Session) -> bool {
        let Some((_, session)) = self.sessions.remove(&session.id) else { return false };
        session.end();
        true
    }

    /// Ends the sessions that are idle at `now`, and forgets what no client has come back for; returns how many ended.
    pub fn reap(&self, now: Moment) -> usize {
        self.sessions.iter().for_each(|session| session.shelf.prune(now));
        let idle: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|session| session.is_idle(now, self.limits.idle))
            .map(|session| session.id.clone())
            .collect();
        let mut ended = 0;
        for id in idle {
            if let Some((_, session)) =
                self.sessions.remove_if(&id, |_, session| session.is_idle(now, self.limits.idle))
            {
                session.end();
                ended += 1;
            }
        }
        ended
    }

    /// Ends the sessions that `keeps` does not keep; returns how many [CFG-4].
    pub fn retain(&self, keeps: impl Fn(&PrincipalId, &Endpoint) -> bool) -> usize {
        let gone: Vec<Arc<Session>> = self
            .sessions
            .iter()
            .filter(|session| !keeps(&session.principal, &session.endpoint))
            .map(|session| Arc::clone(&session))
            .collect();
        gone.into_iter().filter(|session| self.remove(session)).count()
    }

    /// Ends all sessions.
    pub fn clear(&self) {
        let all: Vec<Arc<Session>> = self.sessions.iter().map(|session| Arc::clone(&session)).collect();
        for session in all {
            self.remove(&session);
        }
    }

    /// Says how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Says whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::{NewSession, ReplayLimits, SessionError, SessionLimits, SessionStore};
    use crate::clock::Clock;
    use crate::exchange::{ClientFacts, Endpoint, Told};
    use crate::id::{PrincipalId, UpstreamName};
    use crate::limit::NoSeat;
    use crate::wire::jsonrpc::RequestId;
    use crate::wire::mcp::ProtocolVersion;

    fn new(principal: &str) -> NewSession {
        let version = ProtocolVersion::V2025_11_25;
        NewSession {
            principal: PrincipalId::new(principal),
            endpoint: Endpoint::All,
            client: ClientFacts::new(version, None, Bytes::from_static(b"{}")),
            told: Told::default(),
        }
    }

    fn store(clock: &Clock) -> SessionStore {
        let replay = ReplayLimits { time: Duration::from_secs(60), stream_bytes: 1 << 20, session_bytes: 4 << 20 };
        let limits = SessionLimits { max: 3, per_principal_max: 2, idle: Duration::from_secs(10), replay };
        SessionStore::new(limits, clock.clone())
    }

    /// [R34, R37, FC-AUT-07]
    #[test]
    fn only_its_principal_on_its_path_finds_a_session() {
        let store = store(&Clock::manual());
        let session = store.create(new("alice")).unwrap();
        assert_eq!(session.id.as_str().len(), 43);
        let (alice, bob) = (PrincipalId::new("alice"), PrincipalId::new("bob"));
        assert!(store.get(session.id.as_str(), &alice, &Endpoint::All).is_some());
        assert!(store.get(session.id.as_str(), &bob, &Endpoint::All).is_none());
        let other = Endpoint::Server(UpstreamName::new("s").unwrap());
        assert!(store.get(session.id.as_str(), &alice, &other).is_none());
        assert!(store.get("x", &alice, &Endpoint::All).is_none());
    }

    /// [FC-SES-04]
    #[test]
    fn caps_hold_and_places_come_back() {
        let store = store(&Clock::manual());
        let first = store.create(new("alice")).unwrap();
        store.create(new("alice")).unwrap();
        assert_eq!(store.create(new("alice")).err(), Some(SessionError::TooMany(NoSeat::Own(2))));
        store.create(new("bob")).unwrap();
        assert_eq!(store.create(new("carol")).err(), Some(SessionError::TooMany(NoSeat::All(3))));
        assert!(store.remove(&first));
        assert!(!store.remove(&first));
        assert!(first.ended.is_cancelled());
        let carol = store.create(new("carol")).unwrap();
        assert_eq!(store.retain(|principal, endpoint| principal.as_str() != "carol" && *endpoint == Endpoint::All), 1);
        assert!(carol.ended.is_cancelled() && store.len() == 2);
        store.clear();
        assert!(store.is_empty());
    }

    #[test]
    fn what_has_work_in_flight_is_not_idle() {
        let clock = Clock::manual();
        let store = store(&clock);
        let session = store.create(new("alice")).unwrap();
        let call = session.begin(&RequestId::number(1)).unwrap();
        assert!(session.begin(&RequestId::number(1)).is_none());
        let (old, newest) = (session.open_stream(), session.open_stream());
        assert!(old.token().is_cancelled() && !newest.token().is_cancelled());
        clock.advance(Duration::from_secs(60));
        drop(old);
        for guard in [Box::new(call) as Box<dyn std::any::Any>, Box::new(newest)] {
            assert_eq!(store.reap(clock.now()), 0);
            drop(guard);
        }
        assert_eq!(store.reap(clock.now()), 0);
        clock.advance(Duration::from_secs(10));
        assert_eq!(store.reap(clock.now()), 1);
        assert!(session.ended.is_cancelled());
    }

    #[test]
    fn a_session_takes_its_calls_along() {
        let store = store(&Clock::manual());
        let session = store.create(new("alice")).unwrap();
        let call = session.begin(&RequestId::number(0)).unwrap();
        assert!(!call.stop().is_stopped());
        store.remove(&session);
        assert!(call.stop().is_stopped());
        assert!(session.begin(&RequestId::number(1)).unwrap().stop().is_stopped());
    }

    /// [FC-IDS-01]
    #[test]
    fn cancel_is_exact_in_type() {
        let store = store(&Clock::manual());
        let session = store.create(new("alice")).unwrap();
        let call = session.begin(&RequestId::number(0)).unwrap();
        assert!(!session.cancel(&RequestId::from_raw(Bytes::from_static(b"\"0\"")).unwrap()));
        assert!(!call.stop().is_stopped());
        assert!(session.cancel(&RequestId::number(0)));
        assert!(call.stop().is_stopped());
    }
}
