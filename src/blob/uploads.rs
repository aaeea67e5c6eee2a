//! Attachments in files: one folder for each principal, a file named by the hash of its bytes [LIM-3].
//!
//! Not for: what an answer says instead (`gateway`). Invariants: a name is a hash and an extension of our own table; a file
//! appears whole or not at all, with mode 0600; no link is followed and nothing is overwritten; everything here blocks.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::id::PrincipalId;
use crate::seal::random;
use crate::wire::mcp::{Base64, Base64Error};

use super::origin::{self, ORIGINS_BYTES_MAX, Origin};
use super::{BlobSettings, Image};

/// How many files one principal has at most.
const FILES_MAX: usize = 10_000;
/// How many names are tried where another file has the one that is wanted.
const NAMES_MAX: usize = 9;
/// The begin of the name of a file that is being written.
const PART: &str = ".part-";
/// The begin of the name of the file that says what the file of the rest of that name came from.
const FROM: &str = ".from-";
/// How old such a file must be to be what a crash has left.
const PART_SECS: u64 = 3_600;

/// The folders of uploads.
#[derive(Debug)]
pub(super) struct Uploads {
    root: PathBuf,
    clock: Clock,
    folders: Mutex<HashMap<PrincipalId, Arc<Mutex<Folder>>>>,
}

/// What lies in one folder.
#[derive(Debug, Default)]
struct Folder {
    /// Bytes, with those of what it came from, and time of each file; `None` until it has been looked at.
    files: Option<BTreeMap<String, (u64, u64)>>,
}

/// A file that was written, or lay there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in the folder.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Why an attachment is not in a file.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// It is no base64.
    #[error("not base64")]
    Base64,
    /// It is larger than all uploads of a principal may be.
    #[error("larger than the quota")]
    Quota,
    /// Its bytes are of a kind that is not written.
    #[error("of a kind that is not written")]
    Refused,
    /// It cannot be written.
    #[error("cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// One file on its way.
struct Part<'a> {
    folder: &'a OwnedFd,
    name: String,
}

// === impl Uploads ===

impl Uploads {
    /// Keeps files below a folder that is there.
    pub(super) fn new(root: PathBuf, clock: Clock) -> Self {
        // A client may be given the path, and has a working folder of its own.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { root, clock, folders: Mutex::default() }
    }

