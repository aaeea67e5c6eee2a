//! A server's answer as the client's era and revision must read it.
//!
//! Not for: caps and blobs (`gateway::inspect`). Invariants: the client's id comes back as it was spelled; no code and
//! no `resultType` reaches a client that its revision does not know [R28, R62, R63, R66, R87].

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::wire::json::{self, JsonError, Outline, Raw};
use crate::wire::jsonrpc::{Edits, ErrorCode, ErrorObject, Payload, RequestId, Response, code};
use crate::wire::mcp::{Content, Era, Method, ProtocolVersion, RESERVED_PREFIX, SERVER_INFO_KEY};

use super::blocks;

/// The beginning of a `_meta` that names the gateway, up to its `serverInfo` [R29].
const META_OF_SERVER: &[u8] = br#""_meta":{"io.modelcontextprotocol/serverInfo":"#;

/// Who reads the answer.
#[derive(Clone, Copy, Debug)]
pub struct ClientSide<'a> {
    /// The revision that the client speaks.
    pub version: ProtocolVersion,
    /// The id of its request.
    pub id: &'a RequestId,
    /// The gateway's `serverInfo`, a JSON object, for stateless results [R29].
    pub server_info: &'a [u8],
    /// What it has asked.
    pub method: &'a str,
}

/// The method whose results may be kept.
const READ: &str = "resources/read";

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

/// Rewrites a result for the client: its id, and what its era wants. Returns the message in pieces; a large one is not
/// copied.
///
/// # Errors
/// [`BridgeRefusal`] if this client cannot read the result.
pub fn lift_result(response: &Response, from: Era, client: &ClientSide<'_>) -> Result<Vec<Bytes>, BridgeRefusal> {
    // A block that is replaced whole must not have been edited in part.
    let settled = (!blocks::knows_all(client.version)).then(|| response.clone().settled());
    let response = settled.as_ref().unwrap_or(response);
    let Payload::Result(at) = &response.payload else {
        return Err(BridgeRefusal::Malformed("an error where a result was expected".to_owned()));
    };
    let members = response.outline().map_err(|err| malformed(&err))?;
    let result = Inside { text: &response.raw, members: &members, start: at.start, end: at.end };
    let era = client.version.era();
    match result.get("resultType")?.map(Raw::get) {
        None | Some(b"\"complete\"") => {}
        Some(b"\"input_required\"") if from == Era::Stateless && era == Era::Stateless => {}
        Some(b"\"input_required\"") => return Err(BridgeRefusal::InputRequired),
        Some(_) => return Err(BridgeRefusal::UnknownResultType),
    }
    let mut edits = response.edited();
    replace_id(&mut edits, response, client.id);
    match era {
        Era::Stateless => to_stateless(&mut edits, &result, client)?,
        Era::Legacy => to_legacy(&mut edits, &result, client)?,
    }
    Ok(edits.pieces())
}

/// A result or error inside its message.
struct Inside<'a> {
    text: &'a [u8],
    members: &'a Outline,
    start: usize,
    end: usize,
}

impl<'a> Inside<'a> {
    #[inline]
    fn get(&self, key: &'static str) -> Result<Option<Raw<'a>>, BridgeRefusal> {
        self.members.get(self.text, key).map_err(|err| malformed(&err))
    }

    #[inline]
    fn at(&self, key: &'static str) -> Result<Option<Range<usize>>, BridgeRefusal> {
        self.members.at(self.text, key).map_err(|err| malformed(&err))
    }

    #[inline(always)]
    fn find<const N: usize>(&self, keys: [&'static str; N]) -> Result<[Option<Range<usize>>; N], BridgeRefusal> {
        self.members.find(self.text, keys).map_err(|err| malformed(&err))
    }

    fn part(&self, at: &Range<usize>) -> Raw<'a> {
        Raw::new(self.text.get(at.clone()).unwrap_or_default())
    }

    fn iter(&self) -> impl Iterator<Item = (Cow<'_, [u8]>, Raw<'_>)> {
        self.members.iter(self.text)
    }
}

fn malformed(err: &JsonError) -> BridgeRefusal {
    BridgeRefusal::Malformed(err.to_string())
}

fn replace_id<'a>(edits: &mut Edits<'a>, response: &Response, id: &'a RequestId) {
    if response.id_at.is_empty() {
        let mut member = b"\"id\":".to_vec();
        member.extend_from_slice(id.raw());
        member.push(b',');
        edits.replace(response.id_at.clone(), member);
    } else {
        edits.replace_by(response.id_at.clone(), id.raw());
    }
}

