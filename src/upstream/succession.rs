//! What a reload asks of a server: to begin once, to let go of principals, and who still uses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::id::PrincipalId;

use super::lease::Lease;
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

    /// Closes the connections of those principals that may not keep them.
    pub(super) fn keep_connections(&self, keeps: impl Fn(&PrincipalId) -> bool) {
        let gone = self.pool.stock().drain_but(keeps);
        let listed = gone.iter().any(|link| self.is_catalog(link));
        for link in gone {
            self.end(&link);
            self.tasks.spawn("close a connection that nobody may use", link.ended());
        }
        if listed {
            // Others may be granted the server: its list does not rest for this.
            self.pool.wake();
        }
    }
}
