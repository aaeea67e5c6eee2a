//! Walks a parsed TOML file and notes every problem with its place.
//!
//! Not for: what keys mean (the files named after the sections). Invariant: reading never stops at a problem; a value that
//! is wrong reads as absent, and the load fails.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::codes::Code;

use super::error::{Diagnostic, Place, Report, Severity};
use super::keys;
use super::mask::Masks;
use super::places::Spot;

/// One file.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) masks: Masks,
    pub(super) report: &'a Report,
}

/// A table of a file.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    source: &'a Source<'a>,
    path: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
}

/// A value of a file.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    source: &'a Source<'a>,
    path: String,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

// === impl Source ===

impl<'a> Source<'a> {
    /// Returns the whole file as a table.
    pub(super) fn root(&'a self, entries: &'a DeTable<'a>) -> Table<'a> {
        Table { source: self, path: String::new(), span: 0..0, entries }
    }

    /// Makes a diagnostic that points at a span.
    pub(super) fn diagnostic(&self, severity: Severity, key: &str, span: &Range<usize>, message: String) -> Diagnostic {
        let start = self.text.floor_char_boundary(span.start);
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |index| index + 1);
        let rest = self.text.get(line_start..).unwrap_or_default();
        let line_end = line_start + rest.find('\n').unwrap_or(rest.len());
        let (shown, marked) = self.masks.line(self.text, line_start..line_end, span);
        let place = Place {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            shown,
            marked,
        };
        let code = match severity {
            Severity::Error => Code::BadValue,
            Severity::Warning => Code::Doubtful,
        };
        Diagnostic { severity, code, key: key.to_owned(), message, help: None, place: Some(place), fails: false }
    }

    fn spot(&self, span: &Range<usize>) -> Spot {
        let start = self.text.floor_char_boundary(span.start);
        let line = self.text.get(..start).unwrap_or_default().matches('\n').count() + 1;
        Spot { path: self.path.to_owned(), line }
    }
}

// === impl Table ===

