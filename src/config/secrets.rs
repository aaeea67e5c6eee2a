//! `${env:NAME}` and `${file:PATH}` in values of env, headers and url [CFG-3].
//!
//! Invariant: errors name the variable or the file, never a value.

use std::path::{Path, PathBuf};

/// Expands the references of one value. `$$` is a literal `$`; any other `$` stands for itself.
pub(super) fn expand(text: &str, base: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let (name, after) = inner.split_once('}').ok_or("'${' without '}'")?;
            out.push_str(&reference(name, base, env)?);
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Says whether a text holds a reference, where none is expanded: argv is public (product §9).
pub(super) fn has_reference(text: &str) -> bool {
    text.contains("${env:") || text.contains("${file:")
}

fn reference(name: &str, base: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    if let Some(name) = name.strip_prefix("env:") {
        return match env(name) {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) => Err(format!("variable '{name}' is empty")),
            None => Err(format!("variable '{name}' is not set")),
        };
    }
    let Some(path) = name.strip_prefix("file:") else {
        return Err("a reference must be '${env:NAME}' or '${file:PATH}'; '$$' is a literal '$'".to_owned());
    };
    let path: PathBuf = base.join(path);
    let shown = path.display();
    let text = std::fs::read_to_string(&path).map_err(|err| format!("file '{shown}' cannot be read: {err}"))?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if text.is_empty() {
        return Err(format!("file '{shown}' is empty"));
    }
    if text.starts_with('\u{feff}') || text.chars().any(char::is_control) {
        return Err(format!("file '{shown}' holds a control character or a byte order mark"));
    }
    Ok(text.to_owned())
}
