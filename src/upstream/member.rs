//! One connection of a pool, and who holds it [TRN-4].
//!
//! Not for: finding one (`pool`). Invariant: to be held, and to be found idle, are decided under the stock's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;

use crate::clock::Moment;
use crate::exchange::{Answer, Event, OwnerKey, Reply, ReplyBody};
use crate::id::PrincipalId;
use crate::wire::mcp::Capabilities;

use super::link::{Left, Link, Started};
use super::place::Places;

/// No doubt.
const NEVER: u64 = u64::MAX;

/// One connection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) link: Arc<dyn Link>,
    /// What the server says there that it can do.
    can: Capabilities,
    /// Whose it is; `None`: everybody's.
    principal: Option<PrincipalId>,
    /// One call at a time.
    alone: bool,
    /// Whose a question of the server is can be in doubt.
    doubtful: bool,
    uses: AtomicUsize,
    /// It was used since it was last looked at.
    touched: AtomicBool,
    /// When it was first seen unused, in milliseconds.
    idle_since: AtomicU64,
    /// Since when it is in doubt, in milliseconds.
    doubted_since: AtomicU64,
    pub(super) born: Moment,
    /// Its end was brought about from here.
    retired: AtomicBool,
    /// Whose call has held it first.
    first: OnceLock<OwnerKey>,
    /// Another owner's call has held it too.
    mixed: AtomicBool,
    places: Arc<Places>,
}

/// A connection that a call holds; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Held(Arc<Member>);

// === impl Member ===

impl Member {
    pub(super) fn new(
        started: &Started,
        principal: Option<PrincipalId>,
        (alone, doubtful): (bool, bool),
        born: Moment,
        places: &Arc<Places>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link: Arc::clone(&started.link),
            can: started.can,
            principal,
            alone,
            doubtful,
            uses: AtomicUsize::new(0),
            touched: AtomicBool::new(true),
            idle_since: AtomicU64::new(born.as_millis()),
            doubted_since: AtomicU64::new(NEVER),
            born,
            retired: AtomicBool::new(false),
            first: OnceLock::new(),
            mixed: AtomicBool::new(false),
            places: Arc::clone(places),
        })
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Says whose it is; `None`: everybody's.
    pub(super) const fn principal(&self) -> Option<&PrincipalId> {
        self.principal.as_ref()
    }

    /// Returns what a list can be read over.
    pub(super) fn started(&self) -> Started {
        Started { link: Arc::clone(&self.link), can: self.can }
    }

    /// Marks that its end is not its own doing; returns what is to be closed.
    pub(super) fn retire(&self) -> Arc<dyn Link> {
        self.retired.store(true, Ordering::Release);
        Arc::clone(&self.link)
    }

    /// Says whether it has been this owner's alone.
    pub(super) fn is_only_of(&self, owner: &OwnerKey) -> bool {
        !self.mixed.load(Ordering::Acquire) && self.first.get() == Some(owner)
    }

    /// Holds it for a call of an owner; to be called under the stock's lock.
    pub(super) fn hold(self: &Arc<Self>, owner: &OwnerKey) -> Held {
        if self.first.get_or_init(|| owner.clone()) != owner {
            self.mixed.store(true, Ordering::Release);
        }
        self.uses.fetch_add(1, Ordering::AcqRel);
        self.touched.store(true, Ordering::Relaxed);
        Held(Arc::clone(self))
    }

    pub(super) fn is_held(&self) -> bool {
        self.uses.load(Ordering::Acquire) > 0
    }

    /// Says whether another call may have it.
    pub(super) fn is_free(&self) -> bool {
        !self.alone || !self.is_held()
    }

    /// Orders what is idle: what was not used since it was last looked at comes first, by when it was first seen unused, in
    /// milliseconds.
    pub(super) fn last_seen(&self) -> (bool, u64) {
        (self.touched.load(Ordering::Relaxed), self.idle_since.load(Ordering::Relaxed))
    }

    /// Says whether a question of the server would be known to be for this owner's call.
    pub(super) fn is_clear_for(&self, owner: &OwnerKey) -> bool {
        if !self.doubtful {
            return true;
        }
        let left = self.link.left_behind(owner);
        if left == Left::Nothing {
            self.doubted_since.store(NEVER, Ordering::Relaxed);
        }
        left != Left::Others
    }

    /// Says how long that has not been known.
    pub(super) fn doubt(&self, owner: &OwnerKey, now: Moment) -> Duration {
        if self.is_clear_for(owner) {
            return Duration::ZERO;
        }
        let since = self.doubted_since.fetch_min(now.as_millis(), Ordering::Relaxed).min(now.as_millis());
        now.since(Moment::from_millis(since))
    }

    /// Says whether it has been idle for so long; to be called under the stock's lock.
    pub(super) fn is_idle(&self, now: Moment, limit: Duration) -> bool {
        if self.is_held() || self.touched.swap(false, Ordering::Relaxed) {
            self.idle_since.store(now.as_millis(), Ordering::Relaxed);
            return false;
        }
        now.since(Moment::from_millis(self.idle_since.load(Ordering::Relaxed))) >= limit
    }
}

// === impl Held ===

impl Held {
    pub(super) fn link(&self) -> &Arc<dyn Link> {
        &self.0.link
    }

    /// Says whether the connection has been this owner's alone.
    #[cfg(test)]
    pub(super) fn is_only_of(&self, owner: &OwnerKey) -> bool {
        self.0.is_only_of(owner)
    }

    /// Says whether nobody else has the connection meanwhile.
    #[cfg(test)]
    pub(super) fn is_alone(&self) -> bool {
        self.0.alone
    }

    /// Keeps the connection until the call is over: until its last event, or the last byte of what nobody looks at.
    pub(super) fn until_the_end_of(self, reply: Reply) -> Reply {
        let (body, guards) = reply.into_parts();
        let reply = match body {
            ReplyBody::Done(outcome) => match *outcome {
                Ok(Answer::Unseen(_)) => Reply::done(outcome).with_guard(self),
                _ => Reply::done(outcome),
            },
            ReplyBody::Events(events) => {
                let mut held = Some(self);
                let holding = events.inspect(move |event| {
                    if matches!(event, Event::Done(_)) {
                        drop(held.take());
                    }
                });
                Reply::events(Box::pin(holding))
            }
        };
        if guards.is_empty() { reply } else { reply.with_guard(guards) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What the call has done is idle from now on, not from its beginning.
        self.0.touched.store(true, Ordering::Relaxed);
        self.0.uses.fetch_sub(1, Ordering::AcqRel);
        if self.0.alone {
            self.0.places.freed.notify_waiters();
        }
    }
}
