//! Turns: how much is done of large bodies before other tasks get theirs.
//!
//! Not for: what is small, which costs a comparison here. Invariants: between two turns of a lane its worker polls what is
//! ready and looks at the sockets; who waits has a turn in the order of waiting, whether or not who was before makes use of it.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::Semaphore;

/// How many bytes are read, looked at or written in one turn: some hundred microseconds.
pub const TURN_BYTES: usize = 512 << 10;
/// What is not larger has no turn: some ten microseconds.
const SMALL_BYTES: usize = 64 << 10;

/// The turns of one body, one after the other.
#[derive(Debug)]
pub struct Turn {
    of: &'static Turns,
    /// The number of looks when it began, and how many bytes it has had.
    begun: Option<(u64, usize)>,
    /// What the next one is waited for with.
    pass: Option<Arc<Pass>>,
}

/// Who gives turns, and who waits for one.
#[derive(Debug)]
struct Turns {
    queue: Mutex<Queue>,
    /// Wakes a lane, once per turn that is taken from an idle one.
    taken: Semaphore,
    /// How often lanes have let their workers look at the sockets. A turn ends with the next look.
    looks: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    lanes: usize,
    idle: usize,
    /// One at most for each body that is under way, and those that are gone until they are passed over.
    waiting: VecDeque<Arc<Pass>>,
}

/// The right to one turn, once it is given.
#[derive(Debug)]
struct Pass(Mutex<State>);

#[derive(Debug)]
enum State {
    Waiting(Waker),
    Given,
    /// Nobody waits any more.
    Left,
}

static TURNS: Turns = Turns::new();

/// Gives turns, one per look at the sockets, for as long as its runtime lives. Without any lane each body gives way itself.
pub(super) async fn keep_lane() {
    TURNS.keep_lane().await;
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Pass ===

impl Wake for Pass {
    /// Gives it.
    fn wake(self: Arc<Self>) {
        let was = std::mem::replace(&mut *lock(&self.0), State::Given);
        if let State::Waiting(task) = was {
            task.wake();
        }
    }
}

// === impl Turns ===

impl Turns {
    const fn new() -> Self {
        let queue = Queue { lanes: 0, idle: 0, waiting: VecDeque::new() };
        Self { queue: Mutex::new(queue), taken: Semaphore::const_new(0), looks: AtomicU64::new(0) }
    }

    async fn keep_lane(&'static self) {
        let mut lane = Lane::open(self);
        while let Ok(taken) = self.taken.acquire().await {
            taken.forget();
            lane.idle = false;
            loop {
                // What is ready is polled, the sockets are looked at, and what they have brought is polled.
                tokio::task::yield_now().await;
                self.looks.fetch_add(1, Ordering::Relaxed);
                let next = {
                    let mut queue = lock(&self.queue);
                    let next = queue.waiting.pop_front();
                    queue.idle += usize::from(next.is_none());
                    next
                };
                let Some(next) = next else { break };
                next.wake();
            }
            lane.idle = true;
        }
    }

    /// Takes a turn of an idle lane; else says what is waited for.
    fn ask(&self, cx: &Context<'_>, had: usize) -> Option<Arc<Pass>> {
        let waiting = || Arc::new(Pass(Mutex::new(State::Waiting(cx.waker().clone()))));
        let mut queue = lock(&self.queue);
        if queue.lanes == 0 {
            drop(queue);
            if had < TURN_BYTES {
                return None;
            }
            let pass = waiting();
            let waker = Waker::from(Arc::clone(&pass));
            let pending = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker)).is_pending();
            debug_assert!(pending, "a yield yields");
            return Some(pass);
        }
        if queue.idle > 0 {
            queue.idle -= 1;
            self.taken.add_permits(1);
            return None;
        }
        let pass = waiting();
        queue.waiting.push_back(Arc::clone(&pass));
        Some(pass)
    }
}

/// A lane that is open. With the last one all that waits is woken.
struct Lane {
    of: &'static Turns,
    idle: bool,
}

