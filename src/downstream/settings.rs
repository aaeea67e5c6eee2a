//! What the front door needs to know, checked, with units.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::net::TlsFiles;
use crate::session::ReplayLimits;

/// Whether every request writes a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Refusals alone.
    #[default]
    Off,
    /// Every request.
    On,
}

/// Whether the transport of 2024-11-05 is there too [TRN-1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpSse {
    /// Streamable HTTP alone.
    #[default]
    Off,
    /// At `/sse`.
    On,
}

/// Settings of the MCP listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamSettings {
    /// Where it listens; several addresses are several sockets (`localhost:P` binds both families).
    pub addresses: Vec<SocketAddr>,
    /// Local sockets it listens on too, each for its owner alone (mode 0600); never with TLS.
    pub sockets: Vec<PathBuf>,
    /// The certificate of the addresses; without it they are plain.
    pub tls: Option<TlsFiles>,
    /// Host names beyond loopback ones that `Host` may carry, without port; on a loopback listener loopback names are
    /// always taken [TRN-6].
    pub allowed_hosts: Vec<String>,
    /// Origins (scheme, host, port) that a browser page may have; loopback origins are taken on a loopback listener.
    pub allowed_origins: Vec<String>,
    /// Whether the transport of 2024-11-05 is there too.
    pub http_sse: HttpSse,
    /// The path under which clients that come through another proxy reach the gateway, as `/tools`; empty without one. Requests
    /// may have it or not.
    pub public_path: String,
    /// The largest request body, in bytes; over it 413.
    pub body_bytes_max: usize,
    /// How many bytes of large bodies are held at once, while they are read and while their calls run; over it 503.
    pub bodies_bytes_max: usize,
    /// The largest request head, in bytes; over it 431.
    pub header_bytes_max: usize,
    /// The most header fields; over it 431.
    pub headers_max: usize,
    /// The most client connections at once; one task and two buffers each.
    pub connections_max: usize,
    /// The most legacy sessions in all; a few KiB each.
    pub sessions_max: usize,
    /// The most legacy sessions of one principal.
    pub sessions_per_principal_max: usize,
    /// How long a legacy session may be idle.
    pub session_idle: Duration,
    /// How long a client may take to answer what a server asks.
    pub question: Duration,
    /// The most calls in all that wait for the answers of a stateless client; each keeps its server's connection.
    pub parked_max: usize,
    /// The most of one principal.
    pub parked_per_principal_max: usize,
    /// The pause after which a silent stream gets a comment; a silent POST becomes a stream then.
    pub keep_alive: Duration,
    /// What is kept for a legacy client whose connection was lost in the middle of a call's stream.
    pub replay: ReplayLimits,
    /// How long a client may take nothing of an answer that is being written to it.
    pub write_timeout: Duration,
    /// Whether every request writes a line; a refusal always does.
    pub access: AccessLog,
}

impl DownstreamSettings {
    /// How many of the largest bodies are held at once.
    const BODIES: usize = 16;

    /// Sets the largest request body, and makes room for so many of them as there is by default; not less than that.
    pub fn set_body_bytes_max(&mut self, bytes: usize) {
        self.body_bytes_max = bytes;
        self.bodies_bytes_max = self.bodies_bytes_max.max(bytes.saturating_mul(Self::BODIES));
    }
}

impl Default for DownstreamSettings {
    fn default() -> Self {
        Self {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 7800))],
            sockets: Vec::new(),
            tls: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            http_sse: HttpSse::Off,
            public_path: String::new(),
            body_bytes_max: 16 << 20,
            bodies_bytes_max: Self::BODIES << 24,
            header_bytes_max: 64 << 10,
            headers_max: 100,
            connections_max: 10_000,
            sessions_max: 10_000,
            sessions_per_principal_max: 1_000,
            session_idle: Duration::from_secs(1_800),
            question: Duration::from_secs(600),
            parked_max: 256,
            parked_per_principal_max: 16,
            keep_alive: Duration::from_secs(25),
            write_timeout: Duration::from_secs(60),
            replay: ReplayLimits { time: Duration::from_secs(60), stream_bytes: 1 << 20, session_bytes: 4 << 20 },
            access: AccessLog::Off,
        }
    }
}
