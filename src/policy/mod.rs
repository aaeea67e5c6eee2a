//! May it happen? Pure: no I/O, no clock; time and state are arguments.
//!
//! Not for: reading policy files (`config`). Invariant: a [`Permitted`] is made here and nowhere else.

mod permit;

pub use permit::Permitted;
