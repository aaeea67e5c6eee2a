//! `[mcp_bundles]`, `[principals]`, and who may come in.

use std::collections::{BTreeMap, BTreeSet};

use crate::downstream::DownstreamSettings;
use crate::gateway::{Auth, PrincipalSettings};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::{ApiKeyHash, KeyRing};

use super::keys;
use super::listener::AuthKey;
use super::policy::Policies;
use super::reader::{Table, nearest};
use super::upstream::Known;

/// The principal that every caller is where nobody is asked.
const LOCAL: &str = "local";

/// One bundle.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    servers: BTreeSet<UpstreamName>,
    exclude: BTreeSet<UpstreamName>,
}

/// All principals.
#[derive(Debug, Default)]
pub(super) struct Principals<'a> {
    pub(super) list: Vec<PrincipalSettings>,
    pub(super) keys: KeyRing,
    /// Those without a key.
    keyless: Vec<(&'a str, Table<'a>)>,
}

/// Reads `[mcp_bundles]`.
pub(super) fn bundles(table: Option<&Table<'_>>, known: &Known) -> BTreeMap<String, Bundle> {
    let mut bundles = BTreeMap::new();
    for (name, table) in table.iter().flat_map(|table| table.tables()) {
        table.keys(keys::BUNDLE, &[]);
        let mut bundle = Bundle::default();
        for (text, item) in table.get("servers").and_then(|value| value.texts()).unwrap_or_default() {
            if let Some(server) = known.find(text) {
                bundle.servers.insert(server.clone());
            } else if !known.has(text) {
                item.warn(
                    format!("there is no server '{}': this grants nothing", text.escape_debug()),
                    known.hint(text),
                );
            }
        }
        for (text, item) in table.get("exclude").and_then(|value| value.texts()).unwrap_or_default() {
            if let Some(server) = known.find(text) {
                bundle.exclude.insert(server.clone());
            } else if !known.has(text) {
                let help = known.hint(text).unwrap_or_else(|| "name a server of [[mcp.servers]]".to_owned());
                item.error_help(format!("there is no server '{}'", text.escape_debug()), help);
            }
        }
        bundles.insert(name.to_owned(), bundle);
    }
    bundles
}

/// Reads `[principals]`.
pub(super) fn principals<'a>(
    table: Option<&Table<'a>>,
    bundles: &BTreeMap<String, Bundle>,
    usable: &BTreeSet<UpstreamName>,
    policies: &mut Policies<'_>,
) -> Principals<'a> {
    let mut principals = Principals::default();
    for (name, table) in table.iter().flat_map(|table| table.tables()) {
        table.keys(keys::PRINCIPAL, keys::PRINCIPAL_LATER);
        let granted = granted(&table, bundles, usable);
        let profile = table.get("policy").and_then(|value| Some(policies.find(value.filled()?, &value)));
        let id = PrincipalId::new(name);
        if !api_keys(&table, &id, &mut principals.keys) {
            principals.keyless.push((name, table));
        }
        principals.list.push(PrincipalSettings { id, granted, profile });
    }
    principals
}

/// Decides how callers are known [AUT-1].
pub(super) fn auth(
    key: &AuthKey<'_>,
    listen: Option<&Table<'_>>,
    root: &Table<'_>,
    principals: &Principals<'_>,
    settings: &DownstreamSettings,
) -> Auth {
    let local = principals.list.iter().any(|principal| principal.id.as_str() == LOCAL);
    let auth = match key {
        AuthKey::Given(auth, _) => *auth,
        AuthKey::Absent if local && principals.list.len() == 1 => Auth::None,
        AuthKey::Absent => {
            let help = "add auth = \"keys\", or on a loopback listener auth = \"none\", to [listen]";
            let message = "auth may be left out only where 'local' is the sole principal";
            listen.unwrap_or(root).error_help(message, help);
            return Auth::Keys;
        }
        AuthKey::Wrong => return Auth::Keys,
    };
    match auth {
        Auth::Keys => {
            for (name, table) in &principals.keyless {
                table.warn(
                    format!("principal '{name}' has no key: nobody can be it over HTTP"),
                    "add api_keys = [{ sha256 = \"…\" }]",
                );
            }
        }
        Auth::None => nobody_is_asked(key, listen.unwrap_or(root), principals, settings),
    }
    auth
}

