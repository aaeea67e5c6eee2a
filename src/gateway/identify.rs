//! Who is calling, in the one snapshot of this exchange [AUT-1].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::{Catalog, Mask, Scope, View};
use crate::exchange::{Caller, Endpoint, ReasonCode, Reject, RejectKind};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::Credential;
use crate::policy::Subject;

use super::snapshot::Audience;
use super::{Auth, Gateway, Snapshot};

/// The principal that `auth = "none"` makes of every caller.
const LOCAL: &str = "local";

/// A known caller, and the snapshot its exchange is judged by.
#[derive(Clone, Debug)]
pub struct Identified {
    snapshot: Arc<Snapshot>,
    principal: PrincipalId,
    audience: Arc<Audience>,
    /// What is visible now, over the audience's view. List and call read this one mask.
    mask: Mask,
}

impl Identified {
    pub(super) fn of(gateway: &Gateway, credential: &Credential) -> Result<Self, Reject> {
        let principal = match (gateway.settings.auth, credential) {
            (_, Credential::Local(principal)) => principal.clone(),
            (Auth::None, _) => PrincipalId::new(LOCAL),
            (Auth::Keys, Credential::ApiKey(key)) => {
                gateway.settings.keys.find(key.expose()).ok_or_else(unauthenticated)?
            }
            (Auth::Keys, Credential::Malformed | Credential::None) => return Err(unauthenticated()),
        };
        Ok(Self::in_snapshot(gateway, principal))
    }

    /// Looks the principal up in the snapshot in force. One that is not configured has nothing: fail closed.
    fn in_snapshot(gateway: &Gateway, principal: PrincipalId) -> Self {
        let snapshot = gateway.snapshot.load_full();
        let audience = snapshot.audience(&principal);
        let mask = visible(gateway, audience.view());
        Self { snapshot, principal, audience, mask }
    }

    /// Returns the same caller in the snapshot in force now.
    pub(super) fn renewed(self, gateway: &Gateway) -> Self {
        Self::in_snapshot(gateway, self.principal)
    }

    pub(super) fn news(&self) -> u64 {
        self.snapshot.news()
    }

    pub(super) fn catalog(&self) -> &Catalog {
        self.snapshot.catalog()
    }

    pub(super) fn view(&self) -> &View {
        self.audience.view()
    }

    pub(super) const fn mask(&self) -> &Mask {
        &self.mask
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        self.audience.subject()
    }

    pub(super) fn why_hidden(&self, endpoint: &Endpoint, name: &str) -> ReasonCode {
        self.snapshot.why_hidden(&self.subject(), scope(endpoint), name)
    }

    pub(super) fn granted(&self) -> &BTreeSet<UpstreamName> {
        self.audience.subject().granted
    }
}

impl Caller for Identified {
    fn principal(&self) -> &PrincipalId {
        &self.principal
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::All => true,
            Endpoint::Server(server) => self.granted().contains(server),
        }
    }

    fn seen(&self, endpoint: &Endpoint) -> u64 {
        self.view().fingerprint(scope(endpoint), &self.mask)
    }
}

/// What is visible at this moment: the one function that list and call both use (design §12a).
fn visible(gateway: &Gateway, view: &View) -> Mask {
    let mut mask = view.full_mask();
    if gateway.targets.iter().any(|server| server.is_hidden()) {
        for (index, entry) in view.iter().enumerate() {
            if gateway.targets.get(&entry.server).is_none_or(|server| server.is_hidden()) {
                mask.remove(index);
            }
        }
    }
    mask
}

/// Returns the catalog's word for what a path names.
pub(super) const fn scope(endpoint: &Endpoint) -> Scope<'_> {
    match endpoint {
        Endpoint::All => Scope::All,
        Endpoint::Server(server) => Scope::Server(server),
    }
}

fn unauthenticated() -> Reject {
    Reject::client(RejectKind::Unauthenticated, "a valid API key is required", ReasonCode::Unauthenticated)
}
