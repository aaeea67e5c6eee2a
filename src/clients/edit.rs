//! Entries of a client's file that run `portcullis` in place of what stood there, and back again [OPS-11].
//!
//! Invariants: every byte outside the edited entries stays; keys of an entry that belong to the client (approvals, time-outs,
//! lists of tools) stay in it.

use jsonc_parser::ast::{Object, Value};
use toml_edit::{Item, Table};

use super::jsonc::{self, Change, quoted};
use super::tables::{self, array};
use super::{Client, Passing, Syntax};

/// How an entry reaches the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// By a program.
    Program {
        /// The program.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it needs, and how the client refers to each.
        variables: Vec<(String, String)>,
    },
    /// By a URL.
    Url(String),
}

/// One entry that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Its key in the client's file.
    pub name: String,
    /// What it does from now on.
    pub launch: Launch,
}

/// Writes entries into a client's file; those that exist keep what is the client's own.
///
/// # Errors
/// Why the file cannot be edited.
pub fn edit(client: Client, text: &str, edits: &[Edit]) -> Result<String, String> {
    match client.syntax() {
        Syntax::Jsonc => edit_json(client, text, edits),
        Syntax::Toml => edit_toml(client, text, edits),
    }
}

/// Puts back the entries of `before` that `after` had changed, into a file that has changed since.
///
/// Returns the text, and the names of entries that somebody has changed and that are therefore left alone.
///
/// # Errors
/// Why the file cannot be edited.
pub fn undo_entries(client: Client, before: &str, after: &str, now: &str) -> Result<(String, Vec<String>), String> {
    match client.syntax() {
        Syntax::Jsonc => undo_json(client, before, after, now),
        Syntax::Toml => undo_toml(client, before, after, now),
    }
}

// === JSON ===

fn edit_json(client: Client, text: &str, edits: &[Edit]) -> Result<String, String> {
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = if plain.trim().is_empty() { None } else { Some(jsonc::parse(plain)?) };
    let servers = root.as_ref().map(|root| servers_of(client, root)).transpose()?.flatten();
    let changes = edits.iter().map(|edit| {
        let property = servers.map(|servers| jsonc::member(servers, &edit.name)).transpose()?.flatten();
        let original = property.and_then(|property| {
            let object = property.value.as_object()?;
            Some(Original { text: plain, object, start: property.range.start })
        });
        Ok((edit.name.clone(), Change::Set(value(client, original.as_ref(), &edit.launch)?)))
    });
    let changes = changes.collect::<Result<Vec<_>, String>>()?;
    jsonc::change(text, client.member(), &changes)
}

fn servers_of<'o, 'a>(client: Client, root: &'o Object<'a>) -> Result<Option<&'o Object<'a>>, String> {
    match jsonc::member(root, client.member())?.map(|property| &property.value) {
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("member '{}' is no object", client.member())),
        None => Ok(None),
    }
}

/// An entry as it stands.
struct Original<'t, 'o, 'a> {
    text: &'t str,
    object: &'o Object<'a>,
    start: usize,
}

fn value(client: Client, original: Option<&Original<'_, '_, '_>>, launch: &Launch) -> Result<String, String> {
    let mut members: Vec<(String, String)> = Vec::new();
    let words = client.type_words();
    match launch {
        Launch::Program { program, args, variables } => {
            members.extend(words.map(|(word, _)| ("type".to_owned(), quoted(word))));
            let args = args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(", ");
            let nested = original.and_then(|original| original.object.get("command"));
            if matches!(nested.map(|nested| &nested.value), Some(Value::Object(_))) {
                // A version of Zed that wrote this reads this.
                let command = format!("{{\n\t\"path\": {},\n\t\"args\": [{args}]\n}}", quoted(program));
                members.push(("command".to_owned(), command.replace('\n', "\n\t")));
            } else {
                members.push(("command".to_owned(), quoted(program)));
                members.push(("args".to_owned(), format!("[{args}]")));
                if client.passing() == Passing::References && !variables.is_empty() {
                    let pairs = variables.iter().map(|(name, value)| format!("{}: {}", quoted(name), quoted(value)));
                    let pairs = pairs.collect::<Vec<_>>().join(", ");
                    members.push(("env".to_owned(), format!("{{ {pairs} }}")));
                }
            }
        }
        Launch::Url(url) => {
            members.extend(words.map(|(_, word)| ("type".to_owned(), quoted(word))));
            members.push(("url".to_owned(), quoted(url)));
        }
    }
    if let Some(original) = original {
        let indent = jsonc::indent_at(original.text, original.start);
        for property in &original.object.properties {
            let key = property.name.as_str();
            jsonc::member(original.object, key)?;
            if !jsonc::REACH.contains(&key) {
                let raw = jsonc::raw(original.text, property);
                members.push((key.to_owned(), raw.replace("\r\n", "\n").replace(&format!("\n{indent}"), "\n")));
            }
        }
    }
    let members = members.iter().map(|(key, value)| format!("\t{}: {value}", quoted(key)));
    Ok(format!("{{\n{}\n}}", members.collect::<Vec<_>>().join(",\n")))
}

