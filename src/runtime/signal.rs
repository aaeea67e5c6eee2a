//! Waiting for what nearly never comes, beside work that is polled often.
//!
//! Not for: what comes often. A `CancellationToken` that is waited for takes a lock at each poll of the task; these take
//! the place of that with a look at a number, as long as the task's waker stays the same.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Who has asked to be woken.
#[derive(Debug, Default)]
struct Asked(Option<Waker>);

/// Waits for a token. Whoever cancels it has set `given` before.
pub(super) async fn cancelled(token: &CancellationToken, given: &AtomicBool) {
    let mut waiting = pin!(token.cancelled());
    let mut asked = Asked::default();
    poll_fn(|cx| {
        if given.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if asked.already(cx) { Poll::Pending } else { waiting.as_mut().poll(cx) }
    })
    .await;
}

/// Sleeps, beside work that is polled often.
pub async fn sleep(pause: Duration) {
    let mut sleep = pin!(tokio::time::sleep(pause));
    let mut asked = Asked::default();
    poll_fn(|cx| {
        // The first poll starts the timer; once it has rung, it says so.
        if asked.already(cx) && !sleep.is_elapsed() { Poll::Pending } else { sleep.as_mut().poll(cx) }
    })
    .await;
}

// === impl Asked ===

impl Asked {
    /// Says whether this task's waker is known already, and takes note of it.
    fn already(&mut self, cx: &Context<'_>) -> bool {
        let known = self.0.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if !known {
            self.0 = Some(cx.waker().clone());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::{cancelled, sleep};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn new() -> (Arc<Self>, Waker) {
            let count = Arc::<Self>::default();
            (Arc::clone(&count), Waker::from(count))
        }

        fn woken(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_last_task_that_polled_is_woken() {
        let (token, given) = (CancellationToken::new(), AtomicBool::new(false));
        let mut waiting = pin!(cancelled(&token, &given));
        let ((first, one), (second, two)) = (Count::new(), Count::new());
        for waker in [&one, &one, &two, &two] {
            assert!(waiting.poll_unpin(&mut Context::from_waker(waker)).is_pending());
        }
        given.store(true, Ordering::Release);
        token.cancel();
        assert_eq!((first.woken(), second.woken()), (0, 1));
        assert!(waiting.poll_unpin(&mut Context::from_waker(&two)).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_in_time_however_often_it_is_polled() {
        #[expect(clippy::disallowed_methods, reason = "tokio's own paused time")]
        let begun = tokio::time::Instant::now();
        let mut sleeping = pin!(sleep(Duration::from_secs(30)));
        for _ in 0..3 {
            assert!(futures_util::poll!(sleeping.as_mut()).is_pending());
        }
        sleeping.await;
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }
}
