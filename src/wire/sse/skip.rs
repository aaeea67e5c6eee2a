//! A block over the limit on a stream that others use too: read to its end, and of it only both ends kept [LIM-1].
//!
//! Not for: whose block it was; the caller looks for an id in the ends.

/// How much of the begin and of the end of a block over the limit is kept.
const KEPT: usize = 4096;
/// After this many limits without an end there is no hope for one.
const HOPELESS: usize = 4;

/// The begin and the end of what a block over the limit carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The first bytes, from its data on.
    pub head: Vec<u8>,
    /// The last bytes of the block, field names included.
    pub tail: Vec<u8>,
}

/// A block that is being skipped.
#[derive(Debug)]
pub(super) struct Skipping {
    ends: Ends,
    bytes: usize,
    /// The line that is being read has a character already.
    begun: bool,
}

impl Ends {
    fn push(&mut self, part: &[u8]) {
        let room = KEPT.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(part.get(..room).unwrap_or_default());
        let part = part.get(part.len().saturating_sub(KEPT)..).unwrap_or_default();
        let surplus = (self.tail.len() + part.len()).saturating_sub(KEPT);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend_from_slice(part);
    }
}

impl Skipping {
    /// Begins with what is held of the block, in the order it came.
    pub(super) fn begin(held: &[&[u8]], bytes: usize) -> Self {
        let mut ends = Ends::default();
        held.iter().for_each(|part| ends.push(part));
        if let Some(data) = ends.head.strip_prefix(b"data:") {
            ends.head = data.strip_prefix(b" ").unwrap_or(data).to_vec();
        }
        Self { ends, bytes, begun: true }
    }

    /// Says that the line in which the skipping began is over.
    pub(super) const fn end_line(&mut self) {
        self.begun = false;
    }

    /// Takes a part of a line and whether the line ends there; says whether the block does.
    pub(super) fn take(&mut self, part: &[u8], ends: bool) -> bool {
        self.bytes = self.bytes.saturating_add(part.len() + usize::from(ends));
        self.ends.push(part);
        let blank = part.is_empty() && !self.begun;
        self.begun = if ends { false } else { self.begun || !part.is_empty() };
        ends && blank
    }

    /// Says whether there is no hope for an end.
    pub(super) const fn is_hopeless(&self, limit: usize) -> bool {
        self.bytes > limit.saturating_mul(HOPELESS)
    }

    /// Returns what was kept.
    pub(super) fn finish(self) -> Ends {
        self.ends
    }
}
