//! Messages that keep the bytes they came as, and know where their parts lie.
//!
//! Not for: decoding (`decode`) or changing (`edit`).

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use bytes::Bytes;

use super::Edits;
use crate::wire::json::{self, JsonError, Outline, Raw};

/// A request id: a JSON string or number, kept as it was spelled.
///
/// Two ids are equal if they have the same JSON type and the same text; a string is compared after its escapes are read.
#[derive(Clone)]
pub struct RequestId(Bytes);

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// A method call that wants an answer.
    Request(Request),
    /// A method call that wants none.
    Notification(Notification),
    /// The answer to a request.
    Response(Box<Response>),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole message as received.
    pub raw: Bytes,
    /// Its id.
    pub id: RequestId,
    /// Where the id's value lies in `raw`.
    pub id_at: Range<usize>,
    /// The method's name.
    pub method: Cow<'static, str>,
    /// The params, if there are any.
    pub params: Option<Box<Params>>,
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The whole message as received.
    pub raw: Bytes,
    /// The method's name.
    pub method: Cow<'static, str>,
    /// The params, if there are any.
    pub params: Option<Box<Params>>,
}

/// The params of a message, read with it: where each member lies is known.
#[derive(Clone, Debug)]
pub struct Params {
    message: Bytes,
    place: Range<usize>,
    outline: Outline,
    /// The members of `_meta`, where they were read with the message.
    meta: Option<Outline>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The whole message as received.
    pub raw: Bytes,
    /// Its id; `None` where the peer could not read the request's.
    pub id: Option<RequestId>,
    /// Where the id's value lies in `raw`; empty at the place of the opening brace if there is none.
    pub id_at: Range<usize>,
    /// What it carries.
    pub payload: Payload,
    /// The members of the result or error, if it was read with the message and is an object.
    pub(super) outline: Option<Outline>,
    /// What is passed on otherwise than it was received.
    pub(super) edits: Vec<(Range<usize>, Bytes)>,
}

/// What a response carries, as a place in its `raw`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The error object's place.
    Error(Range<usize>),
    /// The result's place.
    Result(Range<usize>),
}

// === impl RequestId ===

impl RequestId {
    /// Takes a raw JSON value as an id; `None` unless it is a string or a number.
    #[must_use]
    pub fn from_raw(raw: Bytes) -> Option<Self> {
        matches!(raw.first(), Some(b'"' | b'-' | b'0'..=b'9')).then_some(Self(raw))
    }

    /// Makes a numeric id.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }

    /// Returns the JSON text, exactly as it was spelled.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.0
    }

    /// Returns the number, if this is a plain non-negative integer.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        std::str::from_utf8(&self.0).ok()?.parse().ok()
    }

    fn escaped(&self) -> Option<String> {
        if self.0.first() == Some(&b'"') && memchr::memchr(b'\\', &self.0).is_some() {
            serde_json::from_slice::<String>(&self.0).ok().map(|text| format!("\"{text}\""))
        } else {
            None
        }
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == other.0 {
            return true;
        }
        match (self.escaped(), other.escaped()) {
            (None, None) => false,
            (Some(one), None) => one.as_bytes() == other.0,
            (None, Some(two)) => self.0 == two.as_bytes(),
            (Some(one), Some(two)) => one == two,
        }
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.escaped() {
            Some(text) => text.as_bytes().hash(state),
            None => self.0.as_ref().hash(state),
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", String::from_utf8_lossy(&self.0))
    }
}

// === impl Params ===

impl Params {
    pub(super) const fn new(message: Bytes, place: Range<usize>, outline: Outline, meta: Option<Outline>) -> Self {
        Self { message, place, outline, meta }
    }

