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
pub struct Edits<'a> {
    raw: Bytes,
    changes: SmallVec<[(Range<usize>, With<'a>); 6]>,
}

/// What comes in the place of a part.
#[derive(Clone, Debug)]
enum With<'a> {
    Own(Bytes),
    Lent(&'a [u8]),
}

impl With<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(text) => text,
            Self::Lent(text) => text,
        }
    }
}

impl<'a> Edits<'a> {
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
        self.push(at, With::Own(with.into()))
    }

    /// The same with a text that is somebody else's.
    pub fn replace_by(&mut self, at: Range<usize>, with: &'a [u8]) -> &mut Self {
        self.push(at, With::Lent(with))
    }

    fn push(&mut self, at: Range<usize>, with: With<'a>) -> &mut Self {
        debug_assert!(at.start <= at.end && at.end <= self.raw.len(), "edit lies outside of the text");
        self.changes.push((at, with));
        self
    }

    /// Nearly always they are asked for in order.
    fn sort(&mut self) {
        let place = |(at, _): &(Range<usize>, With<'a>)| (at.start, at.end);
        if !self.changes.is_sorted_by_key(place) {
            self.changes.sort_by_key(place);
        }
    }

    /// Returns the changed text in pieces that share the original's memory where it is large: nothing of it is copied.
    #[must_use]
    pub fn pieces(&mut self) -> Vec<Bytes> {
        if self.raw.len() <= COPY_BYTES_MAX {
            return vec![self.apply()];
        }
        self.sort();
        let mut out = Vec::with_capacity(self.changes.len() * 2 + 1);
        let mut done = 0;
        for (at, with) in self.changes.drain(..) {
            debug_assert!(done <= at.start, "edits overlap");
            out.push(self.raw.slice(done..at.start));
            out.push(match with {
                With::Own(text) => text,
                With::Lent(text) => Bytes::copy_from_slice(text),
            });
            done = at.end;
        }
        out.push(self.raw.slice(done..));
        out.retain(|piece| !piece.is_empty());
        out
    }

    /// Returns the changed text in one piece.
    #[must_use]
    pub fn apply(&mut self) -> Bytes {
        if self.changes.is_empty() {
            return self.raw.clone();
        }
        self.sort();
        let length = |length: usize, (at, with): &(Range<usize>, With<'a>)| length + with.as_slice().len() - at.len();
        // Exactly as much as is needed: then the text is handed on as it is, without a count of its own beside it.
        let mut out = Vec::with_capacity(self.changes.iter().fold(self.raw.len(), length));
        let mut done = 0;
        for (at, with) in &self.changes {
            debug_assert!(done <= at.start, "edits overlap");
            out.extend_from_slice(self.raw.get(done..at.start).unwrap_or_default());
            out.extend_from_slice(with.as_slice());
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
        edits.replace(4..5, "E").replace_by(0..0, b">").replace(1..3, "");
        assert_eq!(edits.apply(), ">adEf");
        assert_eq!(Edits::new(Bytes::from_static(b"abc")).apply(), "abc");
    }

    #[test]
    fn pieces_are_the_same_text() {
        for length in [10, 100_000] {
            let raw = Bytes::from("r".repeat(length));
            let mut edits = Edits::new(raw.clone());
            edits.replace(8..8, "|").replace(0..2, "").replace_by(9..10, b"end");
            let pieces = edits.clone().pieces();
            assert_eq!(pieces.concat(), edits.apply());
            assert_eq!(pieces.len() > 1, length > 10);
            // The large part is the original's own memory.
            assert!(length == 10 || pieces.iter().any(|piece| piece.as_ptr() == raw.slice(10..).as_ptr()));
        }
    }
}
