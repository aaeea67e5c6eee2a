//! Leaves out the wake-ups that a task gives itself for nothing.
//!
//! hyper hands bodies over through a channel whose other end it wakes each time, also when both ends are polled by one
//! task and nothing more will come. Each such wake-up costs a poll of the whole connection. Not for: wake-ups that
//! matter; who hushes one must know that nobody waits for it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

thread_local! {
    static HUSHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a task that is [`Hushable`] is not woken by it.
pub fn hushed<T>(work: impl FnOnce() -> T) -> T {
    /// Ends the silence, also when `work` panics.
    struct Silence;
    impl Drop for Silence {
        fn drop(&mut self) {
            HUSHED.set(false);
        }
    }
    HUSHED.set(true);
    let _silence = Silence;
    work()
}

/// A future whose wake-ups can be hushed.
#[derive(Debug)]
pub struct Hushable<F> {
    future: Pin<Box<F>>,
    task: Arc<Task>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Task(AtomicWaker);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !HUSHED.get() {
            self.0.wake();
        }
    }
}

impl<F: Future> Hushable<F> {
    /// Wraps a future.
    #[must_use]
    pub fn new(future: F) -> Self {
        let task = Arc::<Task>::default();
        Self { future: Box::pin(future), waker: Waker::from(Arc::clone(&task)), task }
    }
}

impl<F: Future> Future for Hushable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.task.0.register(cx.waker());
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use futures_util::FutureExt as _;

    use super::{Hushable, hushed};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_is_hushed_is_left_out() {
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let woken = || count.0.load(Ordering::Relaxed);
        let mut inner = None;
        let mut task = Hushable::new(std::future::poll_fn(|cx| {
            inner = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        assert!(task.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        drop(task);
        let inner = inner.unwrap();
        hushed(|| inner.wake_by_ref());
        assert_eq!(woken(), 0);
        drop(std::panic::catch_unwind(|| hushed(|| panic!("as it may"))));
        inner.wake_by_ref();
        assert_eq!(woken(), 1);
    }
}
