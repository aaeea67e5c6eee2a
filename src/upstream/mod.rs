//! The back door: servers, their processes and connections, and what era they speak.
//!
//! Not for: who may call what; only a [`crate::policy::Permitted`] call is sent for a client. Invariants: one server that
//! is down, slow or hostile costs the others nothing; no client credential comes here.

mod again;
mod audience;
mod breaker;
mod channel;
mod elsewhere;
#[cfg(test)]
pub(crate) mod fake;
mod heard;
mod http;
mod initialize;
mod keeper;
mod kept;
mod lease;
mod link;
mod list;
mod loudness;
mod means;
mod member;
mod place;
mod pool;
mod question;
mod secrets;
mod server;
mod set;
mod settings;
mod start;
mod stdio;
mod succession;
mod visits;
mod watches;

pub use audience::Grants;
pub use lease::Lease;
pub use server::{Phase, Server, TargetStatus};
pub use set::{SetError, TargetSet};
pub use settings::{EraChoice, HttpKind, Isolation, OnDown, ServerSettings, Transport};
pub use stdio::has_system_path;
pub use watches::{Hears, Watch, WatchError};
