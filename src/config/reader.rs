//! Reads a parsed TOML table key by key, and collects every problem instead of stopping at the first.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Diagnostic, Severity};

/// Keys that the product defines and this version does not build yet.
const LATER: [&str; 53] = [
    "aliases",
    "annotations",
    "announce_changes",
    "approval",
    "approval_hold_secs",
    "allowed_prompts",
    "allowed_resources",
    "allow_config_exposure",
    "always_ask",
    "argument_rules",
    "ask",
    "allow",
    "audit_keep_days",
    "auto_admit_mcp_tools",
    "auto_approve",
    "autonomy",
    "bind",
    "blobs",
    "blob_paths",
    "deferred_loading",
    "description_max_bytes",
    "excluded_prompts",
    "excluded_resources",
    "external",
    "health",
    "inspect",
    "interactive",
    "isolation",
    "leak_guard",
    "max_calls",
    "max_concurrent_calls",
    "max_queued_calls",
    "max_result_chars",
    "never",
    "on_audit_failure",
    "overflow",
    "pin_tools",
    "pinned_max_bytes",
    "pinned_resources",
    "public_url",
    "required_scope",
    "resource_tools",
    "schema_profile",
    "scoped_tools",
    "scopes",
    "show_stderr",
    "speak",
    "strict_arguments",
    "tls_cert",
    "tls_key",
    "tls_ca_cert_path",
    "tool_groups",
    "trust",
];

/// One file and what is wrong with it.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) path: PathBuf,
    pub(super) text: &'a str,
    pub(super) found: Vec<Diagnostic>,
}

/// A table being read: which keys were asked for is remembered, so that the rest is unknown.
pub(super) struct Table<'t, 'a> {
    table: &'t DeTable<'a>,
    path: String,
    known: BTreeSet<&'static str>,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
    pub(super) key: String,
}

// === impl File ===

impl<'a> File<'a> {
    pub(super) fn new(path: &Path, text: &'a str) -> Self {
        Self { path: path.to_owned(), text, found: Vec::new() }
    }

    pub(super) fn error(&mut self, span: &Range<usize>, key: &str, message: impl Into<String>) {
        let found = Diagnostic::at(Severity::Error, &self.path, self.text, span, key, message.into());
        self.found.push(found);
    }

    pub(super) fn warn(&mut self, span: &Range<usize>, key: &str, message: impl Into<String>) {
        let found = Diagnostic::at(Severity::Warning, &self.path, self.text, span, key, message.into());
        self.found.push(found);
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, key: &str, wanted: &str) {
        let got = value.get_ref().type_str();
        self.error(&value.span(), key, format!("must be {wanted}, not {got}"));
    }
}

// === impl Table ===

impl<'t, 'a> Table<'t, 'a> {
    pub(super) fn new(table: &'t DeTable<'a>, path: &str) -> Self {
        Self { table, path: path.to_owned(), known: BTreeSet::new() }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'a>>> {
        self.known.insert(key);
        self.table.get(key)
    }

    pub(super) fn text(&mut self, file: &mut File<'_>, key: &'static str) -> Option<Placed<String>> {
        let value = self.get(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::String(text) => Some(Placed { value: text.to_string(), span: value.span(), key: path }),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                file.wrong_type(value, &path, "a string");
                None
            }
        }
    }

    pub(super) fn flag(&mut self, file: &mut File<'_>, key: &'static str) -> Option<Placed<bool>> {
        let value = self.get(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(Placed { value: *flag, span: value.span(), key: path }),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                file.wrong_type(value, &path, "true or false");
                None
            }
        }
    }

    /// Reads a whole number within bounds.
    pub(super) fn number(&mut self, file: &mut File<'_>, key: &'static str, min: u64, max: u64) -> Option<Placed<u64>> {
        let value = self.get(key)?;
        let path = self.path_of(key);
        let DeValue::Integer(number) = value.get_ref() else {
            file.wrong_type(value, &path, "a whole number");
            return None;
        };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Some(Placed { value: number, span: value.span(), key: path }),
            None => {
                file.error(&value.span(), &path, format!("must be from {min} to {max}"));
                None
            }
        }
    }

    /// Reads a list of strings; with `one`, a single string is a list of one.
    pub(super) fn texts(&mut self, file: &mut File<'_>, key: &'static str, one: One) -> Option<Vec<Placed<String>>> {
        let value = self.get(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::Array(items) => {
                let mut texts = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    let key = format!("{path}[{index}]");
                    match item.get_ref() {
                        DeValue::String(text) => {
                            texts.push(Placed { value: text.to_string(), span: item.span(), key });
                        }
                        DeValue::Integer(_)
                        | DeValue::Float(_)
                        | DeValue::Boolean(_)
                        | DeValue::Datetime(_)
                        | DeValue::Array(_)
                        | DeValue::Table(_) => file.wrong_type(item, &key, "a string"),
                    }
                }
                Some(texts)
            }
            DeValue::String(text) if one == One::Allowed => {
                Some(vec![Placed { value: text.to_string(), span: value.span(), key: path }])
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => {
                file.wrong_type(value, &path, "a list of strings");
                None
            }
        }
    }

    pub(super) fn table(&mut self, file: &mut File<'_>, key: &'static str) -> Option<Self> {
        let value = self.get(key)?;
        let path = self.path_of(key);
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(table, &path)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                file.wrong_type(value, &path, "a table");
                None
            }
        }
    }

    /// Reads a list of tables, with their places.
    pub(super) fn tables(&mut self, file: &mut File<'_>, key: &'static str) -> Vec<(Self, Range<usize>)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let path = self.path_of(key);
        let DeValue::Array(items) = value.get_ref() else {
            file.wrong_type(value, &path, "a list of tables");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let key = format!("{path}[{index}]");
            match item.get_ref() {
                DeValue::Table(table) => tables.push((Table::new(table, &key), item.span())),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => file.wrong_type(item, &key, "a table"),
            }
        }
        tables
    }

    /// Walks all members: the keys are names that the operator chose.
    pub(super) fn names(&self) -> Vec<(Placed<String>, &'t Spanned<DeValue<'a>>)> {
        self.table
            .iter()
            .map(|(name, value)| {
                let text: &Cow<'_, str> = name.get_ref();
                let key = self.path_of(text);
                (Placed { value: text.to_string(), span: name.span(), key }, value)
            })
            .collect()
    }

    /// Walks all members that must be tables.
    pub(super) fn named_tables(&self, file: &mut File<'_>) -> Vec<(Placed<String>, Self)> {
        let mut tables = Vec::new();
        for (name, value) in self.names() {
            match value.get_ref() {
                DeValue::Table(table) => tables.push((name.clone(), Table::new(table, &name.key))),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => file.wrong_type(value, &name.key, "a table"),
            }
        }
        tables
    }

    /// Reports every key nobody asked for, with the nearest one that is known.
    pub(super) fn finish(self, file: &mut File<'_>) {
        for (name, _) in self.names() {
            if self.known.contains(name.value.as_str()) {
                continue;
            }
            if LATER.contains(&name.value.as_str()) {
                file.error(&name.span, &name.key, "is not supported in this version of portcullis");
                continue;
            }
            let nearest = self
                .known
                .iter()
                .map(|known| (strsim::damerau_levenshtein(known, &name.value), *known))
                .min()
                .filter(|(distance, known)| *distance <= 1 + known.len() / 3);
            let hint = nearest.map_or_else(String::new, |(_, known)| format!("; did you mean '{known}'?"));
            file.error(&name.span, &name.key, format!("unknown key{hint}"));
        }
    }
}

/// Whether a single string may stand for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}
