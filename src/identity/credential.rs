//! What a client presents.

use crate::secret::Secret;

/// A credential as presented, before anyone has judged it [AUT-1, POL-16].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// An API key, from `Authorization: Bearer` or `x-api-key`.
    ApiKey(Secret<String>),
    /// Present, but empty, malformed, or given twice with different values: refused, never taken for absent.
    Malformed,
    /// Nothing was presented.
    None,
}
