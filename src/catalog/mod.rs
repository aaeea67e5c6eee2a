//! What exists: tools, prompts, resources and templates of all servers under their shown names, and what each audience may
//! see of them. Pure.
//!
//! Not for: deciding who may see what (`policy`) or reading lists (`upstream`). Invariants: a name depends on its server
//! and original alone; list and look-up read one table under one mask.

mod entry;
mod lists;
mod mask;
mod merge;
mod name;
mod page;
mod uri;
mod view;

pub use entry::{Entry, shown};
pub use lists::Lists;
pub use mask::Mask;
pub use merge::{Catalog, HeaderRule, ServerLists, Warning, Why};
pub use name::{Change, change, full_name, shown_name};
pub use page::Cursor;
pub use uri::{URI_BYTES_MAX, own_uri, shown_template, shown_uri};
pub use view::{Page, Scope, Shape, View};