impl<'a> Table<'a> {
    /// Notes every key that is not in `known`; some exist in the product, but not in this version.
    pub(super) fn keys(&self, known: &[&str]) {
        for (key, _) in self.entries {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            if keys::is_later(name) {
                self.key_error_of(Code::Later, name, "not supported in this version");
                continue;
            }
            let mut diagnostic = self.at_key(Severity::Error, name, "unknown key".to_owned());
            diagnostic.code = Code::UnknownKey;
            let foreign = self.path.is_empty() && keys::means_servers(name);
            let meant = || nearest(name, known).map(|near| format!("did you mean '{near}'?"));
            diagnostic.help = foreign
                .then(|| keys::SERVERS_HELP.to_owned())
                .or_else(meant)
                .or_else(|| keys::home_of(name).map(|table| format!("this key belongs in {table}")));
            self.source.report.fatal(diagnostic);
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let (key, value) = self.entries.get_key_value(key)?;
        Some(self.value(key.get_ref(), value.span(), value.get_ref()))
    }

    /// Returns the table of a key; `None` if it is absent or no table.
    pub(super) fn table(&self, key: &str) -> Option<Self> {
        self.get(key)?.table()
    }

    /// Returns all entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + '_ {
        self.entries
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), self.value(key.get_ref(), value.span(), value.get_ref())))
    }

    /// Returns the tables of all entries; entries that are no tables are noted.
    pub(super) fn tables(&self) -> impl Iterator<Item = (&'a str, Self)> + '_ {
        self.entries().filter_map(|(key, value)| Some((key, value.table()?)))
    }

    /// Returns where the table begins.
    pub(super) fn spot(&self) -> Spot {
        self.source.spot(&self.span)
    }

    /// Returns where a key stands; the table's own place if it is absent.
    pub(super) fn key_spot(&self, key: &str) -> Spot {
        let span = self.entries.get_key_value(key).map_or_else(|| self.span.clone(), |(key, _)| key.span());
        self.source.spot(&span)
    }

    /// Notes a problem with the table as a whole: it is incomplete or contradicts itself.
    pub(super) fn error(&self, message: impl Into<String>) {
        self.note(Code::Contradiction, message.into(), None);
    }

    /// Notes a problem with the table as a whole, and what would help.
    pub(super) fn error_help(&self, message: impl Into<String>, help: &str) {
        self.note(Code::Contradiction, message.into(), Some(help));
    }

    /// Notes an error of another kind with the table as a whole, and what would help.
    pub(super) fn error_of(&self, code: Code, message: impl Into<String>, help: &str) {
        self.note(code, message.into(), Some(help));
    }

    fn note(&self, code: Code, message: String, help: Option<&str>) {
        let diagnostic = self.diagnostic(Severity::Error, message);
        self.source.report.fatal(Diagnostic { code, help: help.map(str::to_owned), ..diagnostic });
    }

    /// Notes something doubtful about the table as a whole.
    pub(super) fn warn(&self, message: impl Into<String>, help: &str) {
        let mut diagnostic = self.diagnostic(Severity::Warning, message.into());
        diagnostic.help = Some(help.to_owned());
        self.source.report.other(diagnostic);
    }

    /// Notes a problem with a key, as opposed to its value.
    pub(super) fn key_error(&self, key: &str, message: impl Into<String>) {
        self.key_error_of(Code::Contradiction, key, message);
    }

    /// Notes an error of another kind with a key.
    pub(super) fn key_error_of(&self, code: Code, key: &str, message: impl Into<String>) {
        let diagnostic = self.at_key(Severity::Error, key, message.into());
        self.source.report.fatal(Diagnostic { code, ..diagnostic });
    }

    fn diagnostic(&self, severity: Severity, message: String) -> Diagnostic {
        self.source.diagnostic(severity, &self.path, &self.span, message)
    }

    fn at_key(&self, severity: Severity, key: &str, message: String) -> Diagnostic {
        let span = self.entries.get_key_value(key).map_or_else(|| self.span.clone(), |(key, _)| key.span());
        self.source.diagnostic(severity, &join(&self.path, key), &span, message)
    }

    fn value(&self, key: &str, span: Range<usize>, value: &'a DeValue<'a>) -> Value<'a> {
        Value { source: self.source, path: join(&self.path, key), span, value }
    }
}

// === impl Value ===

