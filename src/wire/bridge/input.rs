//! Questions of servers between the eras: entries of `inputRequests` here, requests of a server there (protocol §5.1).
//!
//! Not for: waiting for answers (`downstream`, `session::parked`). Invariants: whoever is asked can read which server asks
//! [TRN-10, R99]; what is not ours to change stays as it came.

use bytes::Bytes;

use crate::wire::json::{self, Raw};
use crate::wire::jsonrpc::Request;
use crate::wire::mcp::{InputKind, PROGRESS_TOKEN_KEY, RESERVED_PREFIX};

/// Names the asking server to a client's program, in the question's `_meta`.
const SERVER_KEY: &str = "portcullis/server";

/// One entry of `inputRequests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// Its key, by which the answer is given.
    pub key: String,
    /// What is asked.
    pub kind: InputKind,
    /// The params, a JSON object.
    pub params: Bytes,
}

/// What a stateless server wants before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its questions; none if it only wants to be asked again.
    pub requests: Vec<InputRequest>,
    /// Its `requestState`, as JSON text.
    pub state: Option<Bytes>,
}

/// Why an `input_required` result cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A part is missing or of the wrong kind.
    #[error("{0}")]
    Malformed(&'static str),
    /// It asks for something that is no kind of input.
    #[error("it asks for '{0}', which no client is asked for")]
    Unknown(String),
}

// === impl Wanted ===

impl Wanted {
    /// Reads an `input_required` result [R91].
    ///
    /// # Errors
    /// [`InputError`] if it asks for nothing, or in a way that cannot be read.
    pub fn read(result: &Bytes) -> Result<Self, InputError> {
        let members = json::members(result).map_err(|_| InputError::Malformed("it cannot be read"))?;
        let get = |key| members.get(key).map_err(|_| InputError::Malformed("a key stands twice"));
        let state = get("requestState")?.filter(|state| state.get() != b"null");
        if state.is_some_and(|state| json::text(state).is_none()) {
            return Err(InputError::Malformed("'requestState' is no string"));
        }
        let state = state.map(|state| result.slice_ref(state.get()));
        let requests = match get("inputRequests")?.filter(|requests| requests.get() != b"null") {
            Some(requests) if requests.is_object() => entries(result, requests)?,
            Some(_) => return Err(InputError::Malformed("'inputRequests' is no object")),
            None => Vec::new(),
        };
        if requests.is_empty() && state.is_none() {
            return Err(InputError::Malformed("it holds neither 'inputRequests' nor 'requestState'"));
        }
        Ok(Self { requests, state })
    }

    /// Names the server in every question.
    #[must_use]
    pub fn named(mut self, server: &str) -> Self {
        for request in &mut self.requests {
            request.params = named(request.kind, &request.params, server);
        }
        self
    }

    /// Spells the result; `before` is the one it was read from, whose other members stay.
    #[must_use]
    pub fn spelled(&self, before: Option<&[u8]>) -> Bytes {
        let mut out = Object::new();
        out.member(b"\"resultType\"", b"\"input_required\"");
        if !self.requests.is_empty() {
            let mut entries = Object::new();
            for InputRequest { key, kind, params } in &self.requests {
                let entry = [b"{\"method\":\"", kind.method().as_bytes(), b"\",\"params\":", params.as_ref(), b"}"];
                entries.member(&json::quoted(key), &entry.concat());
            }
            out.member(b"\"inputRequests\"", &entries.end());
        }
        if let Some(state) = &self.state {
            out.member(b"\"requestState\"", state);
        }
        let ours = |key: &[u8]| matches!(key, b"resultType" | b"inputRequests" | b"requestState");
        out.rest(before.unwrap_or(b"{}"), |key| !ours(key));
        out.end()
    }
}

fn entries(result: &Bytes, requests: Raw<'_>) -> Result<Vec<InputRequest>, InputError> {
    const BAD: InputError = InputError::Malformed("an entry of 'inputRequests' cannot be read");
    let requests = json::members(requests.get()).map_err(|_| BAD)?;
    let mut out: Vec<InputRequest> = Vec::new();
    for (key, entry) in requests.iter() {
        let key = String::from_utf8_lossy(&key).into_owned();
        if out.iter().any(|other| other.key == key) {
            return Err(InputError::Malformed("two entries of 'inputRequests' have one key"));
        }
        let entry = json::members(entry.get()).map_err(|_| BAD)?;
        let method = entry.get("method").map_err(|_| BAD)?.and_then(json::text).ok_or(BAD)?;
        let kind =
            InputKind::from_method(&method).ok_or_else(|| InputError::Unknown(method.chars().take(80).collect()))?;
        let params = match entry.get("params").map_err(|_| BAD)? {
            Some(params) if params.is_object() => result.slice_ref(params.get()),
            Some(_) => return Err(BAD),
            None => Bytes::from_static(b"{}"),
        };
        out.push(InputRequest { key, kind, params });
    }
    Ok(out)
}

