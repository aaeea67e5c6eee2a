//! Writes drafts into our own file: a new one, or one that exists, whose other bytes stay.
//!
//! Invariant: a secret goes into a file of its own and its reference into the text, never the secret itself.

use std::collections::BTreeMap;

use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use crate::id::UpstreamName;
use crate::secret::Secret;

use super::draft::{Draft, DraftTransport, Import, Named, Piece};
use super::tables::{self, array, table_in};

/// The folder of secrets, beside the configuration.
const SECRETS: &str = "secrets";
/// The bundle of everything that is imported.
const BUNDLE: &str = "imported";
/// What a new file begins with.
const HEADER: &str = "# Made by `portcullis import`. Values that may be secret stand in secrets/, one file each.\n\n";

/// Who may use what is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Those that the file itself names (ZeroClaw's agents).
    AsTheFileSays,
    /// One principal.
    To(String),
}

/// A secret and where it goes.
#[derive(Clone, Debug)]
pub struct SecretFile {
    /// The path below the configuration's folder.
    pub path: String,
    /// What it holds.
    pub value: Secret<String>,
}

/// What is to be written.
#[derive(Debug)]
pub struct Written {
    /// The whole configuration.
    pub text: String,
    /// The secrets that it refers to.
    pub secrets: Vec<SecretFile>,
}

/// A configuration for a trial: it names no file, its secrets are variables that exist nowhere else.
#[derive(Debug)]
pub struct Trial {
    /// The configuration.
    pub text: String,
    /// The variables.
    pub variables: BTreeMap<String, Secret<String>>,
}

/// Why our file cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Something of that name is there already.
    #[error("{0} is there already: rename it in one of the two files")]
    Exists(String),
    /// The file is none.
    #[error("{0}")]
    Syntax(String),
    /// Something else stands where a table must be.
    #[error("{0} must be written as a table of its own ([{0}])")]
    Table(String),
}

/// A server of our own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// Its name.
    pub name: String,
    command: Option<String>,
    args: Vec<String>,
    url: Option<String>,
}

impl Existing {
    pub(super) fn slug(&self) -> String {
        UpstreamName::new(&self.name).map_or_else(|_| self.name.clone(), |name| name.slug())
    }

    /// Says whether a draft is this server: the same command and arguments, or the same URL.
    pub(super) fn is(&self, name: &UpstreamName, transport: &DraftTransport) -> bool {
        match transport {
            DraftTransport::Http { url, .. } => self.url.as_deref() == Some(text_of(url, name).as_str()),
            DraftTransport::Stdio { command, args, .. } => self.command.as_ref() == Some(command) && self.args == *args,
        }
    }
}

/// Reads the servers of our own file.
///
/// # Errors
/// [`WriteError::Syntax`].
pub fn existing(text: &str) -> Result<Vec<Existing>, WriteError> {
    let (document, _) = tables::parse(text).map_err(WriteError::Syntax)?;
    let servers = document.get("mcp").and_then(Item::as_table_like).and_then(|mcp| mcp.get("servers"));
    let read = |table: &dyn TableLike| {
        let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
        let args = table.get("args").and_then(Item::as_array);
        Existing {
            name: text("name").unwrap_or_default(),
            command: text("command"),
            args: args.into_iter().flatten().filter_map(|arg| arg.as_str().map(str::to_owned)).collect(),
            url: text("url"),
        }
    };
    let tables = servers.and_then(Item::as_array_of_tables).into_iter().flatten().map(|table| read(table));
    let inline = servers.and_then(Item::as_array).into_iter().flatten().filter_map(Value::as_inline_table);
    Ok(tables.chain(inline.map(|table| read(table))).collect())
}

/// Returns a configuration of the servers that are new, in their order and alone, for a trial.
#[must_use]
pub fn trial(import: &Import) -> Trial {
    let mut variables = BTreeMap::new();
    let mut document = DocumentMut::new();
    let mut list = ArrayOfTables::new();
    let drafts: Vec<_> = import.drafts.iter().filter(|draft| !draft.already).collect();
    for draft in &drafts {
        list.push(server(draft, &mut |_, value| {
            let name = format!("PORTCULLIS_TRIAL_{}", variables.len());
            variables.insert(name.clone(), value.clone());
            format!("${{env:{name}}}")
        }));
    }
    let mut mcp = Table::new();
    mcp.set_implicit(true);
    mcp.insert("servers", Item::ArrayOfTables(list));
    document.insert("mcp", Item::Table(mcp));
    // Nobody comes in, and nobody is asked.
    let mut listen = Table::new();
    listen.insert("auth", toml_edit::value("none"));
    document.insert("listen", Item::Table(listen));
    let mut principals = Table::new();
    principals.insert("local", Item::Table(Table::new()));
    document.insert("principals", Item::Table(principals));
    Trial { text: document.to_string(), variables }
}

