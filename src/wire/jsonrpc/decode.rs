//! Bytes to messages, within limits [R17, R41, FC-SEC-03, FC-SEC-09].
//!
//! Not for: deciding whether a batch is allowed; that depends on the session's protocol version.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::{Message, Notification, Params, Payload, Request, RequestId, Response};
use crate::wire::json::{self, Floors, JsonError, Raw, ScanError, Skim};

/// The bounds of one message.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How deep brackets may nest.
    pub depth_max: usize,
    /// How many elements a batch may have.
    pub batch_max: usize,
}

impl Limits {
    /// The bounds for what clients send.
    pub const DOWNSTREAM: Self = Self { depth_max: 128, batch_max: 64 };
    /// The bounds for what servers send.
    pub const UPSTREAM: Self = Self { depth_max: 512, batch_max: 64 };
}

/// What a body held.
#[derive(Debug)]
pub enum Decoded {
    /// An array: only 2025-03-26 has it. Each element stands for itself.
    Batch(Vec<Result<Message, DecodeError>>),
    /// One message.
    One(Message),
}

/// Why a body is no message.
#[derive(Clone, Debug)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// The id, where it could be read: an error must carry it.
    pub id: Option<RequestId>,
}

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// An array without elements, or with too many.
    #[error("a batch must have 1 to {0} elements")]
    BatchSize(usize),
    /// Nested too deep.
    #[error("JSON nests deeper than {0}")]
    Depth(usize),
    /// JSON, but not a JSON-RPC message.
    #[error("not a JSON-RPC 2.0 message: {0}")]
    NotMessage(String),
    /// Not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
}

/// Decodes a body or a line, in one pass over its bytes.
///
/// # Errors
/// [`DecodeError`] with the id where one could be read.
pub fn decode(raw: &Bytes, limits: &Limits) -> Result<Decoded, DecodeError> {
    decode_skimmed(raw, limits, &Skim::default())
}

/// Decodes a body of which `skim` has seen some already.
///
/// # Errors
/// As [`decode`].
pub fn decode_skimmed(raw: &Bytes, limits: &Limits, skim: &Skim) -> Result<Decoded, DecodeError> {
    if first_byte(raw) != Some(b'[') {
        return message(raw, limits.depth_max, skim).map(Decoded::One);
    }
    let elements = json::elements(raw).map_err(|err| malformed(&err))?;
    if elements.is_empty() || elements.len() > limits.batch_max {
        return Err(DecodeErrorKind::BatchSize(limits.batch_max).into());
    }
    // The array itself is one bracket of the depth.
    let depth_max = limits.depth_max.saturating_sub(1);
    Ok(Decoded::Batch(elements.into_iter().map(|at| message(&raw.slice(at), depth_max, &Skim::default())).collect()))
}

fn first_byte(raw: &[u8]) -> Option<u8> {
    raw.iter().copied().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

fn malformed(err: &JsonError) -> DecodeErrorKind {
    match err {
        JsonError::Duplicate(_) | JsonError::Kind(_) => DecodeErrorKind::NotMessage(err.to_string()),
        JsonError::Scan(ScanError::Depth(depth_max)) => DecodeErrorKind::Depth(*depth_max),
        JsonError::Scan(err @ ScanError::Expected(..)) => DecodeErrorKind::NotJson(err.to_string()),
    }
}

fn message(raw: &Bytes, depth_max: usize, skim: &Skim) -> Result<Message, DecodeError> {
    let wanted = |key: &[u8]| matches!(key, b"params" | b"result" | b"error");
    let mut floors = Floors::default();
    json::floors(raw, depth_max, (wanted, b"_meta"), skim, &mut floors).map_err(|err| malformed(&err))?;
    let Floors { outer, inner, third: meta } = floors;
    let id_of = |at: &Range<usize>| RequestId::from_raw(raw.slice(at.clone()));
    let [version, id_at, method, params, result, error] =
        outer.find(raw, ["jsonrpc", "id", "method", "params", "result", "error"]).map_err(|err| DecodeError {
            kind: DecodeErrorKind::NotMessage(err.to_string()),
            id: outer.at(raw, "id").ok().flatten().as_ref().and_then(id_of),
        })?;
    let id = id_at.as_ref().and_then(id_of);
    let refused = |why: &str| DecodeError { kind: DecodeErrorKind::NotMessage(why.to_owned()), id: id.clone() };
    let text = |at: &Range<usize>| raw.get(at.clone()).unwrap_or_default();
    if version.as_ref().map(text) != Some(b"\"2.0\"") {
        return Err(refused("'jsonrpc' must be \"2.0\""));
    }
    let Some(method) = method else {
        let payload = match (result, error) {
            (Some(at), None) => Payload::Result(at),
            (None, Some(at)) => Payload::Error(at),
            (Some(_), Some(_)) => return Err(refused("both 'result' and 'error'")),
            (None, None) => return Err(refused("no 'method', 'result' or 'error'")),
        };
        let start = memchr::memchr(b'{', raw).unwrap_or(0) + 1;
        // An answer may carry 'params' of its own, which mean nothing.
        let outline = inner.filter(|_| params.is_none());
        let id_at = id_at.unwrap_or(start..start);
        let response = Response { raw: raw.clone(), id, id_at, payload, outline, edits: Vec::new() };
        return Ok(Message::Response(Box::new(response)));
    };
    if result.is_some() || error.is_some() {
        return Err(refused("both a call and an answer"));
    }
    let method = name_of(Raw::new(text(&method))).ok_or_else(|| refused("'method' must be a string"))?;
    let params = match (params, inner) {
        (None, _) => None,
        (Some(at), Some(outline)) => Some(Box::new(Params::new(raw.clone(), at, outline, meta))),
        (Some(_), None) => return Err(refused("'params' must be an object")),
    };
    let raw = raw.clone();
    match (id_at, id) {
        (None, _) => Ok(Message::Notification(Notification { raw, method, params })),
        (Some(id_at), Some(id)) => Ok(Message::Request(Request { raw, id, id_at, method, params })),
        (Some(_), None) => Err(DecodeErrorKind::NotMessage("'id' must be a string or a number".to_owned()).into()),
    }
}

/// Reads a method's name. The names that come most often need no memory of their own.
fn name_of(raw: Raw<'_>) -> Option<Cow<'static, str>> {
    match raw.get() {
        b"\"tools/call\"" => Some(Cow::Borrowed("tools/call")),
        b"\"notifications/progress\"" => Some(Cow::Borrowed("notifications/progress")),
        b"\"notifications/message\"" => Some(Cow::Borrowed("notifications/message")),
        _ => json::text(raw).map(|name| Cow::Owned(name.into_owned())),
    }
}

impl From<DecodeErrorKind> for DecodeError {
    fn from(kind: DecodeErrorKind) -> Self {
        Self { kind, id: None }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
