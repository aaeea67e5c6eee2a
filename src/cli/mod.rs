//! The command line: verbs, exit codes, and what a person reads [OPS-1].
//!
//! Not for: work. Data goes to stdout, talk to stderr.

mod args;
mod check;
mod confirm;
mod connect;
mod import;
mod serve;
mod stdio;
mod trial;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Verb};

/// Something went wrong while running.
const FAILURE: u8 = 1;
/// What was asked for is not clear, or not there.
const USAGE: u8 = 2;
/// The configuration is refused.
const CONFIG_INVALID: u8 = 3;
/// It is there, but not for this principal.
const DENIED: u8 = 5;

/// Runs the command line of the process.
#[must_use]
pub fn run() -> ExitCode {
    let args = Args::parse();
    match args.verb {
        Verb::Check(check) => check::run(&check),
        Verb::Connect(connect) => connect::run(&connect),
        Verb::DemoServer(server) => serve::demo_server(&server),
        Verb::Import(import) => import::run(&import),
        Verb::Serve(serve) => serve::run(&serve),
        Verb::Stdio(stdio) => stdio::run(&stdio),
    }
}

/// Says something to a person.
fn say(text: &str) {
    use std::io::Write as _;
    // A closed stderr is no reason to fail.
    let _said = writeln!(std::io::stderr(), "{text}").is_ok();
}
