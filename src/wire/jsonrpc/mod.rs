//! JSON-RPC 2.0 as MCP uses it: messages with raw parts, decoding with limits, edits by byte range.
//!
//! Not for: what a method means (`wire::mcp`). Invariant: a message keeps the bytes it came as.

mod decode;
mod edit;
mod error;
mod message;

pub use decode::{DecodeError, DecodeErrorKind, Decoded, Limits, decode};
pub use edit::Edits;
pub use error::{ErrorCode, ErrorObject, code};
pub use message::{Message, Notification, Params, Payload, Request, RequestId, Response};