/// Writes the servers, their bundle and who may use them into `text`, or into a new file.
///
/// # Errors
/// [`WriteError`]; nothing is written anywhere by this function.
pub fn write(text: Option<&str>, import: &Import, grant: &Grant) -> Result<Written, WriteError> {
    let (mut document, layout) = tables::parse(text.unwrap_or_default()).map_err(WriteError::Syntax)?;
    let root = document.as_table_mut();
    let mut secrets = Vec::new();
    let mcp = table_in(root, "mcp").ok_or_else(|| WriteError::Table("mcp".to_owned()))?;
    let list = mcp.entry("servers").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let list = list.as_array_of_tables_mut().ok_or_else(|| WriteError::Table("[mcp.servers]".to_owned()))?;
    for draft in import.drafts.iter().filter(|draft| !draft.already) {
        list.push(server(draft, &mut |path, value| {
            secrets.push(SecretFile { path: path.to_owned(), value: value.clone() });
            format!("${{file:{path}}}")
        }));
    }
    match grant {
        Grant::To(principal) => {
            let bundles = table_in(root, "mcp_bundles").ok_or_else(|| WriteError::Table("mcp_bundles".to_owned()))?;
            let names = import.drafts.iter().map(|draft| draft.name.as_str());
            add(entry(bundles, BUNDLE, "mcp_bundles")?, "servers", names)?;
            let principals = table_in(root, "principals").ok_or_else(|| WriteError::Table("principals".to_owned()))?;
            add(entry(principals, principal, "principals")?, "mcp_bundles", [BUNDLE])?;
        }
        Grant::AsTheFileSays => as_the_file_says(root, import)?,
    }
    let header = if text.is_none() { HEADER } else { "" };
    Ok(Written { text: format!("{header}{}", layout.restore(&document)), secrets })
}

/// Finds or makes a table in a table of tables.
fn entry<'t>(parent: &'t mut Table, key: &str, path: &str) -> Result<&'t mut dyn TableLike, WriteError> {
    let item = parent.entry(key).or_insert_with(|| Item::Table(Table::new()));
    item.as_table_like_mut().ok_or_else(|| WriteError::Table(format!("{path}.{key}")))
}

/// Adds texts to a list that may be missing; none twice.
fn add<'n>(table: &mut dyn TableLike, key: &str, names: impl IntoIterator<Item = &'n str>) -> Result<(), WriteError> {
    if !table.contains_key(key) {
        table.insert(key, Item::Value(array([])));
    }
    let list = table.get_mut(key).and_then(Item::as_array_mut);
    let list = list.ok_or_else(|| WriteError::Syntax(format!("{key} must be a list")))?;
    for name in names {
        if !list.iter().any(|item| item.as_str() == Some(name)) {
            list.push(name);
        }
    }
    Ok(())
}

fn as_the_file_says(root: &mut Table, import: &Import) -> Result<(), WriteError> {
    let fresh = |parent: &Table, what: &str, name: &str| {
        if parent.contains_key(name) { Err(WriteError::Exists(format!("{what} '{name}'"))) } else { Ok(()) }
    };
    let bundles = table_in(root, "mcp_bundles").ok_or_else(|| WriteError::Table("mcp_bundles".to_owned()))?;
    for bundle in &import.bundles {
        fresh(bundles, "bundle", &bundle.name)?;
        let mut table = Table::new();
        table.insert("servers", Item::Value(array(bundle.servers.iter().map(String::as_str))));
        if !bundle.exclude.is_empty() {
            table.insert("exclude", Item::Value(array(bundle.exclude.iter().map(String::as_str))));
        }
        bundles.insert(&bundle.name, Item::Table(table));
    }
    let policies = table_in(root, "policies").ok_or_else(|| WriteError::Table("policies".to_owned()))?;
    for policy in &import.policies {
        fresh(policies, "policy", &policy.name)?;
        let mut table = Table::new();
        if !policy.allowed.is_empty() {
            table.insert("allowed_tools", Item::Value(array(policy.allowed.iter().map(String::as_str))));
        }
        if policy.auto_admit {
            table.insert("auto_admit_mcp_tools", toml_edit::value(true));
        }
        if !policy.excluded.is_empty() {
            table.insert("excluded_tools", Item::Value(array(policy.excluded.iter().map(String::as_str))));
        }
        if policy.deny_all {
            table.insert("deny_all_tools", toml_edit::value(true));
        }
        let later: String = policy.later.iter().map(|line| format!("# with a later version: {line}\n")).collect();
        table.decor_mut().set_prefix(format!("\n{later}"));
        policies.insert(&policy.name, Item::Table(table));
    }
    let principals = table_in(root, "principals").ok_or_else(|| WriteError::Table("principals".to_owned()))?;
    for agent in &import.agents {
        fresh(principals, "principal", &agent.name)?;
        let mut table = Table::new();
        table.insert("mcp_bundles", Item::Value(array(agent.bundles.iter().map(String::as_str))));
        if let Some(policy) = &agent.policy {
            table.insert("policy", toml_edit::value(policy.as_str()));
        }
        principals.insert(&agent.name, Item::Table(table));
    }
    // Several principals are told apart by their keys.
    let listen = table_in(root, "listen").ok_or_else(|| WriteError::Table("listen".to_owned()))?;
    if !listen.contains_key("auth") {
        listen.insert("auth", toml_edit::value("keys"));
        listen.set_implicit(false);
    }
    Ok(())
}

