//! One file, and the policy files beside it, to [`Settings`]; or every problem there is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeTable;

use crate::downstream::DownstreamSettings;
use crate::gateway::{Auth, GatewaySettings, PrincipalSettings};
use crate::id::UpstreamName;
use crate::policy::{EmptyAllow, Profile};
use crate::telemetry::LogSettings;

use super::error::{Diagnostic, Severity};
use super::policy::{self, Expectation, Servers};
use super::reader::{File, Placed, Table};
use super::{access, listen, server};

/// Everything a start needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hall.
    pub gateway: GatewaySettings,
    /// The front door.
    pub downstream: DownstreamSettings,
    /// Where `/healthz` and `/readyz` are served.
    pub admin: Vec<SocketAddr>,
    /// Logs.
    pub log: LogSettings,
}

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// What is odd in it.
    pub warnings: Vec<Diagnostic>,
    /// The policies' expectations; all are met.
    pub expectations: Vec<Expectation>,
}

/// Loads a file.
///
/// # Errors
/// Every problem at once, warnings included.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Diagnostic>> {
    let text = std::fs::read_to_string(path)
        .map_err(|err| vec![Diagnostic::file(Severity::Error, path, format!("cannot be read: {err}"))])?;
    let policies = path.parent().unwrap_or_else(|| Path::new("")).join("policies");
    read(path, &text, policy_files(&policies), env)
}

/// Loads a text as if it stood in the file `path`, without policy files beside it.
///
/// # Errors
/// Every problem at once, warnings included.
pub fn load_text(path: &Path, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Diagnostic>> {
    read(path, text, Vec::new(), env)
}

fn read(
    path: &Path,
    text: &str,
    policy_files: Vec<PathBuf>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut file = File::new(path, text);
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(err) => {
            file.error(&err.span().unwrap_or(0..0), "", err.message());
            return Err(file.found);
        }
    };
    let base = path.parent().unwrap_or_else(|| Path::new("."));
    let mut reading = Reading { root: Table::new(root.get_ref(), ""), base, env, policy_files, others: Vec::new() };
    let (settings, expectations) = reading.settings(&mut file);
    let others = std::mem::take(&mut reading.others);
    reading.root.finish(&mut file);
    let mut found = file.found;
    found.sort_by_key(|found| (found.line, found.column));
    found.extend(others);
    if found.iter().any(|found| found.severity == Severity::Error) {
        return Err(found);
    }
    Ok(Loaded { settings, warnings: found, expectations })
}

struct Reading<'t, 'a> {
    root: Table<'t, 'a>,
    base: &'a Path,
    env: &'a dyn Fn(&str) -> Option<String>,
    policy_files: Vec<PathBuf>,
    /// Problems of policy files.
    others: Vec<Diagnostic>,
}

/// `[mcp]` beside its servers.
struct Mcp {
    servers: Vec<server::Read>,
    enabled: bool,
    empty_allow: EmptyAllow,
    name_budget: usize,
    first_list_wait: Duration,
}

impl Reading<'_, '_> {
    fn settings(&mut self, file: &mut File<'_>) -> (Settings, Vec<Expectation>) {
        let listen_table = self.root.table(file, "listen");
        let limits_table = self.root.table(file, "limits");
        let mut listen = listen::read(listen_table, limits_table, file);
        let log_table = self.root.table(file, "log");
        let (log, access_log) = listen::log(log_table, file);
        listen.settings.access = access_log;
        let mcp = self.mcp(file);
        check_names(&mcp.servers, file);
        let names: BTreeSet<UpstreamName> = mcp.servers.iter().map(|read| read.settings.name.clone()).collect();
        let off = |read: &&server::Read| !(read.enabled && mcp.enabled);
        let disabled = mcp.servers.iter().filter(off).map(|read| read.settings.name.clone()).collect();
        let bundles = self.root.table(file, "mcp_bundles");
        let bundles = bundles.map(|table| access::bundles(&table, &names, file)).unwrap_or_default();
        let (policies, expectations) = self.policies(&names, mcp.empty_allow, file);
        let sources = access::Sources { bundles: &bundles, policies: &policies, disabled: &disabled };
        let principals = self.root.table(file, "principals");
        let (principals, keys) = principals.map(|table| access::principals(&table, &sources, file)).unwrap_or_default();
        let auth = auth(listen.auth.as_ref(), &principals, file);
        let servers =
            mcp.servers.into_iter().map(|read| read.settings).filter(|one| !disabled.contains(&one.name)).collect();
        let gateway = GatewaySettings {
            auth,
            keys,
            servers,
            principals,
            name_budget: mcp.name_budget,
            first_list_wait: mcp.first_list_wait,
            list_page_bytes: GatewaySettings::LIST_PAGE_BYTES,
        };
        (Settings { gateway, downstream: listen.settings, admin: listen.admin, log }, expectations)
    }

