//! Logs.
//!
//! Not for: deciding what is logged. Invariant: logs go to stderr, never to stdout.

mod log;

pub use log::{LogFormat, LogSettings, init};
