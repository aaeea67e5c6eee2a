//! Bytes to messages, within limits [R17, R41, FC-SEC-03, FC-SEC-09].
//!
//! Not for: deciding whether a batch is allowed; that depends on the session's protocol version.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{Message, Notification, Payload, Request, RequestId, Response};
use crate::wire::json::{self, Members};

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

/// Decodes a body or a line.
///
/// # Errors
/// [`DecodeError`] with the id where one could be read.
pub fn decode(raw: &Bytes, limits: &Limits) -> Result<Decoded, DecodeError> {
    if !json::depth_within(raw, limits.depth_max) {
        return Err(DecodeErrorKind::Depth(limits.depth_max).into());
    }
    if first_byte(raw) != Some(b'[') {
        return message(raw).map(Decoded::One);
    }
    let elements: Vec<&RawValue> =
        serde_json::from_slice(raw).map_err(|err| DecodeErrorKind::NotJson(err.to_string()))?;
    if elements.is_empty() || elements.len() > limits.batch_max {
        return Err(DecodeErrorKind::BatchSize(limits.batch_max).into());
    }
    Ok(Decoded::Batch(elements.into_iter().map(|element| message(&raw.slice_ref(element.get().as_bytes()))).collect()))
}

fn first_byte(raw: &[u8]) -> Option<u8> {
    raw.iter().copied().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

fn message(raw: &Bytes) -> Result<Message, DecodeError> {
    let members = match json::members(raw) {
        Ok(members) => members,
        Err(err) if serde_json::from_slice::<&RawValue>(raw).is_ok() => {
            return Err(DecodeErrorKind::NotMessage(err.to_string()).into());
        }
        Err(err) => return Err(DecodeErrorKind::NotJson(err.to_string()).into()),
    };
    let id = id(raw, &members);
    build(raw, &members).map_err(|why| DecodeError { kind: DecodeErrorKind::NotMessage(why), id })
}

fn id(raw: &Bytes, members: &Members<'_>) -> Option<RequestId> {
    members.get("id").ok().flatten().and_then(|id| RequestId::from_raw(raw.slice_ref(id.get().as_bytes())))
}

fn build(raw: &Bytes, members: &Members<'_>) -> Result<Message, String> {
    let get = |key| members.get(key).map_err(|err| err.to_string());
    let place = |value: &RawValue| json::range_in(raw, value.get());
    if get("jsonrpc")?.map(RawValue::get) != Some("\"2.0\"") {
        return Err("'jsonrpc' must be \"2.0\"".to_owned());
    }
    let id_raw = get("id")?;
    let params = get("params")?;
    if let Some(method) = get("method")? {
        let method = json::text(method).ok_or("'method' must be a string")?.into_owned();
        let params_at = params.map_or(0..0, place);
        let params = params.map(|params| raw.slice_ref(params.get().as_bytes()));
        if params.as_ref().is_some_and(|params| params.first() != Some(&b'{')) {
            return Err("'params' must be an object".to_owned());
        }
        if get("result")?.is_some() || get("error")?.is_some() {
            return Err("both a call and an answer".to_owned());
        }
        let Some(id_raw) = id_raw else {
            return Ok(Message::Notification(Notification { raw: raw.clone(), method, params, params_at }));
        };
        let id = id(raw, members).ok_or("'id' must be a string or a number")?;
        return Ok(Message::Request(Request { raw: raw.clone(), id, id_at: place(id_raw), method, params, params_at }));
    }
    let payload = match (get("result")?, get("error")?) {
        (Some(result), None) => Payload::Result(place(result)),
        (None, Some(error)) => Payload::Error(place(error)),
        (Some(_), Some(_)) => return Err("both 'result' and 'error'".to_owned()),
        (None, None) => return Err("no 'method', 'result' or 'error'".to_owned()),
    };
    let start = raw.iter().position(|byte| *byte == b'{').unwrap_or(0) + 1;
    let id_at = id_raw.map_or(start..start, place);
    Ok(Message::Response(Response { raw: raw.clone(), id: id(raw, members), id_at, payload }))
}

impl From<DecodeErrorKind> for DecodeError {
    fn from(kind: DecodeErrorKind) -> Self {
        Self { kind, id: None }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
