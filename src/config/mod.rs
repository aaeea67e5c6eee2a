//! Files to settings: `portcullis.toml` and the policies beside it [CFG].
//!
//! Not for: what settings mean (the rooms that own them). Invariants: all problems are reported at once, each with its
//! place; no secret is in any of them; a mistake never widens what a principal has.

mod caps;
mod error;
mod expand;
mod identity;
mod inputs;
mod keys;
mod limits;
mod listener;
mod load;
mod mask;
mod places;
mod policy;
mod reader;
mod schema;
mod state;
mod upstream;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

pub use error::{Color, Diagnostic, Diagnostics, Place, Severity, render};
pub use inputs::Inputs;
pub use load::{Loaded, Settings, load, load_changed, load_text, log_format, reload};
pub use places::{
    BundlePlace, Connection, NarrowPlace, Places, PolicyPlace, PrincipalPlace, ServerPlace, ServerUse, Spot,
};
pub use policy::{ExpectationResult, check_policy_file};
pub use reader::nearest;
pub use schema::schema;

/// Reads the environment of the process, for `${env:NAME}`.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "config is the room that reads the environment")]
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the whole environment, from which children inherit a short list [TRN-9].
#[must_use]
pub fn base_env() -> std::sync::Arc<[(std::ffi::OsString, std::ffi::OsString)]> {
    std::env::vars_os().collect()
}
