//! `[mcp]` and `[[mcp.servers]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

use crate::codes::Code;
use crate::id::UpstreamName;
use crate::limit::Own;
use crate::net::{Reach, check_ca_file};
use crate::policy::{BlobMode, CapRules, EmptyAllow};
use crate::secret::Secret;
use crate::upstream::{EraChoice, HttpKind, Isolation, OnDown, ServerSettings, Transport};
use crate::wire::mcp::{Era, ProtocolVersion};

use super::caps;
use super::expand::{Expander, REFERENCE_HELP, Template, reference_in};
use super::listener::PROCESSES;
use super::places::{ServerPlace, ServerUse};
use super::reader::{Table, Value, nearest};
use super::{keys, limits};

/// Headers that the gateway sets itself, or that belong to one hop.
const RESERVED_HEADERS: [&str; 19] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Stands for a host that a missing secret would name.
const DISABLED_HOST: &str = "disabled.invalid";
const DISABLED_URL: &str = "http://disabled.invalid/";
/// What has a meaning for a program alone.
const PROCESS_KEYS: &[&str] = &["command", "args", "env", "inherit_env", "cwd", "max_processes", "show_stderr"];
const DAY: RangeInclusive<u64> = 1..=86_400;

/// The servers of the file.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// Those that can be used, in order.
    pub(super) usable: Vec<ServerSettings>,
    /// Those with a missing secret, and why.
    pub(super) disabled: Vec<(UpstreamName, String)>,
    /// What becomes of their attachments, where they say so.
    pub(super) blobs: BTreeMap<UpstreamName, BlobMode>,
    /// Where each stands.
    pub(super) places: Vec<ServerPlace>,
    /// What they state of rates and calls at once.
    pub(super) limits: BTreeMap<UpstreamName, Own>,
    /// Every name in the file, even of a server that is switched off or wrong.
    pub(super) known: Known,
}

/// The largest file of authorities that is looked at, in bytes; `net` has the same bound.
const CA_FILE_MAX: u64 = 1 << 20;

/// Every server name of the file.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<UpstreamName>>);

/// Found while one server is read.
struct Entry<'a> {
    name: &'a str,
    expander: &'a Expander<'a>,
    /// Whether secrets are looked up: not for a server that is switched off.
    live: bool,
    /// Whether a missing secret fails the start.
    required: bool,
    /// Why it is disabled.
    missing: Option<String>,
}

/// `[mcp]` without its servers.
#[derive(Debug)]
pub(super) struct Mcp {
    pub(super) enabled: bool,
    pub(super) empty_allow: EmptyAllow,
    pub(super) name_budget: Option<usize>,
    pub(super) first_list_wait: Option<Duration>,
    pub(super) caps: CapRules,
    pub(super) login_path: bool,
}

// === impl Known ===

impl Known {
    /// Reads the name of a server; `None` if it is wrong.
    fn add(&mut self, table: &Table<'_>, slugs: &mut BTreeMap<String, UpstreamName>) -> Option<UpstreamName> {
        let Some(value) = table.get("name") else {
            table.error("a server needs a name");
            return None;
        };
        let text = value.text()?;
        let name = UpstreamName::new(text);
        self.0.insert(text.to_owned(), name.clone().ok());
        let name = name.map_err(|error| value.error(format!("server name '{}' {error}", text.escape_debug()))).ok()?;
        let slug = name.slug();
        if let Some(other) = slugs.insert(slug.clone(), name.clone()) {
            value.error(if other == name {
                format!("there are two servers '{name}'")
            } else {
                format!("servers '{other}' and '{name}' have the same slug '{slug}': choose another name")
            });
        }
        Some(name)
    }

    /// Finds a server by its configured name.
    pub(super) fn find(&self, name: &str) -> Option<&UpstreamName> {
        self.0.get(name)?.as_ref()
    }

    /// Says whether the name stands in the file, even if it is wrong there (which is an error already).
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the names as shown, with the servers that have them.
    pub(super) fn shown(&self) -> impl Iterator<Item = (String, Option<&UpstreamName>)> {
        self.0.iter().map(|(name, server)| (name.replace('.', "_"), server.as_ref()))
    }

    /// Returns all servers.
    pub(super) fn all(&self) -> BTreeSet<UpstreamName> {
        self.0.values().flatten().cloned().collect()
    }

