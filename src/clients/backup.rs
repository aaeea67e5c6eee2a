//! Two copies beside a file that is edited: as it was, and as we left it [OPS-11].
//!
//! `FILE.before-portcullis` holds the bytes of before (absent if there was no file), `FILE.after-portcullis` those that were
//! written; both 0600, because a client's file may hold secrets. With both, an undo knows whether somebody else has changed
//! the file since. Invariant: a file is replaced whole or not at all.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::Client;
use super::edit::undo_entries;

/// The copies of one file.
#[derive(Debug)]
pub struct Backup {
    file: PathBuf,
    before: PathBuf,
    after: PathBuf,
}

/// Why a copy cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{path}: {err}", path = .0.display(), err = .1)]
    Io(PathBuf, io::Error),
    /// The changed file cannot be edited.
    #[error(
        "{file} has changed since and cannot be edited ({why}); {before} holds it as it was",
        file = .0.display(), why = .1, before = .2.display()
    )]
    Edit(PathBuf, String, PathBuf),
    /// There is nothing to undo.
    #[error("there is nothing to undo: {} does not exist", .0.display())]
    Nothing(PathBuf),
}

/// What an undo has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The file had changed since: its entries are back, all else is as it was found. Entries that somebody had changed
    /// are left.
    Entries(Vec<String>),
    /// Every byte is as it was before; `false` if there was no file, so that there is none now.
    Whole(bool),
}

impl Backup {
    /// Names the copies of a file. Links are followed, so that a file which is linked from elsewhere stays linked.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        let beside = |ending: &str| {
            let mut name = file.file_name().map_or_else(OsString::new, OsString::from);
            name.push(ending);
            file.with_file_name(name)
        };
        let (before, after) = (beside(".before-portcullis"), beside(".after-portcullis"));
        Self { file, before, after }
    }

    /// Returns where the bytes of before are kept.
    #[must_use]
    pub fn before(&self) -> &Path {
        &self.before
    }

    /// Says whether there is something to undo.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.after.symlink_metadata().is_ok()
    }

    /// Keeps the bytes of before and writes those of after.
    ///
    /// # Errors
    /// [`BackupError::Io`]; the file is then as it was.
    pub fn replace(&self, before: Option<&[u8]>, after: &[u8]) -> Result<(), BackupError> {
        let written = || {
            if let Some(before) = before {
                write(&self.before, before, None)?;
            }
            write(&self.after, after, None)?;
            write_atomically(&self.file, after)
        };
        written().inspect_err(|_| self.forget()).map_err(|err| self.failed(err))
    }

    /// Undoes it: every byte if nobody has changed the file since, else the entries alone.
    ///
    /// # Errors
    /// [`BackupError`]; the file is then as it was found.
    pub fn undo(&self, client: Client) -> Result<Undone, BackupError> {
        if !self.is_there() {
            return Err(BackupError::Nothing(self.after.clone()));
        }
        let read = |path: &Path| match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(BackupError::Io(path.to_path_buf(), err)),
        };
        let (before, after, now) = (read(&self.before)?, read(&self.after)?.unwrap_or_default(), read(&self.file)?);
        let undone = match (before, now) {
            (Some(before), now) if now.as_deref().is_none_or(|now| now == after) => {
                write_atomically(&self.file, &before).map_err(|err| self.failed(err))?;
                Undone::Whole(true)
            }
            (None, now) if now.as_deref().is_none_or(|now| now == after) => {
                if now.is_some() {
                    std::fs::remove_file(&self.file).map_err(|err| self.failed(err))?;
                }
                Undone::Whole(false)
            }
            (before, now) => {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned());
                let edited = (|| {
                    let before = text(before.unwrap_or_default())?;
                    undo_entries(client, &before, &text(after)?, &text(now.unwrap_or_default())?)
                })();
                let (text, left) =
                    edited.map_err(|why| BackupError::Edit(self.file.clone(), why, self.before.clone()))?;
                write_atomically(&self.file, text.as_bytes()).map_err(|err| self.failed(err))?;
                Undone::Entries(left)
            }
        };
        self.forget();
        Ok(undone)
    }

    fn forget(&self) {
        for path in [&self.before, &self.after] {
            let _removed = std::fs::remove_file(path).is_ok();
        }
    }

    fn failed(&self, err: io::Error) -> BackupError {
        BackupError::Io(self.file.clone(), err)
    }
}

/// Replaces a file by new bytes, whole or not at all; it keeps its mode, a new one has 0600. Links are followed.
///
/// # Errors
/// What the system says.
pub fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let mode = std::fs::metadata(&file).ok().map(|metadata| metadata.permissions());
    write(&file, bytes, mode)
}

fn write(file: &Path, bytes: &[u8], mode: Option<Permissions>) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let new = folder.join(name);
    let written = (|| {
        let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        open.write_all(bytes)?;
        open.set_permissions(mode.unwrap_or_else(|| Permissions::from_mode(0o600)))?;
        open.sync_all()?;
        std::fs::rename(&new, file)
    })();
    if written.is_err() {
        let _removed = std::fs::remove_file(&new).is_ok();
    }
    // So that the new name survives a loss of power; a folder that cannot be synced is no reason to fail.
    let _synced = File::open(folder).and_then(|folder| folder.sync_all()).is_ok();
    written
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
