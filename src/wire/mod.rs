//! The protocol's words: JSON-RPC, MCP, server-sent events, and the bridge between eras.
//!
//! Not for: sockets, timers, policy. Invariants: no I/O and no clock in here; what a peer sent stays as it was written,
//! and is changed only by replacing byte ranges ([`jsonrpc::Edits`]).

pub mod bridge;
pub mod json;
pub mod jsonrpc;
pub mod mcp;
pub mod sse;
