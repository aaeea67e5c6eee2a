//! What something that is kept came from: whoever may not call that any more may not read it either [POL-12, LIM-7].
//!
//! Not for: the decision (`policy`), or where it is kept.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::catalog::Entry;
use crate::id::UpstreamName;
use crate::policy::Action;
use crate::wire::mcp::Kind;

/// How many origins one file has at most; the newest are remembered.
const ORIGINS_MAX: usize = 16;
/// How many bytes all origins of one file have at most, as text.
pub(super) const ORIGINS_BYTES_MAX: usize = 64 << 10;

/// A tool, prompt or resource whose answer something came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    kind: Kind,
    server: UpstreamName,
    shown: Arc<str>,
    full: Arc<str>,
}

/// The same as a line of text.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    server: Cow<'a, str>,
    #[serde(borrow)]
    shown: Cow<'a, str>,
    #[serde(borrow)]
    full: Cow<'a, str>,
}

// === impl Origin ===

impl Origin {
    /// Takes note of what was asked.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        let (shown, full) = (Arc::clone(&entry.shown), Arc::clone(&entry.full));
        Self { kind: entry.kind, server: entry.server.clone(), shown, full }
    }

    /// Returns what the policy is asked about.
    #[must_use]
    pub fn action(&self) -> Action<'_> {
        Action { kind: self.kind, server: &self.server, shown: &self.shown, full: &self.full }
    }

    /// Returns how many bytes its names take.
    pub(super) fn bytes(&self) -> usize {
        self.shown.len() + self.full.len()
    }

    /// Returns how many bytes it adds to a file's text of origins; what is too long to be told adds none.
    pub(super) fn line_bytes(&self) -> usize {
        Some(self.line().len() + 1).filter(|bytes| *bytes <= ORIGINS_BYTES_MAX).unwrap_or_default()
    }

    fn line(&self) -> String {
        let line = Line {
            kind: self.kind.member().into(),
            server: self.server.as_str().into(),
            shown: (*self.shown).into(),
            full: (*self.full).into(),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn of_line(line: &str) -> Option<Self> {
        let Line { kind, server, shown, full } = serde_json::from_str(line).ok()?;
        let kind = Kind::ALL.into_iter().find(|known| known.member() == kind)?;
        let server = UpstreamName::new(&server).ok()?;
        Some(Self { kind, server, shown: Arc::from(shown), full: Arc::from(full) })
    }
}

/// Reads origins, one a line; what cannot be read is none.
pub(super) fn read(text: &str) -> Vec<Origin> {
    text.lines().filter_map(Origin::of_line).collect()
}

/// Adds an origin to a file's text of them; `None` if it is there already.
pub(super) fn with(text: &str, origin: &Origin) -> Option<String> {
    let mut all = read(text);
    if all.contains(origin) {
        return None;
    }
    all.push(origin.clone());
    let lines: Vec<String> = all.iter().map(|origin| origin.line() + "\n").collect();
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len();
        bytes <= ORIGINS_BYTES_MAX
    };
    let newest: Vec<&String> = lines.iter().rev().take(ORIGINS_MAX).take_while(fits).collect();
    Some(newest.into_iter().rev().map(String::as_str).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ORIGINS_BYTES_MAX, ORIGINS_MAX, Origin, read, with};
    use crate::catalog::Entry;
    use crate::id::UpstreamName;

    /// One whose names take no bytes.
    pub(crate) fn nameless() -> Origin {
        Origin { shown: "".into(), full: "".into(), ..origin("file:///a") }
    }

    /// A resource of a server `docs`.
    pub(crate) fn origin(uri: &str) -> Origin {
        Origin::of(&Entry::unlisted(&UpstreamName::new("docs").unwrap(), uri))
    }

    /// [LIM-3, LIM-6]: they are written as they are read, each once, within bounds; the newest stay.
    #[test]
    fn origins_are_written_as_they_are_read() {
        let odd = origin("file:///\u{1F600}\"\\\n\u{2028}");
        let text = with("", &odd).unwrap();
        assert_eq!((read(&text), text.lines().count()), (vec![odd.clone()], 1));
        assert_eq!(odd.line_bytes(), text.len());
        assert_eq!(with(&text, &odd), None);
        assert_eq!(read("nothing\n{\"kind\":\"tools\"}\n\n").len(), 0);
        let mut text = text;
        for at in 0..ORIGINS_MAX {
            text = with(&text, &origin(&format!("file:///{at}"))).unwrap();
        }
        let all = read(&text);
        assert!(all.len() == ORIGINS_MAX && !all.contains(&odd) && all.contains(&origin("file:///0")));
        let long = origin(&format!("file:///{}", "x".repeat(ORIGINS_BYTES_MAX / 4)));
        assert_eq!(read(&with(&text, &long).unwrap()).last(), Some(&long));
        let long = origin(&"x".repeat(ORIGINS_BYTES_MAX));
        let text = with(&text, &long).unwrap();
        assert!(text.is_empty() && long.line_bytes() == 0, "what is too long is of no origin that can be told");
    }
}
