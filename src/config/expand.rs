//! `${env:NAME}` and `${file:PATH}` in the values of `env`, `headers` and `url` [CFG-3].
//!
//! Invariant: an error names the variable or the file, never a value.

use std::fmt;
use std::path::Path;

use crate::secret::Secret;

use super::inputs::Notes;

/// The largest secret file, in bytes.
const SECRET_FILE_MAX: u64 = 64 << 10;

/// Where references are looked up.
pub(super) struct Expander<'e> {
    /// The environment.
    pub(super) env: &'e dyn Fn(&str) -> Option<String>,
    /// What a relative path of a file starts at: the folder of the configuration.
    pub(super) base: &'e Path,
    /// Which files were read.
    pub(super) notes: &'e Notes,
}

/// A text cut at its references.
#[derive(Debug)]
pub(super) struct Template<'t>(Vec<Part<'t>>);

#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    Env(&'t str),
    File(&'t str),
    Literal(&'t str),
}

/// What a text that is no template says.
pub(super) const REFERENCE_HELP: &str = "write ${env:NAME} or ${file:PATH}; a literal '$' before '{' is '$$'";

// === impl Template ===

impl<'t> Template<'t> {
    /// Reads a text; `None` if a `${` begins no reference.
    pub(super) fn new(text: &'t str) -> Option<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            let beyond = after.trim_start_matches('$');
            let run = rest.get(before.len()..rest.len() - beyond.len())?;
            parts.push(Part::Literal(before));
            rest = beyond;
            let Some(after) = beyond.strip_prefix('{') else {
                parts.push(Part::Literal(run));
                continue;
            };
            // Before '{' two are one, and one that is left over begins a reference.
            parts.push(Part::Literal(run.get(..run.len() / 2)?));
            if run.len() % 2 == 1 {
                let (reference, after) = after.split_once('}')?;
                parts.push(reference_of(reference)?);
                rest = after;
            }
        }
        parts.push(Part::Literal(rest));
        Some(Self(parts))
    }

    /// Says whether the text is only what it says.
    pub(super) fn is_literal(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Literal(_)))
    }
}

fn reference_of(text: &str) -> Option<Part<'_>> {
    if let Some(name) = text.strip_prefix("env:") {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        return (first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            .then_some(Part::Env(name));
    }
    text.strip_prefix("file:").filter(|path| !path.is_empty() && !path.contains('\0')).map(Part::File)
}

/// Finds a reference in a text where none is expanded.
pub(super) fn reference_in(text: &str) -> Option<&str> {
    let start = text.find("${env:").or_else(|| text.find("${file:"))?;
    let rest = text.get(start..)?;
    rest.get(..=rest.find('}')?)
}

// === impl Expander ===

impl Expander<'_> {
    /// Puts values in the place of references.
    ///
    /// # Errors
    /// What is missing or unusable.
    pub(super) fn expand(&self, template: &Template<'_>) -> Result<Secret<String>, String> {
        let mut values = Vec::new();
        for part in &template.0 {
            values.push(match part {
                Part::Env(name) => match (self.env)(name) {
                    Some(value) if value.is_empty() => return Err(format!("environment variable {name} is empty")),
                    Some(value) => Secret::new(value),
                    None => return Err(format!("environment variable {name} is not set")),
                },
                Part::File(path) => {
                    let path = self.base.join(path);
                    secret_file(&path, self.notes).map_err(|why| format!("secret file {} {why}", path.display()))?
                }
                Part::Literal(text) => Secret::new((*text).to_owned()),
            });
        }
        // One allocation: a growing text would leave copies of a secret behind.
        let mut whole = String::with_capacity(values.iter().map(|value| value.expose().len()).sum());
        values.iter().for_each(|value| whole.push_str(value.expose()));
        Ok(Secret::new(whole))
    }
}

impl fmt::Debug for Expander<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expander").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Reads a secret from a file; one line end at its end goes away.
fn secret_file(path: &Path, notes: &Notes) -> Result<Secret<String>, String> {
    let bytes = notes.read(path, SECRET_FILE_MAX).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.expose().len() as u64 > SECRET_FILE_MAX {
        return Err(format!("is larger than {SECRET_FILE_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes.expose()).map_err(|_| "is not UTF-8".to_owned())?;
    if text.starts_with('\u{feff}') {
        return Err("begins with a byte order mark".to_owned());
    }
    let line = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() {
        return Err("is empty".to_owned());
    }
    if line.chars().any(char::is_control) {
        return Err("holds a line end or another control character".to_owned());
    }
    Ok(Secret::new(line.to_owned()))
}
