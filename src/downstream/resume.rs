//! Streams that a client may come back to: a legacy call goes on without it, and its answer waits [R43, R44, R45].
//!
//! Not for: what is kept (`session`). Invariant: a task exists only while a call runs and its client is away.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Response;

use crate::exchange::{ByteStream, Caller as _, Handler};
use crate::limit::Seat;
use crate::session::{Kept, Priming, Session, Told};
use crate::wire::jsonrpc::one_line;
use crate::wire::mcp::ProtocolVersion;
use crate::wire::sse;

use super::answer::Asker;
use super::body::Body;
use super::post::Visit;
use super::respond::Fault;
use super::running::{Running, Survive};
use super::server::Door;
use super::spoken::{First, Spoken};
use super::stream::Events;

/// How long the answer of a call that its client may come back to can be plain JSON. As long as the pause between two looks
/// at a call: a timer that is the next to fire has to wake the event loop, one system call each.
const PRIME_AFTER: Duration = Duration::from_secs(3);
const TOO_MANY: &str = "The connection was lost while too many calls ran without a client; this one was cancelled";

/// The holder of a kept stream: a client's open connection.
pub(super) struct Driver {
    /// The stream.
    pub(super) kept: Arc<Kept>,
    /// As which of its holders.
    pub(super) number: u64,
    /// What the call needs to go on without.
    pub(super) survive: Survive,
    /// Its place among the calls without a client, where it is known that the client leaves.
    pub(super) slot: Option<Seat>,
}

// === impl Driver ===

impl Driver {
    /// Polls for what is said by now, behind `lead`.
    pub(super) fn poll(&self, lead: &[u8], cx: &mut Context<'_>) -> Poll<Option<Told>> {
        self.kept.poll(self.number, lead, cx)
    }

    /// Says whether the client may be sent away: the call goes on without it for certain.
    pub(super) fn may_leave(&mut self) -> bool {
        self.slot = self.survive.seat();
        self.slot.is_some()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(number) = self.kept.let_go(self.number) else { return };
        let tasks = &self.survive.tasks;
        let Some(slot) = self.slot.take().or_else(|| self.survive.seat()) else {
            tracing::warn!("too many calls without a client; one is cancelled");
            return self.kept.give_up(number, TOO_MANY);
        };
        if tasks.cancelled().is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let kept = Arc::clone(&self.kept);
        tasks.spawn("call without client", async move {
            while let Some(told) = std::future::poll_fn(|cx| kept.poll(number, &[], cx)).await {
                if let Some(rest) = told.rest {
                    whole(&kept, told.large.into_vec(), rest).await;
                }
            }
            // Where the client has come back, this is no longer the holder, and nothing happens.
            kept.let_go(number);
            drop(slot);
        });
    }
}

/// Keeps an answer that nobody looks at, if it is not too large.
async fn whole(kept: &Kept, mut frames: Vec<Bytes>, mut rest: ByteStream) {
    let mut bytes = 0;
    while let Some(piece) = rest.next().await {
        let Ok(piece) = piece else { return };
        bytes += piece.len();
        if bytes > kept.bytes_max() {
            return;
        }
        frames.push(one_line(piece));
    }
    frames.push(Bytes::from_static(sse::END));
    kept.complete(&frames);
}

/// Says whether a stream of a session of this revision has event ids, and how it begins.
pub(super) fn priming(version: ProtocolVersion) -> Option<Priming> {
    match version {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2026_07_28 => None,
        ProtocolVersion::V2025_03_26 | ProtocolVersion::V2025_06_18 => Some(Priming::Off),
        ProtocolVersion::V2025_11_25 => Some(Priming::On),
    }
}

/// Says whether a stream of this session begins with how to come back to it.
pub(super) fn primes(session: Option<&Session>) -> bool {
    session.is_some_and(|session| priming(session.client.version) == Some(Priming::On))
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Returns how long a call may be silent before its answer becomes a stream: less where a stream's beginning is what a
    /// client comes back by.
    pub(super) fn silence(&self, session: Option<&Session>) -> Duration {
        if primes(session) { PRIME_AFTER.min(self.settings.keep_alive) } else { self.settings.keep_alive }
    }

    /// Returns what a call needs to go on without its client.
    pub(super) fn survive(&self, visit: &Visit<H::Caller>) -> Survive {
        let (tasks, seats) = (self.tasks.clone(), self.orphans.clone());
        Survive { tasks, seats, principal: visit.principal.clone(), shared: visit.caller.is_one_of_many() }
    }

    /// Begins the event stream of a request; `first` was said when it was not known yet that there would be one. In a
    /// session, its client may come back to a call's.
    pub(super) fn events(
        &self,
        mut running: Running,
        asker: Asker,
        first: Option<First>,
        session: Option<&Session>,
    ) -> Events {
        let keep_alive = self.settings.keep_alive;
        let plain = |running, asker, first| Events::new(Spoken::new(running, asker, first), keep_alive);
        let resumable = session.and_then(|session| Some((session, priming(session.client.version)?)));
        let (Some((session, priming)), Some(id)) = (resumable, asker.id.clone()) else {
            return plain(running, asker, first);
        };
        // From here on it is the holder of the stream that lets the call go on.
        let Some((survive, call)) = running.take_survive() else { return plain(running, asker, first) };
        let Some(kept) = session.keep(id, (call.params.kind, call.params.name.clone())) else {
            return plain(running.surviving(survive, call), asker, first);
        };
        let spoken = Spoken::new(running, asker, first).with_pauses(priming == Priming::On);
        let (primer, number) = kept.begin(Box::pin(spoken), priming);
        Events::held(Driver { kept, number, survive, slot: None }, primer, keep_alive)
    }

    /// Answers a GET that names the last event its client has read: with what came after it, and then with what comes.
    pub(super) fn resume(&self, visit: &Visit<H::Caller>, session: &Session, event_id: &str) -> Response<Body> {
        let may = |kept: &Kept| {
            let (kind, name) = kept.target();
            visit.caller.may_call(&visit.endpoint, kind, name)
        };
        let found = session.kept(event_id).filter(|(kept, _)| may(kept));
        let Some((kept, after)) = found else { return visit.refuse(Fault::EventUnknown, None) };
        let Some((missed, number)) = kept.resume(after) else { return visit.refuse(Fault::EventUnknown, None) };
        let driver = Driver { kept, number, survive: self.survive(visit), slot: None };
        Events::resumed(driver, missed, self.settings.keep_alive).respond()
    }
}
