//! Newtypes for everything that names something.
//!
//! Not for: tool names, whose rule lives in `catalog::name`. Invariant: a value of these types has passed its check.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest server name, in bytes [CFG §1].
pub const UPSTREAM_NAME_MAX: usize = 40;

/// The name of a configured server: 1–40 characters of `A-Za-z0-9_.-` under the rules of [CFG-5].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamName(Arc<str>);

/// Why a text is not a server name [CFG-5].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamNameError {
    /// A character outside `A-Za-z0-9_.-`.
    #[error("has a character outside A-Z a-z 0-9 _ . -")]
    Character,
    /// `__` after `.` became `_`.
    #[error("contains '__' once '.' is read as '_'")]
    DoubleUnderscore,
    /// Empty, or longer than 40 characters.
    #[error("must have 1 to 40 characters")]
    Length,
    /// A name the gateway keeps for itself.
    #[error("is reserved")]
    Reserved,
    /// Does not start with a letter or digit.
    #[error("must start with a letter or digit")]
    Start,
    /// Ends in `_` (or `.`, which is shown as `_`).
    #[error("must not end in '_' once '.' is read as '_'")]
    TrailingUnderscore,
}

impl UpstreamName {
    /// Checks a server name.
    ///
    /// # Errors
    /// The first rule of [CFG-5] that the text breaks.
    pub fn new(text: &str) -> Result<Self, UpstreamNameError> {
        if text.is_empty() || text.len() > UPSTREAM_NAME_MAX {
            return Err(UpstreamNameError::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')) {
            return Err(UpstreamNameError::Character);
        }
        let shown = text.replace('.', "_");
        if !shown.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return Err(UpstreamNameError::Start);
        }
        if shown.contains("__") {
            return Err(UpstreamNameError::DoubleUnderscore);
        }
        if shown.ends_with('_') {
            return Err(UpstreamNameError::TrailingUnderscore);
        }
        if text.eq_ignore_ascii_case("portcullis") || text == "mcp" {
            return Err(UpstreamNameError::Reserved);
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the name as configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as it begins a tool's name: `.` becomes `_`.
    #[must_use]
    pub fn shown(&self) -> String {
        self.0.replace('.', "_")
    }

    /// Returns the slug of [CFG-5]: lower case, `.` and `_` as `-`, an `s` before a leading digit.
    #[must_use]
    pub fn slug(&self) -> String {
        let lower = self.0.to_ascii_lowercase().replace(['.', '_'], "-");
        if lower.starts_with(|first: char| first.is_ascii_digit()) { format!("s{lower}") } else { lower }
    }
}

/// The name of a principal, as configured.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(Arc<str>);

impl PrincipalId {
    /// Makes a principal's name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a legacy client session: 32 random bytes in base64url.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Makes a session id from its text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Returns the text that goes into `Mcp-Session-Id`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A session id is a handle of its owner, so logs show its first characters alone.
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({}…)", self.0.chars().take(6).collect::<String>())
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    )*};
}
as_text!(UpstreamName, PrincipalId);

#[cfg(test)]
mod tests {
    use super::{UpstreamName, UpstreamNameError};

    /// [CFG-5]
    #[test]
    fn server_names_follow_the_rules() {
        for good in ["a", "x-1", "a.b", "9lives", "A_b", "a".repeat(40).as_str()] {
            assert!(UpstreamName::new(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", UpstreamNameError::Length),
            ("a".repeat(41).as_str(), UpstreamNameError::Length),
            ("a b", UpstreamNameError::Character),
            ("é", UpstreamNameError::Character),
            ("_a", UpstreamNameError::Start),
            ("-a", UpstreamNameError::Start),
            ("a__b", UpstreamNameError::DoubleUnderscore),
            ("a._b", UpstreamNameError::DoubleUnderscore),
            ("a_", UpstreamNameError::TrailingUnderscore),
            ("a.", UpstreamNameError::TrailingUnderscore),
            ("mcp", UpstreamNameError::Reserved),
        ] {
            assert_eq!(UpstreamName::new(bad).err(), Some(why), "{bad}");
        }
        assert_eq!(UpstreamName::new("9.A_b").unwrap().slug(), "s9-a-b");
    }
}
