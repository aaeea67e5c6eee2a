//! The hall: every call walks through its rooms in one direction. Read `pipeline.rs` first.
//!
//! Not for: sockets, headers, status codes, eras. Invariant: `gateway` never imports `downstream`.

mod admit;
mod authorize;
mod diff;
mod dispatch;
mod explain;
mod identify;
mod inspect;
mod list;
mod listen;
mod pipeline;
mod refresh;
mod resolve;
mod rewrite;
mod settings;
mod shape;
mod snapshot;
mod standing;
#[cfg(test)]
mod tests;
mod timed;
mod visits;
mod watch;

pub use diff::{Changes, Names};
pub use explain::Explained;
pub use identify::Identified;
pub use pipeline::Gateway;
pub use settings::{Auth, GatewaySettings, PrincipalSettings};
pub use snapshot::Snapshot;