    fn mcp(&mut self, file: &mut File<'_>) -> Mcp {
        let mut mcp = Mcp {
            servers: Vec::new(),
            enabled: true,
            empty_allow: EmptyAllow::All,
            name_budget: GatewaySettings::NAME_BUDGET,
            first_list_wait: GatewaySettings::FIRST_LIST_WAIT,
        };
        let Some(mut table) = self.root.table(file, "mcp") else { return mcp };
        let sources = server::Sources { base: self.base, env: self.env };
        for (inner, span) in table.tables(file, "servers") {
            mcp.servers.extend(server::read(inner, span, file, &sources));
        }
        mcp.enabled = table.flag(file, "enabled").is_none_or(|flag| flag.value);
        if let Some(text) = table.text(file, "empty_allow") {
            match text.value.as_str() {
                "all" => {}
                "none" => mcp.empty_allow = EmptyAllow::None,
                _ => file.error(&text.span, &text.key, "must be 'all' or 'none'"),
            }
        }
        let longest = mcp.servers.iter().map(|read| read.settings.name.as_str().len()).max().unwrap_or(0) as u64;
        if let Some(budget) = table.number(file, "name_budget", longest + 12, 64) {
            mcp.name_budget = usize::try_from(budget.value).unwrap_or(GatewaySettings::NAME_BUDGET);
        }
        if let Some(secs) = table.number(file, "first_list_wait_secs", 0, 600) {
            mcp.first_list_wait = Duration::from_secs(secs.value);
        }
        table.finish(file);
        mcp
    }

    /// Reads the inline policies and those in files beside; one that is defined twice is an error.
    fn policies(
        &mut self,
        names: &BTreeSet<UpstreamName>,
        empty_allow: EmptyAllow,
        file: &mut File<'_>,
    ) -> (BTreeMap<String, Arc<Profile>>, Vec<Expectation>) {
        let shown: BTreeSet<String> = names.iter().map(UpstreamName::shown).collect();
        let servers = Servers::Known(&shown);
        let (mut policies, mut expectations) = (BTreeMap::new(), Vec::new());
        if let Some(table) = self.root.table(file, "policies") {
            for (name, inner) in table.named_tables(file) {
                let (profile, expects) = policy::read(inner, &name.value, empty_allow, servers, file);
                expectations.extend(expects);
                policies.insert(name.value, Arc::new(profile));
            }
        }
        for path in std::mem::take(&mut self.policy_files) {
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                Err(err) => {
                    self.others.push(Diagnostic::file(Severity::Error, &path, format!("cannot be read: {err}")));
                    continue;
                }
            };
            let mut beside = File::new(&path, &text);
            match DeTable::parse(&text) {
                Ok(root) => {
                    let table = Table::new(root.get_ref(), "");
                    // A file beside may serve other configurations too, so unknown servers are theirs.
                    let (profile, expects) = policy::read(table, name, empty_allow, Servers::Unknown, &mut beside);
                    expectations.extend(expects);
                    if policies.insert(name.to_owned(), Arc::new(profile)).is_some() {
                        beside.error(&(0..0), "", format!("policy '{name}' is defined twice: here and inline"));
                    }
                }
                Err(err) => beside.error(&err.span().unwrap_or(0..0), "", err.message()),
            }
            self.others.append(&mut beside.found);
        }
        (policies, expectations)
    }
}

fn policy_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(folder) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = folder
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// Names and slugs are unique [CFG-5].
fn check_names(servers: &[server::Read], file: &mut File<'_>) {
    let mut slugs: BTreeMap<String, &UpstreamName> = BTreeMap::new();
    for read in servers {
        let name = &read.settings.name;
        if let Some(other) = slugs.insert(name.slug(), name) {
            let words = format!("server '{name}' is too much like '{other}': both are '{}' in URIs", name.slug());
            file.error(&read.span, "mcp.servers", words);
        }
    }
}

/// `auth` may be left out only where `local` is the sole principal [AUT-1].
fn auth(said: Option<&Placed<Auth>>, principals: &[PrincipalSettings], file: &mut File<'_>) -> Auth {
    let local = principals.iter().any(|principal| principal.id.as_str() == "local");
    let sole = principals.len() == usize::from(local);
    let none = said.map_or(sole, |said| said.value == Auth::None);
    if none {
        if !local {
            file.warn(&(0..0), "principals", "no [principals.local]: nothing is connected; add it with mcp_bundles");
        }
        return Auth::None;
    }
    if said.is_none() {
        file.error(&(0..0), "listen.auth", "must be set ('none' or 'keys') where there are principals beside 'local'");
    }
    Auth::Keys
}
