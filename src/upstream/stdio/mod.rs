//! Servers that are child processes, spoken to by lines on their pipes [TRN-3].
//!
//! Not for: restarts, backoff, pools; `upstream::server` decides when a connection is opened and how many there are.
//! Invariants: no shell; a child's own process group ends with it; nothing of the gateway's environment reaches a child
//! but the short list in `env` and what the settings name.

mod child;
mod connection;
mod connector;
mod env;
mod handshake;
mod login;
mod output;

pub(super) use connector::StdioConnector;
pub(super) use login::BaseEnv;
pub use login::has_system_path;
