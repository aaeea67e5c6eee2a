//! A bit for each entry of a view: what is visible at a moment.

use smallvec::SmallVec;

/// A set of entries of one view. One that holds all of them costs nothing, however many they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    /// Empty as long as nothing was taken out.
    words: SmallVec<[u64; 4]>,
    len: usize,
    missing: usize,
}

impl Mask {
    /// Makes a mask with all `len` entries in it.
    #[must_use]
    pub const fn full(len: usize) -> Self {
        Self { words: SmallVec::new_const(), len, missing: 0 }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, index: usize) {
        if !self.contains(index) {
            return;
        }
        if self.missing == 0 {
            self.words = SmallVec::from_elem(u64::MAX, self.len.div_ceil(64));
        }
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
            self.missing += 1;
        }
    }

    /// Says whether an entry is in it.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        let kept = || self.words.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0);
        index < self.len && (self.missing == 0 || kept())
    }

    /// Says whether nothing was taken out.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Mask;

    #[test]
    fn entries_leave_one_by_one() {
        let mut mask = Mask::full(130);
        assert!(mask.is_full() && mask.contains(0) && mask.contains(129) && !mask.contains(130));
        mask.remove(64);
        mask.remove(64);
        mask.remove(500);
        assert!(!mask.is_full() && !mask.contains(64) && mask.contains(63) && mask.contains(65));
        assert!(mask.contains(129) && !mask.contains(130));
    }
}
