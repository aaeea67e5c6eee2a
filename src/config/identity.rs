//! `[mcp_bundles]`, `[principals]`, and who may come in.

use std::collections::BTreeMap;

use crate::codes::Code;
use crate::downstream::DownstreamSettings;
use crate::gateway::{Auth, PrincipalSettings};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::{ApiKeyHash, KeyRing};
use crate::limit::Own;

use super::keys;
use super::listener::AuthKey;
use super::places::{BundlePlace, Connection, PrincipalPlace, ServerPlace, ServerUse, Spot};
use super::policy::Policies;
use super::reader::{Table, nearest};
use super::upstream::{Known, Servers};

/// The principal that every caller is where nobody is asked.
const LOCAL: &str = "local";

/// All principals.
#[derive(Debug, Default)]
pub(super) struct Principals<'a> {
    pub(super) list: Vec<PrincipalSettings>,
    /// Where each stands.
    pub(super) places: Vec<PrincipalPlace>,
    pub(super) keys: KeyRing,
    /// Those without a key.
    keyless: Vec<(&'a str, Table<'a>)>,
    /// What their policies state of rates and calls at once.
    pub(super) limits: BTreeMap<PrincipalId, Own>,
}

/// Reads `[mcp_bundles]`.
pub(super) fn bundles(table: Option<&Table<'_>>, known: &Known) -> BTreeMap<String, BundlePlace> {
    let mut bundles = BTreeMap::new();
    for (name, table) in table.iter().flat_map(|table| table.tables()) {
        table.keys(keys::BUNDLE);
        let (servers, exclude) = (Vec::new(), Vec::new());
        let mut bundle = BundlePlace { name: name.to_owned(), at: table.spot(), servers, exclude };
        for (text, item) in table.get("servers").and_then(|value| value.texts()).unwrap_or_default() {
            if let Some(server) = known.find(text) {
                bundle.servers.push((server.to_string(), item.spot()));
            } else if !known.has(text) {
                item.grants_nothing(
                    format!("there is no server '{}': this grants nothing", text.escape_debug()),
                    known.hint(text),
                );
            }
        }
        for (text, item) in table.get("exclude").and_then(|value| value.texts()).unwrap_or_default() {
            if let Some(server) = known.find(text) {
                bundle.exclude.push((server.to_string(), item.spot()));
            } else if !known.has(text) {
                let help = known.hint(text).unwrap_or_else(|| "name a server of [[mcp.servers]]".to_owned());
                let words = format!("there is no server '{}'", text.escape_debug());
                item.error_of(Code::ProtectsNothing, words, Some(help));
            }
        }
        bundles.insert(name.to_owned(), bundle);
    }
    bundles
}

