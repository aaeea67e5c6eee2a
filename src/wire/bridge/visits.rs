//! Visits to URLs that a server of 2025-11-25 asks for by an error, -32042, instead of a question on the way: its call is
//! to be made again after them (protocol §3, §5.1).
//!
//! Not for: who may be asked, or how often (`gateway::inspect`). Invariant: nothing is kept between the tries; the keys of
//! what a client is asked say how often it was.

use std::ops::Range;

use bytes::Bytes;

use crate::wire::json;
use crate::wire::jsonrpc::{ErrorObject, Payload, Response, code};
use crate::wire::mcp::InputKind;

use super::input::{InputError, InputRequest, Wanted, answers, named, with_member};

/// What the keys of these questions begin with; no server's own do.
const KEY: &str = "portcullis-visit-";
/// How many characters of a server's own words are repeated in an error.
const WORDS_CHARS: usize = 200;

/// What a retry says of the visits that its client was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// How often it has been asked.
    pub rounds: u32,
    /// It did not go.
    pub declined: bool,
}

/// Says whether a server asks for visits by an error.
#[must_use]
pub fn asks_by_error(response: &Response) -> bool {
    let Payload::Error(at) = &response.payload else { return false };
    let error = response.raw.get(at.clone()).unwrap_or_default();
    ErrorObject::read(error).code == code::URL_ELICITATION_REQUIRED
}

/// Names the server in each visit that an error asks for [TRN-10, R99].
pub fn name_visits(response: &mut Response, server: &str) {
    edit_visits(response, |params| Some(named(InputKind::Elicitation, params, server)));
}

/// Puts other params in the place of those of each visit that an error asks for; `None` leaves them.
pub fn edit_visits(response: &mut Response, edit: impl Fn(&Bytes) -> Option<Bytes>) {
    for at in places(response) {
        if let Some(params) = edit(&response.raw.slice(at.clone())) {
            response.edit(at, params);
        }
    }
}

/// Makes questions of the visits that an error asks for [R63]; `round` says how often the client is asked with this.
///
/// # Errors
/// [`InputError`] if the error names no visit.
pub fn wanted_visits(response: &Response, round: u32) -> Result<Wanted, InputError> {
    let mut requests = Vec::new();
    for params in visits(response) {
        let key = format!("{KEY}{round}.{}", requests.len() + 1);
        // Sessions alone tell visits apart by an id; some servers leave out the mode, for an error can ask for no other.
        let params = with_member(&params, "elicitationId", None);
        let params = with_member(&params, "mode", Some(b"\"url\""));
        requests.push(InputRequest { key, kind: InputKind::Elicitation, params });
    }
    if requests.is_empty() {
        return Err(InputError::Malformed("-32042 without a URL in 'data.elicitations'"));
    }
    Ok(Wanted { requests, state: None })
}

/// Says in words what is to be visited, for a client that cannot be asked.
#[must_use]
pub fn told_visits(response: &Response) -> String {
    let text = |params: &[u8], key: &'static str| {
        let members = json::members(params).ok()?;
        let text = json::text(members.get(key).ok()??)?;
        Some(text.chars().filter(|c| !c.is_control()).take(WORDS_CHARS).collect::<String>())
    };
    let all = visits(response);
    let told = all.iter().filter_map(|params| match (text(params, "url"), text(params, "message")) {
        (Some(url), Some(message)) => Some(format!("{url} ({message})")),
        (Some(url), None) => Some(url),
        (None, _) => None,
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Reads from the params of a retry what came of visits.
#[must_use]
pub fn visited(params: &Bytes) -> Visited {
    let mut visited = Visited::default();
    for (key, answer) in answers(params).unwrap_or_default() {
        let Some(rest) = key.strip_prefix(KEY) else { continue };
        let round = rest.split('.').next().and_then(|round| round.parse().ok()).unwrap_or(1);
        visited.rounds = visited.rounds.max(round);
        let action = json::members(&answer).ok().and_then(|members| members.get("action").ok().flatten());
        visited.declined |= action.is_none_or(|action| action.get() != b"\"accept\"");
    }
    visited
}

/// The visits of an error that name a URL: their params.
fn visits(response: &Response) -> Vec<Bytes> {
    let has_url = |params: &Bytes| {
        json::members(params).is_ok_and(|members| members.get("url").ok().flatten().and_then(json::text).is_some())
    };
    places(response).into_iter().map(|at| response.raw.slice(at)).filter(has_url).collect()
}

/// Where the objects of `data.elicitations` lie in the message.
fn places(response: &Response) -> Vec<Range<usize>> {
    let Payload::Error(at) = &response.payload else { return Vec::new() };
    let inside = |outer: Range<usize>, key: &'static str| {
        let inner = json::members(response.raw.get(outer.clone())?).ok()?.at(key).ok()??;
        Some(outer.start + inner.start..outer.start + inner.end)
    };
    let Some(list) = inside(at.clone(), "data").and_then(|data| inside(data, "elicitations")) else {
        return Vec::new();
    };
    let elements = json::elements(response.raw.get(list.clone()).unwrap_or_default()).unwrap_or_default();
    let elements = elements.into_iter().map(|at| list.start + at.start..list.start + at.end);
    elements.filter(|at| response.raw.get(at.clone()).is_some_and(|one| one.starts_with(b"{"))).collect()
}

#[cfg(test)]
#[path = "visits_tests.rs"]
mod tests;
