//! TOML of other programs: entries read from tables, and one table replaced in place.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

use crate::secret::Secret;

use super::entry::{Entry, Parts};

/// Keys by which an entry says how its server is reached; all others belong to the client.
pub(super) const REACH: &[&str] = &[
    "args",
    "bearer_token",
    "bearer_token_env_var",
    "command",
    "cwd",
    "env",
    "env_http_headers",
    "env_vars",
    "experimental_environment",
    "http_headers",
    "oauth",
    "oauth_resource",
    "scopes",
    "url",
];

/// Parses a file whose bytes can be kept; line ends of another system are put back by [`Layout::restore`].
pub(super) fn parse(text: &str) -> Result<(DocumentMut, Layout), String> {
    let (mark, rest) = text.strip_prefix('\u{feff}').map_or((false, text), |rest| (true, rest));
    let document: DocumentMut = rest.parse().map_err(|err: toml_edit::TomlError| place(&err, rest))?;
    let crlf = rest.contains("\r\n");
    let layout = Layout { mark, crlf };
    if layout.restore(&document) != text {
        return Err("mixes line ends, so that an edit would change more than its entry".to_owned());
    }
    Ok((document, layout))
}

/// Where a file does not parse, without showing its text: it may hold secrets.
fn place(err: &toml_edit::TomlError, text: &str) -> String {
    let start = err.span().map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or(text).matches('\n').count() + 1;
    format!("is no TOML: {} on line {line}", err.message())
}

/// What `toml_edit` does not keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    mark: bool,
    crlf: bool,
}

impl Layout {
    /// Writes a document as its file was.
    pub(super) fn restore(self, document: &DocumentMut) -> String {
        let mut text = document.to_string();
        if self.crlf {
            text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        if self.mark { format!("\u{feff}{text}") } else { text }
    }
}

/// Reads every entry of a table of servers by name.
pub(super) fn entries(servers: &dyn TableLike) -> Vec<Entry> {
    servers.iter().map(|(name, item)| entry(name, item)).collect()
}

/// Reads one entry.
pub(super) fn entry(name: &str, item: &Item) -> Entry {
    let mut parts = Parts::default();
    match item.as_table_like() {
        Some(table) => read(table, &mut parts),
        None => parts.wrong("it is no table".to_owned()),
    }
    parts.finish(name)
}

fn read(table: &dyn TableLike, parts: &mut Parts) {
    for (key, item) in table.iter() {
        match key {
            "name" => {}
            "transport" | "type" => parts.kind = text(item, key, parts),
            "command" => parts.command = text(item, key, parts).filter(|text| !text.is_empty()),
            "args" => parts.args = texts(item, key, parts),
            "cwd" => parts.cwd = text(item, key, parts),
            "env" => parts.env = secrets(item, key, parts),
            "env_vars" => parts.inherit_env = variables(item, parts),
            "url" => parts.url = text(item, key, parts).filter(|text| !text.is_empty()).map(Secret::new),
            "headers" | "http_headers" => {
                let headers = secrets(item, key, parts);
                parts.headers.extend(headers);
            }
            "env_http_headers" => {
                let headers = secrets(item, key, parts);
                let refer = |(header, variable): (String, Secret<String>)| {
                    (header, Secret::new(format!("${{env:{}}}", variable.expose())))
                };
                parts.headers.extend(headers.into_iter().map(refer));
            }
            "bearer_token_env_var" => {
                if let Some(variable) = text(item, key, parts) {
                    let value = Secret::new(format!("Bearer ${{env:{variable}}}"));
                    parts.headers.push(("Authorization".to_owned(), value));
                }
            }
            "bearer_token" => {
                if let Some(token) = text(item, key, parts) {
                    parts.headers.push(("Authorization".to_owned(), Secret::new(format!("Bearer {token}"))));
                }
            }
            "enabled" => parts.disabled |= item.as_bool() == Some(false),
            "tool_timeout_sec" | "tool_timeout_secs" => parts.tool_timeout_secs = whole(item),
            _ => parts.unused.push(key.to_owned()),
        }
    }
}

fn whole(item: &Item) -> Option<u64> {
    let number = item.as_integer().or_else(|| {
        // Codex takes parts of a second; more is kinder than less.
        let text = item.as_float()?.ceil().to_string();
        text.parse().ok()
    })?;
    u64::try_from(number).ok()
}

fn text(item: &Item, key: &str, parts: &mut Parts) -> Option<String> {
    let text = item.as_str();
    if text.is_none() {
        parts.wrong(format!("its {key} is no text"));
    }
    text.map(str::to_owned)
}

fn texts(item: &Item, key: &str, parts: &mut Parts) -> Vec<String> {
    let list: Option<Vec<String>> =
        item.as_array().and_then(|list| list.iter().map(|item| Some(item.as_str()?.to_owned())).collect());
    list.unwrap_or_else(|| {
        parts.wrong(format!("its {key} is no list of texts"));
        Vec::new()
    })
}

/// Codex's `env_vars`: a name, or a table with one and where its value comes from.
fn variables(item: &Item, parts: &mut Parts) -> Vec<String> {
    let mut names = Vec::new();
    for item in item.as_array().into_iter().flatten() {
        let table = item.as_inline_table();
        let text = |key: &str| table.and_then(|table| table.get(key)).and_then(Value::as_str);
        match item.as_str().or_else(|| text("name")) {
            Some(name) if matches!(text("source"), None | Some("local")) => names.push(name.to_owned()),
            Some(name) => parts.unused.push(format!("env_vars {name}")),
            None => parts.wrong("its env_vars is no list of names".to_owned()),
        }
    }
    if item.as_array().is_none() {
        parts.wrong("its env_vars is no list of names".to_owned());
    }
    names
}

fn secrets(item: &Item, key: &str, parts: &mut Parts) -> Vec<(String, Secret<String>)> {
    let Some(table) = item.as_table_like() else {
        parts.wrong(format!("its {key} is no table"));
        return Vec::new();
    };
    let mut found = Vec::new();
    for (name, item) in table.iter() {
        match item.as_str() {
            Some(value) => found.push((name.to_owned(), Secret::new(value.to_owned()))),
            None => parts.wrong(format!("its {key} '{}' is no text", name.escape_debug())),
        }
    }
    found
}

/// Makes an array of texts.
pub(super) fn array<'t>(texts: impl IntoIterator<Item = &'t str>) -> Value {
    Value::Array(texts.into_iter().collect::<Array>())
}

/// Finds or makes a table; `None` where something else stands there.
pub(super) fn table_in<'t>(parent: &'t mut Table, key: &str) -> Option<&'t mut Table> {
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_mut()
}
