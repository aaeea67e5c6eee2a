//! Patterns of tool names: an exact name, or a prefix with a final `*` [POL-1].

use std::fmt;

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    prefix: bool,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing to match.
    #[error("a pattern must not be empty")]
    Empty,
    /// A `*` before the end.
    #[error("'*' may stand at the end of a pattern alone")]
    InnerStar,
}

impl Pattern {
    /// Reads a pattern; `mcp__<server>__…` is taken for `<server>__…`.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let text = text.strip_prefix("mcp__").unwrap_or(text);
        let (text, prefix) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        if text.contains('*') {
            return Err(PatternError::InnerStar);
        }
        if text.is_empty() && !prefix {
            return Err(PatternError::Empty);
        }
        Ok(Self { text: text.to_owned(), prefix })
    }

    /// Says whether the pattern matches a name. Case matters.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if self.prefix { name.starts_with(&self.text) } else { name == self.text }
    }

    /// Returns its text, and whether that is a prefix.
    pub(super) fn parts(&self) -> (&str, bool) {
        (&self.text, self.prefix)
    }

    /// Returns one of the same kind with another text.
    pub(super) const fn with_text(&self, text: String) -> Self {
        Self { text, prefix: self.prefix }
    }

    /// Returns what the pattern says of the server: the text before the first `__`, if the pattern goes that far.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.text.split_once("__").map(|(server, _)| server)
    }

    /// Says whether every name that begins with `prefix` matches.
    #[must_use]
    pub fn covers(&self, prefix: &str) -> bool {
        self.prefix && prefix.starts_with(&self.text)
    }

    /// Says whether some name that begins with `prefix` could match.
    #[must_use]
    pub fn could_match_under(&self, prefix: &str) -> bool {
        self.text.starts_with(prefix) || (self.prefix && prefix.starts_with(&self.text))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.prefix { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PatternError};

    /// [POL-1, CFG-2]
    #[test]
    fn a_star_stands_at_the_end_alone() {
        let matches = |pattern: &str, name: &str| Pattern::new(pattern).unwrap().matches(name);
        assert!(matches("*", "anything") && matches("*", ""));
        assert!(matches("git__get_*", "git__get_") && !matches("git__get_*", "git__Get_x"));
        assert!(matches("git__a", "git__a") && !matches("git__a", "git__ab"));
        assert!(matches("mcp__git__*", "git__a") && matches("mcp__git__a", "git__a"));
        assert_eq!(Pattern::new("*a"), Err(PatternError::InnerStar));
        assert_eq!(Pattern::new("a**"), Err(PatternError::InnerStar));
        assert_eq!(Pattern::new(""), Err(PatternError::Empty));
        assert_eq!(Pattern::new("git__a*").unwrap().server(), Some("git"));
        assert_eq!(Pattern::new("gi*").unwrap().server(), None);
        assert_eq!(Pattern::new("git__a*").unwrap().to_string(), "git__a*");
    }
}
