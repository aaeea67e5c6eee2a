//! A problem in a file: what, where, and the line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It is used as far as it goes.
    Warning,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 if the whole file is meant.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key's path, such as `mcp.servers[0].name`.
    pub key: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The line itself, secrets masked.
    pub source: String,
}

impl Diagnostic {
    /// Makes a problem at a byte range of a text.
    pub(super) fn at(
        severity: Severity,
        file: &Path,
        text: &str,
        span: &Range<usize>,
        key: &str,
        message: String,
    ) -> Self {
        let start = span.start.min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_text = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        Self {
            severity,
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            key: key.to_owned(),
            message,
            source: masked(line_text, key),
        }
    }

    /// Makes a problem of a whole file.
    pub(super) fn file(severity: Severity, file: &Path, message: String) -> Self {
        let (key, source) = (String::new(), String::new());
        Self { severity, file: file.to_owned(), line: 0, column: 0, key, message, source }
    }
}

/// Shows a line without the values that may be secret: anything quoted where the line is about env, headers, url, args
/// or keys. A whole line is judged, so that one mistake does not print its neighbour's secret.
fn masked(line: &str, key: &str) -> String {
    const TELLING: [&str; 9] = ["env", "headers", "url", "token", "key", "secret", "authorization", "password", "args"];
    let lower = line.to_ascii_lowercase();
    if !TELLING.iter().any(|word| lower.contains(word) || key.to_ascii_lowercase().contains(word)) {
        return line.to_owned();
    }
    let mut out = String::with_capacity(line.len());
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => {
                quote = None;
                out.push(c);
            }
            Some(_) => {}
            None => {
                if c == '"' || c == '\'' {
                    quote = Some(c);
                    out.push(c);
                    out.push('…');
                } else {
                    out.push(c);
                }
            }
        }
    }
    out
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        writeln!(f, "{word}: {key}{}", self.message)?;
        if self.line == 0 {
            return write!(f, "  --> {}", self.file.display());
        }
        writeln!(f, "  --> {}:{}:{}", self.file.display(), self.line, self.column)?;
        let margin = self.line.to_string().len();
        let pad: String = self
            .source
            .chars()
            .take(self.column.saturating_sub(1))
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{} | {}", self.line, self.source)?;
        write!(f, "{:margin$} | {pad}^", "")
    }
}
