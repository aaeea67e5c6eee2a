//! The hall: every call walks through its rooms in one direction. Read `pipeline.rs` first.
//!
//! Not for: sockets, headers, status codes, eras. Invariant: `gateway` never imports `downstream`.

mod settings;

pub use settings::{Auth, GatewaySettings, PrincipalSettings};
