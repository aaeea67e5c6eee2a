//! May it happen? Pure: no I/O, no clock; time and state are arguments.
//!
//! Not for: reading policy files (`config`). Invariants: deny wins; a [`Permitted`] is made by a [`Decision`] and
//! nowhere else; the list and the call ask the same question.

mod caps;
mod decide;
mod pattern;
mod permit;
mod profile;
mod resource;
mod uri;

pub use caps::{BlobMode, CapRules, Caps, Overflow, PathsFor};
pub use decide::{Action, Decision, Denial, Ground, Subject};
pub use pattern::{Pattern, PatternError};
pub use permit::Permitted;
pub use profile::{EmptyAllow, Narrow, Profile, Which};
