//! What a client lets itself be asked, as one small set: the fingerprint of its capabilities.
//!
//! Not for: capabilities of servers. Invariants: what a client's revision does not know is not in its set; two clients of
//! one set may be told apart by nothing that a server is told of their capabilities.

use crate::wire::json;

use super::{Era, ProtocolVersion};

/// Something a client can do for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// `elicitation/create` with a form.
    ElicitationForm,
    /// `elicitation/create` with a URL (from 2025-11-25 on).
    ElicitationUrl,
    /// `roots/list`.
    Roots,
    /// It says when its roots have changed (sessions alone do).
    RootsChanged,
    /// `sampling/createMessage`.
    Sampling,
    /// The same with tools (from 2025-11-25 on).
    SamplingTools,
    /// The extension of apps, `io.modelcontextprotocol/ui`.
    Ui,
}

/// The features of one client. Connections that declare different ones are different connections [TRN-4].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u8);

/// The key of the extension of apps.
const UI: &str = "io.modelcontextprotocol/ui";

// === impl Feature ===

impl Feature {
    const ALL: [Self; 7] = [
        Self::ElicitationForm,
        Self::ElicitationUrl,
        Self::Roots,
        Self::RootsChanged,
        Self::Sampling,
        Self::SamplingTools,
        Self::Ui,
    ];

    const fn bit(self) -> u8 {
        match self {
            Self::ElicitationForm => 1,
            Self::ElicitationUrl => 1 << 1,
            Self::Roots => 1 << 2,
            Self::Sampling => 1 << 3,
            Self::SamplingTools => 1 << 4,
            Self::Ui => 1 << 5,
            Self::RootsChanged => 1 << 6,
        }
    }
}

// === impl Features ===

impl Features {
    /// A client that cannot be asked anything.
    pub const NONE: Self = Self(0);

    /// A client that can be asked everything the gateway carries: what lists are read as, so that nothing is missing in them.
    pub const ASKABLE: Self = Self::NONE
        .with(Feature::ElicitationForm)
        .with(Feature::ElicitationUrl)
        .with(Feature::Roots)
        .with(Feature::RootsChanged)
        .with(Feature::Sampling)
        .with(Feature::SamplingTools);

    /// Reads declared capabilities, a JSON object, as a client of `version` may mean them. What is no object counts as not
    /// declared.
    #[must_use]
    pub fn read(capabilities: &[u8], version: ProtocolVersion) -> Self {
        if capabilities == b"{}" {
            return Self::NONE;
        }
        let newer = version >= ProtocolVersion::V2025_11_25;
        let mut features = Self::NONE;
        if let Some(roots) = declared(capabilities, "roots") {
            features = features.with(Feature::Roots);
            let changes = json::members(roots).ok().and_then(|roots| roots.get("listChanged").ok().flatten());
            if version.era() == Era::Legacy && changes.is_some_and(|changes| changes.get() == b"true") {
                features = features.with(Feature::RootsChanged);
            }
        }
        if let Some(sampling) = declared(capabilities, "sampling") {
            features = features.with(Feature::Sampling);
            if newer && declared(sampling, "tools").is_some() {
                features = features.with(Feature::SamplingTools);
            }
        }
        if let Some(elicitation) =
            declared(capabilities, "elicitation").filter(|_| version >= ProtocolVersion::V2025_06_18)
        {
            let url = newer && declared(elicitation, "url").is_some();
            // An empty one means forms alone.
            if !url || declared(elicitation, "form").is_some() {
                features = features.with(Feature::ElicitationForm);
            }
            if url {
                features = features.with(Feature::ElicitationUrl);
            }
        }
        if declared(capabilities, "extensions").and_then(|all| declared(all, UI)).is_some() {
            features = features.with(Feature::Ui);
        }
        features
    }

