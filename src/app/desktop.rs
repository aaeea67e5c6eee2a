//! Whether a desktop has started this process, and not a person's shell [TRN-3].

use std::ffi::OsString;
use std::io::IsTerminal as _;

use crate::upstream::has_system_path;

/// Says so where there is no terminal, and no PATH that a shell has made up. Process 1 of a container has neither, and no
/// person behind it.
pub(super) fn started_from_desktop(env: &[(OsString, OsString)]) -> bool {
    let terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
    !terminal && std::process::id() != 1 && has_system_path(env)
}