    /// Returns where `_meta` and the values of several of its members lie in the message; `None` if there is none.
    ///
    /// # Errors
    /// [`JsonError`] if `_meta` stands twice or is no object, or one of the keys stands twice.
    #[expect(clippy::type_complexity, reason = "a place and as many more as were asked for")]
    #[inline(always)]
    pub fn find_in_meta<const N: usize>(
        &self,
        keys: [&'static str; N],
    ) -> Result<Option<(Range<usize>, [Option<Range<usize>>; N])>, JsonError> {
        let Some(at) = self.at("_meta")? else { return Ok(None) };
        if let Some(outline) = &self.meta {
            return Ok(Some((at, outline.find(&self.message, keys)?)));
        }
        let members = json::members(self.message.get(at.clone()).unwrap_or_default())?;
        let moved = |place: Range<usize>| place.start + at.start..place.end + at.start;
        Ok(Some((at.clone(), members.find(keys)?.map(|place| place.map(moved)))))
    }

    /// Returns the members; places are counted from the beginning of the message.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns where the params lie in the message.
    #[must_use]
    pub const fn place(&self) -> &Range<usize> {
        &self.place
    }

    /// Returns the params' text.
    #[must_use]
    pub fn text(&self) -> Bytes {
        self.message.slice(self.place.clone())
    }

    /// Returns the value of a member, `None` if it is absent.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn get(&self, key: &'static str) -> Result<Option<Raw<'_>>, JsonError> {
        self.outline.get(&self.message, key)
    }

    /// Returns where the value of a member lies in the message, `None` if it is absent.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn at(&self, key: &'static str) -> Result<Option<Range<usize>>, JsonError> {
        self.outline.at(&self.message, key)
    }

    /// Returns where the values of several members lie in the message.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if one of the keys stands twice.
    pub fn find<const N: usize>(&self, keys: [&'static str; N]) -> Result<[Option<Range<usize>>; N], JsonError> {
        self.outline.find(&self.message, keys)
    }

    /// Returns a part of the message.
    #[must_use]
    pub fn part(&self, at: Range<usize>) -> Bytes {
        self.message.slice(at)
    }

    /// Returns the value of a member as a slice of the message, `None` if it is absent.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn slice(&self, key: &'static str) -> Result<Option<Bytes>, JsonError> {
        Ok(self.at(key)?.map(|at| self.message.slice(at)))
    }
}

// === impl Response ===

impl Response {
    /// Returns the result's text, `None` for an error.
    #[must_use]
    pub fn result(&self) -> Option<Bytes> {
        match &self.payload {
            Payload::Error(_) => None,
            Payload::Result(at) => Some(self.raw.slice(at.clone())),
        }
    }

    /// Returns the error object's text, `None` for a result.
    #[must_use]
    pub fn error(&self) -> Option<Bytes> {
        match &self.payload {
            Payload::Error(at) => Some(self.raw.slice(at.clone())),
            Payload::Result(_) => None,
        }
    }

