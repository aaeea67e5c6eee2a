//! Why each tool, prompt, resource and template is shown to a principal or hidden from it [POL-14].
//!
//! Not for: deciding. What is visible is asked of the look-up that a call goes through, and the ground of the very decision;
//! which line of which file that is, `config` knows.

use std::sync::Arc;

use crate::catalog::{Why, full_name, shown};
use crate::exchange::Endpoint;
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::Credential;
use crate::policy::{Action, Ground};
use crate::wire::mcp::Kind;

use super::identify::Identified;
use super::list::wait_for_first_lists;
use super::{Gateway, resolve};

/// What is to be said of one of them.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What it is.
    pub kind: Kind,
    /// Its server.
    pub server: UpstreamName,
    /// The server's own name for it, or its URI.
    pub original: String,
    /// The name or URI it is shown under, or would be.
    pub shown: String,
    /// Whether this principal sees it now, and can call, get or read it.
    pub visible: bool,
    /// What the policy says.
    pub ground: Ground,
    /// Why it is left out for everybody, if it is.
    pub left_out: Option<Why>,
}

impl Gateway {
    /// Speaks for a principal without a credential: for commands of whoever may read the configuration. `None` if it is
    /// not configured.
    #[must_use]
    pub fn speak_for(&self, principal: &PrincipalId) -> Option<Identified> {
        let caller = Identified::of(self, &Credential::Local(principal.clone())).ok()?;
        caller.snapshot().knows(principal).then_some(caller)
    }

    /// Explains everything that the servers have listed, in the order of the lists, then those that are left out. Servers
    /// that are starting are waited for as by a list [TRN-8].
    pub async fn explain(&self, caller: Identified) -> Vec<Explained> {
        let caller = wait_for_first_lists(self, caller, &Endpoint::All).await;
        let catalog = caller.catalog();
        let ground =
            |kind, server, shown: &str, full: &str| caller.subject().ground(&Action { kind, server, shown, full });
        let entries = catalog.entries.iter().map(|entry| Explained {
            server: entry.server.clone(),
            original: entry.original.to_string(),
            shown: entry.shown.to_string(),
            kind: entry.kind,
            visible: resolve::find(&caller, &Endpoint::All, entry.kind, &entry.shown)
                .is_some_and(|found| Arc::ptr_eq(&found, entry)),
            ground: ground(entry.kind, &entry.server, &entry.shown, &entry.full),
            left_out: None,
        });
        let left_out = catalog.warnings.iter().filter(|warning| warning.why.hides()).map(|warning| {
            let budget = caller.snapshot().settings().name_budget;
            let shown = shown(warning.kind, &warning.server, &warning.name, budget);
            let full = full_name(&warning.server, &warning.name);
            Explained {
                kind: warning.kind,
                server: warning.server.clone(),
                original: warning.name.clone(),
                visible: false,
                ground: ground(warning.kind, &warning.server, &shown, &full),
                left_out: Some(warning.why.clone()),
                shown,
            }
        });
        entries.chain(left_out).collect()
    }
}
