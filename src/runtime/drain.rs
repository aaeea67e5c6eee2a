//! Stop in order: no new work, finish what runs, then cancel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::signal;

/// The trigger and the watcher of a drain. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    started: CancellationToken,
    /// Set just before `started` is cancelled.
    begun: Arc<AtomicBool>,
    work: TaskTracker,
}

/// Held by whatever must be finished before the process may stop.
#[derive(Debug)]
pub struct DrainGuard(#[expect(dead_code, reason = "held for its drop")] TaskTrackerToken);

impl Drain {
    /// Makes a drain that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes part: the drain waits for the guard.
    #[must_use]
    pub fn guard(&self) -> DrainGuard {
        DrainGuard(self.work.token())
    }

    /// Begins: no new work from here on.
    pub fn start(&self) {
        self.begun.store(true, Ordering::Release);
        self.started.cancel();
        self.work.close();
    }

    /// Says whether it has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits until it begins.
    pub async fn started(&self) {
        signal::cancelled(&self.started, &self.begun).await;
    }

    /// Waits until all guards are given back; `false` if the grace ended first.
    pub async fn finished(&self, grace: Duration) -> bool {
        self.work.close();
        tokio::time::timeout(grace, self.work.wait()).await.is_ok()
    }
}
