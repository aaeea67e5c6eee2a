//! `[state]`: where what outlives the process is kept [OPS-12].

use std::path::PathBuf;

use super::expand::Expander;
use super::keys;
use super::reader::Table;

/// Reads `[state]`; `None` if neither the file nor the environment names a place. Relative paths start at the file.
pub(super) fn folder(table: Option<&Table<'_>>, expander: &Expander<'_>) -> Option<PathBuf> {
    if let Some(table) = table {
        table.keys(keys::STATE);
        if let Some(value) = table.get("dir") {
            return value.path().map(|path| expander.base.join(path));
        }
    }
    // A relative path in a variable would be another place in every working folder (XDG base directories).
    let named = |name: &str| (expander.env)(name).map(PathBuf::from).filter(|path| path.is_absolute());
    named("PORTCULLIS_STATE_DIR")
        .or_else(|| named("XDG_STATE_HOME").map(|path| path.join("portcullis")))
        .or_else(|| named("HOME").map(|path| path.join(".local/state/portcullis")))
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
