//! The front door: client sockets, eras, sessions' headers, and the one table of refusals.
//!
//! Not for: deciding anything about a call. Invariant: `downstream` and `upstream` never meet.

mod settings;

pub use settings::DownstreamSettings;
