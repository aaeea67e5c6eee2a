//! Reads the file and those beside it, all problems at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::codes::Code;
use crate::downstream::DownstreamSettings;
use crate::gateway::GatewaySettings;
use crate::id::UpstreamName;
use crate::limit::LimitSettings;
use crate::telemetry::{LogFormat, LogSettings};

use super::error::{Diagnostic, Diagnostics, Report, Severity};
use super::expand::Expander;
use super::inputs::{Inputs, Notes};
use super::mask::Masks;
use super::places::Places;
use super::policy::{ExpectationResult, Policies};
use super::reader::{Source, Table};
use super::{caps, identity, keys, limits, listener, state, upstream};

/// The largest configuration or policy file, in bytes.
pub(super) const FILE_MAX: u64 = 8 << 20;

/// Everything the program is built from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the hall.
    pub gateway: GatewaySettings,
    /// For the front door.
    pub downstream: DownstreamSettings,
    /// Where health and the like are served; never empty.
    pub admin: Vec<SocketAddr>,
    /// For the log.
    pub log: LogSettings,
    /// Where what outlives the process is kept [OPS-12]; `None`: nobody says.
    pub state_dir: Option<PathBuf>,
    /// Whether a desktop's short PATH is replaced by the login shell's [TRN-3].
    pub login_path: bool,
    /// Servers that are disabled because a secret is missing, and why [CFG-3].
    pub disabled: Vec<(UpstreamName, String)>,
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// What is doubtful, and which servers are disabled.
    pub warnings: Vec<Diagnostic>,
    /// What became of the policies' expectations; only `check` minds.
    pub expectations: Vec<ExpectationResult>,
    /// Where everything that decides stands.
    pub places: Places,
    /// The files it was read from; a text that stood in none has none.
    pub inputs: Inputs,
}

/// Whether policy files beside the file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// There is no file, so there is nothing beside it.
    Ignore,
    /// They do.
    Read,
}

/// Loads a configuration file and the policy files beside it.
///
/// # Errors
/// Everything that is wrong, with its places.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Diagnostics> {
    let notes = Notes::default();
    let loaded = load_noting(path, env, &notes)?;
    Ok(Loaded { inputs: Inputs::new(path, notes), ..loaded })
}

