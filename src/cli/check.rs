//! `portcullis check`.

use std::process::ExitCode;

use crate::config::{self, Diagnostic};

use super::args::Check;
use super::{CONFIG_INVALID, say};

pub(super) fn run(check: &Check) -> ExitCode {
    if !check.policy.is_empty() {
        let mut code = ExitCode::SUCCESS;
        for path in &check.policy {
            match config::check_policy_file(path) {
                Ok(met) => say(&format!("{}: ok, {} expectations met", path.display(), met.len())),
                Err(found) => {
                    tell(&found);
                    code = ExitCode::from(CONFIG_INVALID);
                }
            }
        }
        return code;
    }
    match config::load(&check.config, &config::process_env) {
        Ok(loaded) => {
            tell(&loaded.warnings);
            let met = loaded.expectations.len();
            say(&format!("{}: ok, {met} expectations met", check.config.display()));
            ExitCode::SUCCESS
        }
        Err(found) => {
            tell(&found);
            ExitCode::from(CONFIG_INVALID)
        }
    }
}

/// Shows problems, one after the other.
pub(super) fn tell(found: &[Diagnostic]) {
    for diagnostic in found {
        say(&format!("{diagnostic}\n"));
    }
}