impl Lane {
    fn open(of: &'static Turns) -> Self {
        let mut queue = lock(&of.queue);
        queue.lanes += 1;
        queue.idle += 1;
        Self { of, idle: true }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut queue = lock(&self.of.queue);
        queue.lanes -= 1;
        // Whoever has just taken its turn has counted it already.
        queue.idle = queue.idle.saturating_sub(usize::from(self.idle));
        let left = if queue.lanes == 0 { std::mem::take(&mut queue.waiting) } else { VecDeque::new() };
        drop(queue);
        left.into_iter().for_each(Wake::wake);
    }
}

// === impl Turn ===

impl Turn {
    /// Has had none.
    #[must_use]
    pub const fn new() -> Self {
        Self::of(&TURNS)
    }

    const fn of(of: &'static Turns) -> Self {
        Self { of, begun: None, pass: None }
    }

    /// Says how many of so many bytes may be moved now; what is little more than a turn is not cut. `Pending`: the task is
    /// woken when its turn has come.
    #[inline]
    pub fn poll_share(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<usize> {
        if bytes <= SMALL_BYTES { Poll::Ready(bytes) } else { self.poll_large_share(cx, bytes) }
    }

    #[inline(never)]
    fn poll_large_share(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<usize> {
        let looks = self.of.looks.load(Ordering::Relaxed);
        let mut had = 0;
        match (&self.pass, self.begun) {
            (Some(pass), _) => match &mut *lock(&pass.0) {
                State::Waiting(task) => {
                    task.clone_from(cx.waker());
                    return Poll::Pending;
                }
                State::Given | State::Left => {}
            },
            (None, Some((look, taken))) if look == looks && taken < TURN_BYTES => had = taken,
            // It is done in one go. The rest of what had turns is not: it would go beside the lane.
            (None, None) if bytes <= TURN_BYTES => return Poll::Ready(bytes),
            (None, begun) => {
                self.pass = self.of.ask(cx, begun.map_or(0, |(_, taken)| taken));
                if self.pass.is_some() {
                    return Poll::Pending;
                }
            }
        }
        self.pass = None;
        self.begun = Some((looks, had));
        let left = TURN_BYTES - had;
        Poll::Ready(if bytes <= left + TURN_BYTES / 4 { bytes } else { left })
    }

    /// Takes note of what was moved.
    #[inline]
    pub const fn took(&mut self, bytes: usize) {
        if let Some((_, taken)) = &mut self.begun {
            *taken = taken.saturating_add(bytes);
        }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(pass) = &self.pass {
            *lock(&pass.0) = State::Left;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use tokio::task::{LocalSet, yield_now};

    use super::{SMALL_BYTES, TURN_BYTES, Turn, Turns};

    /// More than one turn.
    const LARGE: usize = 9 * TURN_BYTES;

    fn turns() -> &'static Turns {
        Box::leak(Box::new(Turns::new()))
    }

    async fn share(turn: &mut Turn, bytes: usize) -> usize {
        poll_fn(|cx| turn.poll_share(cx, bytes)).await
    }

    /// Moves so many whole turns of bytes, and writes down who did.
    async fn moves(of: &'static Turns, who: char, turns: usize, log: &RefCell<String>) {
        let mut turn = Turn::of(of);
        for _ in 0..turns {
            assert_eq!(share(&mut turn, LARGE).await, TURN_BYTES);
            turn.took(TURN_BYTES);
            log.borrow_mut().push(who);
        }
    }

    /// Writes down each time that it is polled, as a task does that small requests wake.
    async fn is_quick(log: &RefCell<String>) {
        loop {
            log.borrow_mut().push('.');
            yield_now().await;
        }
    }

    /// Small pieces are no large body, and a turn ends when its bytes are used up: then others have theirs, lane or none.
    #[tokio::test(flavor = "current_thread")]
    async fn a_turn_has_its_bytes() {
        for lanes in [0, 1] {
            let of = turns();
            let mut lane = Box::pin(of.keep_lane());
            let body = async {
                let mut turn = Turn::of(of);
                for _ in 0..1000 {
                    assert_eq!(share(&mut turn, SMALL_BYTES).await, SMALL_BYTES);
                    turn.took(SMALL_BYTES);
                }
                let whole = TURN_BYTES + TURN_BYTES / 4;
                assert_eq!(share(&mut turn, whole).await, whole, "what is little more is not cut");
                turn.took(5);
                assert_eq!(share(&mut turn, 2 * TURN_BYTES).await, TURN_BYTES - 5);
                turn.took(TURN_BYTES - 5);
                let waits = poll_fn(|cx| Poll::Ready(turn.poll_share(cx, TURN_BYTES).is_pending())).await;
                assert!(waits, "it is over");
                let waits = poll_fn(|cx| Poll::Ready(turn.poll_share(cx, TURN_BYTES).is_pending())).await;
                assert!(waits, "however often it is polled");
                assert_eq!(share(&mut turn, TURN_BYTES).await, TURN_BYTES);
            };
            tokio::select! {
                biased;
                () = &mut lane, if lanes > 0 => {}
                () = body => {}
            }
        }
    }

    /// Of bodies that are large one has a turn at a time, in their order, and what is quick comes before each.
    #[tokio::test(flavor = "current_thread")]
    async fn what_is_quick_goes_between() {
        let of = turns();
        let log: &RefCell<String> = Box::leak(Box::default());
        let local = LocalSet::new();
        local.spawn_local(of.keep_lane());
        local.spawn_local(is_quick(log));
        local
            .run_until(async {
                yield_now().await;
                tokio::join!(moves(of, 'a', 3, log), moves(of, 'b', 3, log), moves(of, 'c', 3, log));
            })
            .await;
        let log = log.borrow();
        let large: String = log.chars().filter(|who| *who != '.').collect();
        // The first asks for its second turn before the others are there.
        assert_eq!(large, "aabcabcbc", "{log}");
        let between = log.trim_start_matches('.').split(char::is_alphabetic).skip(1);
        assert!(between.take(8).all(|quick| !quick.is_empty()), "{log}");
    }

    /// Who was given a turn and makes no use of it, or is gone, keeps nobody else from theirs.
    #[tokio::test(flavor = "current_thread")]
    async fn who_does_not_come_is_not_waited_for() {
        let of = turns();
        let log = RefCell::default();
        let work = async {
            let mut first = Turn::of(of);
            let (mut absent, mut gone) = (Turn::of(of), Turn::of(of));
            assert_eq!(share(&mut first, LARGE).await, TURN_BYTES);
            poll_fn(|cx| {
                assert!(Turn::of(of).poll_share(cx, TURN_BYTES).is_ready(), "what is done in one go waits for nobody");
                assert!(absent.poll_share(cx, LARGE).is_pending());
                assert!(gone.poll_share(cx, LARGE).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(gone);
            moves(of, 'd', 2, &log).await;
        };
        tokio::select! {
            biased;
            () = of.keep_lane() => {}
            () = work => {}
        }
        assert_eq!(*log.borrow(), "dd");
    }

    /// When the last lane ends, those that wait go on without one.
    #[tokio::test(flavor = "current_thread")]
    async fn without_a_lane_nobody_waits_for_one() {
        let of = turns();
        let mut lane = Box::pin(of.keep_lane());
        let poll_lane = poll_fn(|cx| Poll::Ready(lane.as_mut().poll(cx).is_pending()));
        assert!(poll_lane.await);
        let (mut one, mut two) = (Turn::of(of), Turn::of(of));
        assert_eq!(share(&mut one, LARGE).await, TURN_BYTES);
        let waits = poll_fn(|cx| Poll::Ready(two.poll_share(cx, LARGE).is_pending())).await;
        assert!(waits);
        drop(lane);
        assert_eq!(share(&mut two, LARGE).await, TURN_BYTES);
        assert_eq!(share(&mut Turn::of(of), LARGE).await, TURN_BYTES);
    }
}