/// Names the server in a question: in the text that a person reads, in the system prompt that a model reads, and in
/// `_meta`. The token for progress goes, for the server's own would be another's here; so does a wish for the context of
/// other servers.
#[must_use]
pub fn named(kind: InputKind, params: &Bytes, server: &str) -> Bytes {
    let text_key: &[u8] = match kind {
        InputKind::Elicitation => b"message",
        InputKind::Sampling => b"systemPrompt",
        InputKind::Roots => b"",
    };
    let words = |text: &str| match kind {
        InputKind::Elicitation => format!("Server '{server}' asks: {text}"),
        InputKind::Sampling if text.is_empty() => format!("This request comes from the MCP server '{server}'."),
        InputKind::Sampling => format!("This request comes from the MCP server '{server}'.\n\n{text}"),
        InputKind::Roots => String::new(),
    };
    let mut out = Object::new();
    let (mut told, mut meta) = (text_key.is_empty(), None);
    let members = json::members(params).ok();
    for (key, value) in members.iter().flat_map(json::Members::iter) {
        match &*key {
            b"_meta" => meta = Some(value),
            key if key == text_key && !text_key.is_empty() => {
                told = true;
                let text = json::text(value).unwrap_or_default();
                out.member(&quoted(key), &json::quoted(&words(&text)));
            }
            b"includeContext" if kind == InputKind::Sampling => out.member(b"\"includeContext\"", b"\"none\""),
            key => out.member(&quoted(key), value.get()),
        }
    }
    if !told {
        out.member(&quoted(text_key), &json::quoted(&words("")));
    }
    let mut inner = Object::new();
    inner.member(&json::quoted(SERVER_KEY), &json::quoted(server));
    let passes = |key: &[u8]| {
        !key.starts_with(RESERVED_PREFIX.as_bytes())
            && key != PROGRESS_TOKEN_KEY.as_bytes()
            && key != SERVER_KEY.as_bytes()
    };
    inner.rest(meta.map_or(b"{}", Raw::get), passes);
    out.member(b"\"_meta\"", &inner.end());
    out.end()
}

/// Returns params with another value of one member, `None` to leave it out.
#[must_use]
pub fn with_member(object: &Bytes, key: &str, value: Option<&[u8]>) -> Bytes {
    let mut out = Object::new();
    out.rest(object, |other| other != key.as_bytes());
    if let Some(value) = value {
        out.member(&json::quoted(key), value);
    }
    out.end()
}

/// Spells the request that follows an `input_required`: the same params, the answers by their keys, and the state.
#[must_use]
pub fn retry(request: &Request, answers: &[(String, Bytes)], state: Option<&Bytes>) -> Bytes {
    let place = request.params.as_deref().map(|params| params.place().clone()).unwrap_or_default();
    let params = request.raw.slice(place.clone());
    let mut out = Object::new();
    out.rest(&params, |key| !matches!(key, b"inputResponses" | b"requestState"));
    if !answers.is_empty() {
        let mut inner = Object::new();
        for (key, answer) in answers {
            inner.member(&json::quoted(key), answer);
        }
        out.member(b"\"inputResponses\"", &inner.end());
    }
    if let Some(state) = state {
        out.member(b"\"requestState\"", state);
    }
    let mut edits = crate::wire::jsonrpc::Edits::new(request.raw.clone());
    edits.replace(place, out.end());
    edits.apply()
}

/// Reads the `inputResponses` of params: those that are objects, for nothing else answers a question [R94].
///
/// # Errors
/// `inputResponses` is there and no object.
pub fn answers(params: &Bytes) -> Result<Vec<(String, Bytes)>, InputError> {
    const BAD: InputError = InputError::Malformed("'inputResponses' must be an object");
    let Ok(members) = json::members(params) else { return Ok(Vec::new()) };
    let Some(given) = members.get("inputResponses").map_err(|_| BAD)? else { return Ok(Vec::new()) };
    let given = json::members(given.get()).map_err(|_| BAD)?;
    let answers = given.iter().filter(|(_, value)| value.is_object());
    Ok(answers
        .map(|(key, value)| (String::from_utf8_lossy(&key).into_owned(), params.slice_ref(value.get())))
        .collect())
}

/// Returns a retry's answers without what is no object [R94]; `None` where nothing has to go.
pub(super) fn only_answers(given: &Bytes) -> Option<Bytes> {
    let mut kept = Object::new();
    if let Ok(members) = json::members(given) {
        if members.iter().all(|(_, value)| value.is_object()) {
            return None;
        }
        for (key, value) in members.iter().filter(|(_, value)| value.is_object()) {
            kept.member(&quoted(&key), value.get());
        }
    }
    Some(kept.end())
}

/// Says whether an object can be the answer to a question: an elicitation's names what the person did.
#[must_use]
pub fn answers_kind(kind: InputKind, answer: &[u8]) -> bool {
    let Ok(members) = json::members(answer) else { return false };
    let get = |key| members.get(key).ok().flatten();
    match kind {
        InputKind::Elicitation => {
            get("action").is_some_and(|action| matches!(action.get(), b"\"accept\"" | b"\"decline\"" | b"\"cancel\""))
        }
        InputKind::Roots => get("roots").is_some_and(|roots| roots.get().starts_with(b"[")),
        InputKind::Sampling => get("content").is_some(),
    }
}

fn quoted(key: &[u8]) -> Bytes {
    json::quoted(&String::from_utf8_lossy(key))
}

/// An object being written.
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn new() -> Self {
        Self(vec![b'{'])
    }

    /// Adds a member; `key` is JSON text.
    pub(super) fn member(&mut self, key: &[u8], value: &[u8]) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend_from_slice(key);
        self.0.push(b':');
        self.0.extend_from_slice(value);
    }

    /// Adds the members of another object that are wanted.
    pub(super) fn rest(&mut self, object: &[u8], wanted: impl Fn(&[u8]) -> bool) {
        let Ok(members) = json::members(object) else { return };
        for (key, value) in members.iter().filter(|(key, _)| wanted(key)) {
            self.member(&quoted(&key), value.get());
        }
    }

    pub(super) fn end(mut self) -> Bytes {
        self.0.push(b'}');
        Bytes::from(self.0)
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
