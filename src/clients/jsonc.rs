//! JSON with comments: entries read from it, and members replaced in it by byte range.
//!
//! Invariant: an edit changes the range of a member's value, or inserts or removes one member; every other byte stays.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::secret::Secret;

use super::entry::{Entry, Parts};

/// Keys by which an entry says how its server is reached; all others belong to the client.
pub(super) const REACH: &[&str] = &[
    "args",
    "auth",
    "command",
    "cwd",
    "env",
    "envFile",
    "headers",
    "headersHelper",
    "httpUrl",
    "oauth",
    "serverUrl",
    "settings",
    "sandbox",
    "sandboxEnabled",
    "transport",
    "type",
    "url",
];

/// Parses a file; a byte order mark before it is no part of it.
pub(super) fn parse(text: &str) -> Result<Object<'_>, String> {
    let options = ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: true,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed =
        parse_to_ast(text, &CollectOptions::default(), &options).map_err(|err| format!("is no JSON: {err}"))?;
    match parsed.value {
        Some(Value::Object(object)) => Ok(object),
        Some(_) | None => Err("holds no JSON object".to_owned()),
    }
}

/// Finds a member; two of one name are an error, because two readers may take different ones.
pub(super) fn member<'o, 'a>(object: &'o Object<'a>, name: &str) -> Result<Option<&'o ObjectProp<'a>>, String> {
    let mut found = object.properties.iter().filter(|property| property.name.as_str() == name);
    let first = found.next();
    if found.next().is_some() {
        return Err(format!("has two members '{}'", name.escape_debug()));
    }
    Ok(first)
}

/// Reads every entry of an object of servers.
pub(super) fn entries(servers: &Object<'_>) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for property in &servers.properties {
        let name = property.name.as_str();
        member(servers, name)?;
        let mut parts = Parts::default();
        match property.value.as_object() {
            Some(object) => read(object, &mut parts),
            None => parts.wrong("it is no object".to_owned()),
        }
        entries.push(parts.finish(name));
    }
    Ok(entries)
}

fn read(object: &Object<'_>, parts: &mut Parts) {
    for property in &object.properties {
        let (key, value) = (property.name.as_str(), &property.value);
        if let Err(problem) = member(object, key) {
            parts.wrong(format!("it {problem}"));
        }
        match key {
            "type" | "transport" => parts.kind = text(value, key, parts),
            "command" => match value.as_object() {
                // Zed's older form.
                Some(nested) => read_nested(nested, parts),
                None => parts.command = text(value, key, parts),
            },
            "args" => parts.args = texts(value, key, parts),
            "env" => parts.env = secrets(value, key, parts),
            "envFile" => parts.env_file = text(value, key, parts),
            "cwd" => parts.cwd = text(value, key, parts),
            "url" | "serverUrl" | "httpUrl" => parts.url = text(value, key, parts).map(Secret::new),
            "headers" => parts.headers = secrets(value, key, parts),
            "disabled" => parts.disabled |= truth(value) == Some(true),
            "enabled" => parts.disabled |= truth(value) == Some(false),
            "source" => {
                parts.from_extension = matches!(value, Value::StringLit(text) if text.value == "extension");
            }
            _ => parts.unused.push(key.to_owned()),
        }
    }
}

fn read_nested(object: &Object<'_>, parts: &mut Parts) {
    for property in &object.properties {
        match property.name.as_str() {
            "path" => parts.command = text(&property.value, "path", parts),
            "args" => parts.args = texts(&property.value, "args", parts),
            "env" => parts.env = secrets(&property.value, "env", parts),
            other => parts.unused.push(format!("command.{other}")),
        }
    }
}

fn text(value: &Value<'_>, key: &str, parts: &mut Parts) -> Option<String> {
    let text = value.as_string_lit().map(|text| text.value.to_string());
    if text.is_none() && value.as_null_keyword().is_none() {
        parts.wrong(format!("its {key} is no text"));
    }
    text
}

fn texts(value: &Value<'_>, key: &str, parts: &mut Parts) -> Vec<String> {
    let array = value.as_array();
    if array.is_none() && value.as_null_keyword().is_none() {
        parts.wrong(format!("its {key} is no list"));
    }
    array.into_iter().flat_map(|array| &array.elements).filter_map(|item| text(item, key, parts)).collect()
}

fn secrets(value: &Value<'_>, key: &str, parts: &mut Parts) -> Vec<(String, Secret<String>)> {
    let object = value.as_object();
    if object.is_none() && value.as_null_keyword().is_none() {
        parts.wrong(format!("its {key} is no object"));
    }
    let Some(object) = object else { return Vec::new() };
    let mut found = Vec::new();
    for property in &object.properties {
        let name = property.name.as_str();
        let value = match &property.value {
            Value::StringLit(text) => text.value.to_string(),
            Value::NumberLit(number) => number.value.to_owned(),
            Value::BooleanLit(truth) => truth.value.to_string(),
            Value::NullKeyword(_) => continue,
            Value::Object(_) | Value::Array(_) => {
                parts.wrong(format!("its {key} '{}' is no text", name.escape_debug()));
                continue;
            }
        };
        found.push((name.to_owned(), Secret::new(value)));
    }
    found
}

fn truth(value: &Value<'_>) -> Option<bool> {
    value.as_boolean_lit().map(|truth| truth.value)
}

// === edits ===

/// What to do with one member of the object of servers.
#[derive(Debug)]
pub(super) enum Change {
    /// Gives it a value, as JSON text whose lines after the first are not indented yet.
    Set(String),
    /// Takes it away.
    Remove,
}

