//! Which parts of a file may be shown in an error.
//!
//! Invariant: a text is shown only if its key is known to hold no secret.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

const HIDDEN: &str = "\"[hidden]\"";
const HIDDEN_PART: &str = "[hidden]";

/// Keys whose texts hold no secret.
const OPEN: &[&str] = &[
    "access",
    "admin",
    "allowed_hosts",
    "allowed_origins",
    "allowed_prompts",
    "allowed_resources",
    "allowed_tools",
    "auth",
    "blobs",
    "cwd",
    "empty_allow",
    "era",
    "exclude",
    "excluded_prompts",
    "excluded_resources",
    "excluded_tools",
    "format",
    "health",
    "http",
    "inherit_env",
    "inspect",
    "isolation",
    "level",
    "mcp_bundles",
    "name",
    "on_down",
    "overflow",
    "policy",
    "principal",
    "protocol",
    "rate",
    "servers",
    "tool",
    "transport",
];
/// Keys under which nothing is shown, whatever it is.
const CLOSED: &[&str] = &["api_keys", "env", "headers"];

/// The spans of one file.
#[derive(Debug, Default)]
pub(super) struct Masks {
    /// What is masked, and what is shown in its place.
    hidden: Vec<(Range<usize>, &'static str)>,
    /// Keys and values: a `#` in one of these begins no comment.
    tokens: Vec<Range<usize>>,
    parsed: bool,
}

impl Masks {
    /// Finds what must be masked in a file that parses.
    pub(super) fn of(root: &DeTable<'_>, text: &str) -> Self {
        let mut masks = Self { parsed: true, ..Self::default() };
        masks.table(root, false, text);
        masks
    }

    fn table(&mut self, table: &DeTable<'_>, closed: bool, text: &str) {
        for (key, value) in table {
            self.tokens.push(key.span());
            self.value(value, key.get_ref(), closed || CLOSED.contains(&key.get_ref().as_ref()), text);
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, key: &str, closed: bool, text: &str) {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, closed, text),
            DeValue::Array(array) => array.iter().for_each(|item| self.value(item, key, closed, text)),
            DeValue::String(_) => {
                self.tokens.push(span.clone());
                if key == "url" && !closed {
                    self.hidden.extend(url_part(text, span));
                } else if closed || !OPEN.contains(&key) {
                    self.hidden.push((span, HIDDEN));
                }
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                if closed {
                    self.hidden.push((span, HIDDEN));
                }
            }
        }
    }

    /// Returns a line as it may be shown, and where `span` of the file stands in it.
    pub(super) fn line(&self, text: &str, line: Range<usize>, span: &Range<usize>) -> (String, Range<usize>) {
        if !self.parsed {
            let shown = unparsed(text, &line);
            let end = shown.len();
            let at = |place: usize| place.saturating_sub(line.start).min(end);
            return snap(shown, at(span.start)..at(span.end));
        }
        let end = self.comment(text, &line).unwrap_or(line.end);
        let mut hidden: Vec<_> =
            self.hidden.iter().filter(|(hidden, _)| hidden.start < end && hidden.end > line.start).collect();
        hidden.sort_by_key(|(hidden, _)| hidden.start);
        let (mut shown, mut at, mut mark) = (String::new(), line.start, (None, None));
        for (hidden, instead) in hidden {
            let (from, to) = (hidden.start.max(at), hidden.end.min(end));
            let before = shown.len();
            copy(text, at..from, &mut shown);
            place(&mut mark, span, at..from, before);
            let before = shown.len();
            shown.push_str(instead);
            let inside = |place: usize| (from..to.max(from + 1)).contains(&place);
            if mark.0.is_none() && inside(span.start) {
                mark.0 = Some(before);
            }
            if mark.1.is_none() && span.end > from && span.end <= to {
                mark.1 = Some(shown.len());
            }
            at = to.max(at);
        }
        let before = shown.len();
        copy(text, at..end, &mut shown);
        place(&mut mark, span, at..end, before);
        let full = shown.trim_end().len();
        shown.truncate(full);
        let start = mark.0.unwrap_or(0).min(full);
        let stop = mark.1.unwrap_or(full).clamp(start, full);
        snap(shown, start..stop)
    }

    fn comment(&self, text: &str, line: &Range<usize>) -> Option<usize> {
        let mut places = text.get(line.clone())?.match_indices('#').map(|(index, _)| line.start + index);
        places.find(|place| !self.tokens.iter().any(|token| token.contains(place)))
    }
}

fn copy(text: &str, range: Range<usize>, shown: &mut String) {
    shown.push_str(text.get(range).unwrap_or_default());
}

fn place(mark: &mut (Option<usize>, Option<usize>), span: &Range<usize>, copied: Range<usize>, before: usize) {
    if mark.0.is_none() && copied.contains(&span.start) {
        mark.0 = Some(before + span.start - copied.start);
    }
    if mark.1.is_none() && span.end > copied.start && span.end <= copied.end {
        mark.1 = Some(before + span.end - copied.start);
    }
}

/// Keeps a range on character boundaries.
fn snap(shown: String, range: Range<usize>) -> (String, Range<usize>) {
    let (start, end) = (shown.floor_char_boundary(range.start), shown.ceil_char_boundary(range.end));
    (shown, start..end)
}

/// What of a URL is hidden: all but scheme and host; all, where that cannot be told.
fn url_part(text: &str, span: Range<usize>) -> Option<(Range<usize>, &'static str)> {
    let raw = text.get(span.clone()).unwrap_or_default();
    let quotes = ['"', '\''];
    let split = raw.strip_prefix(quotes).and_then(|raw| raw.strip_suffix(quotes)).and_then(|raw| raw.split_once("://"));
    let Some((scheme, rest)) = split else { return Some((span, HIDDEN)) };
    let host = rest.find(['/', '?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if !host.bytes().all(plain) || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Some((span, HIDDEN));
    }
    let part = span.start + 1 + scheme.len() + 3 + host.len()..span.end - 1;
    (!part.is_empty()).then_some((part, HIDDEN_PART))
}

/// A line of a file that does not parse: only what is known to be no value, or the value of an open key.
fn unparsed(text: &str, line: &Range<usize>) -> String {
    let content = text.get(line.clone()).unwrap_or_default().trim_end();
    let bare = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || " \t._-[]".contains(c));
    if content.trim_start().starts_with('[') && bare(content) {
        return content.to_owned();
    }
    let above = text.get(..line.start).unwrap_or_default();
    let header = above.lines().rev().map(str::trim_start).find(|line| line.starts_with('[')).unwrap_or_default();
    let closed = CLOSED.iter().any(|key| header.contains(key)) || above.contains("\"\"\"") || above.contains("'''");
    let Some((key, value)) = content.split_once('=') else { return "…".to_owned() };
    if !bare(key) || value.contains(['=', '{', '#']) || closed || !OPEN.contains(&key.trim()) {
        return if bare(key) && !closed { format!("{key}= …") } else { "…".to_owned() };
    }
    content.to_owned()
}
