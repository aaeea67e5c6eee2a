//! In the background: news of servers become a new snapshot, and a new snapshot is told to all who wait.

use std::collections::HashSet;
use std::sync::Arc;

use crate::codes::Code;

use super::{Gateway, Snapshot};

impl Gateway {
    /// Rebuilds and publishes the snapshot whenever something has happened to a server.
    pub(super) async fn refresh(self: Arc<Self>) {
        let mut news = self.targets.news();
        news.mark_changed();
        while news.changed().await.is_ok() {
            let old = self.snapshot.load();
            let next = Snapshot::build(&self.settings, &self.targets, old.generation() + 1);
            let known: HashSet<_> = old.warnings().iter().collect();
            for warning in next.warnings().iter().filter(|warning| !known.contains(warning)) {
                tracing::warn!(%warning, code = warning.why.code().id(), "a tool is left out");
            }
            for pattern in next.unmatched().iter().filter(|pattern| !old.unmatched().contains(pattern)) {
                tracing::warn!(pattern, code = Code::NoMatch.id(), "a policy has a pattern without effect");
            }
            let seen = next.news();
            self.snapshot.store(Arc::new(next));
            self.published.send_replace(seen);
        }
    }
}
