//! Why each tool is shown to a principal or hidden from it [POL-14].
//!
//! Not for: deciding. What is visible is asked of the look-up that a call goes through, and the ground of the very decision;
//! which line of which file that is, `config` knows.

use std::sync::Arc;

use crate::catalog::{Why, full_name, shown_name};
use crate::exchange::Endpoint;
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::Credential;
use crate::policy::{Action, Ground};

use super::identify::Identified;
use super::list::wait_for_first_lists;
use super::{Gateway, resolve};

/// What is to be said of one tool.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its server.
    pub server: UpstreamName,
    /// The server's own name for it.
    pub original: String,
    /// The name it is shown under, or would be.
    pub shown: String,
    /// Whether this principal sees it now, and can call it.
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
        let known = self.settings.principals.iter().any(|one| one.id == *principal);
        known.then(|| Identified::of(self, &Credential::Local(principal.clone())).ok()).flatten()
    }

    /// Explains every tool that the servers have listed, in the order of the lists, then those that are left out. Servers
    /// that are starting are waited for as by a list [TRN-8].
    pub async fn explain(&self, caller: Identified) -> Vec<Explained> {
        let caller = wait_for_first_lists(self, caller, &Endpoint::All).await;
        let catalog = caller.catalog();
        let ground = |server, shown: &str, full: &str| caller.subject().ground(&Action { server, shown, full });
        let entries = catalog.entries.iter().map(|entry| Explained {
            server: entry.server.clone(),
            original: entry.original.to_string(),
            shown: entry.shown.to_string(),
            visible: resolve::find(&caller, &Endpoint::All, &entry.shown)
                .is_some_and(|found| Arc::ptr_eq(&found, entry)),
            ground: ground(&entry.server, &entry.shown, &entry.full),
            left_out: None,
        });
        let left_out = catalog.warnings.iter().filter(|warning| warning.why.hides()).map(|warning| {
            let shown = shown_name(&warning.server, &warning.tool, self.settings.name_budget);
            let full = full_name(&warning.server, &warning.tool);
            Explained {
                server: warning.server.clone(),
                original: warning.tool.clone(),
                visible: false,
                ground: ground(&warning.server, &shown, &full),
                left_out: Some(warning.why.clone()),
                shown,
            }
        });
        entries.chain(left_out).collect()
    }
}