/// Loads the file of `inputs` again, and those beside it. Afterwards `inputs` is what was read this time, also if it cannot
/// be used.
///
/// # Errors
/// Everything that is wrong, with its places.
pub fn reload(inputs: &mut Inputs, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Diagnostics> {
    let path = inputs.path().map(Path::to_owned).unwrap_or_default();
    let notes = Notes::default();
    let loaded = load_noting(&path, env, &notes);
    *inputs = Inputs::new(&path, notes);
    loaded.map(|loaded| Loaded { inputs: inputs.clone(), ..loaded })
}

/// Loads a text as if it stood in the file `path`, with the policy files beside that: what a change of the file would give.
///
/// # Errors
/// Everything that is wrong, with its places.
pub fn load_changed(path: &Path, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Diagnostics> {
    read(path, text, Beside::Read, env, &Notes::default())
}

/// Loads a text as if it stood in the file `path`, without policy files beside it.
///
/// # Errors
/// Everything that is wrong, with its places.
pub fn load_text(path: &Path, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Diagnostics> {
    read(path, text, Beside::Ignore, env, &Notes::default())
}

/// Returns how the log looks by a file that need not be good otherwise: in that form is said what is wrong with it.
#[must_use]
pub fn log_format(path: &Path) -> LogFormat {
    let (notes, report) = (Notes::default(), Report::default());
    let format = |root: Table<'_>| listener::log(root.table("log").as_ref(), &mut DownstreamSettings::default()).format;
    let text = read_text(path, &notes).unwrap_or_default();
    parse(path, &text, &report, format).unwrap_or_default()
}

fn load_noting(path: &Path, env: &dyn Fn(&str) -> Option<String>, notes: &Notes) -> Result<Loaded, Diagnostics> {
    let text = read_text(path, notes);
    let text = text.map_err(|why| Diagnostics::whole(format!("configuration {} {why}", path.display())))?;
    read(path, &text, Beside::Read, env, notes)
}

fn read(
    path: &Path,
    text: &str,
    beside: Beside,
    env: &dyn Fn(&str) -> Option<String>,
    notes: &Notes,
) -> Result<Loaded, Diagnostics> {
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let report = Report::default();
    let read = parse(path, text, &report, |root| settings(&root, beside, &Expander { env, base, notes }));
    let warnings = report.finish()?;
    let Some((settings, expectations, places)) = read else { return Err(Diagnostics(warnings)) };
    Ok(Loaded { settings, warnings, expectations, places, inputs: Inputs::default() })
}

/// What one file comes to.
type Read = (Settings, Vec<ExpectationResult>, Places);

fn settings(root: &Table<'_>, beside: Beside, expander: &Expander<'_>) -> Read {
    root.keys(keys::ROOT);
    let listen = root.table("listen");
    let mut downstream = DownstreamSettings::default();
    let admin = listener::listen(listen.as_ref(), expander.base, &mut downstream);
    let limits_table = root.table("limits");
    listener::limits(limits_table.as_ref(), &mut downstream);
    let log = listener::log(root.table("log").as_ref(), &mut downstream);

    let state_dir = state::folder(root.table("state").as_ref(), expander);
    let mcp_table = root.table("mcp");
    if let Some(table) = &mcp_table {
        table.keys(keys::MCP);
    }
    let switched_off = mcp_table.as_ref().and_then(|table| table.get("enabled")).is_some_and(|value| value.is_false());
    let servers = upstream::servers(mcp_table.as_ref(), !switched_off, expander);
    let mcp = upstream::mcp(mcp_table.as_ref(), &servers);

    let folder = (beside == Beside::Read).then(|| expander.base.join("policies"));
    let mut policies =
        Policies::new(root.table("policies").as_ref(), &servers.known, mcp.empty_allow, folder, expander.notes);
    let bundles = identity::bundles(root.table("mcp_bundles").as_ref(), &servers.known);
    let principals = identity::principals(root.table("principals").as_ref(), &bundles, &servers, &mut policies);
    let key = listener::auth(listen.as_ref());
    let auth = identity::auth(&key, listen.as_ref(), root, &principals, &downstream);

    let expectations = policies.expectations;
    let places = Places {
        servers: servers.places,
        bundles: bundles.into_values().collect(),
        principals: principals.places,
        name_budget: mcp_table.and_then(|table| table.get("name_budget")).map(|value| value.spot()),
    };
    let limits = LimitSettings {
        principals: principals.limits,
        servers: servers.limits,
        ..limits::common(limits_table.as_ref())
    };
    let gateway = GatewaySettings {
        auth,
        keys: principals.keys,
        limits,
        servers: servers.usable,
        principals: principals.list,
        name_budget: mcp.name_budget.unwrap_or(GatewaySettings::NAME_BUDGET),
        first_list_wait: mcp.first_list_wait.unwrap_or(GatewaySettings::FIRST_LIST_WAIT),
        processes_per_principal: listener::processes(limits_table.as_ref()),
        list_page_bytes: GatewaySettings::LIST_PAGE_BYTES,
        caps: mcp.caps,
        server_blobs: servers.blobs,
        blob: caps::kept(root.table("limits").as_ref()),
    };
    let settings =
        Settings { gateway, downstream, admin, log, state_dir, login_path: mcp.login_path, disabled: servers.disabled };
    (settings, expectations, places)
}

/// Parses a text and hands its root to `read`; a syntax error is noted.
pub(super) fn parse<T>(path: &Path, text: &str, report: &Report, read: impl FnOnce(Table<'_>) -> T) -> Option<T> {
    match DeTable::parse(text) {
        Ok(root) => {
            let masks = Masks::of(root.get_ref(), text);
            let source = Source { path, text, masks, report };
            Some(read(source.root(root.get_ref())))
        }
        Err(error) => {
            let source = Source { path, text, masks: Masks::default(), report };
            let span = error.span().unwrap_or(text.len()..text.len());
            let diagnostic = source.diagnostic(Severity::Error, "", &span, error.message().to_owned());
            let json = text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
            let help = json.then(|| "this is JSON: portcullis import FILE takes over a client's file".to_owned());
            report.fatal(Diagnostic { code: Code::Syntax, help, ..diagnostic });
            None
        }
    }
}

/// Reads a file of text.
pub(super) fn read_text(path: &Path, notes: &Notes) -> Result<String, String> {
    let bytes = notes.read(path, FILE_MAX).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.expose().len() as u64 > FILE_MAX {
        return Err(format!("is larger than {FILE_MAX} bytes"));
    }
    std::str::from_utf8(bytes.expose()).map(str::to_owned).map_err(|_| "is not UTF-8".to_owned())
}
