//! Arguments, and the examples that each verb's help shows. A test runs every one of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::clients::Client;

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
    /// Put the gateway between a client and the servers of its own file, or take it away again
    #[command(after_help = CONNECT)]
    Connect(Connect),
    /// The demo's own server
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// Say why a tool is shown or hidden and by which line of which file, or what an error code means
    #[command(after_help = EXPLAIN)]
    Explain(Explain),
    /// Ends what a gateway leaves behind; a gateway starts it
    #[command(hide = true)]
    Guardian,
    /// Take over the servers of a client's file, after trying each of them
    #[command(after_help = IMPORT)]
    Import(Import),
    /// Make an API key
    #[command(after_help = KEY)]
    Key(Key),
    /// List servers, tools, prompts, resources, bundles or principals
    #[command(after_help = LS)]
    Ls(Ls),
    /// Show how the servers' own names of tools and prompts became the shown ones
    #[command(after_help = NAMES)]
    Names(Names),
    /// Run the gateway
    #[command(after_help = SERVE)]
    Serve(Serve),
    /// Ask a running gateway whether it is ready
    #[command(after_help = STATUS)]
    Status(Status),
    /// Run a gateway on stdin and stdout, for a client that starts its servers
    #[command(after_help = STDIO)]
    Stdio(Stdio),
}

impl Verb {
    /// Says whether it may start servers, so that a guardian is needed.
    pub(super) const fn starts_servers(&self) -> bool {
        match self {
            Self::Call(_)
            | Self::Explain(_)
            | Self::Import(_)
            | Self::Ls(_)
            | Self::Names(_)
            | Self::Serve(_)
            | Self::Stdio(_) => true,
            Self::Check(_)
            | Self::Completions(_)
            | Self::Connect(_)
            | Self::DemoServer(_)
            | Self::Guardian
            | Self::Key(_)
            | Self::Status(_) => false,
        }
    }
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
const CONNECT: &str = "Examples:
  portcullis connect cursor --dry-run
  portcullis connect cursor
  portcullis connect cursor --undo";
const EXPLAIN: &str = "Examples:
  portcullis explain --demo --as bob demo__secret_note
  portcullis explain --as alice
  portcullis explain P302
  portcullis explain P102 P111";
const IMPORT: &str = "Examples:
  portcullis import ~/.cursor/mcp.json --dry-run
  portcullis import ~/.cursor/mcp.json";
const KEY: &str = "Examples:
  portcullis key new alice
  key=$(portcullis key new alice)";
const LS: &str = "Examples:
  portcullis ls tools --demo --as bob
  portcullis ls servers
  portcullis ls resources --demo --as bob
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
const STDIO: &str = "Examples:
  portcullis stdio --as alice
  portcullis stdio --as alice --server demo";

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
pub(super) struct Connect {
    /// claude-code, claude-desktop, codex, cursor, vscode or zed
    #[arg(value_parser = client)]
    pub(super) client: Client,
    /// Put back what stood there before
    #[arg(long, conflicts_with_all = ["name", "url", "config"])]
    pub(super) undo: bool,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// The principal that the client is; without it the only principal, or 'local'
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
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
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
pub(super) struct Explain {
    #[command(flatten)]
    pub(super) source: Source,
    /// For whom [default: the only principal, or local]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub(super) principal: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// A tool by its shown name, its full name or its server's own name, or error codes; without it every tool
    #[arg(value_name = "TOOL|CODE")]
    pub(super) what: Vec<String>,
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
    /// The prompts that a principal sees and can get
    Prompts,
    /// The resources that a principal sees listed and can read
    Resources,
    /// `[[mcp.servers]]` with their state
    Servers,
    /// The resource templates that a principal sees
    Templates,
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
pub(super) struct Stdio {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "portcullis.toml")]
    pub(super) config: PathBuf,
    /// Who the client is; without it the only principal, or 'local'
    #[arg(long = "as", value_name = "NAME")]
    pub(super) principal: Option<String>,
    /// Show this server alone, its tools under their own names
    #[arg(long, value_name = "NAME")]
    pub(super) server: Option<String>,
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
