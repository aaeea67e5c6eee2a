//! The severities of log messages: those of RFC 5424 in MCP's spelling.

use crate::wire::json;

/// A severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// `debug`
    Debug,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
    /// `alert`
    Alert,
    /// `emergency`
    Emergency,
}

// === impl Level ===

impl Level {
    /// Every severity, least first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Returns the word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Returns its place in [`Level::ALL`].
    #[must_use]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// Finds the severity at a place in [`Level::ALL`].
    #[must_use]
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Reads a JSON text; `None` if it names no severity.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let text = json::text_of(text)?;
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn severities_are_ordered_words() {
        assert!(Level::ALL.is_sorted());
        for (index, level) in (0..).zip(Level::ALL) {
            assert_eq!((level.index(), Level::from_index(index)), (index, Some(level)));
            assert_eq!(Level::of_text(format!("\"{}\"", level.as_str()).as_bytes()), Some(level));
        }
        assert_eq!(Level::from_index(8), None);
        for bad in ["\"Info\"", "\"\"", "7", "null", "info", ""] {
            assert_eq!(Level::of_text(bad.as_bytes()), None, "{bad}");
        }
    }
}
