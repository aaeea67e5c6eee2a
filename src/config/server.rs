//! `[[mcp.servers]]` → [`ServerSettings`].

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, Uri};
use toml::de::DeValue;

use crate::id::UpstreamName;
use crate::secret::Secret;
use crate::upstream::{EraChoice, OnDown, ServerSettings, Transport};
use crate::wire::mcp::{Era, ProtocolVersion};

use super::reader::{File, One, Table};
use super::secrets;

/// Headers that the gateway must write itself.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// A server as read.
pub(super) struct Read {
    pub(super) settings: ServerSettings,
    /// `false` if it is switched off, or a secret of it is missing.
    pub(super) enabled: bool,
    pub(super) span: Range<usize>,
}

/// What values are expanded with.
pub(super) struct Sources<'s> {
    pub(super) base: &'s Path,
    pub(super) env: &'s dyn Fn(&str) -> Option<String>,
}

/// Collects expanded values; the first missing one disables the server.
struct Expander<'s> {
    sources: &'s Sources<'s>,
    missing: Option<(Range<usize>, String, String)>,
}

impl Expander<'_> {
    fn expand(&mut self, text: &str, span: Range<usize>, key: &str) -> Secret<String> {
        match secrets::expand(text, self.sources.base, self.sources.env) {
            Ok(value) => Secret::new(value),
            Err(why) => {
                self.missing.get_or_insert_with(|| (span, key.to_owned(), why));
                Secret::new(String::new())
            }
        }
    }
}