/// Reads `[principals]`.
pub(super) fn principals<'a>(
    table: Option<&Table<'a>>,
    bundles: &BTreeMap<String, BundlePlace>,
    servers: &Servers,
    policies: &mut Policies<'_>,
) -> Principals<'a> {
    let mut principals = Principals::default();
    for (name, table) in table.iter().flat_map(|table| table.tables()) {
        table.keys(keys::PRINCIPAL);
        let policy = table.get("policy").and_then(|value| Some(policies.find(value.filled()?, &value)));
        let id = PrincipalId::new(name);
        let keys = api_keys(&table, &id, &mut principals.keys);
        let bundles_named = named_bundles(&table, bundles);
        let connections = connections(&bundles_named, &table.key_spot("mcp_bundles"), bundles, servers);
        let place = PrincipalPlace {
            id: id.clone(),
            at: table.spot(),
            bundles: bundles_named,
            connections,
            policy: policy.as_ref().and_then(|policy| policy.place.clone()),
            keys,
        };
        let granted = place.connections.iter().filter(|(_, connection)| connection.is_granted());
        let granted = granted.map(|(server, _)| server.clone()).collect();
        if keys == 0 {
            principals.keyless.push((name, table));
        }
        if let Some(own) = policy.as_ref().and_then(|policy| policy.limits) {
            principals.limits.insert(id.clone(), own);
        }
        principals.list.push(PrincipalSettings { id, granted, profile: policy.map(|policy| policy.profile) });
        principals.places.push(place);
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
        AuthKey::Absent if principals.list.is_empty() => {
            let help = "add [principals.local] with mcp_bundles = [\"…\"], which is whoever calls from this machine";
            let message = "no principal is defined: nobody could use anything";
            listen.unwrap_or(root).error_of(Code::OpenDoor, message, help);
            return Auth::Keys;
        }
        AuthKey::Absent => {
            let help = "add auth = \"keys\", or on a loopback listener auth = \"none\", to [listen]";
            let message = "auth may be left out only where 'local' is the sole principal";
            listen.unwrap_or(root).error_of(Code::OpenDoor, message, help);
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
            AuthKey::Given(_, value) => value.error_of(Code::OpenDoor, message, Some(help.to_owned())),
            AuthKey::Absent | AuthKey::Wrong => place.error_of(Code::OpenDoor, message, help),
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

/// Reads `mcp_bundles`; notes names that are not defined, and that there are none [CFG-1].
fn named_bundles(table: &Table<'_>, bundles: &BTreeMap<String, BundlePlace>) -> Vec<(String, Spot)> {
    let mut named = Vec::new();
    let value = table.get("mcp_bundles");
    let texts = value.as_ref().and_then(|value| value.texts());
    if value.is_none() || texts.as_ref().is_some_and(Vec::is_empty) {
        let help = match bundles.keys().next() {
            Some(one) => format!("name its bundles: mcp_bundles = [\"{}\"]", one.escape_debug()),
            None => "add [mcp_bundles.NAME] with servers = [\"…\"], and here mcp_bundles = [\"NAME\"]".to_owned(),
        };
        let words = "names no bundle, so it is connected to no server";
        match value {
            Some(value) => value.warn(words, Some(help)),
            None => table.warn(words, &help),
        }
    }
    for (text, item) in texts.unwrap_or_default() {
        if !bundles.contains_key(text) {
            let names: Vec<_> = bundles.keys().map(String::as_str).collect();
            let help = nearest(text, &names).map(|near| format!("did you mean '{near}'?"));
            item.grants_nothing(format!("there is no bundle '{}': this grants nothing", text.escape_debug()), help);
        }
        named.push((text.to_owned(), item.spot()));
    }
    named
}

/// How a principal stands to every server: granted is the union of its bundles' servers less the union of their excludes,
/// as far as they can be used [CFG-1].
///
/// An unknown bundle may be any bundle misspelt, also one that excludes: so it excludes what any bundle does [CFG-2].
fn connections(
    named: &[(String, Spot)],
    missing: &Spot,
    bundles: &BTreeMap<String, BundlePlace>,
    servers: &Servers,
) -> BTreeMap<UpstreamName, Connection> {
    let find = |list: &[(String, Spot)], server: &UpstreamName| {
        list.iter().find(|(name, _)| name == server.as_str()).map(|(_, at)| at.clone())
    };
    let connection = |server: &ServerPlace| {
        let mut granted = None;
        for (bundle, at) in named {
            let Some(place) = bundles.get(bundle) else {
                if bundles.values().any(|bundle| find(&bundle.exclude, &server.name).is_some()) {
                    return Connection::ExcludedByUnknown { bundle: bundle.clone(), at: at.clone() };
                }
                continue;
            };
            if let Some(at) = find(&place.exclude, &server.name) {
                return Connection::Excluded { bundle: bundle.clone(), at };
            }
            let found = find(&place.servers, &server.name);
            granted = granted.or_else(|| found.map(|at| Connection::Granted { bundle: bundle.clone(), at }));
        }
        match granted {
            None => Connection::Missing { at: missing.clone() },
            Some(granted) if server.usage == ServerUse::Usable => granted,
            Some(_) => Connection::Unusable,
        }
    };
    servers.places.iter().map(|server| (server.name.clone(), connection(server))).collect()
}

/// Reads `api_keys`; says how many there are.
fn api_keys(table: &Table<'_>, id: &PrincipalId, ring: &mut KeyRing) -> usize {
    let list = table.get("api_keys").and_then(|value| value.list()).unwrap_or_default();
    for entry in &list {
        let Some(table) = entry.table() else { continue };
        table.keys(keys::API_KEY);
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
    list.len()
}
