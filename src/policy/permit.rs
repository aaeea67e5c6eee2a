//! Proof that something was decided and allowed.

/// A value that policy has permitted. `upstream` sends nothing else.
#[derive(Debug)]
pub struct Permitted<T>(T);

impl<T> Permitted<T> {
    /// Made by a decision to allow.
    pub(super) const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns what was permitted.
    pub const fn get(&self) -> &T {
        &self.0
    }

    /// Takes what was permitted.
    pub fn into_inner(self) -> T {
        self.0
    }
}
