//! The link to one session of HTTP+SSE.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exchange::{OwnerKey, Reply};
use crate::upstream::heard::Heard;
use crate::upstream::link::{BoxFuture, Changes, Left, Link, Outgoing};
use crate::upstream::loudness::Loudness;
use crate::wire::mcp::{Era, Kinds};

use super::session::Session;

/// A session after its handshake; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct SseLink(pub(super) Arc<Session>);

impl Link for SseLink {
    fn era(&self) -> Era {
        Era::Legacy
    }

    fn is_channel(&self) -> bool {
        true
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        Box::pin(Arc::clone(&self.0).request(outgoing))
    }

    /// What a server says of its own comes on the one stream there is.
    fn watch(self: Arc<Self>, _: Kinds) {}

    fn left_behind(&self, owner: &OwnerKey) -> Left {
        self.0.conversation.table.left_behind(owner)
    }

    fn changes(&self) -> watch::Receiver<Changes> {
        self.0.conversation.changes.subscribe()
    }

    fn roots_changed(self: Arc<Self>) {
        self.0.conversation.roots_changed();
    }

    fn early(&self) -> Option<&CancellationToken> {
        Some(self.0.conversation.early())
    }

    fn refuse_early(&self) {
        self.0.conversation.refuse_early();
    }

    fn relist(&self) {
        Changes::all(&self.0.conversation.changes);
    }

    fn loudness(&self) -> &Loudness {
        &self.0.conversation.loudness
    }

    fn heard(&self) -> &Arc<Heard> {
        &self.0.conversation.heard
    }

    fn closed(&self) -> &CancellationToken {
        &self.0.conversation.closed
    }

    fn close(&self) {
        self.0.conversation.closed.cancel();
        self.0.stop.cancel();
    }

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.0.over.cancelled().await })
    }

    fn last_words(&self) -> Option<String> {
        self.0.conversation.last_words()
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.close();
    }
}
