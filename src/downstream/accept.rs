//! What a client can take (`Accept`) and what it sent (`Content-Type`) [FC-HTP-10, FC-HTP-11].

use http::header::{ACCEPT, CONTENT_TYPE};

use super::headers::{Headers, Known};

/// What the specification's clients send.
const BOTH: &[u8] = b"application/json, text/event-stream";
/// The same, of a body.
const JSON: &[u8] = b"application/json";

/// The forms of an answer that a client can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Both.
    Any,
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
        if let Ok(Some(line)) = headers.single(Known::Accept)
            && line.as_bytes() == BOTH
        {
            return Self::Any;
        }
        let (mut json, mut events, mut stated) = (false, false, false);
        for line in headers.all().get_all(ACCEPT) {
            for range in line.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                if kind.is_empty() {
                    continue;
                }
                stated = true;
                if parts.any(refuses) {
                    continue;
                }
                json |= matches!(kind.as_str(), "*/*" | "application/*" | "application/json");
                events |= matches!(kind.as_str(), "*/*" | "text/*" | "text/event-stream");
            }
        }
        match (json, events) {
            _ if !stated => Self::Any,
            (true, true) => Self::Any,
            (true, false) => Self::Json,
            (false, true) => Self::Events,
            (false, false) => Self::Nothing,
        }
    }

    /// Says whether an event stream can be taken.
    pub(super) const fn events(self) -> bool {
        matches!(self, Self::Any | Self::Events)
    }
}

/// Says whether a parameter is a weight of zero.
fn refuses(parameter: &str) -> bool {
    let weight = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.is_some_and(|(_, weight)| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
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
