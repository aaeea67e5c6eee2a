//! Servers of the HTTP+SSE transport of 2024-11-05: one event stream for all that they say, and a second URL that takes
//! what they are told.
//!
//! Not for: what is said (`upstream::channel`), or finding out that a server is one (`probe`). Invariants: the URL that a
//! server names is of its own origin [R60]; the end of the stream is the end of the session.

mod link;
mod open;
mod session;

pub(super) use open::open;

#[cfg(test)]
mod tests;
