//! Turns: how much is done of a large body before other tasks get theirs.
//!
//! Not for: what is small, which costs a comparison here. Invariant: who has had a turn is woken again, behind all that is
//! ready by then, and behind what sockets have brought; until then its turn is over, however often it is polled.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// How many bytes are read, looked at or written in one turn: some hundred microseconds.
pub const TURN_BYTES: usize = 512 << 10;

/// What is left of a turn.
#[derive(Debug)]
pub struct Turn {
    left: usize,
    /// The others' turn.
    pass: Option<Arc<Pass>>,
}

/// Wakes a task once the others have had their turn.
#[derive(Debug)]
struct Pass {
    over: AtomicBool,
    task: Waker,
}

impl Wake for Pass {
    fn wake(self: Arc<Self>) {
        self.over.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

// === impl Turn ===

impl Turn {
    /// Begins one.
    #[must_use]
    pub const fn new() -> Self {
        Self { left: TURN_BYTES, pass: None }
    }

    /// Says how many of so many bytes may be moved now; what is little more than a turn is not cut. `Pending`: it is over, and
    /// the task is woken for the next one.
    #[inline]
    pub fn poll_share(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<usize> {
        if bytes <= self.left { Poll::Ready(bytes) } else { self.poll_large_share(cx, bytes) }
    }

    #[inline(never)]
    fn poll_large_share(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<usize> {
        if self.left == 0 && self.is_over(cx) {
            return Poll::Pending;
        }
        Poll::Ready(if bytes <= self.left + TURN_BYTES / 4 { bytes } else { self.left })
    }

    fn is_over(&mut self, cx: &Context<'_>) -> bool {
        match &self.pass {
            Some(pass) if pass.over.load(Ordering::Acquire) => {
                *self = Self::new();
                return false;
            }
            Some(pass) if pass.task.will_wake(cx.waker()) => return true,
            Some(_) | None => {}
        }
        let pass = Arc::new(Pass { over: AtomicBool::new(false), task: cx.waker().clone() });
        self.pass = Some(Arc::clone(&pass));
        // It wakes the task once what is ready has been polled, and the sockets have been looked at.
        let pending = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&Waker::from(pass))).is_pending();
        debug_assert!(pending, "a yield yields");
        true
    }

    /// Takes note of what was moved.
    #[inline]
    pub const fn took(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Begins anew where something else has begun: what was moved before is no part of that.
    #[inline]
    pub const fn renew(&mut self) {
        if self.pass.is_none() {
            self.left = TURN_BYTES;
        }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::{Context, Poll, Waker};

    use super::{TURN_BYTES, Turn};

    /// A turn ends when its bytes are used up, and only then; whoever waits has theirs in between, however often it is asked.
    #[tokio::test]
    async fn others_have_their_turn() {
        let mut turn = Turn::new();
        let mut polls = 0;
        let work = poll_fn(|cx| {
            // Small pieces use it up as well, and wait like large ones.
            if turn.poll_share(cx, 1).is_pending() {
                return Poll::Pending;
            }
            polls += 1;
            turn.took(TURN_BYTES - 1);
            turn.renew();
            assert_eq!(turn.poll_share(cx, TURN_BYTES + 100), Poll::Ready(TURN_BYTES + 100));
            assert_eq!(turn.poll_share(cx, 2 * TURN_BYTES), Poll::Ready(TURN_BYTES));
            turn.took(TURN_BYTES - 5);
            assert_eq!(turn.poll_share(cx, TURN_BYTES), Poll::Ready(5));
            turn.took(5);
            if polls == 4 {
                return Poll::Ready(());
            }
            assert!(turn.poll_share(cx, 1).is_pending());
            turn.renew();
            assert!(turn.poll_share(cx, TURN_BYTES).is_pending(), "a turn of the others is not cut short");
            Poll::Pending
        });
        let mut others = 0;
        let other = async {
            for _ in 0..3 {
                others += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(work, other);
        assert_eq!((polls, others), (4, 3));
    }

    /// What ends is over: nothing is asked of the runtime for it.
    #[test]
    fn the_last_share_waits_for_nobody() {
        let mut turn = Turn::default();
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(turn.poll_share(&cx, TURN_BYTES), Poll::Ready(TURN_BYTES));
        turn.took(TURN_BYTES);
        assert_eq!(turn.poll_share(&cx, 0), Poll::Ready(0));
    }
}
