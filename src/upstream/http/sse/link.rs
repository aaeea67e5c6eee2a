//! The link to one session of HTTP+SSE.

use std::sync::Arc;

use crate::exchange::Reply;
use crate::upstream::channel::Conversation;
use crate::upstream::link::{BoxFuture, Link, LinkState, Outgoing};
use crate::wire::mcp::Era;

use super::session::Session;

/// A session after its handshake; it ends when this is dropped. What a server says of its own comes on the one stream there
/// is, without being asked for.
#[derive(Debug)]
pub(super) struct SseLink(pub(super) Arc<Session>);

impl Link for SseLink {
    fn era(&self) -> Era {
        Era::Legacy
    }

    fn state(&self) -> &LinkState {
        &self.0.conversation.state
    }

    fn conversation(&self) -> Option<&Arc<Conversation>> {
        Some(&self.0.conversation)
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        Box::pin(Arc::clone(&self.0).request(outgoing))
    }

    fn close(&self) {
        self.closed().cancel();
        self.0.stop.cancel();
    }

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.0.over.cancelled().await })
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.close();
    }
}
