//! Where everything that decides stands in the files: what `explain` and `ls` show [POL-14].
//!
//! Not for: deciding. Invariants: what is granted is computed here once ([`Connection`]), and the settings of the hall are
//! made from it; no value of a key that may hold a secret is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::id::{PrincipalId, UpstreamName};
use crate::policy::Which;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// A configuration as it stands in its files.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Every server that has a usable name, in the order of the file.
    pub servers: Vec<ServerPlace>,
    /// Every bundle, by name.
    pub bundles: Vec<BundlePlace>,
    /// Every principal, by name.
    pub principals: Vec<PrincipalPlace>,
    /// Where `name_budget` stands, if it does.
    pub name_budget: Option<Spot>,
}

/// One `[[mcp.servers]]`.
#[derive(Clone, Debug)]
pub struct ServerPlace {
    /// Its name.
    pub name: UpstreamName,
    /// Where its name stands.
    pub at: Spot,
    /// `stdio`, `http` or `sse`.
    pub transport: &'static str,
    /// Whether it can be connected to.
    pub usage: ServerUse,
}

/// Whether a server can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerUse {
    /// A secret of it is missing, and which [CFG-3].
    Disabled(String),
    /// It is switched off, and where [CFG-7].
    Off(Spot),
    /// It can.
    Usable,
}

/// One `[mcp_bundles.NAME]`.
#[derive(Clone, Debug)]
pub struct BundlePlace {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub at: Spot,
    /// What `servers` names, and where.
    pub servers: Vec<(String, Spot)>,
    /// What `exclude` names, and where.
    pub exclude: Vec<(String, Spot)>,
}

/// One `[principals.NAME]`.
#[derive(Clone, Debug)]
pub struct PrincipalPlace {
    /// Its name.
    pub id: PrincipalId,
    /// Where it begins.
    pub at: Spot,
    /// What `mcp_bundles` names, and where.
    pub bundles: Vec<(String, Spot)>,
    /// How it stands to each server of the file.
    pub connections: BTreeMap<UpstreamName, Connection>,
    /// Its policy; `None`: all that is granted.
    pub policy: Option<Arc<PolicyPlace>>,
    /// How many keys it has.
    pub keys: usize,
}

/// How a principal stands to a server [CFG-1].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A bundle of the principal excludes it.
    Excluded {
        /// The bundle.
        bundle: String,
        /// Its line.
        at: Spot,
    },
    /// A bundle of the principal does not exist, so it is taken for one that excludes what any bundle does [CFG-2].
    ExcludedByUnknown {
        /// The name that is not defined.
        bundle: String,
        /// Its line.
        at: Spot,
    },
    /// A bundle grants it.
    Granted {
        /// The bundle.
        bundle: String,
        /// Its line.
        at: Spot,
    },
    /// No bundle of the principal names it.
    Missing {
        /// The line of the principal's bundles.
        at: Spot,
    },
    /// A bundle grants it, but it is switched off or disabled.
    Unusable,
}

/// Where two lists that narrow stand.
#[derive(Clone, Debug)]
pub struct NarrowPlace {
    /// Where the `allowed_…` list stands; the policy's own place if it does not.
    pub list: Spot,
    /// Where each of its patterns stands.
    pub allowed: Vec<Spot>,
    /// Where each pattern of the `excluded_…` list stands.
    pub excluded: Vec<Spot>,
}

/// One policy.
#[derive(Clone, Debug)]
pub struct PolicyPlace {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub at: Spot,
    /// Where `allowed_tools` stands; the policy's own place if it does not.
    pub allowed: Spot,
    /// Where each pattern of `allowed_tools` stands.
    pub allowed_tools: Vec<Spot>,
    /// Where each pattern of `excluded_tools` stands.
    pub excluded_tools: Vec<Spot>,
    /// The same for prompts.
    pub prompts: NarrowPlace,
    /// The same for resources.
    pub resources: NarrowPlace,
    /// Where `deny_all_tools` stands; the policy's own place if it does not.
    pub deny_all: Spot,
    /// Where `auto_admit_mcp_tools` stands; the policy's own place if it does not.
    pub auto_admit: Spot,
}

// === impl PolicyPlace ===

impl PolicyPlace {
    /// Returns where an `allowed_…` list stands.
    #[must_use]
    pub const fn list(&self, which: Which) -> &Spot {
        match which {
            Which::Tools => &self.allowed,
            Which::Prompts => &self.prompts.list,
            Which::Resources => &self.resources.list,
        }
    }

    /// Returns where the patterns of an `allowed_…` list stand.
    #[must_use]
    pub fn allowed(&self, which: Which) -> &[Spot] {
        match which {
            Which::Tools => &self.allowed_tools,
            Which::Prompts => &self.prompts.allowed,
            Which::Resources => &self.resources.allowed,
        }
    }

    /// Returns where the patterns of an `excluded_…` list stand.
    #[must_use]
    pub fn excluded(&self, which: Which) -> &[Spot] {
        match which {
            Which::Tools => &self.excluded_tools,
            Which::Prompts => &self.prompts.excluded,
            Which::Resources => &self.resources.excluded,
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Says whether the principal is connected to the server.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

// === impl Places ===

impl Places {
    /// Finds a server.
    #[must_use]
    pub fn server(&self, name: &UpstreamName) -> Option<&ServerPlace> {
        self.servers.iter().find(|server| server.name == *name)
    }

    /// Finds the server that a tool's shown or full name begins with.
    #[must_use]
    pub fn server_of(&self, tool: &str) -> Option<&ServerPlace> {
        let (prefix, _) = tool.split_once("__")?;
        self.servers.iter().find(|server| server.name.shown() == prefix)
    }

    /// Finds a principal.
    #[must_use]
    pub fn principal(&self, name: &str) -> Option<&PrincipalPlace> {
        self.principals.iter().find(|principal| principal.id.as_str() == name)
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}
