//! The operator's listener: `/healthz` and `/readyz` [OPS-4].
//!
//! Not for: anything that needs a credential yet. Invariant: answers say nothing about principals or secrets.

mod server;

pub use server::Admin;
