//! What a door hands to the hall, in the one canonical form: a stateless request with its facts beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::id::{PrincipalId, UpstreamName};
use crate::wire::jsonrpc::Request;

use super::{Aside, Watching};
use crate::wire::mcp::{CallParams, Features, HeaderParam, Kind, Kinds, Level, ProtocolVersion, RequestMeta, Trace};

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
    /// From which severity on it wants logs with this request; `None` if it did not say.
    pub log: Option<Level>,
}

impl ClientFacts {
    /// Says whether the client knows links to resources; to others the URI is text [LIM-7].
    #[must_use]
    pub fn knows_links(&self) -> bool {
        self.version >= ProtocolVersion::V2025_06_18
    }
}

/// Who owns server-side state: a legacy client session, or for stateless clients the principal (design §12a).
#[derive(Clone, Debug)]
pub struct Owner {
    /// The key.
    pub key: OwnerKey,
    /// Cancelled when the owner ends: then its server sessions are closed. `None` for one that does not end.
    pub ended: Option<CancellationToken>,
    /// What passes beside its calls. `None` for one that nothing can be said to.
    pub aside: Option<Arc<Aside>>,
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
    /// `server/discover`, and the facts of `initialize`.
    Discover,
    /// A list, answered from the view.
    List {
        /// What is listed.
        kind: Kind,
        /// The cursor as the client sent it.
        cursor: Option<String>,
        /// Takes note of what this client has been shown.
        told: Told,
    },
    /// A stream of list changes: `subscriptions/listen`, or a legacy session's GET.
    Listen(Listen),
    /// `resources/subscribe`.
    Watch {
        /// The resource.
        uri: String,
        /// Where its updates go.
        watching: Watching,
    },
    /// A request that one server answers: `tools/call`, `prompts/get`, `resources/read`, `completion/complete`.
    ToServer(Arc<ServerCall>),
}

/// What a listener wants.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Which kinds it wants to hear of. A change of templates is told as one of resources.
    pub kinds: Kinds,
    /// What the client knows.
    pub told: Told,
    /// What is told moves it: it is this listener's own, and no list does.
    pub own: bool,
    /// The resources it wants to hear of, where it says so itself.
    pub resources: Vec<String>,
    /// The resources that its client watches, and what has changed of them.
    pub watching: Watching,
}

/// The fingerprints of what is visible at a moment, one for each kind [POL-10].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(pub [u64; Kind::ALL.len()]);

/// The fingerprints of the visible sets that a client has listed last; zero of what it has never listed [POL-10]. A listener
/// without a session has its own, which what it is told moves.
///
/// A change is pending exactly if one differs from the present one: no bit is stored that could be wrong, and what was
/// written to a stream that is dead already is told again on the next.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<[AtomicU64; Kind::ALL.len()]>);

impl Told {
    /// Starts from what the client can see now.
    #[must_use]
    pub fn new(seen: Seen) -> Self {
        Self(Arc::new(seen.0.map(AtomicU64::new)))
    }

    /// Takes note of what the client has listed, or was told of.
    pub fn update(&self, kind: Kind, fingerprint: u64) {
        if let Some(cell) = self.0.get(kind.index()) {
            cell.store(fingerprint, Ordering::Release);
        }
    }

    /// Returns what the client knows.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen(std::array::from_fn(|index| self.0.get(index).map_or(0, |cell| cell.load(Ordering::Acquire))))
    }
}

impl Seen {
    /// Returns the fingerprint of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.0.get(kind.index()).copied().unwrap_or_default()
    }
}

/// A request that one server answers, as received.
#[derive(Clone, Debug)]
pub struct ServerCall {
    /// The whole request.
    pub request: Request,
    /// Its params, and the method they are of.
    pub params: CallParams,
    /// Its `_meta`.
    pub meta: RequestMeta,
    /// The `Mcp-Param-*` headers (name after the prefix, lower case; value as received); `None` for legacy clients,
    /// which do not mirror arguments [R53].
    pub param_headers: Option<Vec<(String, String)>>,
    /// The trace that it is part of.
    pub trace: Option<Box<Trace>>,
}

/// A call on its way to one server, once it is permitted.
#[derive(Clone, Debug)]
pub struct UpstreamCall {
    /// The call as received.
    pub call: Arc<ServerCall>,
    /// The server's own name for what is named, or its URI.
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
    /// The trace that it is part of, with the gateway's own span.
    pub trace: Option<Box<Trace>>,
}

// === impl Owner ===

impl Owner {
    /// The principal, across its stateless requests.
    #[must_use]
    pub const fn principal(principal: PrincipalId) -> Self {
        Self { key: OwnerKey::Principal(principal), ended: None, aside: None }
    }
}

// === impl ClientFacts ===

impl ClientFacts {
    /// Says from which severity on the client wants logs.
    #[must_use]
    pub fn logging(self, log: Option<Level>) -> Self {
        Self { log, ..self }
    }

    /// Takes what a client of `version` says of itself.
    #[must_use]
    pub fn new(version: ProtocolVersion, info: Option<Bytes>, capabilities: Bytes) -> Self {
        let features = Features::read(&capabilities, version);
        Self { version, info, capabilities, features, log: None }
    }
}
