//! The command line: verbs, exit codes, and what a person reads [OPS-1, OPS-2].
//!
//! Not for: work. Invariants: data goes to stdout, talk to stderr; success says nothing of itself; whoever runs a command
//! may read the configuration, so its answers may name what a client is never told.

mod args;
mod arguments;
mod call;
mod check;
mod confirm;
mod connect;
mod explain;
mod import;
mod key;
mod ls;
mod names;
mod open;
mod output;
mod remote;
mod serve;
mod spinner;
mod status;
mod stdio;
mod trial;
mod trouble;
mod voice;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::runtime;

use args::{Args, Verb};
use output::say;
use trouble::{Exit, Trouble, usage};

/// Runs the command line of the process.
#[must_use]
pub fn run() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(err) => return usage(&err).into(),
    };
    if args.verb.starts_servers()
        && let Err(err) = runtime::start_guardian()
    {
        say(&format!("no guardian ({err}): if this process is killed, servers that it started may stay"));
    }
    let exit = run_verb(args.verb);
    runtime::dismiss_guardian();
    exit.unwrap_or_else(Trouble::told).into()
}

fn run_verb(verb: Verb) -> Result<Exit, Trouble> {
    match verb {
        Verb::Call(call) => call::run(&call),
        Verb::Check(check) => check::run(&check),
        Verb::Completions(completions) => {
            let mut script = Vec::new();
            clap_complete::generate(completions.shell, &mut Args::command(), "portcullis", &mut script);
            output::data(&script)
        }
        Verb::Connect(connect) => connect::run(&connect),
        Verb::DemoServer(server) => serve::demo_server(&server),
        Verb::Explain(explain) => explain::run(&explain),
        Verb::Guardian => {
            runtime::watch();
            Ok(Exit::Ok)
        }
        Verb::Import(import) => import::run(&import),
        Verb::Key(key) => key::run(&key),
        Verb::Ls(ls) => ls::run(&ls),
        Verb::Names(names) => names::run(&names),
        Verb::Serve(serve) => serve::run(&serve),
        Verb::Status(status) => status::run(&status),
        Verb::Stdio(stdio) => stdio::run(&stdio),
    }
}
