//! How much one may hold of what all share, so that there is always something left for the next [LIM-5, LIM-6].

use std::collections::HashMap;

use crate::id::PrincipalId;

/// How many of something each principal holds. Who holds none is not remembered.
#[derive(Debug, Default)]
pub struct Tally(HashMap<PrincipalId, usize>);

impl Tally {
    /// Returns how many one holds.
    #[must_use]
    pub fn of(&self, principal: &PrincipalId) -> usize {
        self.0.get(principal).copied().unwrap_or_default()
    }

    /// Counts one more.
    pub fn enter(&mut self, principal: &PrincipalId) {
        self.add(principal, 1);
    }

    /// Counts one less.
    pub fn leave(&mut self, principal: &PrincipalId) {
        self.take_off(principal, 1);
    }

    /// Counts so many more.
    pub fn add(&mut self, principal: &PrincipalId, count: usize) {
        *self.0.entry(principal.clone()).or_default() += count;
    }

    /// Counts so many less.
    pub fn take_off(&mut self, principal: &PrincipalId, less: usize) {
        if let Some(count) = self.0.get_mut(principal) {
            *count -= less;
            if *count == 0 {
                self.0.remove(principal);
            }
        }
    }

    /// Says whether nobody holds any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns how much of `all` one may hold while the others hold `others`: half of what they leave, and at least one.
///
/// One alone has half; each who comes later half of the rest. Who holds much already when others come keeps it.
#[must_use]
pub const fn share(all: usize, others: usize) -> usize {
    let half = all.saturating_sub(others).div_ceil(2);
    if half == 0 { 1 } else { half }
}

#[cfg(test)]
mod tests {
    use super::share;

    /// [LIM-6]: whatever the ones before have taken, the next gets something, as long as they are not more than can be served.
    #[test]
    fn there_is_always_something_for_the_next() {
        for all in [1, 2, 3, 7, 64, 4_096] {
            let mut held = Vec::new();
            while held.iter().sum::<usize>() < all {
                let others = held.iter().sum();
                held.push(share(all, others));
            }
            assert_eq!(held.iter().sum::<usize>(), all);
            assert!(held.len() > all.ilog2() as usize, "{all}: {held:?}");
        }
        assert_eq!([share(64, 0), share(64, 32), share(64, 63), share(64, 64), share(1, 0)], [32, 16, 1, 1, 1]);
    }
}