impl<'a> Value<'a> {
    /// Reads a text.
    pub(super) fn text(&self) -> Option<&'a str> {
        let DeValue::String(text) = self.value else { return self.wrong("a string") };
        Some(text)
    }

    /// Reads a text that is not empty.
    pub(super) fn filled(&self) -> Option<&'a str> {
        let text = self.text()?;
        if text.trim().is_empty() {
            self.error("must not be empty");
            return None;
        }
        Some(text)
    }

    /// Reads the path of a file. What was pasted from within the file is refused and shown nowhere.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let text = self.filled()?;
        if text.chars().any(char::is_control) || text.contains("-----BEGIN") {
            self.error("must be the path of a file, not what is in it");
            return None;
        }
        Some(PathBuf::from(text))
    }

    /// Reads a truth value.
    pub(super) fn flag(&self) -> Option<bool> {
        let DeValue::Boolean(value) = self.value else { return self.wrong("true or false") };
        Some(*value)
    }

    /// Says whether the value is `false`, without noting anything.
    pub(super) const fn is_false(&self) -> bool {
        matches!(self.value, DeValue::Boolean(false))
    }

    /// Returns where problems are noted.
    pub(super) const fn report(&self) -> &'a Report {
        self.source.report
    }

    /// Reads a whole number within a range.
    pub(super) fn number(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(integer) = self.value else { return self.wrong("a whole number") };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let fits = number.and_then(|number| u64::try_from(number).ok()).filter(|number| range.contains(number));
        if fits.is_none() {
            self.error(format!("must be from {} to {}", range.start(), range.end()));
        }
        fits
    }

    /// Reads one of some words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let help = nearest(text, &words).map(|near| format!("did you mean '{near}'?"));
            self.fatal(Code::BadValue, format!("must be one of {}", words.join(", ")), help);
        }
        found
    }

    /// Reads a list.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let DeValue::Array(array) = self.value else { return self.wrong("a list") };
        let item = |(index, item): (usize, &'a toml::Spanned<DeValue<'a>>)| Self {
            source: self.source,
            path: format!("{}[{index}]", self.path),
            span: item.span(),
            value: item.get_ref(),
        };
        Some(array.iter().enumerate().map(item).collect())
    }

    /// Reads a list of texts; items that are something else are noted and left out.
    pub(super) fn texts(&self) -> Option<Vec<(&'a str, Self)>> {
        Some(self.list()?.into_iter().filter_map(|item| Some((item.text()?, item))).collect())
    }

    /// Reads a text or a list of texts.
    pub(super) fn one_or_more(&self) -> Option<Vec<(&'a str, Self)>> {
        if let DeValue::String(text) = self.value {
            return Some(vec![(text, self.clone())]);
        }
        if self.value.is_array() { self.texts() } else { self.wrong("a string or a list of strings") }
    }

    /// Reads a table.
    pub(super) fn table(&self) -> Option<Table<'a>> {
        let DeValue::Table(entries) = self.value else { return self.wrong("a table") };
        Some(Table { source: self.source, path: self.path.clone(), span: self.span.clone(), entries })
    }

    /// Returns where the value stands.
    pub(super) fn spot(&self) -> Spot {
        self.source.spot(&self.span)
    }

    /// Notes a problem with the value.
    pub(super) fn error(&self, message: impl Into<String>) {
        self.fatal(Code::BadValue, message.into(), None);
    }

    /// Notes an error of another kind, and what would help.
    pub(super) fn error_of(&self, code: Code, message: impl Into<String>, help: Option<String>) {
        self.fatal(code, message.into(), help);
    }

    /// Notes a problem with the value, and what would help.
    pub(super) fn error_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.fatal(Code::BadValue, message.into(), Some(help.into()));
    }

    /// Notes something doubtful.
    pub(super) fn warn(&self, message: impl Into<String>, help: Option<String>) {
        self.source.report.other(self.diagnostic(Severity::Warning, message.into(), help));
    }

    /// Notes that a name grants nothing.
    pub(super) fn grants_nothing(&self, message: impl Into<String>, help: Option<String>) {
        let diagnostic = self.diagnostic(Severity::Warning, message.into(), help);
        self.source.report.other(Diagnostic { code: Code::GrantsNothing, ..diagnostic });
    }

    /// Notes an error with which the gateway starts: a secret that is missing.
    pub(super) fn survivable(&self, message: impl Into<String>) {
        let diagnostic = self.diagnostic(Severity::Error, message.into(), None);
        self.source.report.other(Diagnostic { code: Code::Secret, ..diagnostic });
    }

    /// Makes a diagnostic that points here.
    pub(super) fn diagnostic(&self, severity: Severity, message: String, help: Option<String>) -> Diagnostic {
        Diagnostic { help, ..self.source.diagnostic(severity, &self.path, &self.span, message) }
    }

    fn fatal(&self, code: Code, message: String, help: Option<String>) {
        let diagnostic = self.diagnostic(Severity::Error, message, help);
        self.source.report.fatal(Diagnostic { code, ..diagnostic });
    }

    /// Reads a list, and says what to write where it is none.
    pub(super) fn list_or(&self, help: &str) -> Option<Vec<Self>> {
        if self.value.is_array() {
            return self.list();
        }
        self.wrong_help("a list", Some(help.to_owned()))
    }

    fn wrong<T>(&self, wanted: &str) -> Option<T> {
        self.wrong_help(wanted, None)
    }

    fn wrong_help<T>(&self, wanted: &str, help: Option<String>) -> Option<T> {
        self.fatal(Code::WrongType, format!("must be {wanted}, not {}", kind(self.value)), help);
        None
    }
}

/// The nearest of some words, if it is near enough to be meant.
#[must_use]
pub fn nearest<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    let distance = |other: &str| strsim::osa_distance(word, other);
    let near = words.iter().copied().filter(|other| !other.is_empty()).min_by_key(|other| distance(other))?;
    (distance(near) <= (word.chars().count() / 3).max(2)).then_some(near)
}

fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

const fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
