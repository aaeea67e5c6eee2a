//! Files to settings: strict, every problem at once, each with its place [CFG-1..3, CFG-5, CFG-7].
//!
//! Not for: using a setting. Invariants: a mistake in what grants narrows, never widens; no secret is printed.

mod access;
mod error;
mod listen;
mod load;
mod policy;
mod reader;
mod secrets;
mod server;
#[cfg(test)]
mod tests;

pub use error::{Diagnostic, Severity};
pub use load::{Loaded, Settings, load, load_text};
pub use policy::{Expectation, check_policy_file};

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
