//! `portcullis check`.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use crate::config::{self, Color, Diagnostic, Diagnostics, ExpectationResult};

use super::args::Check;
use super::{CONFIG_INVALID, say};

pub(super) fn run(check: &Check) -> ExitCode {
    let good = if check.policy.is_empty() {
        let loaded = config::load(&check.config, &config::process_env);
        judge(&check.config, loaded.map(|loaded| (loaded.expectations, loaded.warnings)))
    } else {
        // Every file is checked, also after one that is wrong.
        check.policy.iter().filter(|path| !judge(path, config::check_policy_file(path))).count() == 0
    };
    if good { ExitCode::SUCCESS } else { ExitCode::from(CONFIG_INVALID) }
}

/// Shows what came of one file; says whether it is good.
fn judge(path: &Path, read: Result<(Vec<ExpectationResult>, Vec<Diagnostic>), Diagnostics>) -> bool {
    let (expectations, warnings) = match read {
        Ok(read) => read,
        Err(found) => {
            tell(&found);
            return false;
        }
    };
    tell(&warnings.into());
    let failed = expectations.iter().filter(|expectation| !expectation.holds());
    let failed: Vec<_> = failed.map(|expectation| expectation.diagnostic.clone()).collect();
    if failed.is_empty() {
        say(&format!("{}: ok, {} expectations met", path.display(), expectations.len()));
        return true;
    }
    tell(&failed.into());
    false
}

/// Shows problems, one after the other.
pub(super) fn tell(found: &Diagnostics) {
    if found.0.is_empty() {
        return;
    }
    let color = if std::io::stderr().is_terminal() { Color::Always } else { Color::Never };
    say(&format!("{}\n", config::render(found, color)));
}
