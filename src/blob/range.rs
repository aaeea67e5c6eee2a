//! The gateway's own URIs: an attachment, or the rest of what was cut, and which part of it [LIM-7].

use std::fmt;

/// The scheme of attachments.
pub const BLOB_SCHEME: &str = "portcullis+blob";
/// The scheme of the rest of what was cut.
pub const OVERFLOW_SCHEME: &str = "portcullis+overflow";

/// Which part is asked for: characters of a text, bytes of anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// How much stands before it.
    pub offset: u64,
    /// How much is wanted; `None`: all, as far as one answer may hold it.
    pub length: Option<u64>,
}

/// One of the gateway's own URIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnUri {
    /// An attachment, by its name in the store.
    Blob(String, Range),
    /// What was cut, by its id.
    Overflow(String, Range),
}

/// Why one of the gateway's own URIs cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The part after the path is something else than offset and length.
    #[error("the URI takes offset=N and length=M, both numbers, and nothing else")]
    Query,
}

impl OwnUri {
    /// Reads a URI; `None` if it is none of the gateway's own.
    #[must_use]
    pub fn read(uri: &str) -> Option<Result<Self, UriError>> {
        let (scheme, rest) = uri.split_once(":///")?;
        let (id, query) = rest.split_once('?').map_or((rest, None), |(id, query)| (id, Some(query)));
        let own: fn(String, Range) -> Self = if scheme.eq_ignore_ascii_case(BLOB_SCHEME) {
            Self::Blob
        } else if scheme.eq_ignore_ascii_case(OVERFLOW_SCHEME) {
            Self::Overflow
        } else {
            return None;
        };
        Some(query.map_or_else(|| Ok(Range::default()), Range::read).map(|range| own(id.to_owned(), range)))
    }
}

impl fmt::Display for OwnUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blob(id, range) => write!(f, "{BLOB_SCHEME}:///{id}{range}"),
            Self::Overflow(id, range) => write!(f, "{OVERFLOW_SCHEME}:///{id}{range}"),
        }
    }
}

impl Range {
    fn read(query: &str) -> Result<Self, UriError> {
        let (mut offset, mut length) = (None, None);
        for part in query.split('&') {
            let (key, value) = part.split_once('=').ok_or(UriError::Query)?;
            let slot = match key {
                "offset" => &mut offset,
                "length" => &mut length,
                _ => return Err(UriError::Query),
            };
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse().ok().filter(|_| digits).ok_or(UriError::Query)?;
            if slot.replace(number).is_some() {
                return Err(UriError::Query);
            }
        }
        Ok(Self { offset: offset.unwrap_or(0), length })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.offset, self.length) {
            (0, None) => Ok(()),
            (offset, None) => write!(f, "?offset={offset}"),
            (offset, Some(length)) => write!(f, "?offset={offset}&length={length}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnUri, Range, UriError};

    /// [LIM-7]
    #[test]
    fn own_uris_are_read_as_they_are_written() {
        let whole = OwnUri::Blob("ab.png".to_owned(), Range::default());
        let part = OwnUri::Overflow("ab".to_owned(), Range { offset: 5, length: Some(7) });
        let rest = OwnUri::Overflow("ab".to_owned(), Range { offset: 5, length: None });
        for (uri, text) in [
            (&whole, "portcullis+blob:///ab.png"),
            (&part, "portcullis+overflow:///ab?offset=5&length=7"),
            (&rest, "portcullis+overflow:///ab?offset=5"),
        ] {
            assert_eq!(uri.to_string(), text);
            assert_eq!(OwnUri::read(text), Some(Ok(uri.clone())));
        }
        assert_eq!(OwnUri::read("portcullis+overflow:///ab?length=7&offset=5"), Some(Ok(part)));
        for odd in [
            "offset",
            "offset=",
            "offset=-1",
            "offset=+1",
            "offset=1&offset=2",
            "x=1",
            "",
            "length=99999999999999999999",
        ] {
            assert_eq!(OwnUri::read(&format!("portcullis+blob:///a?{odd}")), Some(Err(UriError::Query)), "{odd}");
        }
        for foreign in ["file:///ab", "portcullis+blob:/ab", "sdocs+file:///a", "nothing"] {
            assert_eq!(OwnUri::read(foreign), None);
        }
    }
}
