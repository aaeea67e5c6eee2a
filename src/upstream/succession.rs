//! What a reload asks of a server: to begin once, to pass its list on, to let go of principals, and who still uses it.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::id::PrincipalId;

use super::Isolation;
use super::lease::Lease;
use super::link::Link;
use super::server::Server;

impl Server {
    /// Marks the server as started; `false` if it was already.
    pub(super) fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// Says whether it was started.
    pub(super) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Takes part in the server's life until it is dropped.
    #[must_use]
    pub fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// Says whether somebody's call is under way.
    pub(super) fn is_leased(&self) -> bool {
        Arc::strong_count(&self.lease) > 1
    }

    /// Shows the lists of the server that it replaces until it has its own, so that a restart takes no tool away.
    pub(super) fn inherit(&self, old: &Self) {
        let old = old.status();
        self.status.send_modify(|status| (status.lists, status.can) = (old.lists, old.can));
    }

    /// Says whether one principal alone is granted the server: then the child its list is read from may be that one's own.
    pub(super) fn set_sole(&self, sole: bool) {
        if !self.sole.swap(sole, Ordering::AcqRel) || sole {
            return;
        }
        // What one principal does to its child must not be everybody's list from here on.
        drop(self.pool.stock().unowned.take());
        drop(self.pool.take_offered());
        self.elsewhere.forget();
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if catalog.is_some_and(|link| link.is_channel() && self.is_somebodys(&link)) {
            self.apart.notify_one();
        }
    }

    /// Says whether one principal alone is granted the server.
    pub(super) fn is_sole(&self) -> bool {
        self.sole.load(Ordering::Acquire)
    }

    /// Says whether a connection belongs to one of several principals, so that the list must not be read over it.
    pub(super) fn is_somebodys(&self, link: &Arc<dyn Link>) -> bool {
        self.settings().isolation() == Isolation::Principal && self.pool.stock().owns(link)
    }

    /// Closes the connections of those principals that may not keep them.
    pub(super) fn keep_connections(&self, keeps: impl Fn(&PrincipalId) -> bool) {
        for link in self.pool.stock().drain_but(keeps) {
            link.close();
            self.tasks.spawn("close a connection that nobody may use", link.ended());
        }
    }
}
