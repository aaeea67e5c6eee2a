//! The front doors: client sockets and one client's pipes, eras, sessions' headers, and the one table of refusals.
//!
//! Not for: deciding anything about a call. Invariant: `downstream` and `upstream` never meet.

mod accept;
mod account;
mod answer;
mod ask;
mod batch;
mod body;
mod connection;
mod conversation;
mod credential;
mod ends;
mod handshake;
mod headers;
mod http_sse;
mod legacy;
mod origin;
mod park;
mod post;
mod refused;
mod respond;
mod resume;
mod router;
mod running;
mod server;
mod settings;
mod spoken;
mod stateless;
mod stdio;
mod stream;
#[cfg(test)]
mod tests;

pub use server::Downstream;
pub use settings::{AccessLog, DownstreamSettings, HttpSse};
pub use stdio::{Parted, PipeClient, Terms};
