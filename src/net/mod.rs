//! Sockets: listeners for the doors, and the client the back door speaks HTTP with.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means.

mod listen;

pub use listen::{Connection, Listener, Slots};
