//! The back door: servers, their processes and connections, and what era they speak.
//!
//! Not for: who may call what; only a [`crate::policy::Permitted`] call is sent for a client. Invariants: one server that
//! is down, slow or hostile costs the others nothing; no client credential comes here.

mod link;
mod settings;
#[cfg_attr(not(test), expect(dead_code, reason = "used by upstream::server"))]
mod stdio;

pub use settings::{EraChoice, OnDown, ServerSettings, Transport};
