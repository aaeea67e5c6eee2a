//! Wiring: builds everything, owns start and stop. The only room that knows both doors.
//!
//! Not for: arguments or files.

mod build;
mod desktop;
mod local;
mod reload;
mod serve;
mod stdio;

pub use build::{App, AppError, Bound};
pub use local::{Local, LocalError};
pub use stdio::{Guest, GuestError, Piped};
