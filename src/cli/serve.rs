//! `portcullis serve`, with its start block.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::app::App;
use crate::clock::Clock;
use crate::codes::Code;
use crate::config::{self, Loaded};
use crate::demo::{self, DemoError};
use crate::id::UpstreamName;
use crate::runtime::{self, Tasks};
use crate::telemetry;

use super::args::{DemoServer, Serve};
use super::open::block_on;
use super::output::say;
use super::trouble::{Exit, Trouble};
use super::voice::{self, Voice};

/// Where the gateway is reached.
struct Places {
    mcp: String,
    /// For the transport of 2024-11-05; empty unless that is on.
    older: String,
    probes: String,
}

pub(super) fn run(serve: &Serve) -> Result<Exit, Trouble> {
    block_on(async {
        if serve.demo {
            let (loaded, _child) = start_demo().await?;
            return gateway(loaded, DEMO).await.map_err(|trouble| trouble.fix_of(Code::Bind, DEMO_TAKEN));
        }
        gateway(voice::load(&serve.config)?, "").await
    })
}

async fn gateway(loaded: Loaded, next: &str) -> Result<Exit, Trouble> {
    // To its drop, by which the last lines are written.
    let _log = telemetry::init_batching(&loaded.settings.log).map_err(|err| voice::no_log(&err))?;
    let voice = Voice::of(loaded.settings.log.format);
    voice.warn(&loaded);
    voice.end(serve(loaded, voice, next).await)
}

async fn serve(loaded: Loaded, voice: Voice, next: &str) -> Result<Exit, Trouble> {
    let disabled = loaded.settings.disabled.clone();
    let mut bound = App::build(loaded.settings, &config::base_env())?;
    bound.follow(loaded.inputs)?;
    let probe = |address: &SocketAddr| format!("http://{address}/readyz");
    let places = Places {
        mcp: bound.endpoints().join(", "),
        older: bound.older_endpoints().join(", "),
        probes: bound.admin_addresses().iter().map(probe).collect::<Vec<_>>().join(", "),
    };
    bound.start();
    let mut servers = bound.describe().await;
    let off = |(name, why)| (name, format!("disabled [{}]: {why}", Code::Secret.id()));
    servers.extend(disabled.into_iter().map(off));
    match voice {
        Voice::Log => places.log(&servers),
        Voice::Words => places.tell(&servers, next),
    }
    let finished = bound.wait().await;
    telemetry::flush();
    match finished {
        true => Ok(Exit::Ok),
        // Into the log, which waits for nobody.
        false => {
            tracing::error!(code = Code::CutOff.id(), "stopped before everything had finished");
            Err(Trouble::Told(Exit::Failure))
        }
    }
}

impl Places {
    /// Writes the start block to the log; the places come last, when all has been said.
    fn log(&self, servers: &[(UpstreamName, String)]) {
        for (name, state) in servers {
            tracing::info!(server = %name, state, "server");
        }
        let Self { mcp, older, probes } = self;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), mcp, http_sse = older, probes, "serving");
    }

    /// Shows the start block to a person, with what to try next.
    fn tell(&self, servers: &[(UpstreamName, String)], next: &str) {
        say(&format!("portcullis {}", env!("CARGO_PKG_VERSION")));
        say(&format!("  MCP      {}", self.mcp));
        if !self.older.is_empty() {
            say(&format!("  HTTP+SSE {}", self.older));
        }
        say(&format!("  probes   {}", self.probes));
        for (name, state) in servers {
            say(&format!("  server   {:<20} {state}", name.as_str()));
        }
        say(next);
    }
}

/// Starts the demo's HTTP server as a child of this binary; it ends when its stdin does, so with this process.
pub(super) async fn start_demo() -> Result<(Loaded, Child), DemoError> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(&program)
        .args(["demo-server", "--http", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
    let url = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
    Ok((demo::settings(&program, &url)?, child))
}

pub(super) fn demo_server(server: &DemoServer) -> Result<Exit, Trouble> {
    let failed = |err: std::io::Error| Trouble::new(Exit::Failure, Code::Demo, format!("the demo's server: {err}"));
    let runtime = runtime::build().map_err(failed)?;
    let served = match server.http {
        Some(address) => runtime.block_on(demo::serve_http(address, Clock::real(), Tasks::new())),
        None => runtime.block_on(demo::serve_stdio(Clock::real())),
    };
    // A read of stdin cannot be cancelled, so the runtime is not waited for.
    runtime.shutdown_background();
    served.map(|()| Exit::Ok).map_err(failed)
}

/// What helps where the demo's addresses are taken: no file says them.
const DEMO_TAKEN: &str = "End the other process, which may be a demo: it always has 127.0.0.1:7800 and 127.0.0.1:7801";

/// What to try next, for `serve --demo`.
const DEMO: &str = r#"
  Try it as alice, then as bob (Bearer demo-bob), who sees less:

  curl -s http://127.0.0.1:7800/mcp -H 'Authorization: Bearer demo-alice' \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/list' \
    -d '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'

  curl -s http://127.0.0.1:7800/mcp -H 'Authorization: Bearer demo-bob' \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: demo__add' \
    -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"demo__add","arguments":{"a":2,"b":3},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
"#;
