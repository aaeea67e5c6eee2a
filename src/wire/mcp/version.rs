//! Protocol revisions and their two eras.

use std::fmt;

/// A revision of MCP that the gateway serves, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
    /// 2026-07-28
    V2026_07_28,
}

/// Sessions with `initialize`, or stateless requests with `_meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Stateless,
}

/// The newest revision of the `initialize` era; what an unknown version is answered with [R33].
pub const LEGACY_LATEST: ProtocolVersion = ProtocolVersion::V2025_11_25;
/// The newest stateless revision.
pub const STATELESS_LATEST: ProtocolVersion = ProtocolVersion::V2026_07_28;

// === impl Era ===

impl Era {
    /// Says whether a server of this era asks by ending a call with `input_required`.
    #[must_use]
    pub const fn asks_by_result(self) -> bool {
        matches!(self, Self::Stateless)
    }
}

// === impl ProtocolVersion ===

impl ProtocolVersion {
    /// Every revision served, oldest first.
    pub const SUPPORTED: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// Returns the text that stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Reads a version; `None` if it is not served.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::SUPPORTED.into_iter().find(|version| version.as_str() == text)
    }

    /// Returns the era this revision belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
            Self::V2026_07_28 => Era::Stateless,
        }
    }

    /// Answers `initialize`: the version asked for if it is of the legacy era, else the newest legacy one [R33].
    #[must_use]
    pub fn negotiate(requested: Option<&str>) -> Self {
        requested.and_then(Self::from_text).filter(|version| version.era() == Era::Legacy).unwrap_or(LEGACY_LATEST)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{LEGACY_LATEST, ProtocolVersion};

    /// [FC-CLI-02, R33]
    #[test]
    fn initialize_echoes_what_is_served_and_never_2026() {
        for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(ProtocolVersion::negotiate(Some(version)).as_str(), version);
        }
        for other in [Some("1999-01-01"), Some("2099-01-01"), Some("2026-07-28"), Some(""), None] {
            assert_eq!(ProtocolVersion::negotiate(other), LEGACY_LATEST);
        }
    }
}
