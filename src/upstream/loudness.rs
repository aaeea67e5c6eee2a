//! From which severity on a legacy server logs: it is told before a call whose client wants to hear more, or less.
//!
//! Not for: what a client gets (the front door filters), or stateless servers, who are told with each request. Invariant: on
//! a connection that several clients share, the one who wants to hear most is heard by the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::exchange::{OwnerKey, UpstreamCall};
use crate::wire::mcp::{Era, Level};

use super::Isolation;
use super::link::{Link, Outgoing};
use super::server::Server;

/// How long a call waits until its server has taken the level.
const TELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Nothing was told yet.
const UNTOLD: u8 = u8::MAX;

/// The severity that the server at the other end of a connection was told.
#[derive(Debug)]
pub(super) struct Loudness(AtomicU8);

impl Default for Loudness {
    fn default() -> Self {
        Self(AtomicU8::new(UNTOLD))
    }
}

impl Loudness {
    /// Takes note of what is wanted; says whether the server must be told. On a shared connection it is only ever lowered.
    fn wants(&self, level: Level, shared: bool) -> bool {
        let new = level.index();
        if shared { self.0.fetch_min(new, Ordering::AcqRel) > new } else { self.0.swap(new, Ordering::AcqRel) != new }
    }

    /// Forgets what was told: there is another session at the other end.
    pub(super) fn forget(&self) {
        self.0.store(UNTOLD, Ordering::Release);
    }
}

impl Server {
    /// Returns what a legacy server must be told of how much its call's client wants to hear, where that is not what it was
    /// told last: it counts as told. Costs a compare where the client did not say.
    pub(super) fn loudness_for(&self, link: &Arc<dyn Link>, call: &UpstreamCall) -> Option<Level> {
        let level = call.client.log?;
        if link.era() != Era::Legacy || !self.status.borrow().can.logging {
            return None;
        }
        let own = self.settings().isolation() == Isolation::Session && matches!(call.owner.key, OwnerKey::Session(_));
        link.loudness().wants(level, !own).then_some(level)
    }

    /// Tells a legacy server from which severity on it is heard.
    pub(super) async fn tell_loudness(&self, link: &Arc<dyn Link>, level: Level) {
        let members = format!("\"level\":\"{}\"", level.as_str());
        let told = Arc::clone(link).request(Outgoing::Own { method: "logging/setLevel", members });
        // Whatever it answers: a call is not refused for its logs.
        if tokio::time::timeout(TELL_TIMEOUT, told).await.is_err() {
            tracing::debug!(server = %self.name(), "the server does not answer logging/setLevel");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Loudness;
    use crate::wire::mcp::Level;

    #[test]
    fn a_server_is_told_what_is_new_alone() {
        let own = Loudness::default();
        assert!(own.wants(Level::Error, false) && !own.wants(Level::Error, false));
        assert!(own.wants(Level::Debug, false) && own.wants(Level::Error, false));
        own.forget();
        assert!(own.wants(Level::Error, false));
        let shared = Loudness::default();
        assert!(shared.wants(Level::Error, true) && shared.wants(Level::Info, true));
        assert!(!shared.wants(Level::Error, true) && !shared.wants(Level::Info, true));
        assert!(shared.wants(Level::Debug, true));
    }
}
