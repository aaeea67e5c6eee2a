//! A timer that is set for each call and nearly never rings.
//!
//! To set one and to take it back is twice tokio's lock of all timers, and a place in their wheel: 600 instructions, and
//! something for threads to wait for each other. So a thread keeps the timers of calls that are over, as they run, and the next
//! call takes one that would ring before its own time: only if it rings meanwhile it is moved there. Not for: what is waited for once (`tokio::time`), or
//! beside work that is polled often (`signal`).

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep};

/// How many timers a thread keeps. One that nobody takes rings once for whoever had it last: a poll for nothing.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { runtime: None, timers: Vec::new() }) };
}

type Timer = Pin<Box<Sleep>>;

/// Timers that run for nobody, and the runtime they run in.
#[derive(Debug)]
struct Spare {
    runtime: Option<Id>,
    timers: Vec<Timer>,
}

/// Rings at a time that can be moved.
#[derive(Debug)]
pub struct Bell {
    deadline: Instant,
    runtime: Id,
    /// Rings then, or before: then it is set anew. Empty only while it is dropped.
    timer: Option<Timer>,
}

impl Bell {
    /// Sets one that rings after `pause`.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    pub fn after(pause: Duration) -> Self {
        Self::at(Instant::now() + pause)
    }

    /// Sets one that rings at `deadline`.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn at(deadline: Instant) -> Self {
        let runtime = Handle::current().id();
        let timer = SPARE.with_borrow_mut(|spare| spare.take(runtime, deadline));
        let timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep_until(deadline)));
        Self { deadline, runtime, timer: Some(timer) }
    }

    /// Says when it rings, or has rung.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sets it anew.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(timer) = &mut self.timer {
            timer.as_mut().reset(deadline);
        }
    }
}

impl Future for Bell {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let Some(timer) = &mut self.timer else { return Poll::Ready(()) };
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let Some(timer) = self.timer.take() else { return };
        // Where the thread ends, the timer goes with it.
        let gone = SPARE.try_with(|spare| spare.borrow_mut().keep(self.runtime, timer));
        // Outside of the borrow: a timer that goes may let go of a task, and that of another bell.
        drop(gone);
    }
}

impl Spare {
    /// Takes a timer that rings before `deadline`.
    fn take(&mut self, runtime: Id, deadline: Instant) -> Option<Timer> {
        if self.runtime != Some(runtime) {
            return None;
        }
        let at = self.timers.iter().rposition(|timer| timer.deadline() <= deadline)?;
        Some(self.timers.swap_remove(at))
    }

    /// Keeps a timer; returns those that are not kept.
    fn keep(&mut self, runtime: Id, timer: Timer) -> Vec<Timer> {
        let old = if self.runtime == Some(runtime) { Vec::new() } else { std::mem::take(&mut self.timers) };
        self.runtime = Some(runtime);
        if self.timers.len() < SPARE_MAX {
            self.timers.push(timer);
            return old;
        }
        vec![timer]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Bell, SPARE, SPARE_MAX};

    fn spare() -> usize {
        SPARE.with_borrow(|spare| spare.timers.len())
    }

    #[expect(clippy::disallowed_methods, reason = "tokio's own paused time")]
    fn now() -> Instant {
        Instant::now()
    }

    /// What was set before, and for how long, makes no difference to when a bell rings.
    #[tokio::test(start_paused = true)]
    async fn a_bell_rings_at_its_own_time_whoever_had_the_timer_before() {
        let seconds = Duration::from_secs;
        for (before, heard, pause) in [(3, 0, 3), (3, 1, 5), (60, 1, 2), (1, 2, 4), (5, 5, 1), (1, 0, 100)] {
            let mut bell = Bell::after(seconds(before));
            drop(tokio::time::timeout(seconds(heard), &mut bell).await);
            drop(bell);
            let began = now();
            Bell::after(seconds(pause)).await;
            assert_eq!(began.elapsed(), seconds(pause), "{before} {heard} {pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bell_that_is_set_anew_rings_then() {
        let began = now();
        let mut bell = Bell::after(Duration::from_secs(3));
        bell.reset(began + Duration::from_secs(7));
        assert_eq!(bell.deadline(), began + Duration::from_secs(7));
        (&mut bell).await;
        assert_eq!(began.elapsed(), Duration::from_secs(7));
        bell.reset(began + Duration::from_secs(8));
        (&mut bell).await;
        assert_eq!(began.elapsed(), Duration::from_secs(8));
    }

    #[tokio::test]
    async fn timers_go_round_and_are_bounded() {
        let bells: Vec<_> = (0..SPARE_MAX + 9).map(|_| Bell::after(Duration::from_secs(3))).collect();
        drop(bells);
        assert_eq!(spare(), SPARE_MAX);
        let bell = Bell::after(Duration::from_secs(3));
        assert_eq!(spare(), SPARE_MAX - 1);
        // One that would ring before all that are kept gets a timer of its own.
        let soon = Bell::after(Duration::from_millis(1));
        assert_eq!(spare(), SPARE_MAX - 1);
        drop((bell, soon));
        assert_eq!(spare(), SPARE_MAX);
    }

    /// A timer of a runtime that is over would never ring.
    #[test]
    fn a_timer_is_taken_in_its_own_runtime_alone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let first = runtime();
        first.block_on(async { drop(tokio::time::timeout(Duration::ZERO, Bell::after(Duration::ZERO)).await) });
        drop(first);
        runtime().block_on(async {
            let other = Bell::after(Duration::from_millis(1));
            assert_eq!(spare(), 1);
            other.await;
            assert_eq!(spare(), 1);
        });
    }

    /// The last that holds a task may be a timer that goes.
    #[test]
    fn what_goes_with_a_timer_may_hold_a_bell() {
        struct Holds(#[expect(dead_code, reason = "held for its drop")] Bell);
        impl std::task::Wake for Holds {
            fn wake(self: Arc<Self>) {}
        }
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (first, second) = (runtime(), runtime());
        first.block_on(async {
            let mut bell = Bell::after(Duration::from_secs(60));
            let waker = Arc::new(Holds(Bell::after(Duration::from_secs(60)))).into();
            let mut cx = std::task::Context::from_waker(&waker);
            assert!(std::pin::Pin::new(&mut bell).poll(&mut cx).is_pending());
        });
        second.block_on(async { drop(Bell::after(Duration::from_secs(60))) });
        assert_eq!(spare(), 1);
    }
}