    fn folder(&self, principal: &PrincipalId) -> Arc<Mutex<Folder>> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(folders.entry(principal.clone()).or_default())
    }

    /// Decodes base64 into a file, and writes down what it came from. `extension` sees the first bytes; it refuses, or says
    /// what the name ends in.
    pub(super) fn put(
        &self,
        principal: &PrincipalId,
        origin: &Origin,
        base64: Base64<'_>,
        extension: impl FnOnce(&[u8]) -> Option<&'static str>,
        settings: &BlobSettings,
    ) -> Result<Stored, PutError> {
        // With what it came from, which lies beside it.
        let bytes = base64.decoded_len() as u64 + origin.line_bytes() as u64;
        if bytes > settings.upload_bytes_max {
            return Err(PutError::Quota);
        }
        let folder = self.folder(principal);
        let mut folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.root.join(folder_name(principal));
        let dir = open_folder(&place)?;
        folder.look(&dir, self.clock.unix_secs())?;
        folder.make_room(&dir, bytes, settings, self.clock.unix_secs());
        let part = Part::new(&dir)?;
        let stored = part.write(base64, extension, self.clock.unix_secs())?;
        // A file that nothing is told of is read out to nobody, and nobody would take it away.
        let told = tell(&dir, &stored.name, origin).inspect_err(|_| {
            if !folder.knows(&stored.name) {
                remove(&dir, &stored.name);
            }
        })?;
        let stored = Stored { path: place.join(&stored.name), ..stored };
        if let Some(files) = &mut folder.files {
            files.insert(stored.name.clone(), (stored.bytes + told, self.clock.unix_secs()));
        }
        Ok(stored)
    }

    /// Opens a file of this principal by its name in the folder, and says what it came from; `None` if there is none, or it
    /// is too old.
    pub(super) fn open(
        &self,
        principal: &PrincipalId,
        name: &str,
        age: Duration,
    ) -> io::Result<Option<(File, Vec<Origin>)>> {
        if !is_ours(name) {
            return Ok(None);
        }
        let place = self.root.join(folder_name(principal));
        let Ok(dir) = fs::open(&place, FOLDER, Mode::empty()) else { return Ok(None) };
        let file = match fs::openat(&dir, name, FILE, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(err) => return Err(err.into()),
        };
        let facts = fs::fstat(&file)?;
        let written = u64::try_from(facts.st_mtime).unwrap_or(0);
        let lives = self.clock.unix_secs() < written.saturating_add(age.as_secs());
        let regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        if !(lives && regular) {
            return Ok(None);
        }
        Ok(Some((File::from(file), origin::read(&origins(&dir, name)))))
    }

    /// Removes what is too old, of every principal that has a folder.
    pub(super) fn sweep(&self, settings: &BlobSettings) {
        let Ok(folders) = std::fs::read_dir(&self.root) else { return };
        let now = self.clock.unix_secs();
        for entry in folders.flatten() {
            let Ok(dir) = fs::open(entry.path(), FOLDER, Mode::empty()) else { continue };
            let mut folder = Folder::default();
            if let Err(err) = folder.look(&dir, now) {
                tracing::warn!(%err, folder = %entry.path().display(), "uploads cannot be looked at");
                continue;
            }
            folder.expire(&dir, settings.upload_age, now);
        }
        // What this process remembers is looked at anew when it is needed.
        let folders: Vec<_> = {
            let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            folders.values().map(Arc::clone).collect()
        };
        for folder in folders {
            folder.lock().unwrap_or_else(PoisonError::into_inner).files = None;
        }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens a folder for this user alone, and makes it where it is missing.
fn open_folder(place: &Path) -> io::Result<OwnedFd> {
    match fs::mkdir(place, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(err) => return Err(err.into()),
    }
    Ok(fs::open(place, FOLDER, Mode::empty())?)
}

/// Names the folder of a principal: what can be read of its name, and what tells it from all others.
fn folder_name(principal: &PrincipalId) -> String {
    let plain: String =
        principal.as_str().chars().filter(|char| char.is_ascii_alphanumeric() || *char == '-').take(32).collect();
    let hash = digest::digest(&digest::SHA256, principal.as_str().as_bytes());
    format!("{plain}-{}", hex(hash.as_ref().get(..8).unwrap_or_default()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from(name: &str) -> String {
    format!("{FROM}{name}")
}

/// Reads what a file came from, as text; of what cannot be read there is none.
fn origins(dir: &OwnedFd, name: &str) -> String {
    let mut text = String::new();
    let Ok(file) = fs::openat(dir, from(name), FILE, Mode::empty()) else { return text };
    match File::from(file).take(ORIGINS_BYTES_MAX as u64).read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

/// Adds what a file came from; returns how many bytes all of it is.
fn tell(dir: &OwnedFd, name: &str, origin: &Origin) -> io::Result<u64> {
    let before = origins(dir, name);
    let Some(text) = origin::with(&before, origin) else { return Ok(before.len() as u64) };
    let part = Part::new(dir)?;
    part.create()?.write_all(text.as_bytes())?;
    fs::renameat(dir, part.name.as_str(), dir, from(name))?;
    Ok(text.len() as u64)
}

/// Spells one time as both times of a file.
fn times(secs: u64) -> Timestamps {
    let time = Timespec { tv_sec: i64::try_from(secs).unwrap_or(0), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Says whether a name is of the form that the gateway gives: 64 hexadecimal digits, a number perhaps, an extension.
fn is_ours(name: &str) -> bool {
    let Some((stem, extension)) = name.split_once('.') else { return false };
    let (hash, number) = stem.split_once('-').map_or((stem, "2"), |(hash, number)| (hash, number));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    hash.len() == 64
        && digits(hash)
        && matches!(number.as_bytes(), [b'2'..=b'9'])
        && (1..=5).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

// === impl Folder ===

impl Folder {
    /// Looks at what lies there, once; removes what a crash has left.
    fn look(&mut self, dir: &OwnedFd, now: u64) -> io::Result<()> {
        if self.files.is_some() {
            return Ok(());
        }
        let mut files = BTreeMap::new();
        for entry in fs::Dir::read_from(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Ok(facts) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let written = u64::try_from(facts.st_mtime).unwrap_or(0);
            if name.starts_with(PART) && written.saturating_add(PART_SECS) <= now {
                unlink(dir, name);
            } else if let Some(of) = name.strip_prefix(FROM) {
                if fs::statat(dir, of, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|err| err == Errno::NOENT) {
                    unlink(dir, name);
                }
            } else if is_ours(name) {
                let told = fs::statat(dir, from(name), AtFlags::SYMLINK_NOFOLLOW).map_or(0, |facts| facts.st_size);
                let bytes = u64::try_from(facts.st_size.saturating_add(told)).unwrap_or(0);
                files.insert(name.to_owned(), (bytes, written));
            }
        }
        self.files = Some(files);
        Ok(())
    }

    /// Says whether a file lay there before, and is counted.
    fn knows(&self, name: &str) -> bool {
        self.files.as_ref().is_some_and(|files| files.contains_key(name))
    }

    fn expire(&mut self, dir: &OwnedFd, age: Duration, now: u64) {
        let files = self.files.get_or_insert_default();
        files.retain(|name, (_, written)| {
            let lives = now < written.saturating_add(age.as_secs());
            if !lives {
                remove(dir, name);
            }
            lives
        });
    }

    /// Removes what is too old, and then the oldest until there is room.
    fn make_room(&mut self, dir: &OwnedFd, bytes: u64, settings: &BlobSettings, now: u64) {
        self.expire(dir, settings.upload_age, now);
        let files = self.files.get_or_insert_default();
        let mut held: u64 = files.values().map(|(bytes, _)| bytes).sum();
        while held.saturating_add(bytes) > settings.upload_bytes_max || files.len() >= FILES_MAX {
            let oldest = files.iter().min_by_key(|(_, (_, written))| *written).map(|(name, _)| name.clone());
            let Some(name) = oldest else { break };
            remove(dir, &name);
            held -= files.remove(&name).map_or(0, |(bytes, _)| bytes);
        }
    }
}

/// Removes a file, with what it came from.
fn remove(dir: &OwnedFd, name: &str) {
    unlink(dir, name);
    unlink(dir, &from(name));
}

fn unlink(dir: &OwnedFd, name: &str) {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(err) => tracing::debug!(%err, name, "an upload cannot be removed"),
    }
}

// === impl Part ===

impl<'a> Part<'a> {
    fn new(folder: &'a OwnedFd) -> io::Result<Self> {
        let random = random::<8>().map_err(io::Error::other)?;
        Ok(Self { folder, name: format!("{PART}{}", hex(&random)) })
    }

    fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(fs::openat(self.folder, self.name.as_str(), flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn write(
        &self,
        base64: Base64<'_>,
        extension: impl FnOnce(&[u8]) -> Option<&'static str>,
        now: u64,
    ) -> Result<Stored, PutError> {
        let mut file = BufWriter::with_capacity(64 << 10, self.create()?);
        let (mut hash, mut head, mut bytes) = (digest::Context::new(&digest::SHA256), Vec::new(), 0u64);
        base64
            .decode(|block| {
                let wanted = Image::SIGNATURE_BYTES.saturating_sub(head.len()).min(block.len());
                head.extend_from_slice(block.get(..wanted).unwrap_or_default());
                hash.update(block);
                bytes += block.len() as u64;
                file.write_all(block)
            })
            .map_err(|err| match err {
                Base64Error::Malformed => PutError::Base64,
                Base64Error::Sink(err) => PutError::Write(err),
            })?;
        let extension = extension(&head).ok_or(PutError::Refused)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::futimens(&file, &times(now)).map_err(io::Error::from)?;
        let hash = hex(hash.finish().as_ref());
        let name = self.settle(&hash, extension, bytes, now)?;
        Ok(Stored { path: PathBuf::new(), name, bytes })
    }

    /// Gives the file its name. One that lies there with the same bytes is kept; what else has the name stays as it is,
    /// and another name is taken.
    fn settle(&self, hash: &str, extension: &str, bytes: u64, now: u64) -> io::Result<String> {
        for number in 1..=NAMES_MAX {
            let name = if number == 1 { format!("{hash}.{extension}") } else { format!("{hash}-{number}.{extension}") };
            match rename_new(self.folder, &self.name, &name) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) if self.is_same(&name, hash, bytes, now) => return Ok(name),
                Err(Errno::EXIST) => {}
                Err(err) => return Err(err.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Says whether a file of that name holds these bytes; then it is as new.
    fn is_same(&self, name: &str, hash: &str, bytes: u64, now: u64) -> bool {
        let Ok(file) = fs::openat(self.folder, name, FILE, Mode::empty()) else { return false };
        let same = fs::fstat(&file).is_ok_and(|facts| {
            let regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
            regular && u64::try_from(facts.st_size) == Ok(bytes) && facts.st_nlink == 1
        });
        let mut file = File::from(file);
        same && hash_of(&mut file).is_ok_and(|found| found == hash) && fs::futimens(&file, &times(now)).is_ok()
    }
}

/// Hashes a file in blocks.
fn hash_of(file: &mut File) -> io::Result<String> {
    let (mut hash, mut block) = (digest::Context::new(&digest::SHA256), vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(hex(hash.finish().as_ref()));
        }
        hash.update(block.get(..read).unwrap_or_default());
    }
}

/// Renames a file to a name that nothing has; where the file system cannot, by a second name for a moment.
fn rename_new(dir: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    match fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::linkat(dir, from, dir, to, AtFlags::empty()),
        done => done,
    }
}

/// What did not get a name goes.
impl Drop for Part<'_> {
    fn drop(&mut self) {
        match fs::unlinkat(self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(err) => tracing::debug!(%err, "a part of an upload cannot be removed"),
        }
    }
}

#[cfg(test)]
#[path = "uploads_tests.rs"]
mod tests;
