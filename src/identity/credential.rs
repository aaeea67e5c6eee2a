//! What a client presents.

use crate::id::PrincipalId;
use crate::secret::Lent;

/// A credential as presented, before anyone has judged it [AUT-1, POL-16].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// An API key, from `Authorization: Bearer` or `x-api-key`.
    ApiKey(Lent<'a>),
    /// Whoever started this process, who has named the principal: no door with a network behind it makes this one.
    Local(PrincipalId),
    /// Present, but empty, malformed, or given twice with different values: refused, never taken for absent.
    Malformed,
    /// Nothing was presented.
    None,
}
