//! The folder for what outlives the process: private, with one writer [OPS-12].
//!
//! Not for: what the files mean; each room reads and writes its own. Invariants: nothing here fails a start; without the
//! lock nothing is written; a file is replaced whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::codes::Code;

/// The file whose lock says who may write.
const LOCK: &str = "writer.lock";
/// How a file is called while it is written; one that a crash has left is taken away by the next writer.
const UNFINISHED: &str = ".unfinished";

/// The state folder of this process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct State(Option<Arc<Folder>>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Held as long as this process may write.
    lock: Option<File>,
    /// What was said last of a folder in it that cannot be used.
    said: Mutex<Option<String>>,
}

// === impl State ===

impl State {
    /// Opens the folder, making it where it is missing, and takes its lock. Says once what cannot be done without it; the
    /// gateway then runs from memory.
    #[must_use]
    pub fn open(path: Option<&Path>) -> Self {
        let lost = "the lists of servers are not kept for the next start, and nothing is written to disk";
        let Some(path) = path else {
            tracing::info!(code = Code::State.id(), "no state folder is known ([state] dir): {lost}");
            return Self::default();
        };
        let shown = path.display();
        if let Err(why) = make(path) {
            tracing::warn!(code = Code::State.id(), "the state folder {shown} {why}: {lost}");
            return Self::default();
        }
        let lock = match lock(&path.join(LOCK)) {
            Ok(Some(lock)) => {
                clear_unfinished(path);
                Some(lock)
            }
            Ok(None) => {
                tracing::warn!(
                    code = Code::State.id(),
                    "another gateway writes to the state folder {shown}: here it is only read"
                );
                None
            }
            Err(err) => {
                tracing::warn!(code = Code::State.id(), %err, "the state folder {shown} cannot be written to, only read: {lost}");
                None
            }
        };
        Self(Some(Arc::new(Folder { path: path.to_owned(), lock, said: Mutex::default() })))
    }

    /// Returns a folder in it to write to, making it where it is missing; `None`: nothing may be written. Says why not where
    /// that is new.
    #[must_use]
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        let state = self.0.as_ref().filter(|state| state.lock.is_some())?;
        let path = state.path.join(name);
        let why = make(&path).err().map(|why| format!("the folder {} {why}: nothing is kept there", path.display()));
        let mut said = state.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = why.as_ref().filter(|why| said.as_ref() != Some(why)) {
            tracing::warn!(code = Code::State.id(), "{why}");
        }
        said.clone_from(&why);
        why.is_none().then_some(path)
    }

    /// Returns a folder in it to read from, which need not be there.
    #[must_use]
    pub fn read_folder(&self, name: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|state| state.path.join(name))
    }
}

/// Makes a private folder, with those above it; one that is there must be private already.
fn make(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|err| format!("cannot be made: {err}"))?;
    let facts = fs::metadata(path).map_err(|err| format!("cannot be looked at: {err}"))?;
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user".to_owned());
    }
    if facts.mode() & 0o077 != 0 {
        return Err(format!(
            "is open to others (mode {:03o}); chmod 700 it, or name a folder inside it",
            facts.mode() & 0o777
        ));
    }
    Ok(())
}

/// Takes the lock; `None` if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(err) if err == rustix::io::Errno::WOULDBLOCK => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Takes away what the writer before has left half written; to be called before this process writes.
fn clear_unfinished(state: &Path) {
    let Ok(folders) = fs::read_dir(state) else { return };
    let within = |folder: fs::DirEntry| fs::read_dir(folder.path()).into_iter().flatten();
    for entry in folders.filter_map(Result::ok).flat_map(within).filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().ends_with(UNFINISHED)
            && let Err(err) = fs::remove_file(entry.path())
        {
            tracing::debug!(%err, "an unfinished file stays");
        }
    }
}

/// Puts bytes in the place of a file, whole or not at all; only its owner may read it. Blocks.
///
/// # Errors
/// The file is then as it was.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(format!(".{}{UNFINISHED}", COUNT.fetch_add(1, Ordering::Relaxed)));
    let unfinished = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        // It may not be there.
        let _removed = fs::remove_file(&unfinished).is_ok();
    })
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
