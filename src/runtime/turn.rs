//! Turns: how much is done of a large body before other tasks get theirs.
//!
//! Not for: what is small, which costs two comparisons here. Invariant: who has had a turn is woken again, behind all that is
//! ready by then, and behind what sockets have brought.

use std::future::Future as _;
use std::pin::pin;
use std::task::Context;

/// How many bytes are read, looked at or written in one turn: some tens of microseconds.
pub const TURN_BYTES: usize = 256 << 10;
/// What is not larger is no part of a large body. A record of TLS is.
const SMALL_BYTES: usize = 15 << 10;

/// What is left of a turn.
#[derive(Debug)]
pub struct Turn(usize);

// === impl Turn ===

impl Turn {
    /// Begins one.
    #[must_use]
    pub const fn new() -> Self {
        Self(TURN_BYTES)
    }

    /// Returns how many bytes may be taken before it is over.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.0
    }

    /// Takes note of what was done.
    pub const fn took(&mut self, bytes: usize) {
        let small = bytes <= SMALL_BYTES && bytes < self.0;
        self.0 = if small { TURN_BYTES } else { self.0.saturating_sub(bytes) };
    }

    /// Says whether it is over. Then the caller returns `Pending`: its task is woken for the next turn.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.0 > 0 {
            return false;
        }
        *self = Self::new();
        // It wakes the task once what is ready has been polled, and the sockets have been looked at.
        let pending = pin!(tokio::task::yield_now()).poll(cx).is_pending();
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

    /// A turn ends when its bytes are used up, and only then; whoever waits has theirs in between.
    #[tokio::test]
    async fn others_have_their_turn() {
        let mut turn = Turn::new();
        let mut polls = 0;
        let work = poll_fn(|cx| {
            polls += 1;
            for _ in 0..1000 {
                assert!(!turn.is_over(cx), "small pieces are no large body");
                turn.took(SMALL_BYTES);
            }
            turn.took(TURN_BYTES - 5);
            while turn.left() > 0 {
                assert!(!turn.is_over(cx));
                turn.took(turn.left().min(SMALL_BYTES + 1));
            }
            if polls == 4 || !turn.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
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
        assert_eq!(Turn::default().left(), TURN_BYTES);
    }
}
