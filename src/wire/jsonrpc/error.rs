//! JSON-RPC error codes and objects.
//!
//! Not for: which refusal gets which code; that one table is `downstream::respond`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON-RPC error code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub i64);

/// The codes of JSON-RPC, of MCP 2026-07-28 (basic, "Error Codes"), and our own (product §9).
pub mod code {
    use super::ErrorCode;

    /// The body is not JSON.
    pub const PARSE: ErrorCode = ErrorCode(-32700);
    /// Not a single valid request or notification.
    pub const INVALID_REQUEST: ErrorCode = ErrorCode(-32600);
    /// Method unknown, or behind a capability that is not advertised.
    pub const METHOD_NOT_FOUND: ErrorCode = ErrorCode(-32601);
    /// Bad params: unknown tool, bad cursor, missing `_meta`.
    pub const INVALID_PARAMS: ErrorCode = ErrorCode(-32602);
    /// The gateway or the server failed.
    pub const INTERNAL: ErrorCode = ErrorCode(-32603);
    /// A legacy resource is missing; only received, never sent.
    pub const RESOURCE_NOT_FOUND: ErrorCode = ErrorCode(-32002);
    /// A legacy server wants URL elicitation; only received, never sent to a stateless client.
    pub const URL_ELICITATION_REQUIRED: ErrorCode = ErrorCode(-32042);
    /// Headers and body disagree.
    pub const HEADER_MISMATCH: ErrorCode = ErrorCode(-32020);
    /// The request did not declare a capability it needs.
    pub const MISSING_CAPABILITY: ErrorCode = ErrorCode(-32021);
    /// The protocol version is not served.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(-32022);
    /// Over a limit of the gateway.
    pub const LIMIT: ErrorCode = ErrorCode(-31000);
    /// Too many requests.
    pub const RATE: ErrorCode = ErrorCode(-31001);
    /// Too many sessions or streams.
    pub const TOO_MANY_SESSIONS: ErrorCode = ErrorCode(-31002);
    /// The gateway is stopping.
    pub const DRAINING: ErrorCode = ErrorCode(-31003);
    /// Refused by policy, outside of `tools/call`.
    pub const POLICY: ErrorCode = ErrorCode(-31004);
    /// No or wrong credential.
    pub const UNAUTHENTICATED: ErrorCode = ErrorCode(-31005);
}

/// An error object as a peer sent it.
#[derive(Clone, Debug, Deserialize)]
pub struct ErrorObject {
    /// The code.
    pub code: ErrorCode,
    /// The peer's words: data, never format string.
    #[serde(default)]
    pub message: String,
    /// The peer's data, raw.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// Reads an error object; a malformed one becomes [`code::INTERNAL`] with a fixed message.
    #[must_use]
    pub fn read(raw: &[u8]) -> Self {
        serde_json::from_slice(raw).unwrap_or_else(|_| Self {
            code: code::INTERNAL,
            message: "malformed error object".to_owned(),
            data: None,
        })
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