    /// Returns a hint for an unknown name.
    pub(super) fn hint(&self, name: &str) -> Option<String> {
        let names: Vec<_> = self.0.keys().map(String::as_str).collect();
        nearest(name, &names).map(|near| format!("did you mean '{near}'?"))
    }
}

/// Reads `[mcp]`.
pub(super) fn mcp(table: Option<&Table<'_>>, servers: &Servers) -> Mcp {
    let mut mcp = Mcp {
        enabled: true,
        empty_allow: EmptyAllow::All,
        name_budget: None,
        first_list_wait: None,
        caps: table.map(caps::rules).unwrap_or_default(),
        login_path: true,
    };
    let Some(table) = table else { return mcp };
    mcp.login_path = table.get("login_path").and_then(|value| value.flag()).unwrap_or(true);
    mcp.enabled = table.get("enabled").and_then(|value| value.flag()).unwrap_or(true);
    let words = [("all", EmptyAllow::All), ("none", EmptyAllow::None)];
    mcp.empty_allow = table.get("empty_allow").and_then(|value| value.choice(&words)).unwrap_or_default();
    mcp.first_list_wait =
        table.get("first_list_wait_secs").and_then(|value| value.number(&(0..=60))).map(Duration::from_secs);
    if let Some(value) = table.get("name_budget") {
        mcp.name_budget = value.number(&(1..=64)).and_then(|budget| usize::try_from(budget).ok());
        let longest = servers.known.0.keys().max_by_key(|name| name.len());
        if let (Some(budget), Some(longest)) = (mcp.name_budget, longest)
            && budget < longest.len() + 12
        {
            let least = longest.len() + 12;
            value.error(format!("must be at least {least}: the longest server name, '{longest}', and 12"));
        }
    }
    mcp
}

/// Reads `[[mcp.servers]]`.
pub(super) fn servers(section: Option<&Table<'_>>, live: bool, expander: &Expander<'_>) -> Servers {
    let mut servers = Servers::default();
    let mut slugs = BTreeMap::new();
    let Some(list) = section.and_then(|table| table.get("servers")).and_then(|value| value.list_or(keys::SERVERS_HELP))
    else {
        return servers;
    };
    for table in list.iter().filter_map(Value::table) {
        table.keys(keys::SERVER);
        let name = servers.known.add(&table, &mut slugs);
        let enabled = table.get("enabled").and_then(|value| value.flag()).unwrap_or(true);
        let required = table.get("required").and_then(|value| value.flag()).unwrap_or(false);
        let shown = name.as_ref().map_or("?", UpstreamName::as_str);
        let mut entry = Entry { name: shown, expander, live: live && enabled, required, missing: None };
        let transport = entry.transport(&table);
        let usable = name.is_some() && transport.is_some();
        // The rest is read also of a server that is wrong already, so that all of its problems come at once.
        let Some(name) = name.clone().or_else(|| UpstreamName::new("unnamed").ok()) else { continue };
        let transport = transport.unwrap_or_else(nowhere);
        let mut settings = entry.settings(&table, ServerSettings::new(name.clone(), transport));
        settings.tls_ca_cert_path = entry.authority(&table, &settings.transport);
        if let Some(blobs) = blobs(&table, settings.inspect) {
            servers.blobs.insert(name.clone(), blobs);
        }
        servers.limits.extend(limits::of_server(&table).map(|own| (name.clone(), own)));
        let kind = match (&settings.transport, settings.http) {
            (Transport::Http { .. }, HttpKind::Auto) => "http",
            (Transport::Http { .. }, HttpKind::Sse) => "sse",
            (Transport::Stdio { .. }, _) => "stdio",
        };
        let usage = match entry.missing {
            _ if !usable => continue,
            Some(why) => {
                servers.disabled.push((name.clone(), why.clone()));
                ServerUse::Disabled(why)
            }
            None if entry.live => {
                servers.usable.push(settings);
                ServerUse::Usable
            }
            None if live => ServerUse::Off(table.key_spot("enabled")),
            None => ServerUse::Off(section.map_or_else(|| table.spot(), |section| section.key_spot("enabled"))),
        };
        servers.places.push(ServerPlace { name, at: table.key_spot("name"), transport: kind, usage });
    }
    servers
}

const fn nowhere() -> Transport {
    let command = String::new();
    Transport::Stdio { command, args: Vec::new(), env: Vec::new(), inherit_env: Vec::new(), cwd: None }
}

