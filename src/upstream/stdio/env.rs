//! The environment of a child: a short list of the gateway's own, what the settings let pass, and what they add [TRN-9].
//!
//! Not for: reading the gateway's environment; `config` does and hands it in.

use std::ffi::{OsStr, OsString};

use crate::secret::Secret;

/// What passes from the gateway's environment without being named: where programs and files are, and the locale.
/// Proxy variables are not on it, because they may carry credentials; `inherit_env` names them.
const PASSES: [&str; 10] =
    ["PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR"];
/// Families of the same kind, by how the name begins.
const PASSES_PREFIX: [&str; 2] = ["LC_", "XDG_"];

/// Builds a child's environment; a configured variable replaces an inherited one.
pub(super) fn build(
    base: &[(OsString, OsString)],
    inherit: &[String],
    configured: &[(String, Secret<String>)],
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr| {
        let Some(name) = name.to_str() else { return false };
        PASSES.contains(&name)
            || PASSES_PREFIX.iter().any(|prefix| name.starts_with(prefix))
            || inherit.iter().any(|other| other == name)
    };
    let replaced = |name: &OsStr| configured.iter().any(|(other, _)| OsStr::new(other) == name);
    let mut env: Vec<_> = base.iter().filter(|(name, _)| passes(name) && !replaced(name)).cloned().collect();
    env.extend(configured.iter().map(|(name, value)| (OsString::from(name), OsString::from(value.expose()))));
    env
}

/// Returns the PATH in which a child's command is looked up.
pub(super) fn path(env: &[(OsString, OsString)]) -> String {
    env.iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or_else(|| "(no PATH)".to_owned(), |(_, value)| value.to_string_lossy().into_owned())
}
