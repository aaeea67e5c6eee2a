//! Whose line it is, of a line whose middle is missing.
//!
//! Not for: reading lines (`net::LineReader`).

use crate::net::Ends;
use crate::wire::jsonrpc::{HeadMembers, id_at, id_in_tail};

/// Whose line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Whose {
    /// A request or notification of the server.
    Server,
    /// The answer to this request.
    Ours(u64),
    /// Neither could be seen.
    Unknown,
}

/// Says whose line this is, as far as its ends tell.
pub(in crate::upstream) fn whose(ends: &Ends) -> Whose {
    match in_head(&ends.head) {
        Whose::Unknown => id_in_tail(&ends.tail).and_then(|id| id.as_u64()).map_or(Whose::Unknown, Whose::Ours),
        known @ (Whose::Ours(_) | Whose::Server) => known,
    }
}

/// Looks for `"id":N` or `"method":` among the outermost members at the begin of a message.
pub(in crate::upstream) fn in_head(head: &[u8]) -> Whose {
    for (key, value) in HeadMembers::of(head) {
        match key {
            b"method" => return Whose::Server,
            b"id" => return id_at(value).and_then(|id| id.as_u64()).map_or(Whose::Unknown, Whose::Ours),
            _ => {}
        }
    }
    Whose::Unknown
}
