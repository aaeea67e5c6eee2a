//! JSON-RPC 2.0 as MCP uses it: messages with raw parts, decoding with limits, edits by byte range.
//!
//! Not for: what a method means (`wire::mcp`). Invariant: a message keeps the bytes it came as.

mod decode;
mod edit;
mod error;
mod line;
mod message;

pub use decode::{DecodeError, DecodeErrorKind, Decoded, Limits, decode, decode_skimmed};
pub use edit::Edits;
pub use error::{ErrorCode, ErrorObject, code};
pub use line::{HeadMembers, id_at, id_in_tail, one_line, trimmed};
pub use message::{Message, Notification, Params, Payload, Request, RequestId, Response};
