//! One channel on which all requests of a connection and their answers come, and what the server says besides: a child's
//! pipes, or the event stream of HTTP+SSE.
//!
//! Not for: bytes and their ends (`stdio`, `http`). Invariant: nothing on it but an answer says which request it is about.

mod conversation;
mod early;
pub(super) mod framing;
mod pending;
mod waiting;

pub(super) use conversation::Conversation;
#[cfg(test)]
pub(super) use pending::tests::call_of;
