//! `portcullis check`: every mistake at once; silence if there is none.

use std::path::Path;

use serde_json::{Value, json};

use crate::config::{self, Diagnostic, Diagnostics, ExpectationResult, Severity};

use super::args::Check;
use super::output::{self, data, tell};
use super::trouble::{Exit, Trouble};

pub(super) fn run(check: &Check) -> Result<Exit, Trouble> {
    if check.schema {
        return data(format!("{:#}\n", config::schema()).as_bytes());
    }
    let read = |path: &Path| {
        if check.policy.is_empty() {
            config::load(path, &config::process_env).map(|loaded| (loaded.expectations, loaded.warnings))
        } else {
            config::check_policy_file(path)
        }
    };
    let paths = if check.policy.is_empty() { std::slice::from_ref(&check.config) } else { &check.policy };
    // Every file is checked, also after one that is wrong.
    let found: Vec<_> = paths.iter().map(|path| judge(path, read(path))).collect();
    if check.json {
        output::json(&found.iter().map(Found::json).collect())?;
    } else {
        found.iter().for_each(|found| tell(&found.diagnostics));
    }
    Ok(if found.iter().all(|found| found.good) { Exit::Ok } else { Exit::ConfigInvalid })
}

/// What came of one file.
#[derive(Debug)]
struct Found<'p> {
    path: &'p Path,
    good: bool,
    /// How many expectations are met.
    met: usize,
    diagnostics: Diagnostics,
}

fn judge(path: &Path, read: Result<(Vec<ExpectationResult>, Vec<Diagnostic>), Diagnostics>) -> Found<'_> {
    match read {
        Err(diagnostics) => Found { path, good: false, met: 0, diagnostics },
        Ok((expectations, mut diagnostics)) => {
            let (met, failed): (Vec<_>, Vec<_>) = expectations.into_iter().partition(ExpectationResult::holds);
            let (met, good) = (met.len(), failed.is_empty());
            diagnostics.extend(failed.into_iter().map(|expectation| expectation.diagnostic));
            Found { path, good, met, diagnostics: diagnostics.into() }
        }
    }
}

impl Found<'_> {
    fn json(&self) -> Value {
        let one = |found: &Diagnostic| {
            let place = found.place.as_ref();
            json!({
                "code": found.code.id(),
                "severity": match found.severity { Severity::Error => "error", Severity::Warning => "warning" },
                "key": found.key,
                "message": found.message,
                "help": found.help,
                "file": place.map(|place| place.path.display().to_string()),
                "line": place.map(|place| place.line),
                "column": place.map(|place| place.column),
            })
        };
        json!({
            "file": self.path.display().to_string(),
            "ok": self.good,
            "expectations_met": self.met,
            "problems": self.diagnostics.0.iter().map(one).collect::<Vec<_>>(),
        })
    }
}
