//! What a connection has said of watched resources, until it is taken; and of visits, which is passed on at once.
//!
//! Invariants: coalesced by URI and bounded; what is over the bound counts as a change of everything.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::catalog::URI_BYTES_MAX;
use crate::wire::json;
use crate::wire::jsonrpc::Notification;

use super::visits::Visits;

/// The most URIs that wait.
const HEARD_MAX: usize = 1024;

/// What is waiting to be taken.
#[derive(Debug, Default)]
pub(super) struct Heard {
    said: Mutex<Said>,
    news: Notify,
    /// The visits to URLs that it has asked for.
    pub(super) visits: Visits,
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
    /// Takes note of a notification; `false` if it is about neither watched resources nor visits.
    pub(super) fn hear(&self, notification: &Notification) -> bool {
        let params = notification.params.as_deref();
        match &*notification.method {
            "notifications/resources/updated" => {
                let uri = params.and_then(|params| json::text(params.get("uri").ok()??));
                let Some(uri) = uri else { return true };
                let mut said = self.said();
                if said.updated.contains(&*uri) {
                    // It waits already.
                } else if said.updated.len() < HEARD_MAX && uri.len() <= URI_BYTES_MAX {
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
            "notifications/elicitation/complete" => {
                self.visits.hear(notification);
                return true;
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{HEARD_MAX, Heard};
    use crate::catalog::URI_BYTES_MAX;
    use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};

    fn updated(heard: &Heard, uri: &str) {
        let text =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#);
        let Ok(Decoded::One(Message::Notification(note))) = decode(&Bytes::from(text), &Limits::UPSTREAM) else {
            panic!()
        };
        assert!(heard.hear(&note));
    }

    /// [LIM-6]: neither their number nor their length lets what a server says of resources heap up.
    #[test]
    fn what_was_said_of_resources_is_bounded() {
        let heard = Heard::default();
        for number in 0..HEARD_MAX {
            updated(&heard, &format!("file:///{number}"));
        }
        updated(&heard, "file:///0");
        assert!(!heard.said().all, "one that waits already needs no room");
        updated(&heard, "file:///more");
        let said = heard.take();
        assert_eq!((said.updated.len(), said.all), (HEARD_MAX, true));
        updated(&heard, &"u".repeat(URI_BYTES_MAX + 1));
        let said = heard.take();
        assert!(said.updated.is_empty() && said.all, "a change that is not named is a change of everything");
    }
}
