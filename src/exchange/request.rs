//! What a door hands to the hall, in the one canonical form: a stateless request with its facts beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::id::{PrincipalId, UpstreamName};
use crate::wire::jsonrpc::Request;
use crate::wire::mcp::{CallParams, Features, HeaderParam, ProtocolVersion, RequestMeta};

/// What a path names [NAM-5].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/mcp`: every server of the principal, names prefixed.
    All,
    /// `/mcp/<server>`: one server under its own names.
    Server(UpstreamName),
}

/// One request of a client.
#[derive(Debug)]
pub struct Exchange {
    /// What the path names.
    pub endpoint: Endpoint,
    /// What the client says of itself.
    pub client: ClientFacts,
    /// Who owns server-side state that this request may open.
    pub owner: Owner,
    /// What is asked.
    pub call: Call,
}

/// What a client says of itself; never a ground for a security decision.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// The revision it speaks.
    pub version: ProtocolVersion,
    /// Its `clientInfo`, raw.
    pub info: Option<Bytes>,
    /// Its declared capabilities, a raw object.
    pub capabilities: Bytes,
    /// What it can be asked by them.
    pub features: Features,
}

/// Who owns server-side state: a legacy client session, or for stateless clients the principal (design §12a).
#[derive(Clone, Debug)]
pub struct Owner {
    /// The key.
    pub key: OwnerKey,
    /// Cancelled when the owner ends: then its server sessions are closed. `None` for one that does not end.
    pub ended: Option<CancellationToken>,
}

/// The identity of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnerKey {
    /// The principal itself, across its stateless requests.
    Principal(PrincipalId),
    /// One legacy client session; numbers are never reused.
    Session(u64),
}

/// What is asked.
#[derive(Debug)]
pub enum Call {
    /// `tools/call`.
    CallTool(Arc<ToolCall>),
    /// `server/discover`, and the facts of `initialize`.
    Discover,
    /// A stream of list changes: `subscriptions/listen`, or a legacy session's GET.
    Listen(Listen),
    /// `tools/list`.
    ListTools {
        /// The cursor as the client sent it.
        cursor: Option<String>,
        /// Takes note of what this client has been shown.
        told: Told,
    },
}

/// What a listener wants.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Wants to hear of changed tools.
    pub tools: bool,
    /// What the client knows.
    pub told: Told,
    /// What is told moves it: it is this listener's own, and no list does.
    pub own: bool,
}

/// The fingerprint of the visible set that a client has listed last, or could see when its session began [POL-10]. A
/// listener without a session has one of its own, which what it is told moves.
///
/// A change is pending exactly if it differs from the present one: no bit is stored that could be wrong, and what was
/// written to a stream that is dead already is told again on the next.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<AtomicU64>);

impl Told {
    /// Starts from what the client can see now.
    #[must_use]
    pub fn new(fingerprint: u64) -> Self {
        Self(Arc::new(AtomicU64::new(fingerprint)))
    }

    /// Takes note of what the client has listed.
    pub fn update(&self, fingerprint: u64) {
        self.0.store(fingerprint, Ordering::Release);
    }

    /// Returns what the client has listed.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A `tools/call` as received.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The whole request.
    pub request: Request,
    /// Its params.
    pub params: CallParams,
    /// Its `_meta`.
    pub meta: RequestMeta,
    /// The `Mcp-Param-*` headers (name after the prefix, lower case; value as received); `None` for legacy clients,
    /// which do not mirror arguments [R53].
    pub param_headers: Option<Vec<(String, String)>>,
}

/// A call on its way to one server, once it is permitted.
#[derive(Clone, Debug)]
pub struct UpstreamCall {
    /// The call as received.
    pub call: Arc<ToolCall>,
    /// The server's own name for the tool.
    pub original: Arc<str>,
    /// The same as JSON text, as the server spells it.
    pub original_spelled: Bytes,
    /// The arguments that travel as headers.
    pub header_params: Arc<[HeaderParam]>,
    /// What the client says of itself.
    pub client: ClientFacts,
    /// Who owns the server-side session.
    pub owner: Owner,
    /// On whose behalf.
    pub principal: PrincipalId,
    /// The server's own `requestState` as JSON text, opened from the sealed one.
    pub request_state: Option<Bytes>,
}

// === impl ClientFacts ===

impl ClientFacts {
    /// Takes what a client of `version` says of itself.
    #[must_use]
    pub fn new(version: ProtocolVersion, info: Option<Bytes>, capabilities: Bytes) -> Self {
        let features = Features::read(&capabilities, version);
        Self { version, info, capabilities, features }
    }
}
