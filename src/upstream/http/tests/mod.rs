//! The field cases of HTTP servers, against raw bytes.
//!
//! Not for: real servers; those belong to the integration tests.

mod answers;
mod asked;
mod caps;
mod eras;
mod events;
mod ids;
mod kit;
mod secrets;
mod sessions;
mod streams;
