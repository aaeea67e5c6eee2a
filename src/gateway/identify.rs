//! Who is calling, in the one snapshot of this exchange [AUT-1].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::{Catalog, Mask, Scope, View};
use crate::exchange::{Caller, Endpoint, ReasonCode, Reject, RejectKind, Seen};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::{ApiKeyHash, Credential};
use crate::policy::{Caps, Subject};
use crate::upstream::{Server, TargetSet, TargetStatus};
use crate::wire::mcp::{Capabilities, Kind, Kinds};

use super::snapshot::Audience;
use super::{Auth, Gateway, Snapshot, resolve};

/// The principal that `auth = "none"` makes of every caller.
const LOCAL: &str = "local";

/// A known caller, and the snapshot its exchange is judged by.
#[derive(Clone, Debug)]
pub struct Identified {
    snapshot: Arc<Snapshot>,
    principal: PrincipalId,
    proof: Proof,
    /// A reload has taken away what the caller is known by: it has nothing any more.
    lost: bool,
    audience: Arc<Audience>,
    /// What is visible now, over the audience's view. List and call read this one mask.
    mask: Mask,
}

/// What a caller is known by. A reload that takes it away ends what lives by it [CFG-4].
#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
    /// An API key.
    Key(ApiKeyHash),
    /// Nothing, where nobody is asked.
    Open,
    /// The command line of a door of pipes.
    Pipe,
}

impl Proof {
    /// Says whether it still stands for the principal.
    pub(super) fn stands(&self, principal: &PrincipalId, snapshot: &Snapshot) -> bool {
        let settings = snapshot.settings();
        match self {
            Self::Key(hash) => settings.auth == Auth::Keys && settings.keys.owner(hash) == Some(principal),
            Self::Open => settings.auth == Auth::None,
            Self::Pipe => snapshot.knows(principal),
        }
    }
}

impl Identified {
    pub(super) fn of(gateway: &Gateway, credential: &Credential<'_>) -> Result<Self, Reject> {
        let snapshot = gateway.snapshot.load_full();
        let (principal, proof) = match (snapshot.settings().auth, credential) {
            (_, Credential::Local(principal)) => (principal.clone(), Proof::Pipe),
            (Auth::None, _) => (PrincipalId::new(LOCAL), Proof::Open),
            (Auth::Keys, Credential::ApiKey(key)) => {
                let (hash, principal) = snapshot.settings().keys.find(key.expose()).ok_or_else(unauthenticated)?;
                (principal, Proof::Key(hash))
            }
            (Auth::Keys, Credential::Malformed | Credential::None) => return Err(unauthenticated()),
        };
        let audience = Arc::clone(snapshot.audience(&principal));
        Ok(Self::seeing(snapshot, principal, proof, false, audience))
    }

    /// Returns the same caller in the snapshot in force now. One that is not configured any more, or not known by this, has
    /// nothing: fail closed.
    pub(super) fn renewed(self, gateway: &Gateway) -> Self {
        let snapshot = gateway.snapshot.load_full();
        let Self { principal, proof, .. } = self;
        let lost = !proof.stands(&principal, &snapshot);
        let audience = Arc::clone(if lost { snapshot.nobody() } else { snapshot.audience(&principal) });
        Self::seeing(snapshot, principal, proof, lost, audience)
    }

    fn seeing(
        snapshot: Arc<Snapshot>,
        principal: PrincipalId,
        proof: Proof,
        lost: bool,
        audience: Arc<Audience>,
    ) -> Self {
        let mask = visible(snapshot.targets(), audience.view());
        Self { snapshot, principal, proof, lost, audience, mask }
    }

    /// Says whether a reload has taken away what the caller is known by, or the server that the path names.
    pub(super) fn is_lost(&self, endpoint: &Endpoint) -> bool {
        self.lost || !self.serves(endpoint)
    }

    pub(super) const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns what answers of a server are made smaller by; `None` if they are passed on as they are.
    pub(super) fn caps(&self, server: &UpstreamName) -> Option<Caps> {
        self.audience.caps(server)
    }

    /// Returns how much of what the gateway keeps one read may give.
    pub(super) fn read_chars_max(&self) -> Option<usize> {
        self.audience.read_chars_max()
    }

    /// Says whether this is whoever started the gateway.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self.proof, Proof::Pipe)
    }

    pub(super) const fn proof(&self) -> Proof {
        self.proof
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

    pub(super) fn fingerprint(&self, endpoint: &Endpoint, kind: Kind) -> u64 {
        self.view().fingerprint(scope(endpoint), kind, &self.mask)
    }

    pub(super) fn why_hidden(&self, endpoint: &Endpoint, kind: Kind, name: &str) -> ReasonCode {
        self.snapshot.why_hidden(&self.subject(), scope(endpoint), kind, name)
    }

    /// Walks the servers that exist for this caller on a path [POL-15].
    pub(super) fn servers(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Arc<Server>> {
        let only = match endpoint {
            Endpoint::All => None,
            Endpoint::Server(name) => Some(name),
        };
        let targets = self.snapshot.targets().iter();
        targets.filter(move |server| {
            only.is_none_or(|only| only == server.name()) && self.subject().sees_server(server.name())
        })
    }

    pub(super) fn granted(&self) -> &BTreeSet<UpstreamName> {
        self.audience.subject().granted
    }
}

impl Caller for Identified {
    fn principal(&self) -> &PrincipalId {
        &self.principal
    }

    fn is_one_of_many(&self) -> bool {
        self.snapshot.is_shared()
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::All => true,
            Endpoint::Server(server) => self.granted().contains(server),
        }
    }

    /// Returns what the gateway can do for this caller on a path: what some server can that exists for it. Of one that has
    /// never answered nothing is known yet, and so nothing is denied: a session's capabilities never change.
    fn capabilities(&self, endpoint: &Endpoint) -> Capabilities {
        let tools = Kinds::NONE.with(Kind::Tools);
        // Who may be given links can read them.
        let lists = if self.audience.links() { tools.with(Kind::Resources) } else { tools };
        let own = Capabilities { lists, ..Capabilities::default() };
        let known = |server: &Arc<Server>| match server.status() {
            TargetStatus { lists: Some(_), can, .. } => can,
            TargetStatus { lists: None, .. } => Capabilities::ALL,
        };
        let all = self.servers(endpoint).map(known).fold(own, Capabilities::or);
        Capabilities { tells: all.lists, ..all }
    }

    fn may_call(&self, endpoint: &Endpoint, kind: Kind, name: &str) -> bool {
        // Also while its server is down: what it has said before is no less permitted.
        resolve::may(self, endpoint, kind, name)
    }

    fn seen(&self, endpoint: &Endpoint) -> Seen {
        Seen(Kind::ALL.map(|kind| self.fingerprint(endpoint, kind)))
    }
}

/// What is visible at this moment: the one function that list and call both use (design §12a).
fn visible(targets: &TargetSet, view: &View) -> Mask {
    let mut mask = view.full_mask();
    if targets.iter().any(|server| server.is_hidden()) {
        for (index, entry) in view.iter().enumerate() {
            if targets.get(&entry.server).is_none_or(|server| server.is_hidden()) {
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

pub(super) fn unauthenticated() -> Reject {
    Reject::client(
        RejectKind::Unauthenticated,
        "a valid API key is required, as in Authorization: Bearer KEY",
        ReasonCode::Unauthenticated,
    )
}
