//! What a client can take (`Accept`) and what it sent (`Content-Type`) [FC-HTP-10, FC-HTP-11].

use http::header::{ACCEPT, CONTENT_TYPE};

use super::headers::{Headers, Known, Twice};

/// What the specification's clients send.
const BOTH: &[u8] = b"application/json, text/event-stream";
/// The same of clients that would rather have a stream.
const BOTH_EVENTS_FIRST: &[u8] = b"text/event-stream, application/json";
/// The same, of a body.
const JSON: &[u8] = b"application/json";

/// The forms of an answer that a client can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Both.
    Any,
    /// Both, and an event stream rather.
    EventsFirst,
    /// JSON alone.
    Json,
    /// An event stream alone.
    Events,
    /// Neither.
    Nothing,
}

// === impl Take ===

impl Take {
    /// Reads all `Accept` lines; none at all means anything.
    pub(super) fn read(headers: &Headers) -> Self {
        match headers.single(Known::Accept) {
            Ok(Some(line)) if line.as_bytes() == BOTH => return Self::Any,
            Ok(Some(line)) if line.as_bytes() == BOTH_EVENTS_FIRST => return Self::EventsFirst,
            Ok(_) | Err(Twice) => {}
        }
        let (mut json, mut events, mut stated, mut first) = (0.0_f32, 0.0_f32, false, false);
        for line in headers.all().get_all(ACCEPT) {
            for range in line.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                if kind.is_empty() {
                    continue;
                }
                stated = true;
                let weight = parts.find_map(weight).unwrap_or(1.0);
                first |= json <= 0.0 && weight > 0.0 && kind == "text/event-stream";
                if matches!(kind.as_str(), "*/*" | "application/*" | "application/json") {
                    json = json.max(weight);
                }
                if matches!(kind.as_str(), "*/*" | "text/*" | "text/event-stream") {
                    events = events.max(weight);
                }
            }
        }
        match (json > 0.0, events > 0.0) {
            _ if !stated => Self::Any,
            (true, true) if events > json || (first && events >= json) => Self::EventsFirst,
            (true, true) => Self::Any,
            (true, false) => Self::Json,
            (false, true) => Self::Events,
            (false, false) => Self::Nothing,
        }
    }

    /// Returns what a session's client takes: of two forms the one that it weighs more, or names first. A stateless client is
    /// not asked, for its stream has no more to offer than the answer.
    pub(super) const fn in_session(self) -> Self {
        match self {
            Self::EventsFirst => Self::Events,
            Self::Any | Self::Json | Self::Events | Self::Nothing => self,
        }
    }

    /// Says whether an event stream can be taken.
    pub(super) const fn events(self) -> bool {
        matches!(self, Self::Any | Self::EventsFirst | Self::Events)
    }
}

/// Reads a parameter that is a weight.
fn weight(parameter: &str) -> Option<f32> {
    let (name, weight) = parameter.split_once('=')?;
    if name.trim().eq_ignore_ascii_case("q") { weight.trim().parse().ok() } else { None }
}

/// Says whether a body may be JSON: it says so, or says nothing.
pub(super) fn is_json(headers: &Headers) -> bool {
    // Of two the first counts.
    let first = |_| headers.all().get(CONTENT_TYPE);
    let Some(kind) = headers.single(Known::ContentType).unwrap_or_else(first) else { return true };
    if kind.as_bytes() == JSON {
        return true;
    }
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}
