//! Ready when every latch is dropped [OPS-4].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the latches that still hold readiness back. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<Mutex<BTreeMap<String, usize>>>);

/// Holds readiness back until it is dropped.
#[derive(Debug)]
pub struct ReadyLatch {
    name: String,
    ready: Ready,
}

impl Ready {
    /// Makes one without latches: ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a latch.
    #[must_use]
    pub fn latch(&self, name: &str) -> ReadyLatch {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default() += 1;
        ReadyLatch { name: name.to_owned(), ready: self.clone() }
    }

    /// Returns the names of what is still waited for; empty means ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl Drop for ReadyLatch {
    fn drop(&mut self) {
        let mut latches = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = latches.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                latches.remove(&self.name);
            }
        }
    }
}
