//! Whether what is under way may go on after a reload [CFG-4].
//!
//! Invariant: nothing of a server reaches a client that a new call of it would not be allowed to make.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::catalog::Entry;
use crate::exchange::{Caller as _, Reject};
use crate::id::PrincipalId;
use crate::policy::{Action, Decision};

use super::Gateway;
use super::identify::{Identified, Proof, unauthenticated};

/// What a call lives by.
#[derive(Debug)]
pub(super) struct Standing {
    principal: PrincipalId,
    proof: Proof,
    entry: Arc<Entry>,
    /// The reloads that it has been judged by.
    reloads: u64,
}

impl Standing {
    pub(super) fn of(caller: &Identified, entry: Arc<Entry>) -> Self {
        let (principal, reloads) = (caller.principal().clone(), caller.snapshot().reloads());
        Self { principal, proof: caller.proof(), entry, reloads }
    }

    /// Returns whose call it is.
    pub(super) const fn principal(&self) -> &PrincipalId {
        &self.principal
    }

    /// Returns what is called.
    pub(super) const fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Judges the call anew if there was a reload: the refusal that a new call would get, or `None`. Costs one load of a
    /// number where there was none.
    pub(super) fn lost(&mut self, gateway: &Gateway) -> Option<Reject> {
        if gateway.reloads.load(Ordering::Acquire) == self.reloads {
            return None;
        }
        let snapshot = gateway.snapshot.load();
        self.reloads = snapshot.reloads();
        if !self.proof.stands(&self.principal, &snapshot) {
            return Some(unauthenticated());
        }
        let entry = &self.entry;
        let action = Action { kind: entry.kind, server: &entry.server, shown: &entry.shown, full: &entry.full };
        match snapshot.audience(&self.principal).subject().decide(&action) {
            Decision::Allow => None,
            Decision::Deny(denial) => Some(Reject::unknown(entry.kind, denial.into()).about(&entry.full)),
        }
    }
}
