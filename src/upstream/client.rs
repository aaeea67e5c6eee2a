//! The one client of a gateway that serves no other: what it declares is what its servers are told from their first start on,
//! so that the process that its lists are read over can serve its calls [TRN-4].
//!
//! Not for: gateways that clients come to and go from, where lists are read as one that can be asked everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::wire::mcp::Features;

/// The one client, where there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OneClient(Arc<State>);

#[derive(Debug)]
struct State {
    /// It has not said yet what it declares.
    awaited: AtomicBool,
    declares: watch::Sender<Option<Features>>,
}

impl Default for State {
    fn default() -> Self {
        Self { awaited: AtomicBool::new(false), declares: watch::Sender::new(None) }
    }
}

impl OneClient {
    /// There is one, who will say what it declares.
    pub(super) fn expect(&self) {
        self.0.awaited.store(true, Ordering::Release);
    }

    /// Takes note of what it declares, the first time. Costs a look where nobody is awaited.
    pub(super) fn meet(&self, features: Features) {
        if !self.0.awaited.load(Ordering::Relaxed) {
            return;
        }
        self.0.declares.send_if_modified(|declares| declares.replace(declares.unwrap_or(features)).is_none());
        self.0.awaited.store(false, Ordering::Release);
    }

    /// Waits for it to say so; where nobody is awaited, not at all.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn met(&self) {
        let mut declares = self.0.declares.subscribe();
        if self.0.awaited.load(Ordering::Acquire) {
            // The sender lives as long as this.
            let _met = declares.wait_for(Option::is_some).await.is_ok();
        }
    }

    /// Returns what it declares, once it has said so.
    pub(super) fn declares(&self) -> Option<Features> {
        *self.0.declares.borrow()
    }
}
