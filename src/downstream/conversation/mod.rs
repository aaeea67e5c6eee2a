//! One client's conversation whose messages all go over one stream each way, whatever carries them: both eras, one
//! principal, at most one legacy session.
//!
//! Not for: bytes on the way (`stdio`, `http_sse`), or judging and spelling, which it shares with Streamable HTTP.

mod call;
mod hear;
mod lines;
mod talk;

pub(super) use call::log_access;
pub(super) use lines::{Line, Queue, queue};
pub(super) use talk::{Carrier, Talk};
