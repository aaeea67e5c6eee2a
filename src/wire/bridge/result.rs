//! A server's answer to `tools/call` as the client's era and revision must read it.
//!
//! Not for: caps and blobs (`gateway::inspect`). Invariants: the client's id comes back as it was spelled; no code and
//! no `resultType` reaches a client that its revision does not know [R28, R62, R63, R66, R87].

use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::wire::json::{self, Members};
use crate::wire::jsonrpc::{Edits, ErrorCode, ErrorObject, Payload, RequestId, Response, code};
use crate::wire::mcp::{Era, RESERVED_PREFIX, SERVER_INFO_KEY};

/// Who reads the answer.
#[derive(Clone, Copy, Debug)]
pub struct ClientSide<'a> {
    /// The client's era.
    pub era: Era,
    /// The id of its request.
    pub id: &'a RequestId,
    /// The gateway's `serverInfo`, a JSON object, for stateless results [R29].
    pub server_info: &'a [u8],
}

/// Why an answer cannot reach this client; the gateway answers -32603 with these words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeRefusal {
    /// The server asks for input, which this client's era cannot be asked for yet.
    #[error("the server asks for input (input_required), which the gateway cannot yet carry to this client")]
    InputRequired,
    /// The server sent something that is no result.
    #[error("the server's answer cannot be read: {0}")]
    Malformed(String),
    /// A `resultType` that nobody negotiated.
    #[error("the server's answer has an unknown resultType")]
    UnknownResultType,
    /// The server wants URL elicitation by error, which this client's era does not know.
    #[error("the server asks for URL elicitation, which the gateway cannot yet carry to this client")]
    UrlElicitation,
}

/// Spells the gateway's `serverInfo`.
#[must_use]
pub fn server_info() -> Bytes {
    Bytes::from_static(concat!(r#"{"name":"portcullis","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#).as_bytes())
}

/// Rewrites a result for the client: its id, and what its era wants.
///
/// # Errors
/// [`BridgeRefusal`] if this client cannot read the result.
pub fn lift_result(response: &Response, from: Era, client: &ClientSide<'_>) -> Result<Bytes, BridgeRefusal> {
    let Payload::Result(at) = &response.payload else {
        return Err(BridgeRefusal::Malformed("an error where a result was expected".to_owned()));
    };
    let result = response.raw.slice(at.clone());
    let members = json::members(&result).map_err(|err| BridgeRefusal::Malformed(err.to_string()))?;
    let kind = get(&members, "resultType")?;
    match kind.map(RawValue::get) {
        None | Some("\"complete\"") => {}
        Some("\"input_required\"") if from == Era::Stateless && client.era == Era::Stateless => {}
        Some("\"input_required\"") => return Err(BridgeRefusal::InputRequired),
        Some(_) => return Err(BridgeRefusal::UnknownResultType),
    }
    let mut edits = Edits::new(response.raw.clone());
    replace_id(&mut edits, response, client.id);
    let place = Place { result: &result, base: at.start };
    match client.era {
        Era::Stateless => to_stateless(&mut edits, &members, &place, client)?,
        Era::Legacy => to_legacy(&mut edits, &members, &place)?,
    }
    Ok(edits.apply())
}

struct Place<'a> {
    result: &'a Bytes,
    base: usize,
}

impl Place<'_> {
    fn of(&self, value: &RawValue) -> Range<usize> {
        let at = json::range_in(self.result, value.get());
        at.start + self.base..at.end + self.base
    }
}

fn get<'a>(members: &Members<'a>, key: &'static str) -> Result<Option<&'a RawValue>, BridgeRefusal> {
    members.get(key).map_err(|err| BridgeRefusal::Malformed(err.to_string()))
}

fn replace_id(edits: &mut Edits, response: &Response, id: &RequestId) {
    if response.id_at.is_empty() {
        let mut member = b"\"id\":".to_vec();
        member.extend_from_slice(id.raw());
        member.push(b',');
        edits.replace(response.id_at.clone(), member);
    } else {
        edits.replace(response.id_at.clone(), id.raw().clone());
    }
}

fn to_stateless(
    edits: &mut Edits,
    members: &Members<'_>,
    place: &Place<'_>,
    client: &ClientSide<'_>,
) -> Result<(), BridgeRefusal> {
    let mut head = String::new();
    if get(members, "resultType")?.is_none() {
        head.push_str("\"resultType\":\"complete\",");
    }
    let info = String::from_utf8_lossy(client.server_info);
    match get(members, "_meta")? {
        None => head.push_str(&format!("\"_meta\":{{\"{SERVER_INFO_KEY}\":{info}}},")),
        Some(meta) => {
            let inner =
                json::members(meta.get().as_bytes()).map_err(|err| BridgeRefusal::Malformed(err.to_string()))?;
            match get(&inner, SERVER_INFO_KEY)? {
                Some(theirs) => {
                    edits.replace(place.of(theirs), client.server_info.to_vec());
                }
                None => {
                    let comma = if inner.is_empty() { "" } else { "," };
                    let start = place.of(meta).start + 1;
                    edits.replace(start..start, format!("\"{SERVER_INFO_KEY}\":{info}{comma}"));
                }
            }
        }
    }
    if members.is_empty() {
        head.pop();
    }
    if !head.is_empty() {
        edits.replace(place.base + 1..place.base + 1, head);
    }
    Ok(())
}

