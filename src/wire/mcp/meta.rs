//! `_meta`: the keys the gateway reads and rebuilds per hop [TRN-9].
//!
//! Not for: other keys; they pass as they are.

use std::borrow::Cow;

use super::STATELESS_LATEST;
use super::trace::TRACE_KEYS;
use crate::wire::json::{self, JsonError, Raw};
use crate::wire::jsonrpc::Params;
use bytes::Bytes;

/// The protocol version of a request.
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's self-description.
pub const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// What the client can do, for this request alone.
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// The log level wanted for this request.
pub const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
/// The server's self-description, on a result.
pub const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the listen request a notification belongs to.
pub const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// Begins every key that is rebuilt per hop.
pub const RESERVED_PREFIX: &str = "io.modelcontextprotocol/";
/// The progress token.
pub const PROGRESS_TOKEN_KEY: &str = "progressToken";

/// What a request's `_meta` says. Most have none, and it goes through many hands: so it is apart.
#[derive(Clone, Debug, Default)]
pub struct RequestMeta(Option<Box<MetaParts>>);

/// The parts of a `_meta`. Raw values are slices of the request.
#[derive(Clone, Debug)]
pub struct MetaParts {
    /// The whole `_meta` object, if there is one.
    pub raw: Option<Bytes>,
    /// `protocolVersion` as text; `Some(None)` if it is there but no string.
    pub version: Option<Option<Cow<'static, str>>>,
    /// `clientCapabilities`, an object.
    pub capabilities: Option<Bytes>,
    /// `clientInfo`.
    pub client_info: Option<Bytes>,
    /// `progressToken`: a string or an integer, as spelled.
    pub progress_token: Option<Bytes>,
    /// `logLevel`, as spelled.
    pub log_level: Option<Bytes>,
    /// `traceparent`, `tracestate` and `baggage`, as spelled.
    pub trace: [Option<Bytes>; 3],
}

/// Why `_meta` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// Not an object, or a key that is read stands twice.
    #[error("'_meta' cannot be read: {0}")]
    Malformed(#[from] JsonError),
    /// A key has a value of the wrong kind.
    #[error("'_meta' key '{0}' has the wrong type")]
    WrongType(&'static str),
}

/// A request without `_meta` says nothing.
static NOTHING: MetaParts = MetaParts {
    raw: None,
    version: None,
    capabilities: None,
    client_info: None,
    progress_token: None,
    log_level: None,
    trace: [const { None }; 3],
};

impl std::ops::Deref for RequestMeta {
    type Target = MetaParts;

    fn deref(&self) -> &MetaParts {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

// === impl RequestMeta ===

impl RequestMeta {
    /// Reads the `_meta` of params.
    ///
    /// # Errors
    /// [`MetaError`] if params or `_meta` hold a key twice that is read here, or a value of the wrong kind.
    pub fn read(params: Option<&Params>) -> Result<Self, MetaError> {
        let Some(params) = params else { return Ok(Self::default()) };
        const KEYS: [&str; 8] = [
            VERSION_KEY,
            CAPABILITIES_KEY,
            PROGRESS_TOKEN_KEY,
            CLIENT_INFO_KEY,
            LOG_LEVEL_KEY,
            "traceparent",
            "tracestate",
            "baggage",
        ];
        let Some((at, places)) = params.find_in_meta(KEYS)? else { return Ok(Self::default()) };
        let [version, capabilities, progress_token, client_info, log_level, parent, state, baggage] = places;
        let slice = |at| params.part(at);
        let raw = slice(at);
        let version = version.map(|at| {
            let version = slice(at);
            // The one that there is needs no memory of its own.
            if let Some(spelled) = version.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""))
                && spelled == STATELESS_LATEST.as_str().as_bytes()
            {
                return Some(Cow::Borrowed(STATELESS_LATEST.as_str()));
            }
            json::text(Raw::new(&version)).map(|version| Cow::Owned(version.into_owned()))
        });
        let capabilities = capabilities.map(slice);
        if capabilities.as_ref().is_some_and(|value| value.first() != Some(&b'{')) {
            return Err(MetaError::WrongType(CAPABILITIES_KEY));
        }
        let progress_token = progress_token.map(slice);
        if progress_token.as_ref().is_some_and(|value| !matches!(value.first(), Some(b'"' | b'-' | b'0'..=b'9'))) {
            return Err(MetaError::WrongType(PROGRESS_TOKEN_KEY));
        }
        let (client_info, log_level) = (client_info.map(slice), log_level.map(slice));
        let trace = [parent, state, baggage].map(|value| value.map(slice));
        let parts = MetaParts { version, capabilities, client_info, progress_token, log_level, trace, raw: Some(raw) };
        Ok(Self(Some(Box::new(parts))))
    }

    /// Says whether the request is of the stateless era by its own word (protocol §2.8).
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        self.version.is_some()
    }

    /// Says whether it holds something of a trace, be it valid or not.
    #[must_use]
    pub fn has_trace(&self) -> bool {
        self.trace.iter().any(Option::is_some)
    }

    /// Returns the members that pass to the next hop as they are: `(key as JSON text, value)`.
    #[must_use]
    pub fn passing(&self) -> Vec<(Bytes, Bytes)> {
        let Some(raw) = &self.raw else { return Vec::new() };
        let Ok(members) = json::members(raw) else { return Vec::new() };
        members
            .iter()
            .filter(|(key, _)| !key.starts_with(RESERVED_PREFIX.as_bytes()) && !is_rebuilt(key))
            .map(|(key, value)| (json::quoted(&String::from_utf8_lossy(&key)), raw.slice_ref(value.get())))
            .collect()
    }
}

/// Says whether a key without a prefix is made anew for each hop.
fn is_rebuilt(key: &[u8]) -> bool {
    key == PROGRESS_TOKEN_KEY.as_bytes() || TRACE_KEYS.iter().any(|other| key == other.as_bytes())
}
