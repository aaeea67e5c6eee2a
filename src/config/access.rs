//! Bundles, principals and keys: who is connected to what [CFG-1, CFG-2, AUT-1].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gateway::PrincipalSettings;
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::{ApiKeyHash, KeyRing};
use crate::policy::Profile;

use super::reader::{File, One, Placed, Table};

/// One bundle.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundle {
    servers: BTreeSet<UpstreamName>,
    exclude: BTreeSet<UpstreamName>,
}

/// Reads `[mcp_bundles]`. An unknown server grants nothing; an unknown exclude is an error.
pub(super) fn bundles(
    table: &Table<'_, '_>,
    servers: &BTreeSet<UpstreamName>,
    file: &mut File<'_>,
) -> BTreeMap<String, Bundle> {
    let mut bundles = BTreeMap::new();
    for (name, mut inner) in table.named_tables(file) {
        let mut bundle = Bundle::default();
        let find = |text: &Placed<String>| servers.iter().find(|server| server.as_str() == text.value).cloned();
        for text in inner.texts(file, "servers", One::Refused).unwrap_or_default() {
            match find(&text) {
                Some(server) => drop(bundle.servers.insert(server)),
                None => file.warn(&text.span, &text.key, format!("no server '{}': this grants nothing", text.value)),
            }
        }
        for text in inner.texts(file, "exclude", One::Refused).unwrap_or_default() {
            match find(&text) {
                Some(server) => drop(bundle.exclude.insert(server)),
                None => file.error(&text.span, &text.key, format!("no server '{}' to exclude", text.value)),
            }
        }
        inner.finish(file);
        bundles.insert(name.value, bundle);
    }
    bundles
}

/// Everything principals are made from.
pub(super) struct Sources<'s> {
    pub(super) bundles: &'s BTreeMap<String, Bundle>,
    pub(super) policies: &'s BTreeMap<String, Arc<Profile>>,
    /// Servers that are switched off count as not granted [CFG-7].
    pub(super) disabled: &'s BTreeSet<UpstreamName>,
}

/// Reads `[principals]`.
pub(super) fn principals(
    table: &Table<'_, '_>,
    sources: &Sources<'_>,
    file: &mut File<'_>,
) -> (Vec<PrincipalSettings>, KeyRing) {
    let (mut principals, mut ring) = (Vec::new(), KeyRing::default());
    for (name, mut inner) in table.named_tables(file) {
        let id = PrincipalId::new(&name.value);
        let (mut granted, mut excluded) = (BTreeSet::new(), sources.disabled.clone());
        for text in inner.texts(file, "mcp_bundles", One::Refused).unwrap_or_default() {
            match sources.bundles.get(&text.value) {
                Some(bundle) => {
                    granted.extend(bundle.servers.iter().cloned());
                    excluded.extend(bundle.exclude.iter().cloned());
                }
                None => file.warn(&text.span, &text.key, format!("no bundle '{}': this grants nothing", text.value)),
            }
        }
        granted.retain(|server| !excluded.contains(server));
        let profile = inner.text(file, "policy").map(|text| match sources.policies.get(&text.value) {
            Some(profile) => Arc::clone(profile),
            None => {
                file.error(&text.span, &text.key, format!("no policy '{}', here or in policies/", text.value));
                Arc::new(Profile::deny_all())
            }
        });
        keys(&mut inner, &id, &mut ring, file);
        inner.finish(file);
        principals.push(PrincipalSettings { id, granted, profile });
    }
    (principals, ring)
}

fn keys(table: &mut Table<'_, '_>, id: &PrincipalId, ring: &mut KeyRing, file: &mut File<'_>) {
    for (mut key, span) in table.tables(file, "api_keys") {
        let path = key.path_of("sha256");
        match key.text(file, "sha256") {
            None => file.error(&span, &path, "a key is { sha256 = \"64 hexadecimal digits\" }"),
            Some(text) => match ApiKeyHash::from_hex(&text.value) {
                None => file.error(&text.span, &text.key, "must be 64 hexadecimal digits: the SHA-256 of the key"),
                Some(hash) => {
                    if let Some(other) = ring.insert(hash, id.clone()).filter(|other| other != id) {
                        file.error(&text.span, &text.key, format!("principal '{other}' has the same key"));
                    }
                }
            },
        }
        key.finish(file);
    }
}