/// What a result begins with: members, each with its comma.
type Head<'a> = SmallVec<[&'a [u8]; 6]>;

fn to_stateless<'a>(edits: &mut Edits<'a>, result: &Inside<'_>, client: &ClientSide<'a>) -> Result<(), BridgeRefusal> {
    let [kind, meta] = result.find(["resultType", "_meta"])?;
    let mut head = Head::new();
    if kind.is_none() {
        head.push(b"\"resultType\":\"complete\",");
    }
    match meta {
        None => head.extend([META_OF_SERVER, client.server_info, b"},"]),
        Some(at) => {
            let inner = json::members(result.part(&at).get()).map_err(|err| malformed(&err))?;
            match inner.at(SERVER_INFO_KEY).map_err(|err| malformed(&err))? {
                Some(theirs) => {
                    edits.replace_by(theirs.start + at.start..theirs.end + at.start, client.server_info);
                }
                None => {
                    let comma: &[u8] = if inner.is_empty() { b"" } else { b"," };
                    let member = [b"\"", SERVER_INFO_KEY.as_bytes(), b"\":", client.server_info, comma].concat();
                    edits.replace(at.start + 1..at.start + 1, member);
                }
            }
        }
    }
    if client.method == READ && kind.is_none_or(|kind| result.part(&kind).get() == b"\"complete\"") {
        cache_hints(edits, &mut head, result)?;
    }
    if let Some(last) = head.last_mut().filter(|_| result.members.is_empty()) {
        *last = last.strip_suffix(b",").unwrap_or(last);
    }
    for text in head {
        edits.replace_by(result.start + 1..result.start + 1, text);
    }
    Ok(())
}

/// Completes the hints of a result that may be kept: for this principal alone, for another may not be allowed to see it; and
/// not at all where its server says nothing valid [R76, R77].
fn cache_hints(edits: &mut Edits<'_>, head: &mut Head<'_>, result: &Inside<'_>) -> Result<(), BridgeRefusal> {
    let [ttl, scope] = result.find(["ttlMs", "cacheScope"])?;
    match ttl {
        Some(at) if result.part(&at).parse::<u64>().is_some() => {}
        Some(at) => drop(edits.replace(at, Bytes::from_static(b"0"))),
        None => head.push(b"\"ttlMs\":0,"),
    }
    match scope {
        Some(at) => drop(edits.replace(at, Bytes::from_static(b"\"private\""))),
        None => head.push(b"\"cacheScope\":\"private\","),
    }
    Ok(())
}

