//! Sockets and pipes: listeners for the doors, the client the back door speaks HTTP with, and lines.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means.

mod client;
mod lines;
mod listen;
#[cfg(test)]
pub(crate) mod script;

pub use client::{HttpClient, ResponseBody, SendError};
pub use lines::{Ends, Frame, LineReader};
pub use listen::{Connection, Listener, Slots};
