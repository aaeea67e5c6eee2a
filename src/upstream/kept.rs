//! The last good lists of each server, kept on disk for the next start [TRN-8, OPS-12].
//!
//! Not for: where the folder is, or who may write to it (`runtime::State`). Invariants: a file that cannot be read whole is
//! ignored, and said so; no secret is in a file or in its name; a list is policed like a fresh one; what one principal's
//! own process listed is read back for that principal alone.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use tokio::sync::watch;

use crate::catalog::Lists;
use crate::codes::Code;
use crate::id::PrincipalId;
use crate::runtime::{State, Tasks, write_atomically};
use crate::wire::json;
use crate::wire::mcp::{Capabilities, Definition, Kind};

use super::server::TargetStatus;
use super::{ServerSettings, Transport};

/// The folder within the state folder.
const FOLDER: &str = "lists";
/// The form of the files; one of another form is not read.
const FORM: u32 = 2;
/// The largest file that is written or read, in bytes: a list as large as we take one (product §9), and what else there is.
const FILE_MAX: usize = (32 << 20) + (1 << 20);
/// How many files are kept; those written longest ago go first.
const FILES_MAX: usize = 256;

/// Where lists are kept. Clones share it; until it is told a folder, nothing is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Arc<Place>);

#[derive(Debug, Default)]
struct Place {
    state: OnceLock<State>,
    writing: Mutex<()>,
}

// === impl Kept ===

impl Kept {
    /// Keeps lists in the state folder from here on.
    pub(super) fn settle(&self, state: State) {
        if let Some(folder) = state.folder(FOLDER) {
            prune(&folder);
        }
        // The first one counts; a process has one state folder.
        let _first = self.0.state.set(state).is_ok();
    }

    /// Reads the lists of a server, if they were kept of just this server, and what it could do: those of a principal's own
    /// process, or those that are everybody's. Blocks.
    pub(super) fn read(&self, settings: &ServerSettings, of: Option<&PrincipalId>) -> Option<(Lists, Capabilities)> {
        let path = self.0.state.get()?.read_folder(FOLDER)?.join(file(settings, of));
        let text = match read(&path) {
            Ok(text) => text?,
            Err(err) => return ignored(settings, &err.to_string()),
        };
        match parse(&Bytes::from(text)) {
            Ok(kept) => Some(kept),
            Err(why) => ignored(settings, &why),
        }
    }

    /// Writes the lists that the status holds when it is its turn, in the background.
    pub(super) fn write(&self, settings: &Arc<ServerSettings>, status: watch::Receiver<TargetStatus>, tasks: &Tasks) {
        let Some(folder) = self.0.state.get().and_then(|state| state.folder(FOLDER)) else { return };
        let (place, settings) = (Arc::clone(&self.0), Arc::clone(settings));
        let work = tasks.clone();
        tasks.spawn("keep a list", async move {
            let write = move || {
                let _one_at_a_time = place.writing.lock().unwrap_or_else(PoisonError::into_inner);
                let TargetStatus { lists: Some(lists), can, of, .. } = status.borrow().clone() else { return Ok(()) };
                let (path, text) = (folder.join(file(&settings, of.as_ref())), spell(&settings, &lists, can));
                if text.len() > FILE_MAX { Ok(()) } else { write_atomically(&path, &text) }
            };
            if let Ok(Err(err)) = work.blocking(write).await {
                tracing::warn!(%err, code = Code::State.id(), "a list cannot be kept for the next start");
            }
        });
    }
}

fn ignored<T>(settings: &ServerSettings, why: &str) -> Option<T> {
    tracing::warn!(server = %settings.name, why, code = Code::State.id(), "its kept list is ignored");
    None
}

/// Names the file of a server: another command or address is another server, and what one principal's own process lists is
/// that principal's.
fn file(settings: &ServerSettings, of: Option<&PrincipalId>) -> PathBuf {
    let mut context = Context::new(&SHA256);
    let mut add = |part: &[u8]| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(settings.name.as_str().as_bytes());
    match &settings.transport {
        // The rest of an URL may hold a secret.
        Transport::Http { uri, .. } => {
            add(b"http");
            add(uri.scheme_str().unwrap_or_default().as_bytes());
            add(uri.host().unwrap_or_default().as_bytes());
            add(&uri.port_u16().unwrap_or_default().to_be_bytes());
        }
        Transport::Stdio { command, args, cwd, .. } => {
            add(b"stdio");
            add(command.as_bytes());
            add(cwd.as_deref().unwrap_or_else(|| Path::new("")).as_os_str().as_encoded_bytes());
            args.iter().for_each(|arg| add(arg.as_bytes()));
        }
    }
    if let Some(principal) = of {
        // No part of a command is two bytes of zero.
        add(b"\0\0");
        add(principal.as_str().as_bytes());
    }
    let hash: String = context.finish().as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    PathBuf::from(format!("{}-{hash}.json", settings.name.slug()))
}

/// Reads a file up to its bound; `None` if there is none.
fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    };
    let mut text = Vec::new();
    file.take(FILE_MAX as u64 + 1).read_to_end(&mut text)?;
    if text.len() > FILE_MAX {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(Some(text))
}

fn spell(settings: &ServerSettings, lists: &Lists, can: Capabilities) -> Vec<u8> {
    // A name holds nothing that JSON escapes.
    let mut text =
        format!("{{\"form\":{FORM},\"server\":\"{}\",\"capabilities\":{}", settings.name, can.spelled()).into_bytes();
    for kind in Kind::ALL {
        text.extend_from_slice(format!(",\"{}\":[", kind.member()).as_bytes());
        for (index, definition) in lists.of(kind).iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&definition.raw);
        }
        text.push(b']');
    }
    text.push(b'}');
    text
}

fn parse(text: &Bytes) -> Result<(Lists, Capabilities), String> {
    let members = json::members(text).map_err(|err| err.to_string())?;
    let get = |key| members.get(key).ok().flatten();
    if get("form").and_then(json::Raw::parse) != Some(FORM) {
        return Err("it is of another form".to_owned());
    }
    let mut lists = Lists::default();
    for kind in Kind::ALL {
        let list = get(kind.member()).ok_or_else(|| format!("it holds no {}", kind.member()))?;
        let places = json::elements(list.get()).map_err(|err| err.to_string())?;
        let read = |place| {
            let raw = list.get().get(place).unwrap_or_default();
            Definition::read(kind, Bytes::copy_from_slice(raw)).map_err(|err| err.to_string())
        };
        lists.set(kind, places.into_iter().map(read).collect::<Result<_, _>>()?);
    }
    Ok((lists, Capabilities::of_result(text)))
}

/// Takes away the files over the bound.
fn prune(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let written = |entry: &fs::DirEntry| entry.metadata().and_then(|facts| facts.modified()).ok();
    let mut files: Vec<_> = entries.filter_map(Result::ok).map(|entry| (written(&entry), entry.path())).collect();
    files.sort();
    let surplus = files.len().saturating_sub(FILES_MAX);
    for (_, path) in files.into_iter().take(surplus) {
        if let Err(err) = fs::remove_file(&path) {
            tracing::debug!(%err, "an old list stays");
        }
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
