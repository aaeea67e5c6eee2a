//! What a person is asked before files are changed or programs are run, and how a verb ends.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use crate::app::GuestError;
use crate::codes::Code;
use crate::config::Diagnostics;
use crate::secret::Secret;

use super::args::Care;
use super::output::say;
use super::trouble::{Exit, Trouble};

/// The largest file of a client, in bytes.
const FILE_MAX: u64 = 8 << 20;

/// Why a verb ends early.
#[derive(Debug)]
pub(super) enum End {
    /// The configuration is refused.
    Config(Diagnostics),
    /// Something went wrong.
    Failed(String),
    /// It is not clear who the client is.
    Guest(GuestError),
    /// A person has said no, or nothing was to be done.
    Nothing(&'static str),
}

impl End {
    /// Turns it into how the process ends.
    pub(super) fn exit(self) -> Result<Exit, Trouble> {
        match self {
            Self::Config(found) => Err(found.into()),
            Self::Failed(words) => Err(Trouble::new(Exit::Failure, Code::ClientFile, words)),
            Self::Guest(err) => Err(err.into()),
            Self::Nothing(words) => {
                say(words);
                Ok(Exit::Ok)
            }
        }
    }
}

/// Asks on a terminal; goes ahead where nobody can be asked.
pub(super) fn confirm(question: &str, care: Care) -> Result<(), End> {
    if care.dry_run {
        return Err(End::Nothing("nothing was changed"));
    }
    if care.yes || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let mut err = std::io::stderr();
    let _asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush()).is_ok();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.map(|_| answer.trim().to_ascii_lowercase()).as_deref() {
        Ok("y" | "yes") => Ok(()),
        Ok(_) | Err(_) => Err(End::Nothing("nothing was changed")),
    }
}

/// Reads a text that may hold secrets; `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Secret<String>>, End> {
    use std::io::Read as _;
    let failed = |why: String| End::Failed(format!("{} {why}", path.display()));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(failed(format!("cannot be read: {err}"))),
    };
    let mut text = String::new();
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    let text = Secret::new(text);
    match read {
        Ok(size) if size as u64 > FILE_MAX => Err(failed(format!("is larger than {FILE_MAX} bytes"))),
        Ok(_) => Ok(Some(text)),
        Err(err) if err.kind() == std::io::ErrorKind::InvalidData => Err(failed("is not UTF-8".to_owned())),
        Err(err) => Err(failed(format!("cannot be read: {err}"))),
    }
}
