//! What the hall needs to know, checked, with units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::blob::BlobSettings;
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::KeyRing;
use crate::limit::LimitSettings;
use crate::policy::{BlobMode, CapRules, Profile};
use crate::upstream::ServerSettings;

/// How callers are known [AUT-1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// API keys.
    Keys,
    /// Nobody is asked: every caller is the principal `local`. Loopback and unix sockets only.
    None,
}

/// One principal.
#[derive(Clone, Debug)]
pub struct PrincipalSettings {
    /// Its name.
    pub id: PrincipalId,
    /// The union of its bundles' servers less the union of their excludes [CFG-1]; disabled servers are not in it.
    pub granted: BTreeSet<UpstreamName>,
    /// Its policy; `None`: all that is granted.
    pub profile: Option<Arc<Profile>>,
}

/// Everything the hall is built from.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// How callers are known.
    pub auth: Auth,
    /// The hashes of all API keys.
    pub keys: KeyRing,
    /// Rates and calls at once [LIM-5].
    pub limits: LimitSettings,
    /// Every enabled server, in the order of the configuration [CTX-6].
    pub servers: Vec<ServerSettings>,
    /// Every principal.
    pub principals: Vec<PrincipalSettings>,
    /// The longest shown name, in bytes [NAM-3].
    pub name_budget: usize,
    /// How long a list, or a call to a server that has never listed, waits for servers still starting [TRN-8].
    pub first_list_wait: Duration,
    /// The most processes of one principal, over all servers [TRN-4].
    pub processes_per_principal: usize,
    /// The size of one page of our own lists, in bytes (product §9: 8 MiB).
    pub list_page_bytes: usize,
    /// What results of all servers are made smaller by, unless a policy says otherwise [LIM-3, LIM-7].
    pub caps: CapRules,
    /// What becomes of attachments of single servers, unless a policy says otherwise.
    pub server_blobs: BTreeMap<UpstreamName, BlobMode>,
    /// What may be kept of answers.
    pub blob: BlobSettings,
}

impl GatewaySettings {
    /// The default of `name_budget`, in bytes.
    pub const NAME_BUDGET: usize = 64;
    /// The default of `list_page_bytes`.
    pub const LIST_PAGE_BYTES: usize = 8 << 20;
    /// The default of `first_list_wait`.
    pub const FIRST_LIST_WAIT: Duration = Duration::from_secs(5);
}
