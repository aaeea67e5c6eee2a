//! Changes a message by replacing byte ranges; everything else stays byte for byte.
//!
//! Not for: finding the ranges.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

/// A text up to this size is copied sooner than sent in pieces.
const COPY_BYTES_MAX: usize = 16 << 10;

/// A list of replacements on one text.
#[derive(Clone, Debug)]
pub struct Edits {
    raw: Bytes,
    changes: SmallVec<[(Range<usize>, Bytes); 6]>,
}

impl Edits {
    /// Starts with no change.
    #[must_use]
    pub fn new(raw: Bytes) -> Self {
        Self { raw, changes: SmallVec::new() }
    }

    /// Returns the text as it was.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Replaces a range; an empty range inserts. Ranges must not overlap.
    pub fn replace(&mut self, at: Range<usize>, with: impl Into<Bytes>) -> &mut Self {
        debug_assert!(at.start <= at.end && at.end <= self.raw.len(), "edit lies outside of the text");
        self.changes.push((at, with.into()));
        self
    }

    /// Returns the changed text in pieces that share the original's memory where it is large: nothing of it is copied.
    #[must_use]
    pub fn pieces(mut self) -> Vec<Bytes> {
        if self.raw.len() <= COPY_BYTES_MAX {
            return vec![self.apply()];
        }
        self.changes.sort_by_key(|(at, _)| (at.start, at.end));
        let mut out = Vec::with_capacity(self.changes.len() * 2 + 1);
        let mut done = 0;
        for (at, with) in self.changes {
            debug_assert!(done <= at.start, "edits overlap");
            out.push(self.raw.slice(done..at.start));
            out.push(with);
            done = at.end;
        }
        out.push(self.raw.slice(done..));
        out.retain(|piece| !piece.is_empty());
        out
    }

    /// Returns the changed text in one piece.
    #[must_use]
    pub fn apply(mut self) -> Bytes {
        if self.changes.is_empty() {
            return self.raw;
        }
        self.changes.sort_by_key(|(at, _)| (at.start, at.end));
        let added: usize = self.changes.iter().map(|(_, with)| with.len()).sum();
        let removed: usize = self.changes.iter().map(|(at, _)| at.len()).sum();
        // Exactly as much as is needed: then the text is handed on as it is, without a count of its own beside it.
        let mut out = Vec::with_capacity((self.raw.len() + added).saturating_sub(removed));
        let mut done = 0;
        for (at, with) in &self.changes {
            debug_assert!(done <= at.start, "edits overlap");
            out.extend_from_slice(self.raw.get(done..at.start).unwrap_or_default());
            out.extend_from_slice(with);
            done = at.end;
        }
        out.extend_from_slice(self.raw.get(done..).unwrap_or_default());
        Bytes::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::Edits;
    use bytes::Bytes;

    #[test]
    fn edits_touch_nothing_else() {
        let mut edits = Edits::new(Bytes::from_static(b"abcdef"));
        edits.replace(4..5, "E").replace(0..0, ">").replace(1..3, "");
        assert_eq!(edits.apply(), ">adEf");
        assert_eq!(Edits::new(Bytes::from_static(b"abc")).apply(), "abc");
    }

    #[test]
    fn pieces_are_the_same_text() {
        for length in [10, 100_000] {
            let raw = Bytes::from("r".repeat(length));
            let mut edits = Edits::new(raw.clone());
            edits.replace(8..8, "|").replace(0..2, "").replace(9..10, "end");
            let pieces = edits.clone().pieces();
            assert_eq!(pieces.concat(), edits.apply());
            assert_eq!(pieces.len() > 1, length > 10);
            // The large part is the original's own memory.
            assert!(length == 10 || pieces.iter().any(|piece| piece.as_ptr() == raw.slice(10..).as_ptr()));
        }
    }
}
