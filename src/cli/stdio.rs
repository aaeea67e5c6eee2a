//! `portcullis stdio`: the gateway on stdin and stdout [OPS-11].
//!
//! Invariant: stdout carries MCP alone; everything for a person goes to stderr.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::app::{App, AppError, Guest, GuestError};
use crate::config;
use crate::downstream::Parted;
use crate::runtime;
use crate::telemetry;

use super::args::Stdio;
use super::check::tell;
use super::serve::fail;
use super::{CONFIG_INVALID, DENIED, FAILURE, USAGE, say};

pub(super) fn run(stdio: &Stdio) -> ExitCode {
    // Before anything else can write to it.
    let output = match runtime::take_stdout() {
        Ok(output) => output,
        Err(err) => return fail(&format!("stdout: {err}")),
    };
    let loaded = match config::load(&stdio.config, &config::process_env) {
        Ok(loaded) => loaded,
        Err(found) => {
            tell(&found);
            return ExitCode::from(CONFIG_INVALID);
        }
    };
    tell(&loaded.warnings.into());
    let guest = match Guest::choose(&loaded.settings, stdio.principal.as_deref(), stdio.server.as_deref()) {
        Ok(guest) => guest,
        Err(err) => {
            say(&format!("error: {err}"));
            return ExitCode::from(code(&err));
        }
    };
    let _log = match telemetry::init_shedding(&loaded.settings.log) {
        Ok(guard) => guard,
        Err(err) => return fail(&format!("log: {err}")),
    };
    if std::io::stdin().is_terminal() {
        say("portcullis stdio speaks MCP on stdin and stdout, for a client that starts it; ctrl-d ends it");
    }
    let runtime = match runtime::build() {
        Ok(runtime) => runtime,
        Err(err) => return fail(&format!("no runtime: {err}")),
    };
    let parted = runtime.block_on(async {
        let piped = App::build_stdio(loaded.settings, guest, &config::base_env())?;
        Ok::<_, AppError>(piped.run(tokio::io::stdin(), output).await)
    });
    // A read of stdin cannot be cancelled, nor a write that nobody takes, so the runtime is not waited for.
    runtime.shutdown_background();
    match parted {
        Ok(Parted::Broken | Parted::Cut | Parted::Ended) => ExitCode::SUCCESS,
        // Into the log, which waits for nobody.
        Ok(Parted::Late) => {
            tracing::error!("stopped before everything had finished");
            ExitCode::from(FAILURE)
        }
        Err(err) => fail(&err.to_string()),
    }
}

/// The exit code of each ambiguity [OPS-1].
const fn code(err: &GuestError) -> u8 {
    match err {
        GuestError::Ambiguous(_) | GuestError::UnknownPrincipal(..) | GuestError::UnknownServer(..) => USAGE,
        GuestError::Nobody => CONFIG_INVALID,
        GuestError::NotGranted(..) => DENIED,
        GuestError::ServerDisabled(..) => FAILURE,
    }
}
