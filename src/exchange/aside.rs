//! What passes beside the calls between a client's session and the connections of its servers: a visit that is over, roots
//! that have changed.
//!
//! Not for: lists and resources (`watching`). Invariant: bounded; while nobody listens the oldest goes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

/// How many messages wait for the session's stream.
const SAID_MAX: usize = 64;

/// The way between one session and the servers of its calls, beside these.
#[derive(Debug, Default)]
pub struct Aside {
    said: Mutex<VecDeque<Bytes>>,
    news: Notify,
    /// Counts the changes of the client's roots. Made for the first who wants to hear of them: it is larger than all else that
    /// an open session holds.
    roots: OnceLock<watch::Sender<u64>>,
}

impl Aside {
    /// Says something to the client: a whole notification, in the words of its era.
    pub fn say(&self, message: Bytes) {
        let mut waiting = self.waiting();
        if waiting.len() >= SAID_MAX {
            waiting.pop_front();
        }
        waiting.push_back(message);
        drop(waiting);
        self.news.notify_one();
    }

    /// Waits for what is said. For one listener: the session's newest stream.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn said(&self) -> Bytes {
        loop {
            if let Some(message) = self.waiting().pop_front() {
                return message;
            }
            self.news.notified().await;
        }
    }

    /// The client says that its roots have changed.
    pub fn roots_changed(&self) {
        if let Some(roots) = self.roots.get() {
            roots.send_modify(|count| *count += 1);
        }
    }

    /// Tells of changed roots, from now on.
    #[must_use]
    pub fn roots(&self) -> watch::Receiver<u64> {
        self.roots.get_or_init(watch::Sender::default).subscribe()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::{Aside, SAID_MAX};

    #[test]
    fn who_asked_before_hears_of_changed_roots() {
        let aside = Aside::default();
        aside.roots_changed();
        let (mut one, two) = (aside.roots(), aside.roots());
        assert!(one.changed().now_or_never().is_none());
        aside.roots_changed();
        assert!(one.changed().now_or_never().unwrap().is_ok() && two.has_changed().unwrap());
        assert!(one.changed().now_or_never().is_none());
        drop(aside);
        assert!(one.changed().now_or_never().unwrap().is_err());
    }

    /// [LIM-6]
    #[test]
    fn what_waits_for_a_session_is_bounded() {
        let aside = Aside::default();
        for number in 0..=SAID_MAX {
            aside.say(Bytes::from(number.to_string()));
        }
        for number in 1..=SAID_MAX {
            assert_eq!(aside.said().now_or_never().unwrap(), number.to_string());
        }
        assert!(aside.said().now_or_never().is_none());
        aside.say(Bytes::from_static(b"next"));
        assert_eq!(aside.said().now_or_never().unwrap(), "next");
    }
}