fn nobody_is_asked(key: &AuthKey<'_>, place: &Table<'_>, principals: &Principals<'_>, settings: &DownstreamSettings) {
    if let Some(address) = settings.addresses.iter().find(|address| !address.ip().is_loopback()) {
        let message = format!("without authentication the gateway listens on loopback alone, not on {address}");
        let help = "use auth = \"keys\", or listen on 127.0.0.1";
        match key {
            AuthKey::Given(_, value) => value.error_help(message, help),
            AuthKey::Absent | AuthKey::Wrong => place.error_help(message, help),
        }
    }
    let AuthKey::Given(_, value) = key else { return };
    let others: Vec<_> =
        principals.list.iter().map(|principal| principal.id.as_str()).filter(|id| *id != LOCAL).collect();
    if others.len() == principals.list.len() {
        let help = "add [principals.local] with mcp_bundles = [\"…\"]".to_owned();
        value.warn(
            "every caller over HTTP is the principal 'local', which does not exist: nothing is connected",
            Some(help),
        );
    } else if !others.is_empty() {
        value.warn(
            format!("every caller over HTTP is the principal 'local'; nobody can be {}", others.join(", ")),
            None,
        );
    }
}

/// The union of the bundles' servers less the union of their excludes, as far as they can be used [CFG-1].
///
/// An unknown bundle may be any bundle misspelt, also one that excludes: so it excludes what any bundle does [CFG-2].
fn granted(
    table: &Table<'_>,
    bundles: &BTreeMap<String, Bundle>,
    usable: &BTreeSet<UpstreamName>,
) -> BTreeSet<UpstreamName> {
    let (mut servers, mut exclude) = (BTreeSet::new(), BTreeSet::new());
    for (text, item) in table.get("mcp_bundles").and_then(|value| value.texts()).unwrap_or_default() {
        if let Some(bundle) = bundles.get(text) {
            servers.extend(&bundle.servers);
            exclude.extend(&bundle.exclude);
        } else {
            let names: Vec<_> = bundles.keys().map(String::as_str).collect();
            let help = nearest(text, &names).map(|near| format!("did you mean '{near}'?"));
            item.warn(format!("there is no bundle '{}': this grants nothing", text.escape_debug()), help);
            exclude.extend(bundles.values().flat_map(|bundle| &bundle.exclude));
        }
    }
    let granted = servers.into_iter().filter(|server| !exclude.contains(server) && usable.contains(server));
    granted.cloned().collect()
}

/// Reads `api_keys`; says whether there is one.
fn api_keys(table: &Table<'_>, id: &PrincipalId, ring: &mut KeyRing) -> bool {
    let list = table.get("api_keys").and_then(|value| value.list()).unwrap_or_default();
    for entry in &list {
        let Some(table) = entry.table() else { continue };
        table.keys(&["sha256"], &[]);
        let Some(value) = table.get("sha256") else {
            table.error("a key needs sha256");
            continue;
        };
        let Some(hash) = value.text().and_then(ApiKeyHash::from_hex) else {
            let help = "it is the SHA-256 of the key, not the key: printf %s \"$KEY\" | sha256sum";
            value.error_help("must be 64 hexadecimal digits", help);
            continue;
        };
        match ring.insert(hash, id.clone()) {
            Some(other) if other == *id => value.warn("this key is given twice", None),
            Some(other) => value.error(format!("principal '{other}' has the same key")),
            None => {}
        }
    }
    !list.is_empty()
}