// === impl Entry ===

impl Entry<'_> {
    fn settings(&self, table: &Table<'_>, mut settings: ServerSettings) -> ServerSettings {
        let secs = |key: &str, range: RangeInclusive<u64>| {
            table.get(key).and_then(|value| value.number(&range)).map(Duration::from_secs)
        };
        settings.required = self.required;
        settings.tool_timeout = secs("tool_timeout_secs", 1..=600).unwrap_or(settings.tool_timeout);
        settings.start_timeout = secs("start_timeout_secs", DAY).unwrap_or(settings.start_timeout);
        settings.probe_timeout = secs("probe_timeout_secs", DAY).unwrap_or(settings.probe_timeout);
        if let Some(longest) = secs("tool_max_secs", DAY) {
            settings.tool_max = longest;
            if longest < settings.tool_timeout
                && let Some(value) = table.get("tool_max_secs")
            {
                let least = settings.tool_timeout.as_secs();
                value.error(format!("must not be less than tool_timeout_secs, which is {least}"));
            }
        }
        let bytes = table.get("max_response_bytes").and_then(|value| value.number(&(0..=(1 << 32))));
        match bytes.map(usize::try_from) {
            Some(Ok(bytes)) if bytes > 0 => settings.max_response_bytes = bytes,
            Some(_) | None => {}
        }
        Self::pool(table, &mut settings);
        let words = [("hide", OnDown::Hide), ("keep", OnDown::Keep)];
        settings.on_down = table.get("on_down").and_then(|value| value.choice(&words)).unwrap_or_default();
        let private = table.get("allow_private_redirects").and_then(|value| value.flag()).unwrap_or(false);
        settings.redirects = if private { Reach::Any } else { Reach::Public };
        settings.era = era(table);
        if matches!(settings.transport, Transport::Http { .. }) {
            settings.http = http_kind(table, settings.era);
        }
        if let Some(value) = table.get("inspect") {
            settings.inspect = value.choice(&[("off", false), ("on", true)]).unwrap_or(true);
            if !settings.inspect {
                let name = self.name;
                let what = "no rule for blobs, text or names applies to them";
                value.warn(format!("answers of server '{name}' are passed on unseen: {what}"), None);
            }
        }
        settings
    }

    /// Who owns connections, and how many processes there are [TRN-4].
    fn pool(table: &Table<'_>, settings: &mut ServerSettings) {
        let words =
            [("principal", Isolation::Principal), ("session", Isolation::Session), ("shared", Isolation::Shared)];
        settings.isolation = table.get("isolation").and_then(|value| value.choice(&words));
        let most = table.get("max_processes").and_then(|value| value.number(&(1..=PROCESSES)));
        settings.max_processes = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(settings.max_processes);
        if let Some(secs) = table.get("idle_stop_secs").and_then(|value| value.number(&(0..=604_800))) {
            settings.idle_stop = (secs > 0).then(|| Duration::from_secs(secs));
        }
        settings.show_stderr = table.get("show_stderr").and_then(|value| value.flag()).unwrap_or(false);
    }

    fn transport(&mut self, table: &Table<'_>) -> Option<Transport> {
        let (command, url) = (table.get("command"), table.get("url"));
        let http = match table.get("transport") {
            Some(value) => value.choice(&[("http", true), ("sse", true), ("stdio", false)])?,
            None => match (&command, &url) {
                (Some(_), Some(_)) => {
                    table.error(format!("server '{}' has both command and url: keep one", self.name));
                    return None;
                }
                (None, None) => {
                    table.error(format!("server '{}' needs a command or a url", self.name));
                    return None;
                }
                (_, url) => url.is_some(),
            },
        };
        let foreign: &[&str] = if http { PROCESS_KEYS } else { &["url", "headers"] };
        for key in foreign.iter().filter(|key| table.get(key).is_some()) {
            let named = table.get("transport").and_then(|value| value.text());
            let transport = named.unwrap_or(if http { "http" } else { "stdio" });
            table.key_error(key, format!("has no meaning for transport \"{transport}\""));
        }
        match (http, command, url) {
            (true, _, Some(url)) => self.http(table, &url),
            (false, Some(command), _) => self.stdio(table, &command),
            (true, _, None) => {
                table.error(format!("server '{}' needs a url", self.name));
                None
            }
            (false, None, _) => {
                table.error(format!("server '{}' needs a command", self.name));
                None
            }
        }
    }

    fn stdio(&mut self, table: &Table<'_>, value: &Value<'_>) -> Option<Transport> {
        let command = value.filled();
        if let Some(text) = command {
            self.refuse_reference(text, value);
            // A path may hold spaces; a bare name with one is a whole command line.
            if text.trim().contains(char::is_whitespace) && !text.contains(['/', '\\']) {
                let help = "write command = \"PROGRAM\" and args = [\"…\", \"…\"]".to_owned();
                value.warn(
                    format!("server '{}': a program's name with spaces: arguments belong in args", self.name),
                    Some(help),
                );
            }
        }
        let mut args = Vec::new();
        for (text, item) in table.get("args").and_then(|value| value.texts()).unwrap_or_default() {
            self.refuse_reference(text, &item);
            if text.contains('\0') {
                item.error("must not hold a zero byte");
            }
            args.push(text.to_owned());
        }
        let mut env = Vec::new();
        if let Some(table) = table.table("env") {
            for (name, value) in table.entries() {
                if !variable(name) {
                    table.key_error(name, "is no name of a variable");
                }
                match self.secret(&value) {
                    Some(secret) if secret.expose().contains('\0') => self.unusable(&value, "holds a zero byte"),
                    Some(secret) => env.push((name.to_owned(), secret)),
                    None => {}
                }
            }
        }
        let mut inherit_env = Vec::new();
        for (name, item) in table.get("inherit_env").and_then(|value| value.texts()).unwrap_or_default() {
            if !variable(name) {
                item.error("is no name of a variable");
            }
            inherit_env.push(name.to_owned());
        }
        let cwd = table.get("cwd").and_then(|value| value.filled()).map(PathBuf::from);
        Some(Transport::Stdio { command: command?.to_owned(), args, env, inherit_env, cwd })
    }

    fn http(&mut self, table: &Table<'_>, value: &Value<'_>) -> Option<Transport> {
        let mut headers: Vec<(HeaderName, Secret<String>)> = Vec::new();
        if let Some(table) = table.table("headers") {
            for (name, value) in table.entries() {
                let secret = self.secret(&value);
                let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
                    table.key_error_of(Code::BadValue, name, "is no name of a header");
                    continue;
                };
                if RESERVED_HEADERS.contains(&header.as_str()) {
                    table.key_error(name, "is a header that the gateway sets itself");
                }
                if headers.iter().any(|(other, _)| *other == header) {
                    table.key_error(name, "is given twice: the case of a header's name does not matter");
                }
                match secret {
                    Some(secret) if HeaderValue::from_str(secret.expose()).is_err() => {
                        self.unusable(&value, "holds a character that no header may hold");
                    }
                    Some(secret) => headers.push((header, secret)),
                    None => {}
                }
            }
        }
        let text = value.filled()?;
        let url = self.secret(value);
        // Without its secret the server is disabled; a stand-in keeps the rest of it checked.
        let url = url.unwrap_or_else(|| Secret::new(DISABLED_URL.to_owned()));
        match uri(url.expose()) {
            Ok(uri) => Some(Transport::Http { url, uri, headers }),
            Err((message, help)) if Template::new(text).is_some_and(|template| template.is_literal()) => {
                value.error_help(message, help);
                None
            }
            Err((message, _)) => {
                self.unusable(value, message);
                let (url, uri) = (Secret::new(String::new()), Uri::from_static(DISABLED_URL));
                Some(Transport::Http { url, uri, headers })
            }
        }
    }

    /// Reads `tls_ca_cert_path`, and tries what it names: it is that file or nothing [TRN-5].
    fn authority(&mut self, table: &Table<'_>, transport: &Transport) -> Option<PathBuf> {
        let value = table.get("tls_ca_cert_path")?;
        let Transport::Http { uri, .. } = transport else {
            value.warn("is ignored: a server that is started by a command is not spoken to over TLS", None);
            return None;
        };
        let path = value.path()?;
        if uri.scheme() == Some(&Scheme::HTTP) && uri.host() != Some(DISABLED_HOST) {
            value.error_help(
                format!("server '{}': an authority needs an https url", self.name),
                "with an authority of its own a server is never spoken to without TLS",
            );
        }
        if !path.is_absolute() {
            value.error_help("must be an absolute path", "write it from / on");
            return None;
        }
        // Its content is read for each connection; here it counts only whether the server can be used.
        self.expander.notes.look(&path, CA_FILE_MAX);
        if self.live
            && let Err(err) = check_ca_file(&path)
        {
            self.disable(&value, err.to_string());
        }
        Some(path)
    }

    /// Reads a value with references; `None` if it is wrong or a secret is missing, which is noted.
    fn secret(&mut self, value: &Value<'_>) -> Option<Secret<String>> {
        let text = value.text()?;
        let Some(template) = Template::new(text) else {
            value.error_help(format!("server '{}': this is no reference", self.name), REFERENCE_HELP);
            return None;
        };
        if !self.live && !template.is_literal() {
            return None;
        }
        match self.expander.expand(&template) {
            Ok(secret) => Some(secret),
            Err(why) => {
                self.disable(value, why);
                None
            }
        }
    }

    /// Notes a value that cannot be used: an error, but if a reference brought it in, one of this server alone.
    fn unusable(&mut self, value: &Value<'_>, why: &str) {
        if value.text().and_then(Template::new).is_some_and(|template| template.is_literal()) {
            value.error(why);
        } else {
            self.disable(value, why.to_owned());
        }
    }

    fn disable(&mut self, value: &Value<'_>, why: String) {
        if self.required {
            value.error_of(Code::Secret, format!("required server '{}' cannot start: {why}", self.name), None);
        } else {
            value.survivable(format!("server '{}' is disabled: {why}", self.name));
        }
        self.missing.get_or_insert(why);
    }

    fn refuse_reference(&self, text: &str, value: &Value<'_>) {
        if let Some(reference) = reference_in(text) {
            let help = "everyone on the machine can read a program's arguments: give it to the server in env";
            value.error_help(format!("server '{}': {reference} is not expanded here", self.name), help);
        }
    }
}

