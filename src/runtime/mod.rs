//! Tasks, drain, readiness: what keeps a daemon's life in order.
//!
//! Not for: sockets or protocol.

mod bell;
mod drain;
mod guardian;
mod hush;
mod mark;
mod process;
mod ready;
mod reaper;
mod signal;
mod state;
mod stop;
mod task;
mod turn;

pub use bell::Bell;
pub use drain::{Drain, DrainGuard};
pub use guardian::{GUARDIAN_VERB, Guarded, dismiss_guardian, guard, keep_guardian, start_guardian, watch};
pub use hush::{Hushable, hushed};
pub use mark::{MARK_VARIABLE, Mark};
pub use process::{orphaned, take_stdout};
pub use ready::{Ready, ReadyLatch};
pub use reaper::{Own, reap_orphans, start_own};
pub use signal::sleep;
pub use state::{State, write_atomically};
pub use stop::Stop;
pub use task::Tasks;
pub use turn::{TURN_BYTES, Turn};

/// Builds the one runtime of the process; the only place that decides which one it is.
///
/// # Errors
/// The operating system refuses threads or an event queue.
pub fn build() -> std::io::Result<tokio::runtime::Runtime> {
    // A thread that is refused is a panic there.
    std::panic::catch_unwind(|| tokio::runtime::Builder::new_multi_thread().enable_all().build())
        .unwrap_or_else(|_| Err(std::io::Error::other("no threads are to be had")))
}