    /// Returns the members of the result or error, with places counted from the beginning of `raw`.
    ///
    /// # Errors
    /// [`JsonError::Kind`] if it is no object.
    pub fn outline(&self) -> Result<Cow<'_, Outline>, JsonError> {
        match &self.outline {
            Some(outline) => Ok(Cow::Borrowed(outline)),
            None => {
                let (_, inner) = json::nested(&self.raw, usize::MAX, |key| matches!(key, b"result" | b"error"))?;
                inner.map(Cow::Owned).ok_or(JsonError::Kind("object"))
            }
        }
    }

    /// Says whether some key in it may be one that carries a URI. An answer that was not scanned may have anything.
    #[must_use]
    pub fn may_have_uris(&self) -> bool {
        self.outline.as_ref().is_none_or(|outline| outline.has_uris())
    }

    /// Replaces a part of `raw` in what is passed on; an empty one inserts. `raw` stays as it was received. Parts must not
    /// overlap.
    pub fn edit(&mut self, at: Range<usize>, text: Bytes) {
        self.edits.push((at, text));
    }

    /// Starts the message that is passed on with what was edited so far.
    #[must_use]
    pub fn edited(&self) -> Edits<'_> {
        let mut edits = Edits::new(self.raw.clone());
        for (at, text) in &self.edits {
            edits.replace(at.clone(), text.clone());
        }
        edits
    }

    /// Returns the answer as it is passed on, as one that was received so.
    #[must_use]
    pub fn settled(self) -> Self {
        if self.edits.is_empty() {
            return self;
        }
        let moved = |place: usize| {
            let before = self.edits.iter().filter(|(at, _)| at.end <= place);
            let (gone, come) = before.fold((0, 0), |(gone, come), (at, text)| (gone + at.len(), come + text.len()));
            place + come - gone
        };
        let moved = |place: &Range<usize>| moved(place.start)..moved(place.end);
        let payload = match &self.payload {
            Payload::Error(place) => Payload::Error(moved(place)),
            Payload::Result(place) => Payload::Result(moved(place)),
        };
        let (id_at, raw) = (moved(&self.id_at), self.edited().apply());
        Self { raw, id: self.id, id_at, payload, outline: None, edits: Vec::new() }
    }

    /// Returns the same answer with several places of its result or error replaced; an empty place inserts. The places
    /// do not overlap, and lie within the result or error, in `raw`; no other edit has been asked for.
    #[must_use]
    pub fn with_edits(self, changes: Vec<(Range<usize>, Bytes)>) -> Self {
        let moved = |place: usize| {
            let before = changes.iter().filter(|(at, _)| at.end <= place);
            let (gone, come) = before.fold((0, 0), |(gone, come), (at, text)| (gone + at.len(), come + text.len()));
            place + come - gone
        };
        // The places lie inside: what ends where one begins, or begins where one ends, is not there.
        let moved = |place: &Range<usize>| moved(place.start)..moved(place.end);
        let payload = match &self.payload {
            Payload::Error(place) => Payload::Error(moved(place)),
            Payload::Result(place) => Payload::Result(moved(place)),
        };
        let id_at = moved(&self.id_at);
        let mut edits = Edits::new(self.raw);
        for (at, text) in changes {
            edits.replace(at, text);
        }
        Self { raw: edits.apply(), id: self.id, id_at, payload, outline: None, edits: Vec::new() }
    }

    /// Makes a response that carries `result`, a JSON text, for the request `id`.
    #[must_use]
    pub fn with_result(id: &RequestId, result: &[u8]) -> Self {
        Self::build(Some(id), b"result", result)
    }

    /// Makes a response that carries `error`, an error object's text; it has no `id` where the request's is unknown [R17].
    #[must_use]
    pub fn with_error(id: Option<&RequestId>, error: &[u8]) -> Self {
        Self::build(id, b"error", error)
    }

    fn build(id: Option<&RequestId>, member: &[u8], value: &[u8]) -> Self {
        let spelled = id.map(|id| id.raw().as_ref()).unwrap_or_default();
        let mut raw = Vec::with_capacity(40 + spelled.len() + value.len());
        raw.extend_from_slice(br#"{"jsonrpc":"2.0","#);
        let mut id_at = 1..1;
        if id.is_some() {
            raw.extend_from_slice(br#""id":"#);
            id_at = raw.len()..raw.len() + spelled.len();
            raw.extend_from_slice(spelled);
            raw.push(b',');
        }
        raw.push(b'"');
        raw.extend_from_slice(member);
        raw.extend_from_slice(b"\":");
        let at = raw.len()..raw.len() + value.len();
        raw.extend_from_slice(value);
        raw.push(b'}');
        let payload = if member == b"result" { Payload::Result(at) } else { Payload::Error(at) };
        Self { raw: Bytes::from(raw), id: id.cloned(), id_at, payload, outline: None, edits: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{RequestId, Response};

    #[test]
    fn what_is_edited_is_passed_on_and_nothing_else() {
        let mut response = Response::with_result(&RequestId::number(7), br#"{"a":"b","c":[]}"#);
        let raw = response.raw.clone();
        let at = raw.windows(3).position(|window| window == b"\"b\"").unwrap();
        response.edit(at..at + 3, Bytes::from_static(b"\"longer\""));
        let end = raw.len() - 2;
        response.edit(end..end, Bytes::from_static(b",\"d\":1"));
        assert_eq!(response.raw, raw);
        let settled = response.settled();
        assert_eq!(settled.raw, r#"{"jsonrpc":"2.0","id":7,"result":{"a":"longer","c":[],"d":1}}"#);
        assert_eq!(settled.result().unwrap(), r#"{"a":"longer","c":[],"d":1}"#);
        assert_eq!(settled.raw.slice(settled.id_at.clone()), "7");
        assert_eq!(settled.clone().settled().raw, settled.raw);
    }
}
