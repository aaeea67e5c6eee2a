//! Arguments, and the examples that each verb's help shows. A test runs every one of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// A reverse proxy for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failure, 2 usage, 3 configuration invalid, 4 not ready, 5 denied.
Errors have a code: portcullis explain P204 says more.";

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Call a tool, as a principal of the configuration or at a running gateway
    #[command(after_help = CALL)]
    Call(Call),
    /// Check a configuration, and run its policies' expectations
    #[command(after_help = CHECK)]
    Check(Check),
    /// Print a script that completes this program's arguments in a shell
    #[command(after_help = COMPLETIONS)]
    Completions(Completions),
    /// The demo's own server
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// Say why a tool is shown or hidden and by which line of which file, or what an error code means
    #[command(after_help = EXPLAIN)]
    Explain(Explain),
    /// Make an API key
    #[command(after_help = KEY)]
    Key(Key),
    /// List servers, tools, bundles or principals
    #[command(after_help = LS)]
    Ls(Ls),
    /// Show how the servers' own names of tools became the shown ones
    #[command(after_help = NAMES)]
    Names(Names),
    /// Run the gateway
    #[command(after_help = SERVE)]
    Serve(Serve),
    /// Ask a running gateway whether it is ready
    #[command(after_help = STATUS)]
    Status(Status),
}

const CALL: &str = "Examples:
  portcullis call --demo --as bob demo__add a=2 b=3
  portcullis call --as alice demo__echo text:='\"a JSON value\"' --json
  PORTCULLIS_API_KEY=demo-alice portcullis call --url http://127.0.0.1:7800/mcp demo__add a=2 b=3";
const CHECK: &str = "Examples:
  portcullis check
  portcullis check --json --config portcullis.toml
  portcullis check --schema > portcullis.schema.json";
const COMPLETIONS: &str = "Examples:
  portcullis completions bash > portcullis.bash";
const EXPLAIN: &str = "Examples:
  portcullis explain --demo --as bob demo__secret_note
  portcullis explain --as alice
  portcullis explain P302";
const KEY: &str = "Examples:
  portcullis key new alice
  key=$(portcullis key new alice)";
const LS: &str = "Examples:
  portcullis ls tools --demo --as bob
  portcullis ls servers
  portcullis ls bundles --json
  portcullis ls principals";
const NAMES: &str = "Examples:
  portcullis names --demo
  portcullis names demo --json";
const SERVE: &str = "Examples:
  portcullis serve --demo
  portcullis serve --config portcullis.toml";
const STATUS: &str = "Examples:
  portcullis status
  portcullis status --url http://127.0.0.1:7801 --json";

/// Which configuration.
#[derive(Debug, ClapArgs)]
pub(super) struct Source {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Use the configuration of `serve --demo` instead
    #[arg(long, conflicts_with = "config")]
    pub(super) demo: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Call {
    #[command(flatten)]
    pub(super) source: Source,
    /// On whose behalf [default: the only principal, or local]
    #[arg(long = "as", value_name = "PRINCIPAL", conflicts_with = "url")]
    pub(super) principal: Option<String>,
    /// Ask the running gateway at this address, with the key in PORTCULLIS_API_KEY
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "demo"])]
    pub(super) url: Option<String>,
    /// Print the whole result as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// The tool, by its shown name
    pub(super) tool: String,
    /// key=value is a string, unless the tool's schema names another type; key:=JSON is taken as it stands
    #[arg(value_name = "KEY=VALUE")]
    pub(super) arguments: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Print what was found as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Check policy files on their own instead
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "config")]
    pub(super) policy: Vec<PathBuf>,
    /// Print the JSON Schema of the configuration, and check nothing
    #[arg(long, conflicts_with_all = ["config", "json", "policy"])]
    pub(super) schema: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Completions {
    /// The shell
    pub(super) shell: Shell,
}

#[derive(Debug, ClapArgs)]
pub(super) struct DemoServer {
    /// Serve HTTP on this address instead of stdin and stdout
    #[arg(long)]
    pub(super) http: Option<SocketAddr>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Explain {
    #[command(flatten)]
    pub(super) source: Source,
    /// For whom [default: the only principal, or local]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub(super) principal: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// A tool by its shown name, its full name or its server's own name, or an error code; without it every tool
    #[arg(value_name = "TOOL|CODE")]
    pub(super) what: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Key {
    #[command(subcommand)]
    pub(super) action: KeyAction,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyAction {
    /// Print a new key, once, and on stderr the line for the configuration, which holds its hash alone
    New {
        /// The principal it is for
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(super) struct Ls {
    /// What to list
    pub(super) what: Listed,
    #[command(flatten)]
    pub(super) source: Source,
    /// As this principal sees them [default for tools: the only principal, or local]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub(super) principal: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What `ls` lists.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Listed {
    /// `[mcp_bundles]`, without starting anything
    Bundles,
    /// `[principals]`, without starting anything
    Principals,
    /// `[[mcp.servers]]` with their state
    Servers,
    /// The tools that a principal sees and can call
    Tools,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Names {
    #[command(flatten)]
    pub(super) source: Source,
    /// Print them as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// These servers alone; the others are not started
    #[arg(value_name = "SERVER")]
    pub(super) servers: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Run a built-in server with two principals, and write nothing
    #[arg(long, conflicts_with = "config")]
    pub(super) demo: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Status {
    /// The configuration, whose admin address is asked
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Ask at this admin address instead
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(super) url: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    pub(super) json: bool,
}
