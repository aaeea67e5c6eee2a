//! News of servers and reloads become a new snapshot, and a new snapshot is told to all who wait.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;

use crate::codes::Code;
use crate::exchange::Endpoint;
use crate::id::PrincipalId;
use crate::upstream::TargetSet;

use super::{Gateway, GatewaySettings, Snapshot};

impl Gateway {
    /// Rebuilds and publishes the snapshot whenever something has happened to a server.
    pub(super) async fn refresh(self: Arc<Self>, mut news: watch::Receiver<u64>) {
        news.mark_changed();
        while news.changed().await.is_ok() {
            self.publish(None);
        }
    }

    /// Puts new settings and servers in force, as one whole [CFG-4]. What runs and has lost what it lived by ends soon
    /// after; all else goes on.
    pub fn replace(&self, settings: Arc<GatewaySettings>, targets: Arc<TargetSet>) {
        self.publish(Some((settings, targets)));
    }

    /// Says whether a principal is configured, and connected to what the path names.
    #[must_use]
    pub fn serves(&self, principal: &PrincipalId, endpoint: &Endpoint) -> bool {
        let snapshot = self.snapshot.load();
        let granted = |server| snapshot.audience(principal).subject().granted.contains(server);
        snapshot.knows(principal)
            && match endpoint {
                Endpoint::All => true,
                Endpoint::Server(server) => granted(server),
            }
    }

    fn publish(&self, whole: Option<(Arc<GatewaySettings>, Arc<TargetSet>)>) {
        let publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.load_full();
        let reloads = old.reloads() + u64::from(whole.is_some());
        let (settings, targets) = whole.unwrap_or_else(|| (Arc::clone(old.settings()), Arc::clone(old.targets())));
        let limits = match reloads == old.reloads() {
            true => Arc::clone(old.limits()),
            false => Arc::new(old.limits().follow(&settings.limits)),
        };
        let next = Snapshot::build(settings, targets, limits, (old.generation() + 1, reloads));
        let known: HashSet<_> = old.warnings().iter().collect();
        for warning in next.warnings().iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(%warning, code = warning.why.code().id(), "a tool is left out");
        }
        for pattern in next.unmatched().iter().filter(|pattern| !old.unmatched().contains(pattern)) {
            tracing::warn!(pattern, code = Code::NoMatch.id(), "a policy has a pattern without effect");
        }
        let seen = next.news();
        self.snapshot.store(Arc::new(next));
        // After the snapshot: whoever sees the number sees what it counts.
        self.reloads.store(reloads, Ordering::Release);
        drop(publishing);
        self.published.send_replace(seen);
    }
}
