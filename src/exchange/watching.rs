//! Which resources a client watches, and which of them have changed since it was told.
//!
//! Not for: who may watch what (`gateway`), or how a server is asked (`upstream`). Invariants: one entry per resource;
//! what has changed is a set, bounded, and told once each; what is dropped ends its watch at the server.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// The most resources one session, or one listen, may watch.
pub const WATCHED_MAX: usize = 256;
/// The most updates that wait to be told; over it a resource below a watched one is told as the watched one.
const UPDATED_MAX: usize = 1024;

/// What keeps a watch at a server; it ends when this is dropped.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// The resources that a session or a listen watches, by the URIs its client uses. Clones share them.
#[derive(Clone, Default)]
pub struct Watching(Arc<Inner>);

/// The same, without keeping it alive.
#[derive(Clone, Debug, Default)]
pub struct WeakWatching(Weak<Inner>);

/// Whether a server is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// It is.
    Begun,
    /// It has not accepted; what held the resource before holds it still.
    Failed,
}

/// There is no room for another resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at most {WATCHED_MAX} resources can be watched at once; unsubscribe from one first")]
pub struct TooManyWatched;

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    watched: BTreeMap<String, Watched>,
    /// Told in this order, each once.
    updated: VecDeque<String>,
}

/// One watched resource.
struct Watched {
    /// Empty while the resource is not to be had.
    hold: Option<Hold>,
    /// A server is being asked.
    asking: bool,
}

// === impl Watching ===

impl Watching {
    /// Takes note that a resource is watched, before its server is asked; `false` if it was already.
    ///
    /// # Errors
    /// [`TooManyWatched`].
    pub fn begin(&self, uri: &str) -> Result<bool, TooManyWatched> {
        let mut state = self.state();
        if state.watched.contains_key(uri) {
            return Ok(false);
        }
        if state.watched.len() >= WATCHED_MAX {
            return Err(TooManyWatched);
        }
        state.watched.insert(uri.to_owned(), Watched { hold: None, asking: true });
        Ok(true)
    }

    /// Gives a watched resource its hold, or none; the one before is returned, to be dropped only now that the new one works.
    /// Where the client has unsubscribed meanwhile, the new one comes back.
    #[must_use]
    pub fn hold(&self, uri: &str, hold: Option<Hold>) -> Option<Hold> {
        match self.state().watched.get_mut(uri) {
            Some(watched) => {
                watched.asking = false;
                std::mem::replace(&mut watched.hold, hold)
            }
            None => hold,
        }
    }

    /// Returns what holds a watched resource now; `None` if it is not watched, or its server is being asked.
    #[must_use]
    pub fn settled(&self, uri: &str) -> Option<Option<Hold>> {
        self.state().watched.get(uri).filter(|watched| !watched.asking).map(|watched| watched.hold.clone())
    }

    /// Takes note that a server is being asked, or is not any more.
    pub fn ask(&self, uri: &str, asking: Asking) {
        if let Some(watched) = self.state().watched.get_mut(uri) {
            watched.asking = asking == Asking::Begun;
        }
    }

    /// Ends the watch of a resource; says whether there was one.
    pub fn end(&self, uri: &str) -> bool {
        let mut state = self.state();
        let watched = state.watched.remove(uri);
        state.updated.retain(|updated| updated != uri);
        drop(state);
        watched.is_some()
    }

    /// Ends all.
    pub fn clear(&self) {
        let state = std::mem::take(&mut *self.state());
        drop(state);
    }

    /// Returns the watched resources, in order.
    #[must_use]
    pub fn watched(&self) -> Vec<String> {
        self.state().watched.keys().cloned().collect()
    }

    /// Takes note that `updated`, which is watched or lies below `watched`, has changed.
    pub fn updated(&self, watched: &str, updated: String) {
        let mut state = self.state();
        if !state.watched.contains_key(watched) {
            return;
        }
        let told = if state.updated.len() < UPDATED_MAX { updated } else { watched.to_owned() };
        if !state.updated.contains(&told) {
            state.updated.push_back(told);
        }
        drop(state);
        self.0.news.notify_one();
    }

    /// Takes the next resource that has changed.
    #[must_use]
    pub fn next_updated(&self) -> Option<String> {
        self.state().updated.pop_front()
    }

    /// Waits until something may have changed. For one listener at a time.
    ///
    /// # Cancel safety
    /// Nothing is lost: what has changed stays until it is taken.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Returns the same, without keeping it alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakWatching {
        WeakWatching(Arc::downgrade(&self.0))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakWatching {
    /// Returns it, if somebody still holds it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Watching> {
        self.0.upgrade().map(Watching)
    }

    /// Says whether two are the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Watching")
            .field("watched", &state.watched.len())
            .field("updated", &state.updated.len())
            .finish()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, TooManyWatched, UPDATED_MAX, WATCHED_MAX, Watching};
    use std::sync::Arc;

    #[test]
    fn what_is_watched_is_bounded() {
        let watching = Watching::default();
        for count in 0..WATCHED_MAX {
            assert_eq!(watching.begin(&count.to_string()), Ok(true));
        }
        assert_eq!((watching.begin("1"), watching.begin("x")), (Ok(false), Err(TooManyWatched)));
        assert!(watching.end("1") && !watching.end("1"));
        assert_eq!(watching.begin("x"), Ok(true));
        watching.clear();
        assert!(watching.watched().is_empty());
    }

    #[test]
    fn an_update_is_told_once_and_to_who_watches_alone() {
        let watching = Watching::default();
        watching.begin("a").unwrap();
        watching.begin("b").unwrap();
        for uri in ["a", "a/1", "a", "a/1"] {
            watching.updated("a", uri.to_owned());
        }
        watching.updated("c", "c".to_owned());
        let mut told = Vec::new();
        while let Some(uri) = watching.next_updated() {
            told.push(uri);
        }
        assert_eq!(told, ["a", "a/1"]);
        for count in 0..2 * UPDATED_MAX {
            watching.updated("a", format!("a/{count}"));
        }
        watching.updated("b", "b".to_owned());
        let count =
            std::iter::from_fn(|| watching.next_updated()).inspect(|uri| assert!(uri.starts_with(['a', 'b']))).count();
        assert_eq!(count, UPDATED_MAX + 2);
    }

    #[test]
    fn a_hold_ends_with_its_watch() {
        let watching = Watching::default();
        let (one, two) = (Arc::new(1), Arc::new(2));
        watching.begin("a").unwrap();
        assert!(watching.settled("a").is_none(), "its server is being asked");
        assert!(watching.hold("a", Some(Arc::clone(&one) as _)).is_none());
        watching.ask("a", Asking::Begun);
        assert!(watching.settled("a").is_none());
        watching.ask("a", Asking::Failed);
        assert!(watching.settled("a").unwrap().is_some());
        let before = watching.hold("a", Some(Arc::clone(&two) as _));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (2, 2));
        drop(before);
        watching.end("a");
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 1));
        assert!(watching.hold("a", Some(Arc::clone(&one) as _)).is_some(), "its client has unsubscribed");
    }
}