    /// Returns the set with one more in it.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | feature.bit())
    }

    /// Returns what is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Says whether the client can do it.
    #[must_use]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Says whether a server may ask such a client anything at all.
    #[must_use]
    pub const fn may_be_asked(self) -> bool {
        self.0 & !Feature::Ui.bit() != 0
    }

    /// Spells the capabilities for a server of an era, a JSON object.
    #[must_use]
    pub fn spelled(self, era: Era) -> String {
        let mut members: Vec<&str> = Vec::new();
        match (self.contains(Feature::ElicitationForm), self.contains(Feature::ElicitationUrl)) {
            (false, false) => {}
            // Servers of 2025-06-18 know an empty one alone.
            (true, false) => members.push(match era {
                Era::Legacy => r#""elicitation":{}"#,
                Era::Stateless => r#""elicitation":{"form":{}}"#,
            }),
            (false, true) => members.push(r#""elicitation":{"url":{}}"#),
            (true, true) => members.push(r#""elicitation":{"form":{},"url":{}}"#),
        }
        if self.contains(Feature::RootsChanged) && era == Era::Legacy {
            members.push(r#""roots":{"listChanged":true}"#);
        } else if self.contains(Feature::Roots) {
            members.push(r#""roots":{}"#);
        }
        if self.contains(Feature::SamplingTools) {
            members.push(r#""sampling":{"tools":{}}"#);
        } else if self.contains(Feature::Sampling) {
            members.push(r#""sampling":{}"#);
        }
        if self.contains(Feature::Ui) {
            members.push(r#""extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}"#);
        }
        format!("{{{}}}", members.join(","))
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Feature::ALL.iter().filter(|feature| self.contains(**feature))).finish()
    }
}

/// Returns the object that stands at `key`.
fn declared<'a>(object: &'a [u8], key: &'static str) -> Option<&'a [u8]> {
    let members = json::members(object).ok()?;
    let value = members.get(key).ok()??;
    value.is_object().then_some(value.get())
}

#[cfg(test)]
mod tests {
    use super::{Feature, Features};
    use crate::wire::mcp::{Era, ProtocolVersion};

    const NEWEST: ProtocolVersion = ProtocolVersion::V2026_07_28;

    fn of(features: &[Feature]) -> Features {
        features.iter().fold(Features::NONE, |set, feature| set.with(*feature))
    }

    /// [TRN-4, R98]
    #[test]
    fn what_is_declared_is_what_is_in_the_set() {
        use Feature::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingTools, Ui};
        for (text, expected) in [
            ("{}", of(&[])),
            (r#"{"tools":{},"experimental":{"sampling":{}}}"#, of(&[])),
            (r#"{"sampling":null,"roots":true,"elicitation":[]}"#, of(&[])),
            (r#"{"roots":{"listChanged":true}}"#, of(&[Roots])),
            (r#"{ "sampling" : { "context":{} } }"#, of(&[Sampling])),
            (r#"{"sampling":{"tools":{}}}"#, of(&[Sampling, SamplingTools])),
            (r#"{"elicitation":{}}"#, of(&[ElicitationForm])),
            (r#"{"elicitation":{"form":{}}}"#, of(&[ElicitationForm])),
            (r#"{"elicitation":{"url":{}}}"#, of(&[ElicitationUrl])),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, of(&[ElicitationForm, ElicitationUrl])),
            (r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#, of(&[Ui])),
        ] {
            let read = Features::read(text.as_bytes(), NEWEST);
            assert_eq!(read, expected, "{text}");
            assert_eq!(read.may_be_asked(), read != of(&[]) && read != of(&[Ui]), "{text}");
            // What we say of it to a server says the same again.
            for era in [Era::Legacy, Era::Stateless] {
                assert_eq!(Features::read(read.spelled(era).as_bytes(), NEWEST), read, "{}", read.spelled(era));
            }
        }
    }

    /// [R98]: a revision cannot mean what it does not know (protocol §5.5).
    #[test]
    fn an_older_revision_declares_less() {
        use Feature::{ElicitationForm, Roots, Sampling};
        let all = br#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        assert_eq!(Features::read(all, ProtocolVersion::V2025_03_26), of(&[Roots, Sampling]));
        assert_eq!(Features::read(all, ProtocolVersion::V2025_06_18), of(&[Roots, Sampling, ElicitationForm]));
        assert_eq!(Features::read(all, ProtocolVersion::V2025_11_25), Features::read(all, NEWEST));
    }

    /// Sessions alone tell of changed roots, and those that say so.
    #[test]
    fn changed_roots_are_told_by_sessions_that_say_so() {
        let (newest, older) = (ProtocolVersion::V2025_11_25, ProtocolVersion::V2024_11_05);
        for (text, version, tells) in [
            (r#"{"roots":{"listChanged":true}}"#, newest, true),
            (r#"{"roots":{"listChanged":true}}"#, older, true),
            (r#"{"roots":{"listChanged":false}}"#, newest, false),
            (r#"{"roots":{}}"#, newest, false),
            (r#"{"roots":{"listChanged":true}}"#, NEWEST, false),
        ] {
            let features = Features::read(text.as_bytes(), version);
            assert!(features.contains(Feature::Roots));
            assert_eq!(features.contains(Feature::RootsChanged), tells, "{text} {version}");
            assert_eq!(features.spelled(Era::Legacy).contains("listChanged"), tells, "{text} {version}");
            assert!(!features.spelled(Era::Stateless).contains("listChanged"), "{text} {version}");
        }
    }
}
