//! Answers made as large as their reader may have them: attachments taken out, text cut [LIM-2, LIM-3, LIM-7].
//!
//! Not for: what is too large to be read at all (`max_response_bytes`, in `upstream`), or eras. Invariants: what is within
//! its caps is not touched, and costs a comparison; what is changed is a valid result of the same kind.

mod attach;
mod blocks;
mod cut;
mod notice;
mod own;
mod shaper;
#[cfg(test)]
mod support;

pub(super) use own::{asks_for_own, read_own};
pub(super) use shaper::Shaper;
