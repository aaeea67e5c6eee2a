//! Arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::clients::Client;

/// A reverse proxy for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Check a configuration, and run its policies' expectations
    Check(Check),
    /// Put the gateway between a client and the servers of its own file, or take it away again
    Connect(Connect),
    /// The demo's own server
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// Take over the servers of a client's file, after trying each of them
    Import(Import),
    /// Run the gateway
    Serve(Serve),
    /// Run a gateway on stdin and stdout, for a client that starts its servers
    Stdio(Stdio),
}

#[derive(Debug, ClapArgs)]
pub(super) struct Check {
    /// The configuration
    #[arg(long, default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Check policy files on their own instead
    #[arg(long, num_args = 1.., conflicts_with = "config")]
    pub(super) policy: Vec<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Connect {
    /// claude-code, claude-desktop, codex, cursor, vscode or zed
    #[arg(value_parser = client)]
    pub(super) client: Client,
    /// Put back what stood there before
    #[arg(long, conflicts_with_all = ["name", "url", "config"])]
    pub(super) undo: bool,
    /// The configuration
    #[arg(long, default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// The principal that the client is; without it, local
    #[arg(long = "as", value_name = "NAME", conflicts_with = "url")]
    pub(super) name: Option<String>,
    /// Use a running gateway at this address, as http://127.0.0.1:7800, instead of starting one
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// The client's file, where it is not in its usual place
    #[arg(long)]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) care: Care,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Import {
    /// The client's file
    pub(super) file: PathBuf,
    /// The configuration that is written
    #[arg(long, default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// The principal that gets the servers; without it, local
    #[arg(long = "as", value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Save even if a server cannot be reached or carried over
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) care: Care,
}

/// How careful a change is.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(super) struct Care {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask on a terminal
    #[arg(long)]
    pub(super) yes: bool,
}

fn client(name: &str) -> Result<Client, String> {
    Client::from_name(name).ok_or_else(|| format!("known are {}", Client::ALL.map(Client::name).join(", ")))
}

#[derive(Debug, ClapArgs)]
pub(super) struct DemoServer {
    /// Serve HTTP on this address instead of stdin and stdout
    #[arg(long)]
    pub(super) http: Option<SocketAddr>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Serve {
    /// The configuration
    #[arg(long, default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Run a built-in server with two principals, and write nothing
    #[arg(long, conflicts_with = "config")]
    pub(super) demo: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Stdio {
    /// The configuration
    #[arg(long, default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Who the client is; without it the only principal, or 'local'
    #[arg(long = "as", value_name = "NAME")]
    pub(super) principal: Option<String>,
    /// Show this server alone, its tools under their own names
    #[arg(long, value_name = "NAME")]
    pub(super) server: Option<String>,
}