/// Writes one server; `secret` keeps a secret and returns the reference to it.
fn server(draft: &Draft, secret: &mut dyn FnMut(&str, &Secret<String>) -> String) -> Table {
    let mut table = Table::new();
    table.insert("name", toml_edit::value(draft.name.as_str()));
    if !draft.enabled {
        table.insert("enabled", toml_edit::value(false));
    }
    let mut text = |pieces: &[Piece]| render(pieces, &draft.name, secret);
    let mut values = |list: &[Named]| {
        let mut inline = InlineTable::new();
        for (name, pieces) in list {
            inline.insert(name, Value::from(text(pieces)));
        }
        Item::Value(Value::InlineTable(inline))
    };
    match &draft.transport {
        DraftTransport::Http { url, headers } => {
            if !headers.is_empty() {
                table.insert("headers", values(headers));
            }
            let url = render(url, &draft.name, secret);
            table.insert("url", toml_edit::value(url));
        }
        DraftTransport::Stdio { command, args, env, inherit_env, cwd } => {
            table.insert("command", toml_edit::value(command.as_str()));
            if !args.is_empty() {
                table.insert("args", Item::Value(array(args.iter().map(String::as_str))));
            }
            if let Some(cwd) = cwd {
                table.insert("cwd", toml_edit::value(cwd.as_str()));
            }
            if !env.is_empty() {
                table.insert("env", values(env));
            }
            if !inherit_env.is_empty() {
                table.insert("inherit_env", Item::Value(array(inherit_env.iter().map(String::as_str))));
            }
        }
    }
    if let Some(secs) = draft.tool_timeout_secs.and_then(|secs| i64::try_from(secs).ok()) {
        table.insert("tool_timeout_secs", toml_edit::value(secs));
    }
    table
}

fn render(pieces: &[Piece], name: &UpstreamName, secret: &mut dyn FnMut(&str, &Secret<String>) -> String) -> String {
    let (mut out, mut literal) = (String::new(), String::new());
    for piece in pieces {
        let reference = match piece {
            Piece::Env { name, .. } => format!("${{env:{name}}}"),
            // An empty value is no secret, and no file may be empty.
            Piece::Secret { value, .. } if value.expose().is_empty() => continue,
            Piece::Secret { file, value } => secret(&format!("{SECRETS}/{name}/{file}"), value),
            Piece::Text(text) => {
                literal.push_str(text);
                continue;
            }
        };
        out.push_str(&escaped(&std::mem::take(&mut literal), true));
        out.push_str(&reference);
    }
    out + &escaped(&literal, false)
}

/// Spells a literal text so that it is read as itself, in front of a reference or of nothing: before '{' each '$' is two.
fn escaped(text: &str, before_reference: bool) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('$') {
        let beyond = after.trim_start_matches('$');
        let run = rest.get(before.len()..rest.len() - beyond.len()).unwrap_or_default();
        let twice = beyond.starts_with('{') || (beyond.is_empty() && before_reference);
        [before, run, if twice { run } else { "" }].iter().for_each(|part| out.push_str(part));
        rest = beyond;
    }
    out.push_str(rest);
    out
}

/// The text that a value has in our file.
fn text_of(pieces: &[Piece], name: &UpstreamName) -> String {
    render(pieces, name, &mut |path, _| format!("${{file:{path}}}"))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
