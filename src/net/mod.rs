//! Sockets: listeners for the doors, and the client the back door speaks HTTP with.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means.

mod client;
mod http1;
mod listen;
#[cfg(test)]
pub(crate) mod script;

pub use client::{BodyError, HttpClient, Response, ResponseBody, SendError};
pub use http1::Headers;
pub use listen::{Connection, Listener, Slots};
