//! Arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

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
    /// The demo's own server
    #[command(hide = true)]
    DemoServer(DemoServer),
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
