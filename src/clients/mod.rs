//! The configuration files of MCP clients: read for `import`, edited for `connect` [CFG-6, CFG-8, OPS-11].
//!
//! Not for: starting servers or talking to a person (`cli`), nor our own file's rules (`config`). Invariants: what is edited
//! keeps every byte outside the edited entries; a secret read here never leaves but into its own 0600 file; nothing here is
//! taken as an instruction, it is what a file says.

mod backup;
mod client;
mod draft;
mod edit;
mod entry;
mod jsonc;
mod read;
mod references;
mod tables;
mod write;
mod zeroclaw;

pub use backup::{Backup, BackupError, Undone, write_atomically};
pub use client::{Client, Passing, Syntax};
pub use draft::{Draft, DraftTransport, Import, Named, Piece, Refused, draft};
pub use edit::{Edit, Launch, edit, undo_entries};
pub use entry::{Entry, How};
pub use read::{Format, Found, ReadError, read, read_client};
pub use references::Surroundings;
pub use write::{Existing, Grant, SecretFile, Trial, WriteError, Written, existing, trial, write};
pub use zeroclaw::{Agent, Bundle, Policy, ZeroClaw};
