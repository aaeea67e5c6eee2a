//! Who still uses a server.

use std::sync::Arc;

use crate::id::UpstreamName;

/// Held by each call of a server until the call is over: a server that a reload replaces lives as long.
#[derive(Debug)]
pub struct Lease(UpstreamName);

impl Lease {
    pub(super) fn new(server: UpstreamName) -> Arc<Self> {
        Arc::new(Self(server))
    }

    /// Returns the server's name.
    #[must_use]
    pub const fn server(&self) -> &UpstreamName {
        &self.0
    }
}
