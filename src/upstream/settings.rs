//! What is configured of one server, checked and with units.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};

use crate::id::UpstreamName;
use crate::net::Reach;
use crate::secret::Secret;

/// One `[[mcp.servers]]` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Its name.
    pub name: UpstreamName,
    /// How it is reached.
    pub transport: Transport,
    /// Which era to speak.
    pub era: EraChoice,
    /// Which transport a server with a URL speaks.
    pub http: HttpKind,
    /// The bound of one JSON-RPC response: an HTTP body, an SSE event, a stdio line [LIM-1].
    pub max_response_bytes: usize,
    /// The time of one call until it is cancelled [LIM-4].
    pub tool_timeout: Duration,
    /// The longest time of one call, however much progress it reports [LIM-4].
    pub tool_max: Duration,
    /// The time from start to the end of the handshake.
    pub start_timeout: Duration,
    /// How long a server may be silent when asked for its era.
    pub probe_timeout: Duration,
    /// How long each step of a child's orderly end may take: after stdin is closed, and after TERM.
    pub end_grace: Duration,
    /// `/readyz` waits for this server; a missing secret of it fails the start.
    pub required: bool,
    /// What happens to its tools while it is down [TRN-7].
    pub on_down: OnDown,
    /// Authorities that its certificate may be of, beside the default ones; with it, nothing but https is spoken [TRN-5].
    pub tls_ca_cert_path: Option<PathBuf>,
    /// Who owns a connection; `None`: the transport's own way.
    pub isolation: Option<Isolation>,
    /// The most processes of this server at once [TRN-4].
    pub max_processes: usize,
    /// How long a process, or a session of HTTP+SSE, may be unused until it is ended; `None`: for ever [TRN-4].
    pub idle_stop: Option<Duration>,
    /// Whether a principal may read the last lines of a process's stderr in an error [TRN-4].
    pub show_stderr: bool,
    /// At which addresses another origin may be that a redirect leads to [TRN-6].
    pub redirects: Reach,
    /// Whether large answers are looked at before the client has them; if not, they are passed on as they come [LIM-1].
    pub inspect: bool,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A server with a URL: of Streamable HTTP, or of HTTP+SSE.
    Http {
        /// Its endpoint; it may hold a secret, so it is never logged.
        url: Secret<String>,
        /// The same, parsed.
        uri: Uri,
        /// Configured headers; they replace the gateway's own [TRN-6].
        headers: Vec<(HeaderName, Secret<String>)>,
    },
    /// A child process.
    Stdio {
        /// The program: a path, or a name looked up in PATH.
        command: String,
        /// Its arguments, passed as they are, without a shell.
        args: Vec<String>,
        /// Variables added to the short list of [TRN-9].
        env: Vec<(String, Secret<String>)>,
        /// Names of variables that pass from the gateway's environment, beyond that list.
        inherit_env: Vec<String>,
        /// Its working folder.
        cwd: Option<PathBuf>,
    },
}

/// Which transport a server with a URL speaks [TRN-1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpKind {
    /// Found out: Streamable HTTP, or else HTTP+SSE.
    #[default]
    Auto,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// Which era a server is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Found out.
    #[default]
    Auto,
    /// `initialize`, without a probe.
    Legacy,
    /// 2026-07-28, without a probe.
    Stateless,
}

/// Who owns a connection to a server, and with it what the server keeps for it [TRN-4].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each principal, in all of its sessions.
    Principal,
    /// Each session of a client; a client without sessions is its principal.
    Session,
    /// Nobody: all who are granted the server share it, by the operator's explicit word.
    Shared,
}

/// What happens to a server's tools while it is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDown {
    /// They leave the lists after 10 seconds.
    Hide,
    /// They stay; calls fail at once.
    #[default]
    Keep,
}

/// The URL, headers, arguments and variables may hold secrets [CFG-3]: only names are shown.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { uri, headers, .. } => {
                let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
                f.debug_struct("Http").field("host", &uri.host()).field("headers", &names).finish_non_exhaustive()
            }
            Self::Stdio { command, args, env, inherit_env, cwd } => {
                let names: Vec<_> = env.iter().map(|(name, _)| name.as_str()).collect();
                f.debug_struct("Stdio")
                    .field("command", command)
                    .field("args", &args.len())
                    .field("env", &names)
                    .field("inherit_env", inherit_env)
                    .field("cwd", cwd)
                    .finish()
            }
        }
    }
}

impl ServerSettings {
    /// The default of `max_response_bytes`: 10 MiB in base64 and 2 MiB for the envelope.
    pub const MAX_RESPONSE_BYTES: usize = 16_078_168;

    /// The default of `max_processes`.
    pub const MAX_PROCESSES: usize = 64;
    /// The default of `idle_stop_secs`.
    pub const IDLE_STOP: Duration = Duration::from_secs(1800);

    /// Returns who owns a connection: each principal its processes, each session its HTTP session, if nothing is said.
    #[must_use]
    pub const fn isolation(&self) -> Isolation {
        match (self.isolation, &self.transport) {
            (Some(isolation), _) => isolation,
            (None, Transport::Http { .. }) => Isolation::Session,
            (None, Transport::Stdio { .. }) => Isolation::Principal,
        }
    }

    /// Makes settings with the defaults of product §9.
    #[must_use]
    pub const fn new(name: UpstreamName, transport: Transport) -> Self {
        Self {
            name,
            transport,
            era: EraChoice::Auto,
            http: HttpKind::Auto,
            max_response_bytes: Self::MAX_RESPONSE_BYTES,
            tool_timeout: Duration::from_secs(60),
            tool_max: Duration::from_secs(600),
            start_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(5),
            end_grace: Duration::from_secs(2),
            required: false,
            on_down: OnDown::Keep,
            tls_ca_cert_path: None,
            isolation: None,
            max_processes: Self::MAX_PROCESSES,
            idle_stop: Some(Self::IDLE_STOP),
            show_stderr: false,
            redirects: Reach::Public,
            inspect: true,
        }
    }
}
