//! What a reload changes, in names alone: no value is in it, so that none can be a secret [CFG-4].

use std::collections::BTreeMap;
use std::fmt;

use super::{GatewaySettings, PrincipalSettings};

/// Names that came, changed or went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Not there before.
    pub added: Vec<String>,
    /// There before and after, with other settings.
    pub changed: Vec<String>,
    /// Not there any more.
    pub removed: Vec<String>,
}

/// What is different between two configurations of the hall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Servers, by name.
    pub servers: Names,
    /// Principals, by name; a changed one with what has changed of it.
    pub principals: Names,
    /// Keys of the file that are neither.
    pub keys: Vec<&'static str>,
}

// === impl Names ===

impl Names {
    /// Compares two lists; `changed` says what is different of two of one name.
    fn between<T>(
        old: &BTreeMap<&str, T>,
        new: &BTreeMap<&str, T>,
        changed: impl Fn(&T, &T) -> Option<String>,
    ) -> Self {
        let mut names = Self::default();
        for (name, one) in new {
            match old.get(name).map(|before| changed(before, one)) {
                None => names.added.push((*name).to_owned()),
                Some(Some(what)) => names.changed.push(format!("{name}{what}")),
                Some(None) => {}
            }
        }
        names.removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (*name).to_owned()).collect();
        names
    }

    /// Says whether nothing is different.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// `+added ~changed -removed`.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked =
            |mark: char, names: &[String]| names.iter().map(|name| format!("{mark}{name}")).collect::<Vec<_>>();
        let all = [marked('+', &self.added), marked('~', &self.changed), marked('-', &self.removed)].concat();
        f.write_str(&if all.is_empty() { "as before".to_owned() } else { all.join(" ") })
    }
}

// === impl Changes ===

impl Changes {
    /// Compares two configurations.
    #[must_use]
    pub fn between(old: &GatewaySettings, new: &GatewaySettings) -> Self {
        fn servers(all: &GatewaySettings) -> BTreeMap<&str, &crate::upstream::ServerSettings> {
            all.servers.iter().map(|one| (one.name.as_str(), one)).collect()
        }
        fn principals(all: &GatewaySettings) -> BTreeMap<&str, &PrincipalSettings> {
            all.principals.iter().map(|one| (one.id.as_str(), one)).collect()
        }
        let different = |before: bool, key: &'static str| before.then_some(key);
        let order = |all: &GatewaySettings| all.servers.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        let servers = Names::between(&servers(old), &servers(new), |one, two| (one != two).then(String::new));
        let reordered = servers.added.is_empty() && servers.removed.is_empty() && order(old) != order(new);
        let keys = [
            different(old.auth != new.auth, "listen.auth"),
            different(old.limits != new.limits, "rates and calls at once"),
            different(old.name_budget != new.name_budget, "mcp.name_budget"),
            different(old.first_list_wait != new.first_list_wait, "mcp.first_list_wait_secs"),
            different(old.processes_per_principal != new.processes_per_principal, "limits.processes_per_principal"),
            different(reordered, "the order of mcp.servers"),
            different(old.caps != new.caps, "mcp.blobs, blob_paths and overflow"),
            different(old.server_blobs != new.server_blobs, "blobs of mcp.servers"),
            different(old.blob != new.blob, "limits of what is kept"),
        ];
        let principals = Names::between(&principals(old), &principals(new), |one, two| principal(old, new, one, two));
        Self { servers, principals, keys: keys.into_iter().flatten().collect() }
    }

    /// Says whether nothing is different.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.principals.is_empty() && self.keys.is_empty()
    }
}

fn principal(
    old: &GatewaySettings,
    new: &GatewaySettings,
    one: &PrincipalSettings,
    two: &PrincipalSettings,
) -> Option<String> {
    let parts = [
        (old.keys.of(&one.id) != new.keys.of(&two.id)).then_some("keys"),
        (one.profile != two.profile).then_some("policy"),
        (one.granted != two.granted).then_some("servers"),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!(" ({})", parts.join(", ")))
}