/// Reads `blobs` of a server.
fn blobs(table: &Table<'_>, inspect: bool) -> Option<BlobMode> {
    let value = table.get("blobs")?;
    if !inspect {
        value.warn("has no effect: inspect = \"off\" passes this server's answers on unseen", None);
    }
    caps::mode(&value)
}

fn era(table: &Table<'_>) -> EraChoice {
    let words = [("auto", EraChoice::Auto), ("legacy", EraChoice::Legacy), ("stateless", EraChoice::Stateless)];
    let era = table.get("era").and_then(|value| value.choice(&words));
    let Some(value) = table.get("protocol") else { return era.unwrap_or_default() };
    let Some(text) = value.text() else { return EraChoice::Auto };
    let Some(version) = ProtocolVersion::from_text(text) else {
        let known = ProtocolVersion::SUPPORTED.map(ProtocolVersion::as_str).join(", ");
        value.error(format!("must be one of {known}"));
        return EraChoice::Auto;
    };
    let implied = match version.era() {
        Era::Legacy => EraChoice::Legacy,
        Era::Stateless => EraChoice::Stateless,
    };
    if era.is_some_and(|era| era != EraChoice::Auto && era != implied) {
        value.error("contradicts era");
    }
    implied
}

/// Which transport a server with a URL speaks; HTTP+SSE has the older era alone.
fn http_kind(table: &Table<'_>, era: EraChoice) -> HttpKind {
    if table.get("transport").and_then(|value| value.text()) != Some("sse") {
        return HttpKind::Auto;
    }
    let key = ["protocol", "era"].into_iter().find(|key| table.get(key).is_some());
    if let (EraChoice::Stateless, Some(key)) = (era, key) {
        table.key_error(key, "contradicts transport \"sse\", which has revisions up to 2025-11-25 alone");
    }
    HttpKind::Sse
}

/// Reads an endpoint.
fn uri(text: &str) -> Result<Uri, (&'static str, &'static str)> {
    const FORM: &str = "write http://HOST:PORT/PATH or https://HOST/PATH";
    let uri: Uri = text.parse().map_err(|_| ("is no URL", FORM))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return Err(("must begin with http:// or https://", FORM)),
    }
    let authority = uri.authority().ok_or(("has no host", FORM))?;
    if authority.as_str().contains('@') {
        return Err(("must hold no user name or password", "give them in headers = { Authorization = \"…\" }"));
    }
    if authority.host().is_empty() {
        return Err(("has no host", FORM));
    }
    if text.contains('#') {
        return Err(("must have no fragment", FORM));
    }
    Ok(uri)
}

fn variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && name.trim() == name
}