fn to_legacy(edits: &mut Edits, members: &Members<'_>, place: &Place<'_>) -> Result<(), BridgeRefusal> {
    let structured = get(members, "structuredContent")?;
    let open = structured.is_some_and(|value| !value.get().starts_with('{'));
    let drops =
        |key: &str| matches!(key, "resultType" | "ttlMs" | "cacheScope") || (open && key == "structuredContent");
    let reserved = get(members, "_meta")?.filter(|meta| meta.get().contains(RESERVED_PREFIX));
    if !members.iter().any(|(key, _)| drops(key)) && reserved.is_none() {
        return Ok(());
    }
    let mut out = Vec::with_capacity(place.result.len());
    out.push(b'{');
    for (key, value) in members.iter().filter(|(key, _)| !drops(key)) {
        comma(&mut out);
        out.extend_from_slice(&json::quoted(key));
        out.push(b':');
        if key == "_meta" && reserved.is_some() {
            strip_reserved(&mut out, value);
        } else if key == "content" && open && !has_text(value) {
            with_text(&mut out, value, structured);
        } else {
            out.extend_from_slice(value.get().as_bytes());
        }
    }
    if open && get(members, "content")?.is_none() {
        comma(&mut out);
        out.extend_from_slice(b"\"content\":");
        with_text(&mut out, RawValue::NULL, structured);
    }
    out.push(b'}');
    edits.replace(place.base..place.base + place.result.len(), out);
    Ok(())
}

fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') && out.last() != Some(&b'[') {
        out.push(b',');
    }
}

fn strip_reserved(out: &mut Vec<u8>, meta: &RawValue) {
    out.push(b'{');
    if let Ok(members) = json::members(meta.get().as_bytes()) {
        for (key, value) in members.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX)) {
            comma(out);
            out.extend_from_slice(&json::quoted(key));
            out.push(b':');
            out.extend_from_slice(value.get().as_bytes());
        }
    }
    out.push(b'}');
}

/// Says whether a content array has a text block: then older clients have something to read [R87].
fn has_text(content: &RawValue) -> bool {
    serde_json::from_str::<Vec<&RawValue>>(content.get()).is_ok_and(|blocks| {
        blocks.iter().any(|block| {
            json::members(block.get().as_bytes())
                .ok()
                .and_then(|members| members.get("type").ok().flatten().map(|kind| kind.get() == "\"text\""))
                .unwrap_or(false)
        })
    })
}

/// Writes the content array with the structured value appended as text.
fn with_text(out: &mut Vec<u8>, content: &RawValue, structured: Option<&RawValue>) {
    out.push(b'[');
    for block in serde_json::from_str::<Vec<&RawValue>>(content.get()).unwrap_or_default() {
        comma(out);
        out.extend_from_slice(block.get().as_bytes());
    }
    comma(out);
    out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
    out.extend_from_slice(&json::quoted(structured.map_or("null", RawValue::get)));
    out.extend_from_slice(b"}]");
}

/// Rewrites an error for the client: its id and a code that its revision knows [R61–R64].
///
/// `lacks_capability` says whether the client's own request did not declare what -32021 asks for.
///
/// # Errors
/// [`BridgeRefusal`] if the error asks for something the gateway cannot carry yet.
pub fn lift_error(
    response: &Response,
    client: &ClientSide<'_>,
    lacks_capability: bool,
) -> Result<(ErrorCode, Bytes), BridgeRefusal> {
    let Payload::Error(at) = &response.payload else {
        return Err(BridgeRefusal::Malformed("a result where an error was expected".to_owned()));
    };
    let error = ErrorObject::read(response.raw.get(at.clone()).unwrap_or_default());
    let shown = match (error.code, client.era) {
        (code::URL_ELICITATION_REQUIRED, Era::Stateless) => return Err(BridgeRefusal::UrlElicitation),
        (code::RESOURCE_NOT_FOUND, Era::Stateless) => code::INVALID_PARAMS,
        (code::MISSING_CAPABILITY, Era::Stateless) if lacks_capability => code::MISSING_CAPABILITY,
        (code::URL_ELICITATION_REQUIRED, Era::Legacy) => code::URL_ELICITATION_REQUIRED,
        (ErrorCode(-32099..=-32020), _) => code::INTERNAL,
        (other, _) => other,
    };
    let mut edits = Edits::new(response.raw.clone());
    replace_id(&mut edits, response, client.id);
    if shown != error.code {
        let object = response.raw.slice(at.clone());
        let members = json::members(&object).map_err(|err| BridgeRefusal::Malformed(err.to_string()))?;
        match get(&members, "code")? {
            Some(code) => {
                let place = Place { result: &object, base: at.start };
                edits.replace(place.of(code), shown.0.to_string());
            }
            None => return Err(BridgeRefusal::Malformed("an error without a code".to_owned())),
        }
    }
    Ok((shown, edits.apply()))
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
