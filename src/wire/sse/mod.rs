//! Server-sent events: bytes of an event stream to raw blocks, and messages to bytes.
//!
//! Not for JSON-RPC (the payload stays opaque here), not for resuming or reconnecting, and not for keeping a clock: the
//! caller decides when a keep-alive is due. Nothing in this room does I/O.
//!
//! Invariants: what [`Decoder`] yields does not depend on how the stream was cut into chunks; what `encode` writes,
//! [`Decoder`] reads back as the same text.

mod decode;
mod encode;
mod skip;
#[cfg(test)]
mod skip_tests;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, Decoder, Event, Limits};
pub use encode::{
    END, EventId, Frame, Head, KEEP_ALIVE, begin_message, encode_endpoint, encode_message, frame_message, message, room,
};
pub use skip::Ends;
