//! Who is calling: credentials, keys, principals. Pure.
//!
//! Not for: reading headers (`downstream::credential`) or files (`config`).

mod api_key;
mod credential;

pub use api_key::{ApiKeyHash, KeyRing};
pub use credential::Credential;
