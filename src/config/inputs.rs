//! The files that a configuration was read from, by what they held [CFG-4].
//!
//! Not for: when to look (`app`). Invariant: content decides, not times or names, so that a swapped symbolic link is seen
//! and a touched file is not; of a secret nothing but its SHA-256 stays here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::secret::Secret;

/// The files, the configuration itself among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    root: Option<PathBuf>,
    files: BTreeMap<PathBuf, Seen>,
}

/// What a file held, up to one byte more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    max: u64,
    /// `None`: it was not there, not readable, or no regular file.
    hash: Option<[u8; SHA256_OUTPUT_LEN]>,
}

/// Takes note of files while they are read.
#[derive(Debug, Default)]
pub(super) struct Notes(RefCell<BTreeMap<PathBuf, Seen>>);

// === impl Inputs ===

impl Inputs {
    pub(super) fn new(root: &Path, notes: Notes) -> Self {
        Self { root: Some(root.to_owned()), files: notes.0.into_inner() }
    }

    /// Returns the configuration's own file; `None` if it stood in none.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Looks at the same files again. Blocks.
    #[must_use]
    pub fn look(&self) -> Self {
        let look = |(path, seen): (&PathBuf, &Seen)| (path.clone(), Seen::now(path, seen.max));
        Self { root: self.root.clone(), files: self.files.iter().map(look).collect() }
    }
}

impl Seen {
    fn now(path: &Path, max: u64) -> Self {
        let read = || {
            // Opens without waiting for the writer of a pipe.
            let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
            file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let mut bytes = Vec::new();
            let read = (&file).take(max + 1).read_to_end(&mut bytes);
            let bytes = Secret::new(bytes);
            read.ok().map(|_| sha256(bytes.expose()))
        };
        Self { max, hash: read() }
    }
}

// === impl Notes ===

impl Notes {
    /// Reads a file up to one byte more than `max`, and notes what it held.
    pub(super) fn read(&self, path: &Path, max: u64) -> std::io::Result<Secret<Vec<u8>>> {
        self.note(path, Seen { max, hash: None });
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        let read = (&file).take(max + 1).read_to_end(&mut bytes);
        let bytes = Secret::new(bytes);
        read?;
        if file.metadata().is_ok_and(|facts| facts.is_file()) {
            self.note(path, Seen { max, hash: Some(sha256(bytes.expose())) });
        }
        Ok(bytes)
    }

    /// Notes what a file holds that somebody else reads, or that is not there.
    pub(super) fn look(&self, path: &Path, max: u64) {
        self.note(path, Seen::now(path, max));
    }

    fn note(&self, path: &Path, seen: Seen) {
        self.0.borrow_mut().insert(path.to_owned(), seen);
    }
}

fn sha256(bytes: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    for (to, from) in hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    hash
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
