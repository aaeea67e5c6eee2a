//! Reads a file of certificates or keys: regular, small, whole.
//!
//! Invariant: what is judged is the opened file, not a name that may point elsewhere a moment later [TRN-5].

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::secret::Secret;

/// The largest file of certificates or keys, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Bits of a mode that let others than owner and group read or write.
const OTHERS: u32 = 0o006;

/// A file that cannot be used. The text holds nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file {} {why}", path.display())]
pub struct TlsFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What a file held when it was read.
pub(super) struct Content {
    pub(super) bytes: Secret<Vec<u8>>,
    /// The SHA-256 of the bytes.
    pub(super) hash: [u8; SHA256_OUTPUT_LEN],
    /// Whether everybody on the machine may read it.
    pub(super) open_to_all: bool,
}

impl TlsFileError {
    pub(super) fn new(path: &Path, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be opened, is no regular file, or is too large.
pub(super) fn read(path: &Path) -> Result<Content, TlsFileError> {
    let fail = |why: String| TlsFileError::new(path, why);
    let unreadable = |err: std::io::Error| fail(format!("cannot be read: {err}"));
    let file = open(path).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(fail("is not a regular file".to_owned()));
    }
    let room = usize::try_from(facts.len().min(FILE_MAX)).unwrap_or_default();
    // One allocation: a growing buffer would leave copies of a key behind.
    let mut whole = Vec::with_capacity(room + 1);
    let read = file.take(FILE_MAX + 1).read_to_end(&mut whole);
    let bytes = Secret::new(whole);
    read.map_err(unreadable)?;
    if bytes.expose().len() as u64 > FILE_MAX {
        return Err(fail(format!("is larger than {FILE_MAX} bytes")));
    }
    let mut hash = [0; SHA256_OUTPUT_LEN];
    for (to, from) in hash.iter_mut().zip(digest(&SHA256, bytes.expose()).as_ref()) {
        *to = *from;
    }
    Ok(Content { bytes, hash, open_to_all: facts.permissions().mode() & OTHERS != 0 })
}

/// Opens without waiting for the writer of a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
