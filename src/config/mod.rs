//! Files to settings: `portcullis.toml` and the policies beside it [CFG].
//!
//! Not for: what settings mean (the rooms that own them). Invariants: all problems are reported at once, each with its
//! place; no secret is in any of them; a mistake never widens what a principal has.

mod error;
mod expand;
mod identity;
mod keys;
mod listener;
mod load;
mod mask;
mod policy;
mod reader;
mod upstream;

#[cfg(test)]
mod tests;

pub use error::{Color, Diagnostic, Diagnostics, Place, Severity, render};
pub use load::{Loaded, Settings, load};
pub use policy::{ExpectationResult, check_policy_file};
