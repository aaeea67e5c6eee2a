//! The one door to what is kept: uploads in files, and the shelf in memory.
//!
//! Not for: the form of an answer (`gateway`). Everything that may touch a disk blocks, and is called off the reactor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::id::PrincipalId;
use crate::seal::random;
use crate::wire::mcp::Base64;

use super::shelf::Shelf;
use super::uploads::Uploads;
use super::{BlobSettings, Origin, OwnUri, PutError, Range, Sheet, SheetId, Stored, mime_of};

/// What is kept of answers.
#[derive(Debug)]
pub struct Blobs {
    uploads: Option<Uploads>,
    /// Where files without a name are made.
    scratch: Option<PathBuf>,
    shelf: Shelf,
}

/// A part of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPart {
    /// What was read.
    pub body: PartBody,
    /// The media type of the whole.
    pub mime: String,
    /// How much stands before the part: characters of a text, else bytes.
    pub offset: u64,
    /// How long the whole is, likewise.
    pub total: u64,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartBody {
    /// Bytes.
    Blob(Vec<u8>),
    /// Text.
    Text(String),
}

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there, not there any more, another principal's, or came from what this one may not call.
    #[error("not found")]
    NotFound,
    /// It is there and cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

// === impl Blobs ===

impl Blobs {
    /// Keeps uploads and files without a name below these folders, which are there; `None`: in memory.
    #[must_use]
    pub fn new(uploads: Option<PathBuf>, scratch: Option<PathBuf>, clock: &Clock) -> Self {
        let uploads = uploads.map(|root| Uploads::new(root, clock.clone()));
        Self { uploads, scratch, shelf: Shelf::new(clock.clone()) }
    }

    /// Says whether attachments can be written to files.
    #[must_use]
    pub const fn has_files(&self) -> bool {
        self.uploads.is_some()
    }

    /// Decodes base64 of an answer of `origin` into a file of this principal. `extension` sees the first bytes; it refuses,
    /// or says what the name ends in. Blocks.
    ///
    /// # Errors
    /// [`PutError`]; then there is no file.
    pub fn put(
        &self,
        principal: &PrincipalId,
        origin: &Origin,
        base64: Base64<'_>,
        extension: impl FnOnce(&[u8]) -> Option<&'static str>,
        settings: &BlobSettings,
    ) -> Result<Stored, PutError> {
        let Some(uploads) = &self.uploads else { return Err(io::Error::from(io::ErrorKind::Unsupported).into()) };
        uploads.put(principal, origin, base64, extension, settings)
    }

    /// Keeps parts of one answer of `origin`, of `whole` bytes: in its own memory if they are most of it, else apart; or in
    /// files without a name. May block. `None`: there is no room for them.
    #[must_use]
    pub fn keep(
        &self,
        principal: &PrincipalId,
        origin: &Origin,
        whole: usize,
        sheets: Vec<Sheet>,
        settings: &BlobSettings,
    ) -> Option<Vec<SheetId>> {
        let parts: usize = sheets.iter().map(Sheet::bytes).sum();
        if parts > settings.overflow_bytes_max {
            return None;
        }
        let (bytes, sheets): (usize, Vec<Sheet>) = match self.scratch.as_deref().filter(|_| settings.overflow_disk) {
            Some(scratch) => (parts, sheets.into_iter().map(|sheet| in_file(sheet, scratch)).collect::<Option<_>>()?),
            None if parts.saturating_mul(2) >= whole => (whole, sheets),
            None => (parts, sheets.into_iter().map(Sheet::detached).collect()),
        };
        self.shelf.keep(principal, origin, bytes, sheets, settings)
    }

    /// Reads a part of what `may` allows by what it came from: at most `chars` characters of a text. Blocks.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        &self,
        principal: &PrincipalId,
        (uri, chars): (&OwnUri, usize),
        may: impl Fn(&Origin) -> bool,
        settings: &BlobSettings,
    ) -> Result<ReadPart, ReadError> {
        let (id, range) = match uri {
            OwnUri::Blob(id, range) | OwnUri::Overflow(id, range) => (id, range),
        };
        if let OwnUri::Blob(..) = uri
            && let Some(uploads) = &self.uploads
            && let Some((file, origins)) = uploads.open(principal, id, settings.upload_age)?
        {
            // The same bytes may have come from several.
            if !origins.iter().any(may) {
                return Err(ReadError::NotFound);
            }
            let extension = id.rsplit_once('.').map_or("", |(_, extension)| extension);
            return read_file(&file, range, mime_of(extension), settings);
        }
        let piece = self.shelf.find(principal, id, settings.overflow_age).ok_or(ReadError::NotFound)?;
        let sheet = piece.sheet().filter(|_| may(piece.origin())).ok_or(ReadError::NotFound)?;
        let wanted = usize::try_from(range.length.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let offset = range.offset.min(sheet.total);
        let body = if sheet.is_text() {
            PartBody::Text(sheet.text(offset, wanted.min(chars))?)
        } else {
            PartBody::Blob(sheet.blob(offset, wanted))
        };
        Ok(ReadPart { body, mime: sheet.mime.clone(), offset, total: sheet.total })
    }

    /// Lets go of what is too old. Blocks.
    pub fn sweep(&self, settings: &BlobSettings) {
        self.shelf.sweep(settings.overflow_age);
        if let Some(uploads) = &self.uploads {
            uploads.sweep(settings);
        }
    }

    /// Returns how many bytes of answers are kept beside the files of uploads, and of how many answers.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        self.shelf.held()
    }
}

/// Moves a text to a file that has no name: it goes with the last that knows it, also if the gateway is killed.
fn in_file(sheet: Sheet, folder: &Path) -> Option<Sheet> {
    let make = || {
        let name = u64::from_le_bytes(random::<8>().map_err(io::Error::other)?);
        let path = folder.join(format!("{name:016x}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(path)?;
        sheet.in_file(file)
    };
    match make() {
        Ok(sheet) => Some(sheet),
        Err(err) => {
            tracing::warn!(%err, "what was cut of an answer cannot be written, and is dropped");
            None
        }
    }
}

fn read_file(file: &File, range: &Range, mime: &str, settings: &BlobSettings) -> Result<ReadPart, ReadError> {
    let total = file.metadata()?.len();
    let offset = range.offset.min(total);
    let left = (total - offset).min(settings.item_bytes_max.max(BlobSettings::ITEM_BYTES_MAX) as u64);
    let length = usize::try_from(range.length.map_or(left, |length| length.min(left))).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(ReadPart { body: PartBody::Blob(bytes), mime: mime.to_owned(), offset, total })
}
