//! Turns: how much is done of a large body before other tasks get theirs.
//!
//! Not for: what is small, which costs two comparisons here. Invariant: who has had a turn is woken again, behind all that is
//! ready by then, and behind what sockets have brought; until then its turn is over, however often it is polled.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// How many bytes are read, looked at or written in one turn: some hundred microseconds.
pub const TURN_BYTES: usize = 512 << 10;
/// What is not larger is no part of a large body. A record of TLS is.
const SMALL_BYTES: usize = 15 << 10;

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
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
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

    /// Returns how many of so many bytes may be taken now. What is little more than a turn is not cut.
    #[must_use]
    pub const fn share(&self, bytes: usize) -> usize {
        if bytes <= self.left + TURN_BYTES / 4 { bytes } else { self.left }
    }

    /// Takes note of what was done.
    pub const fn took(&mut self, bytes: usize) {
        let small = bytes <= SMALL_BYTES && bytes < self.left;
        self.left = if small { TURN_BYTES } else { self.left.saturating_sub(bytes) };
    }

    /// Begins anew where something else has begun: what was done before is no part of that.
    pub const fn renew(&mut self) {
        if self.pass.is_none() {
            self.left = TURN_BYTES;
        }
    }

    /// Says whether it is over. Then the caller returns `Pending`: its task is woken for the next turn.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.left > 0 {
            return false;
        }
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
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::{SMALL_BYTES, TURN_BYTES, Turn};

    /// A turn ends when its bytes are used up, and only then; whoever waits has theirs in between, however often it is asked.
    #[tokio::test]
    async fn others_have_their_turn() {
        let mut turn = Turn::new();
        let mut polls = 0;
        let work = poll_fn(|cx| {
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            polls += 1;
            for _ in 0..1000 {
                assert!(!turn.is_over(cx), "small pieces are no large body");
                turn.took(SMALL_BYTES);
            }
            turn.took(TURN_BYTES);
            turn.renew();
            assert_eq!(turn.share(TURN_BYTES + 100), TURN_BYTES + 100);
            assert_eq!(turn.share(2 * TURN_BYTES), TURN_BYTES);
            turn.took(TURN_BYTES - 5);
            assert!(!turn.is_over(cx));
            turn.took(5);
            if polls == 4 {
                return Poll::Ready(());
            }
            assert!(turn.is_over(cx));
            turn.renew();
            assert!(turn.is_over(cx), "a turn of the others is not cut short");
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
        assert!(!Turn::default().is_over(&mut std::task::Context::from_waker(std::task::Waker::noop())));
    }
}
