//! Changes of lists that are told on a principal's own connection, and the connection such a list is read over [POL-10].
//!
//! Where one principal alone is granted a server, what a call of it changed stands in its own child or session and nowhere
//! else: a tool that turns others on, say. There the list is read over the connection that told, until that one ends.
//! Where there are more principals, everybody's list does not depend on what one of them does.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::wire::mcp::Kinds;

use super::Isolation;
use super::link::{Changes, Link};
use super::server::Server;

/// What connections that no list is read over have told of changed lists.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    changes: watch::Sender<Changes>,
    /// Which of them told last, where it may be read over.
    teller: Mutex<Option<Weak<dyn Link>>>,
}

impl Elsewhere {
    /// Tells of later changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }

    /// Lists are no longer read over a principal's own connection, and all are read again.
    pub(super) fn forget(&self) {
        self.replace(None);
        Changes::all(&self.changes);
    }

    /// Lists are read over this connection from here on.
    pub(super) fn put(&self, teller: &Arc<dyn Link>) {
        self.replace(Some(Arc::downgrade(teller)));
    }

    fn replace(&self, teller: Option<Weak<dyn Link>>) {
        *self.teller.lock().unwrap_or_else(PoisonError::into_inner) = teller;
    }

    fn teller(&self) -> Option<Arc<dyn Link>> {
        let teller = self.teller.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()?;
        (!teller.closed().is_cancelled()).then_some(teller)
    }
}

impl Server {
    /// Takes note of what a principal's connection has told.
    pub(super) fn told_elsewhere(&self, link: &Arc<dyn Link>, kinds: Kinds) {
        if self.settings().isolation() == Isolation::Principal {
            self.listen_to(link);
        }
        Changes::some(&self.elsewhere.changes, kinds);
        // Somebody works with it: its list does not rest.
        self.pool.wake();
    }

    /// Returns the connection that lists are read over now; `own` is the one that was opened for them.
    pub(super) fn listed_over(&self, own: &Arc<dyn Link>) -> Arc<dyn Link> {
        self.elsewhere.teller().unwrap_or_else(|| Arc::clone(own))
    }
}