fn to_legacy(edits: &mut Edits<'_>, result: &Inside<'_>, client: &ClientSide<'_>) -> Result<(), BridgeRefusal> {
    const KEYS: [&str; 6] = ["structuredContent", "_meta", "content", "resultType", "ttlMs", "cacheScope"];
    let [structured_at, meta_at, content_at, kind, ttl, scope] = result.find(KEYS)?;
    let structured = structured_at.map(|at| result.part(&at));
    let open = structured.filter(|value| !value.is_object());
    if let Some(at) = meta_at {
        strip_reserved(edits, result.part(&at), at.start);
    }
    // Structured content that the client does not know is in its way to no text; one that it cannot read is taken out.
    let old = !blocks::knows_all(client.version);
    let unread = structured.filter(|value| old || !value.is_object());
    if old
        && let Some(content) =
            Method::from_name(client.method).and_then(Method::content).filter(|content| *content != Content::Read)
        && let Some(array) = result.at(content.member())?
    {
        blocks::lower(edits, content, (result.text, &array), client.version);
    }
    if unread.is_none() && kind.is_none() && ttl.is_none() && scope.is_none() {
        return Ok(());
    }
    let goes = |key: &[u8]| {
        matches!(key, b"resultType" | b"ttlMs" | b"cacheScope") || (open.is_some() && key == b"structuredContent")
    };
    for cut in result.members.without(result.text, goes) {
        edits.replace(cut, Bytes::new());
    }
    let Some(structured) = unread else { return Ok(()) };
    match content_at {
        Some(at) if has_text(result.part(&at)) => {}
        Some(at) if result.part(&at).get().starts_with(b"[") => {
            let comma = if elements_of(result.part(&at)).next().is_some() { "," } else { "" };
            edits.replace(at.end - 1..at.end - 1, format!("{comma}{}", text_block(structured)));
        }
        Some(at) => drop(edits.replace(at, format!("[{}]", text_block(structured)))),
        None => {
            let comma = if result.iter().any(|(key, _)| !goes(&key)) { "," } else { "" };
            let end = result.end - 1;
            edits.replace(end..end, format!("{comma}\"content\":[{}]", text_block(structured)));
        }
    }
    Ok(())
}

/// Takes the keys that are rebuilt per hop out of a `_meta` that begins at `start`.
fn strip_reserved(edits: &mut Edits<'_>, meta: Raw<'_>, start: usize) {
    if memchr::memmem::find(meta.get(), RESERVED_PREFIX.as_bytes()).is_none() {
        return;
    }
    let Ok(members) = json::members(meta.get()) else { return };
    for cut in members.without(|key| key.starts_with(RESERVED_PREFIX.as_bytes())) {
        edits.replace(start + cut.start..start + cut.end, Bytes::new());
    }
}

/// Returns the blocks of a content array; none if it is no array.
fn elements_of(content: Raw<'_>) -> impl Iterator<Item = &[u8]> {
    let places = json::elements(content.get()).unwrap_or_default();
    places.into_iter().filter_map(move |at| content.get().get(at))
}

/// Says whether a content array has a text block: then older clients have something to read [R87].
fn has_text(content: Raw<'_>) -> bool {
    elements_of(content).any(|block| {
        json::members(block)
            .ok()
            .and_then(|members| members.get("type").ok().flatten().map(|kind| kind.get() == b"\"text\""))
            .unwrap_or(false)
    })
}

/// Spells a structured value as a text block.
fn text_block(structured: Raw<'_>) -> String {
    let text = json::quoted(&String::from_utf8_lossy(structured.get()));
    format!("{{\"type\":\"text\",\"text\":{}}}", String::from_utf8_lossy(&text))
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
    let shown = match (error.code, client.version.era()) {
        (code::URL_ELICITATION_REQUIRED, Era::Stateless) => return Err(BridgeRefusal::UrlElicitation),
        (code::RESOURCE_NOT_FOUND, Era::Stateless) => code::INVALID_PARAMS,
        (code::MISSING_CAPABILITY, Era::Stateless) if lacks_capability => code::MISSING_CAPABILITY,
        (code::URL_ELICITATION_REQUIRED, Era::Legacy) => code::URL_ELICITATION_REQUIRED,
        (ErrorCode(-32099..=-32020), _) => code::INTERNAL,
        (other, _) => other,
    };
    let mut edits = response.edited();
    replace_id(&mut edits, response, client.id);
    if shown != error.code {
        let members = response.outline().map_err(|err| malformed(&err))?;
        let error = Inside { text: &response.raw, members: &members, start: at.start, end: at.end };
        let code = error.at("code")?.ok_or_else(|| BridgeRefusal::Malformed("an error without a code".to_owned()))?;
        edits.replace(code, shown.0.to_string());
    }
    Ok((shown, edits.apply()))
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