/// Reads one server; `None` if it cannot be used at all (then there is an error).
pub(super) fn read(
    mut table: Table<'_, '_>,
    span: Range<usize>,
    file: &mut File<'_>,
    sources: &Sources<'_>,
) -> Option<Read> {
    let name = name(&mut table, &span, file);
    let mut expander = Expander { sources, missing: None };
    let transport = transport(&mut table, &span, file, &mut expander);
    let required = table.flag(file, "required").is_some_and(|flag| flag.value);
    let mut enabled = table.flag(file, "enabled").is_none_or(|flag| flag.value);
    let era = era(&mut table, file);
    let on_down = on_down(&mut table, file);
    let max_bytes = table.number(file, "max_response_bytes", 0, 1 << 40).map(|number| number.value);
    let mut secs = |key, max| table.number(file, key, 1, max).map(|secs| Duration::from_secs(secs.value));
    let (timeout, max) = (secs("tool_timeout_secs", 600), secs("tool_max_secs", 86_400));
    let (start, probe) = (secs("start_timeout_secs", 3_600), secs("probe_timeout_secs", 600));
    table.finish(file);
    let (name, transport) = (name?, transport?);
    if let Some((at, key, why)) = expander.missing.filter(|_| enabled) {
        if required {
            file.error(&at, &key, format!("{why}; server '{name}' is required"));
        } else {
            file.warn(&at, &key, format!("{why}; server '{name}' is disabled"));
        }
        enabled = false;
    }
    let mut settings = ServerSettings::new(name, transport);
    if let Some(bytes) = max_bytes.filter(|bytes| *bytes > 0) {
        settings.max_response_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    settings.tool_timeout = timeout.unwrap_or(settings.tool_timeout);
    settings.tool_max = max.unwrap_or(settings.tool_max);
    settings.start_timeout = start.unwrap_or(settings.start_timeout);
    settings.probe_timeout = probe.unwrap_or(settings.probe_timeout);
    (settings.era, settings.on_down, settings.required) = (era, on_down, required);
    Some(Read { settings, enabled, span })
}

fn name(table: &mut Table<'_, '_>, span: &Range<usize>, file: &mut File<'_>) -> Option<UpstreamName> {
    let key = table.path_of("name");
    let Some(name) = table.text(file, "name") else {
        file.error(span, &key, "a server needs a name");
        return None;
    };
    UpstreamName::new(&name.value)
        .map_err(|why| file.error(&name.span, &name.key, format!("server name '{}' {why}", name.value)))
        .ok()
}

fn transport(
    table: &mut Table<'_, '_>,
    span: &Range<usize>,
    file: &mut File<'_>,
    expander: &mut Expander<'_>,
) -> Option<Transport> {
    let path = table.path_of("transport");
    let kind = table.text(file, "transport");
    let command = table.text(file, "command");
    let url = table.text(file, "url");
    let stdio = stdio_parts(table, file, expander);
    let headers = headers(table, file, expander);
    let wanted = match (kind.as_ref().map(|kind| kind.value.as_str()), &command, &url) {
        (Some("stdio"), Some(_), None) | (None, Some(_), None) => "stdio",
        (Some("http"), None, Some(_)) | (None, None, Some(_)) => "http",
        (Some("sse"), _, _) => {
            file.error(&kind?.span, &path, "'sse' is not supported in this version of portcullis");
            return None;
        }
        (Some("stdio" | "http") | None, Some(_), Some(_)) => {
            file.error(span, &path, "a server has either a command or a url, not both");
            return None;
        }
        (Some("stdio"), _, _) => {
            file.error(span, &path, "a stdio server needs a command");
            return None;
        }
        (Some("http"), _, _) => {
            file.error(span, &path, "an http server needs a url");
            return None;
        }
        (Some(_), _, _) => {
            file.error(&kind?.span, &path, "must be 'stdio' or 'http'");
            return None;
        }
        (None, None, None) => {
            file.error(span, &path, "a server needs a command (stdio) or a url (http)");
            return None;
        }
    };
    if wanted == "stdio" {
        let command = command?;
        if secrets::has_reference(&command.value) {
            file.error(&command.span, &command.key, "references are not expanded here, argv is public: use env");
        }
        let Parts { args, env, inherit_env, cwd } = stdio;
        return Some(Transport::Stdio { command: command.value, args, env, inherit_env, cwd });
    }
    let url = url?;
    let expanded = expander.expand(&url.value, url.span.clone(), &url.key);
    let uri = match expanded.expose().parse::<Uri>() {
        Ok(uri) if uri.scheme_str() == Some("http") && uri.authority().is_some() => uri,
        Ok(uri) if uri.scheme_str() == Some("https") => {
            file.error(&url.span, &url.key, "https servers are not supported in this version of portcullis");
            return None;
        }
        Ok(_) | Err(_) if expander.missing.is_some() => Uri::from_static("http://missing.invalid/"),
        Ok(_) | Err(_) => {
            file.error(&url.span, &url.key, "must be a URL such as http://127.0.0.1:3000/mcp");
            return None;
        }
    };
    Some(Transport::Http { url: expanded, uri, headers })
}

#[derive(Default)]
struct Parts {
    args: Vec<String>,
    env: Vec<(String, Secret<String>)>,
    inherit_env: Vec<String>,
    cwd: Option<PathBuf>,
}

fn stdio_parts(table: &mut Table<'_, '_>, file: &mut File<'_>, expander: &mut Expander<'_>) -> Parts {
    let mut parts = Parts::default();
    for arg in table.texts(file, "args", One::Refused).unwrap_or_default() {
        if secrets::has_reference(&arg.value) {
            file.error(&arg.span, &arg.key, "references are not expanded here, argv is public: use env");
        }
        parts.args.push(arg.value);
    }
    for (name, value, span) in pairs(table, file, "env") {
        if name.is_empty() || name.contains(['=', '\0']) {
            file.error(&span, &table.path_of("env"), "is no name of a variable");
            continue;
        }
        let key = format!("{}.{name}", table.path_of("env"));
        parts.env.push((name, expander.expand(&value, span, &key)));
    }
    let inherit = table.texts(file, "inherit_env", One::Refused).unwrap_or_default();
    parts.inherit_env = inherit.into_iter().map(|name| name.value).collect();
    parts.cwd = table.text(file, "cwd").map(|cwd| PathBuf::from(cwd.value));
    parts
}

fn headers(
    table: &mut Table<'_, '_>,
    file: &mut File<'_>,
    expander: &mut Expander<'_>,
) -> Vec<(HeaderName, Secret<String>)> {
    let mut headers = Vec::new();
    for (name, value, span) in pairs(table, file, "headers") {
        let key = format!("{}.{name}", table.path_of("headers"));
        let Ok(header) = HeaderName::try_from(name.as_str()) else {
            file.error(&span, &key, "is no header name");
            continue;
        };
        if OWN_HEADERS.contains(&header.as_str()) {
            file.error(&span, &key, "is written by the gateway itself");
            continue;
        }
        let value = expander.expand(&value, span.clone(), &key);
        if http::HeaderValue::from_str(value.expose()).is_err() {
            file.error(&span, &key, "has a value that cannot stand in a header");
            continue;
        }
        headers.push((header, value));
    }
    headers
}

fn pairs(table: &mut Table<'_, '_>, file: &mut File<'_>, key: &'static str) -> Vec<(String, String, Range<usize>)> {
    let Some(inner) = table.table(file, key) else { return Vec::new() };
    let mut pairs = Vec::new();
    for (name, value) in inner.names() {
        match value.get_ref() {
            DeValue::String(text) => pairs.push((name.value, text.to_string(), value.span())),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => file.error(&value.span(), &name.key, "must be a string"),
        }
    }
    pairs
}

fn era(table: &mut Table<'_, '_>, file: &mut File<'_>) -> EraChoice {
    let era = table.text(file, "era");
    let protocol = table.text(file, "protocol");
    if let Some(protocol) = protocol {
        return match ProtocolVersion::from_text(&protocol.value).map(ProtocolVersion::era) {
            Some(Era::Stateless) => EraChoice::Stateless,
            Some(Era::Legacy) => EraChoice::Legacy,
            None => {
                file.error(&protocol.span, &protocol.key, "is no protocol version that is served");
                EraChoice::Auto
            }
        };
    }
    match era.as_ref().map(|era| era.value.as_str()) {
        None | Some("auto") => EraChoice::Auto,
        Some("legacy") => EraChoice::Legacy,
        Some("stateless") => EraChoice::Stateless,
        Some(_) => {
            if let Some(era) = era {
                file.error(&era.span, &era.key, "must be 'auto', 'legacy' or 'stateless'");
            }
            EraChoice::Auto
        }
    }
}

fn on_down(table: &mut Table<'_, '_>, file: &mut File<'_>) -> OnDown {
    match table.text(file, "on_down") {
        None => OnDown::Keep,
        Some(text) if text.value == "keep" => OnDown::Keep,
        Some(text) if text.value == "hide" => OnDown::Hide,
        Some(text) => {
            file.error(&text.span, &text.key, "must be 'keep' or 'hide'");
            OnDown::Keep
        }
    }
}
