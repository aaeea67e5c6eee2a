//! Looks into JSON texts without changing or building them: where members lie, and that all of it is JSON.
//!
//! Not for: reading a payload whole (`serde_json` does). Invariant: a text that passes here is exactly one that
//! `serde_json` takes, within the depth allowed; the property test in `scan_tests.rs` compares them.

mod decimal;
mod find;
mod members;
mod scan;
mod skim;
mod spelled;
mod text;

pub use decimal::Decimal;
pub use find::{Member, Place, find};
pub use members::{Floors, JsonError, Members, Outline, Raw, elements, floors, leading, members, nested};
pub use scan::ScanError;
pub use skim::Skim;
pub use spelled::Spelled;
pub use text::{quoted, text, text_of, texts};
