//! Sockets of the gateway's own: the one HTTP client.
//!
//! Not for: MCP, credentials, or deciding what is sent again.

mod client;
#[cfg(test)]
pub(crate) mod script;

pub use client::{HttpClient, SendError};
