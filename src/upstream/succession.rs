//! What a reload asks of a server: to begin once, to pass its list on, to let go of principals, and who still uses it.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::exchange::OwnerKey;
use crate::id::PrincipalId;

use super::lease::Lease;
use super::server::{Server, Slot, SlotKey};

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
        drop(self.unowned.lock().unwrap_or_else(PoisonError::into_inner).take());
        if !self.is_http() && self.lists_over_an_owned_one() {
            self.apart.notify_one();
        }
    }

    /// Says whether the connection that the list is read over belongs to somebody, or may be on the way to.
    pub(super) fn lists_over_an_owned_one(&self) -> bool {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(catalog) = catalog else { return false };
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = |slot: &Slot| {
            slot.try_lock().map_or(true, |held| held.as_ref().is_some_and(|link| Arc::ptr_eq(link, &catalog)))
        };
        slots.values().any(owned)
    }

    /// Closes the connections of those principals that may not keep them.
    pub(super) fn keep_connections(&self, keeps: impl Fn(&PrincipalId) -> bool) {
        let gone = |key: &SlotKey| match key {
            SlotKey::Principal(principal, _) | SlotKey::Owner(OwnerKey::Principal(principal), _) => !keeps(principal),
            // The session's own end closes it.
            SlotKey::Owner(OwnerKey::Session(_), _) | SlotKey::Shared => false,
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<SlotKey> = slots.keys().filter(|key| gone(key)).cloned().collect();
        let taken: Vec<_> = keys.iter().filter_map(|key| slots.remove(key)).collect();
        drop(slots);
        for slot in taken {
            self.tasks.spawn("close a connection that nobody may use", async move {
                // A start under way is waited for.
                if let Some(link) = slot.lock().await.take() {
                    link.close();
                    link.ended().await;
                }
            });
        }
    }
}