/// Changes members of the object that stands in the root's member `root`; makes it where it is missing.
pub(super) fn change(text: &str, root: &str, changes: &[(String, Change)]) -> Result<String, String> {
    let (mark, text) = text.strip_prefix('\u{feff}').map_or(("", text), |rest| ("\u{feff}", rest));
    let blank = text.trim().is_empty();
    let text = if blank { "{}\n" } else { text };
    let whole = parse(text)?;
    let style = Style::of(text, &whole);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    match member(&whole, root)?.map(|property| &property.value) {
        Some(Value::Object(servers)) => {
            let mut added = Vec::new();
            for (name, change) in changes {
                match (member(servers, name)?, change) {
                    (Some(property), Change::Set(value)) => {
                        let indent = indent_at(text, property.range.start);
                        edits.push((span(&property.value), style.indented(value, &indent)));
                    }
                    (Some(property), Change::Remove) => edits.push((removal(text, servers, property), String::new())),
                    (None, Change::Set(value)) => added.push((name.as_str(), value.as_str())),
                    (None, Change::Remove) => {}
                }
            }
            edits.extend(insertion(text, servers, &added, &style));
        }
        Some(_) => return Err(format!("member '{root}' is no object")),
        None => {
            let sets = changes.iter().filter_map(|(name, change)| match change {
                Change::Set(value) => Some(format!("{}: {value}", quoted(name))),
                Change::Remove => None,
            });
            let inner = sets.map(|set| style.unit.clone() + &style.indented(&set, &style.unit));
            let inner = inner.collect::<Vec<_>>().join(&format!(",{}", style.newline));
            let value = format!("{{{0}{inner}{0}}}", style.newline);
            edits.extend(insertion(text, &whole, &[(root, &value)], &style));
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut changed = String::with_capacity(text.len() + mark.len());
    changed.push_str(mark);
    let mut at = 0;
    for (range, value) in edits {
        changed.push_str(text.get(at..range.start).unwrap_or_default());
        changed.push_str(&value);
        at = range.end;
    }
    changed.push_str(text.get(at..).unwrap_or_default());
    Ok(changed)
}

/// Where new members go: after the last one, or right inside the brace.
fn insertion(text: &str, object: &Object<'_>, added: &[(&str, &str)], style: &Style) -> Option<(Range<usize>, String)> {
    if added.is_empty() {
        return None;
    }
    let outer = indent_at(text, object.range.start);
    let indent = object
        .properties
        .last()
        .map_or_else(|| format!("{outer}{}", style.unit), |last| indent_at(text, last.range.start));
    let members = added
        .iter()
        .map(|(name, value)| format!("{}{indent}{}: {}", style.newline, quoted(name), style.indented(value, &indent)));
    let members = members.collect::<Vec<_>>().join(",");
    Some(match object.properties.last() {
        Some(last) => (last.range.end..last.range.end, format!(",{members}")),
        None => {
            let end = object.range.end - 1;
            let inside = text.get(object.range.start + 1..end).unwrap_or_default();
            let at = object.range.start + 1;
            let close = if inside.contains('\n') { String::new() } else { format!("{}{outer}", style.newline) };
            (at..at, format!("{members}{close}"))
        }
    })
}

/// The range of a member with one comma of its neighbours.
fn removal(text: &str, object: &Object<'_>, property: &ObjectProp<'_>) -> Range<usize> {
    let at = object.properties.iter().position(|other| other.range == property.range);
    let before = at.and_then(|at| at.checked_sub(1)).and_then(|at| object.properties.get(at));
    let after = at.and_then(|at| object.properties.get(at + 1));
    match (before, after) {
        // From the end of the one before: its comma, and this member.
        (Some(before), _) => before.range.end..property.range.end,
        (None, Some(after)) => property.range.start..after.range.start,
        (None, None) => {
            let rest = text.get(property.range.end..object.range.end - 1).unwrap_or_default();
            // A trailing comma belongs to the member.
            let comma = rest.trim_start().starts_with(',').then(|| rest.find(',').map_or(0, |index| index + 1));
            let blank = text.get(..property.range.start).unwrap_or_default();
            let start = blank.trim_end().len().max(object.range.start + 1);
            start..property.range.end + comma.unwrap_or(0)
        }
    }
}

fn span(value: &Value<'_>) -> Range<usize> {
    value.start()..value.end()
}

/// Returns the text of a member's value.
pub(super) fn raw<'t>(text: &'t str, property: &ObjectProp<'_>) -> &'t str {
    text.get(span(&property.value)).unwrap_or_default()
}

/// Writes a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The blanks that begin the line of a place.
pub(super) fn indent_at(text: &str, place: usize) -> String {
    let before = text.get(..place).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |index| index + 1);
    let line = before.get(line..).unwrap_or_default();
    line.chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
}

/// How a file is laid out.
#[derive(Debug)]
struct Style {
    newline: &'static str,
    unit: String,
}

impl Style {
    fn of(text: &str, whole: &Object<'_>) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut style = Self { newline, unit: "  ".to_owned() };
        if let Some(first) = whole.properties.first() {
            let unit = indent_at(text, first.range.start);
            if !unit.is_empty() {
                style.unit = unit;
            }
        }
        style
    }

    /// Indents all lines but the first; a leading tab of a line stands for one unit.
    fn indented(&self, value: &str, indent: &str) -> String {
        let mut lines = value.lines();
        let mut shown = lines.next().unwrap_or_default().to_owned();
        for line in lines {
            let depth = line.chars().take_while(|c| *c == '\t').count();
            shown.push_str(self.newline);
            shown.push_str(indent);
            shown.push_str(&self.unit.repeat(depth));
            shown.push_str(line.get(depth..).unwrap_or_default());
        }
        shown
    }
}

#[cfg(test)]
#[path = "jsonc_tests.rs"]
mod tests;
