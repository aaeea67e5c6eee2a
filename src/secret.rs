//! A value that must never be printed.
//!
//! Not for: deciding where a secret comes from (`config`) or how it is used (`upstream`). Invariant: no `Display`, no
//! `Serialize`, `Debug` shows `[secret]`, memory is wiped on drop.

use std::fmt;

use zeroize::Zeroize;

/// A secret value; [`Secret::expose`] is the only way to read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a secret from the moment it is read.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret, for the one place that sends or checks it.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A secret that lies in somebody else's memory, as a request's header does: neither copied nor printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lent<'a>(&'a str);

impl<'a> Lent<'a> {
    /// Wraps it.
    #[must_use]
    pub const fn new(value: &'a str) -> Self {
        Self(value)
    }

    /// Returns the secret, for the one place that checks it.
    #[must_use]
    pub const fn expose(self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::{Lent, Secret};

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?} {:?}", Secret::new("canary".to_owned()), Lent::new("canary")), "[secret] [secret]");
    }
}
