//! What a connection has said of watched resources, until it is taken.
//!
//! Invariants: coalesced by URI and bounded; what is over the bound counts as a change of everything.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::wire::json;
use crate::wire::jsonrpc::Notification;

/// The most URIs that wait.
const HEARD_MAX: usize = 1024;

/// What is waiting to be taken.
#[derive(Debug, Default)]
pub(super) struct Heard {
    said: Mutex<Said>,
    news: Notify,
}

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Resources that have changed.
    pub(super) updated: BTreeSet<String>,
    /// Any resource may have changed.
    pub(super) all: bool,
    /// The server has lost the session, and with it every subscription.
    pub(super) lost: bool,
    /// What the server has acknowledged last of a listen for resources.
    pub(super) honoured: Option<BTreeSet<String>>,
}

// === impl Heard ===

impl Heard {
    /// Takes note of a notification; `false` if it is not about watched resources.
    pub(super) fn hear(&self, notification: &Notification) -> bool {
        let params = notification.params.as_deref();
        match &*notification.method {
            "notifications/resources/updated" => {
                let uri = params.and_then(|params| json::text(params.get("uri").ok()??));
                let Some(uri) = uri else { return true };
                let mut said = self.said();
                if said.updated.len() < HEARD_MAX {
                    said.updated.insert(uri.into_owned());
                } else {
                    said.all = true;
                }
            }
            "notifications/subscriptions/acknowledged" => {
                // One for lists alone names none.
                let Some(honoured) = params.and_then(|params| resources(params.get("notifications").ok()??)) else {
                    return true;
                };
                self.said().honoured = Some(honoured);
            }
            _ => return false,
        }
        self.news.notify_one();
        true
    }

    /// Takes note that any change may have been missed.
    pub(super) fn missed(&self) {
        self.said().all = true;
        self.news.notify_one();
    }

    /// Takes note that the server has lost the session: another has taken its place.
    pub(super) fn lost(&self) {
        self.said().lost = true;
        self.news.notify_one();
    }

    /// Waits until something was said. For one listener.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes what was said.
    pub(super) fn take(&self) -> Said {
        std::mem::take(&mut *self.said())
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what an acknowledgement honours; `None` for one that speaks of lists. One that honours nothing at all is taken for
/// that of resources: lists are asked for only where the server tells of them.
fn resources(notifications: json::Raw<'_>) -> Option<BTreeSet<String>> {
    let members = json::members(notifications.get()).ok()?;
    match members.get("resourceSubscriptions").ok()? {
        Some(uris) => serde_json::from_slice(uris.get()).ok(),
        None => members.is_empty().then(BTreeSet::new),
    }
}
