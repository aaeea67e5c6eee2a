//! The only place that starts tasks: named, tracked, panics counted.
//!
//! Invariant: no task is detached; [`Tasks::cancel`] and [`Tasks::wait`] end and await them all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::signal;

/// A handle to start tasks with. Clones share the tracker.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tracker: TaskTracker,
    cancel: CancellationToken,
    /// Set just before `cancel` is cancelled.
    ended: AtomicBool,
    panics: AtomicU64,
}

impl Tasks {
    /// Makes an empty tracker.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task that ends with its future, or when all tasks are cancelled.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.0);
        let work = async move {
            tokio::select! {
                biased;
                () = signal::cancelled(&shared.cancel, &shared.ended) => {}
                done = std::panic::AssertUnwindSafe(future).catch_unwind() => {
                    if done.is_err() {
                        shared.panics.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(task = name, "a task panicked");
                    }
                }
            }
        };
        #[expect(clippy::disallowed_methods, reason = "this is Tasks")]
        tokio::spawn(self.0.tracker.track_future(work));
    }

    /// Runs blocking work off the reactor.
    ///
    /// # Errors
    /// The work panicked or the runtime is shutting down.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        tokio::task::spawn_blocking(work).await
    }

    /// Returns the token that is cancelled when all tasks must end.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.0.cancel
    }

    /// Says how many tasks have panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// Says how many tasks are alive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.tracker.len()
    }

    /// Says whether no task is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.tracker.is_empty()
    }

    /// Drops every task's future at its next await.
    pub fn cancel(&self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.cancel.cancel();
    }

    /// Waits until every task has ended.
    pub async fn wait(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }
}
