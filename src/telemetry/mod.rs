//! What the gateway says of itself: its log.
//!
//! Not for: reading the file (`config`). Invariant: logs go to stderr, never to stdout.

mod access;
mod log;
mod shed;

pub use access::{access_line, date, flush};
pub use log::{InitError, LogFormat, LogSettings, init, init_batching};
pub use shed::LogGuard;