fn undo_json(client: Client, before: &str, after: &str, now: &str) -> Result<(String, Vec<String>), String> {
    let plain = |text: &str| text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
    let (before, after, current) = (plain(before), plain(after), plain(now));
    let old_root = if before.trim().is_empty() { None } else { Some(jsonc::parse(&before)?) };
    let (new_root, now_root) = (jsonc::parse(&after)?, jsonc::parse(&current)?);
    let old = old_root.as_ref().map(|root| servers_of(client, root)).transpose()?.flatten();
    let (Some(new), Some(there)) = (servers_of(client, &new_root)?, servers_of(client, &now_root)?) else {
        return Ok((now.to_owned(), Vec::new()));
    };
    let (mut changes, mut left) = (Vec::new(), Vec::new());
    for ours in &new.properties {
        let name = ours.name.as_str();
        let original = old.map(|old| jsonc::member(old, name)).transpose()?.flatten();
        let untouched = original.is_some_and(|original| jsonc::raw(&before, original) == jsonc::raw(&after, ours));
        let Some(present) = jsonc::member(there, name)?.filter(|_| !untouched) else { continue };
        if !same(&present.value, &ours.value) {
            left.push(name.to_owned());
            continue;
        }
        let change = original.map_or(Change::Remove, |original| {
            let indent = jsonc::indent_at(&before, original.range.start);
            let raw = jsonc::raw(&before, original).replace("\r\n", "\n");
            Change::Set(raw.replace(&format!("\n{indent}"), "\n"))
        });
        changes.push((name.to_owned(), change));
    }
    Ok((jsonc::change(now, client.member(), &changes)?, left))
}

/// Says whether two values are the same, however they are laid out; members may stand in any order.
fn same(one: &Value<'_>, two: &Value<'_>) -> bool {
    match (one, two) {
        (Value::StringLit(one), Value::StringLit(two)) => one.value == two.value,
        (Value::NumberLit(one), Value::NumberLit(two)) => one.value == two.value,
        (Value::BooleanLit(one), Value::BooleanLit(two)) => one.value == two.value,
        (Value::NullKeyword(_), Value::NullKeyword(_)) => true,
        (Value::Array(one), Value::Array(two)) => {
            one.elements.len() == two.elements.len()
                && one.elements.iter().zip(&two.elements).all(|(one, two)| same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.properties.len() == two.properties.len()
                && one.properties.iter().all(|property| {
                    two.get(property.name.as_str()).is_some_and(|other| same(&property.value, &other.value))
                })
        }
        _ => false,
    }
}

// === TOML ===

fn edit_toml(client: Client, text: &str, edits: &[Edit]) -> Result<String, String> {
    let (mut document, layout) = tables::parse(text)?;
    let servers = tables::table_in(document.as_table_mut(), client.member());
    let servers = servers.ok_or_else(|| format!("[{}] must be a table", client.member()))?;
    for edit in edits {
        let item = servers.entry(&edit.name).or_insert_with(|| Item::Table(Table::new()));
        let Some(table) = item.as_table_like_mut() else { return Err(format!("entry '{}' is no table", edit.name)) };
        for key in tables::REACH {
            table.remove(key);
        }
        match &edit.launch {
            Launch::Program { program, args, variables } => {
                table.insert("command", toml_edit::value(program.as_str()));
                table.insert("args", Item::Value(array(args.iter().map(String::as_str))));
                if client.passing() == Passing::Names && !variables.is_empty() {
                    table.insert("env_vars", Item::Value(array(variables.iter().map(|(name, _)| name.as_str()))));
                }
            }
            Launch::Url(url) => {
                table.insert("url", toml_edit::value(url.as_str()));
            }
        }
    }
    Ok(layout.restore(&document))
}

fn undo_toml(client: Client, before: &str, after: &str, now: &str) -> Result<(String, Vec<String>), String> {
    let (before, _) = tables::parse(before)?;
    let (after, _) = tables::parse(after)?;
    let (mut document, layout) = tables::parse(now)?;
    let of = |item: Option<&Item>, name: &str| -> Option<Item> { Some(item?.as_table_like()?.get(name)?.clone()) };
    let names: Vec<String> = after
        .get(client.member())
        .and_then(Item::as_table_like)
        .map(|servers| servers.iter().map(|(name, _)| name.to_owned()).collect())
        .unwrap_or_default();
    let mut left = Vec::new();
    let Some(servers) = document.get_mut(client.member()).and_then(Item::as_table_like_mut) else {
        return Ok((now.to_owned(), left));
    };
    for name in names {
        let (old, ours) = (of(before.get(client.member()), &name), of(after.get(client.member()), &name));
        let plain = |item: Option<&Item>| item.map(plain_text);
        let Some(present) = servers.get(&name).filter(|_| plain(old.as_ref()) != plain(ours.as_ref())) else {
            continue;
        };
        if Some(plain_text(present)) != plain(ours.as_ref()) {
            left.push(name);
            continue;
        }
        match old {
            Some(old) => servers.insert(&name, old),
            None => servers.remove(&name),
        };
    }
    Ok((layout.restore(&document), left))
}

/// An item's content, without its place and comments.
fn plain_text(item: &Item) -> String {
    let mut document = toml_edit::DocumentMut::new();
    document.insert("x", item.clone());
    document.to_string().parse::<toml::Table>().map(|table| table.to_string()).unwrap_or_default()
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
