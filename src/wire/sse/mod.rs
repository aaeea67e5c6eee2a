//! Server-sent events: messages to the bytes of an event stream.
//!
//! Not for JSON-RPC (the payload stays opaque here) and not for keeping a clock: the caller decides when a keep-alive is
//! due. Nothing in this room does I/O.

mod encode;

pub use encode::{EventId, Frame, Head, KEEP_ALIVE, encode_endpoint, encode_message, frame_message};
