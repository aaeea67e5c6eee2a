//! Sockets and pipes: listeners for the doors, the client the back door speaks HTTP with, and lines.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means.

mod client;
mod http1;
mod lines;
mod listen;
#[cfg(test)]
pub(crate) mod script;

pub use client::{BodyError, HttpClient, Response, ResponseBody, SendError};
pub use http1::Headers;
pub use lines::{Ends, Frame, LineReader};
pub use listen::{Connection, Listener, Slots};
