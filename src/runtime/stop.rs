//! Ends one thing, once.
//!
//! Not for: trees of things (`CancellationToken`), or many waiters. It costs a call one allocation and no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// A signal with one waiter. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    stopped: AtomicBool,
    waiter: AtomicWaker,
}

impl Stop {
    /// Gives the signal.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.waiter.wake();
    }

    /// Says whether the signal was given.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Polls for the signal. The last task that polled is woken by it.
    pub fn poll_stopped(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_stopped() {
            return Poll::Ready(());
        }
        self.0.waiter.register(cx.waker());
        // It may have been given between the two.
        if self.is_stopped() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;

    #[tokio::test]
    async fn a_waiter_is_woken_once_and_for_all() {
        let stop = Stop::default();
        let waiting = stop.clone();
        let waiter = std::future::poll_fn(move |cx| waiting.poll_stopped(cx));
        let ((), ()) = tokio::join!(waiter, async {
            tokio::task::yield_now().await;
            assert!(!stop.is_stopped());
            stop.stop();
        });
        std::future::poll_fn(|cx| stop.poll_stopped(cx)).await;
    }
}
