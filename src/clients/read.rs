//! Finds out what a file is, and reads its entries [CFG-6].

use std::fmt;

use jsonc_parser::ast::{Object, Value};

use super::zeroclaw::{self, ZeroClaw};
use super::{Client, Entry, Syntax, jsonc, tables};

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `[mcp_servers.NAME]` of Codex.
    Codex,
    /// `context_servers` of Zed.
    ContextServers,
    /// The inner object alone: servers by name.
    Inner,
    /// `mcpServers` of Claude Desktop, Claude Code, Cursor and others.
    McpServers,
    /// `servers` of VS Code.
    Servers,
    /// `[[mcp.servers]]` with bundles, agents and risk profiles of ZeroClaw.
    ZeroClaw,
}

/// What a file holds.
#[derive(Debug)]
pub struct Found {
    /// What kind of file it is.
    pub format: Format,
    /// Its servers, in order.
    pub entries: Vec<Entry>,
    /// What a person should know about the file as a whole.
    pub notes: Vec<String>,
    /// Who uses the servers, where the file says so.
    pub zeroclaw: Option<ZeroClaw>,
}

/// A file cannot be read; the text says why and shows nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Codex => "mcp_servers of Codex",
            Self::ContextServers => "context_servers of Zed",
            Self::Inner => "servers by name",
            Self::McpServers => "mcpServers",
            Self::Servers => "servers of VS Code",
            Self::ZeroClaw => "a configuration of ZeroClaw",
        })
    }
}

/// Reads a file of any known kind.
///
/// # Errors
/// [`ReadError`] if it is none.
pub fn read(text: &str) -> Result<Found, ReadError> {
    // JSON begins with a brace or a comment; a TOML table with a bracket, and its comments with '#'.
    let first = text.trim_start_matches('\u{feff}').trim_start().chars().next();
    if matches!(first, Some('{' | '/')) { read_json(text) } else { read_toml(text) }.map_err(ReadError)
}

/// Reads the entries of a client's own file; an empty file has none.
///
/// # Errors
/// [`ReadError`] if it is not that client's.
pub fn read_client(client: Client, text: &str) -> Result<Vec<Entry>, ReadError> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(Vec::new());
    }
    let entries = match client.syntax() {
        Syntax::Jsonc => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            jsonc::parse(text).and_then(|root| match object(&root, client.member())? {
                Some(servers) => jsonc::entries(servers),
                None => Ok(Vec::new()),
            })
        }
        Syntax::Toml => tables::parse(text).map(|(document, _)| {
            document.get(client.member()).and_then(|item| item.as_table_like()).map(tables::entries).unwrap_or_default()
        }),
    };
    entries.map_err(ReadError)
}

fn object<'o, 'a>(parent: &'o Object<'a>, name: &str) -> Result<Option<&'o Object<'a>>, String> {
    match jsonc::member(parent, name)?.map(|property| &property.value) {
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("member '{name}' is no object")),
        None => Ok(None),
    }
}

fn read_json(text: &str) -> Result<Found, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = jsonc::parse(text)?;
    let mut found = Vec::new();
    for (name, format) in
        [("mcpServers", Format::McpServers), ("servers", Format::Servers), ("context_servers", Format::ContextServers)]
    {
        if let Some(servers) = object(&root, name)? {
            found.push((servers, format));
        }
    }
    // VS Code's settings of before mcp.json.
    if found.is_empty()
        && let Some(mcp) = object(&root, "mcp")?
        && let Some(servers) = object(mcp, "servers")?
    {
        found.push((servers, Format::Servers));
    }
    if found.is_empty() && is_inner(&root) {
        found.push((&root, Format::Inner));
    }
    let (servers, format) = match found.as_slice() {
        [one] => *one,
        [] => return Err("holds no mcpServers, servers or context_servers".to_owned()),
        _ => return Err("holds servers under two names: import them from two files".to_owned()),
    };
    let mut notes = Vec::new();
    if let Some(projects) = object(&root, "projects").ok().flatten() {
        let own = |project: &Value<'_>| Some(object(project.as_object()?, "mcpServers").ok()??.properties.len());
        let count: usize = projects.properties.iter().filter_map(|project| own(&project.value)).sum();
        if count > 0 {
            notes.push(format!("{count} servers of single projects are not imported"));
        }
    }
    Ok(Found { format, entries: jsonc::entries(servers)?, notes, zeroclaw: None })
}

/// Servers by name: every member is an object with a command or a URL.
fn is_inner(root: &Object<'_>) -> bool {
    let server = |value: &Value<'_>| {
        let keys = ["command", "url", "serverUrl", "httpUrl"];
        value.as_object().is_some_and(|object| keys.iter().any(|key| object.get(key).is_some()))
    };
    !root.properties.is_empty() && root.properties.iter().all(|property| server(&property.value))
}

fn read_toml(text: &str) -> Result<Found, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document: toml_edit::DocumentMut = text.parse().map_err(|_| "is neither JSON nor TOML".to_owned())?;
    if let Some(servers) = document.get(Client::Codex.member()).and_then(|item| item.as_table_like()) {
        let entries = tables::entries(servers);
        return Ok(Found { format: Format::Codex, entries, notes: Vec::new(), zeroclaw: None });
    }
    if is_ours(&document) {
        return Err(
            "is a configuration of Portcullis already, there is nothing to import: name it with --config".to_owned()
        );
    }
    let Some((entries, zeroclaw)) = zeroclaw::read(&document) else {
        return Err("holds no mcp_servers (Codex) and no [[mcp.servers]] (ZeroClaw)".to_owned());
    };
    Ok(Found { format: Format::ZeroClaw, entries, notes: Vec::new(), zeroclaw: Some(zeroclaw) })
}

/// ZeroClaw's file has our `[[mcp.servers]]` and `[mcp_bundles]`, and says otherwise who may use them.
fn is_ours(document: &toml_edit::DocumentMut) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| document.contains_key(key));
    has(&["listen", "policies", "principals"]) && !has(&["agent", "agents", "risk_profiles"])
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
