//! `portcullis stdio`: the gateway on stdin and stdout [OPS-11].
//!
//! Invariant: stdout carries MCP alone; everything for a person goes to stderr.

use std::io::IsTerminal as _;

use tokio::fs::File;

use crate::app::{App, AppError, Guest, GuestError};
use crate::codes::Code;
use crate::config::{self, Loaded};
use crate::downstream::Parted;
use crate::runtime;
use crate::telemetry;

use super::args::Stdio;
use super::trouble::{Exit, Trouble};
use super::voice::{self, Voice};

pub(super) fn run(stdio: &Stdio) -> Result<Exit, Trouble> {
    // Before anything else can write to it.
    let output = runtime::take_stdout().map_err(|err| machine(format!("stdout: {err}")))?;
    let loaded = voice::load(&stdio.config)?;
    let _log = telemetry::init(&loaded.settings.log).map_err(|err| voice::no_log(&err))?;
    let voice = Voice::of(loaded.settings.log.format);
    voice.warn(&loaded);
    voice.end(speak(stdio, loaded, output, voice))
}

fn speak(stdio: &Stdio, loaded: Loaded, output: File, voice: Voice) -> Result<Exit, Trouble> {
    let guest = Guest::choose(&loaded.settings, stdio.principal.as_deref(), stdio.server.as_deref())?;
    if std::io::stdin().is_terminal() {
        voice.say("portcullis stdio speaks MCP on stdin and stdout, for a client that starts it; ctrl-d ends it");
    }
    let runtime = runtime::build().map_err(|err| machine(format!("no runtime: {err}")))?;
    let parted = runtime.block_on(async {
        let piped = App::build_stdio(loaded.settings, &loaded.inputs, guest, &config::base_env())?;
        Ok::<_, AppError>(piped.run(tokio::io::stdin(), output).await)
    });
    // A read of stdin cannot be cancelled, nor a write that nobody takes, so the runtime is not waited for.
    runtime.shutdown_background();
    match parted?? {
        Parted::Broken | Parted::Cut | Parted::Ended => Ok(Exit::Ok),
        // Into the log, which waits for nobody.
        Parted::Late => {
            tracing::error!(code = Code::CutOff.id(), "stopped before everything had finished");
            Err(Trouble::Told(Exit::Failure))
        }
    }
}

fn machine(words: String) -> Trouble {
    Trouble::new(Exit::Failure, Code::Machine, words)
}

impl From<GuestError> for Trouble {
    fn from(err: GuestError) -> Self {
        let exit = match &err {
            GuestError::Ambiguous(_)
            | GuestError::Nobody
            | GuestError::UnknownPrincipal(..)
            | GuestError::UnknownServer(..) => Exit::Usage,
            GuestError::NotGranted(..) => Exit::Denied,
            GuestError::ServerDisabled(..) => Exit::Failure,
        };
        Self::new(exit, err.code(), err.to_string())
    }
}
