//! What a gateway that runs says beside its log: words for a person, or lines of the log [OPS-4].
//!
//! Invariant: with `[log] format = "json"` every line on stderr is a JSON object, from the moment the file could be read.
//! Only that word does it: where the form is left to the program, what is for a person stays words, also on a pipe.

use std::path::Path;

use crate::codes::Code;
use crate::config::{self, Diagnostics, Loaded};
use crate::telemetry::{self, InitError, LogFormat, LogSettings};

use super::output::{say, tell};
use super::trouble::{DOUBTFUL, Exit, Trouble};

/// How a gateway speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Log,
    Words,
}

/// Loads the configuration of a gateway.
pub(super) fn load(path: &Path) -> Result<Loaded, Trouble> {
    config::load(path, &config::process_env).map_err(|found| refused(found, config::log_format(path)))
}

/// There is no log yet, for there are no settings: it is started to say this alone.
fn refused(found: Diagnostics, format: LogFormat) -> Trouble {
    let trouble = Trouble::from(found);
    if Voice::of(format) == Voice::Words {
        return trouble;
    }
    match telemetry::init(&LogSettings { format, ..LogSettings::default() }) {
        Ok(_log) => trouble.logged(),
        Err(_) => trouble,
    }
}

pub(super) fn no_log(err: &InitError) -> Trouble {
    Trouble::new(Exit::Failure, Code::Log, format!("the log cannot be started: {err}"))
}

// === impl Voice ===

impl Voice {
    pub(super) const fn of(format: LogFormat) -> Self {
        match format {
            LogFormat::Json => Self::Log,
            LogFormat::Auto | LogFormat::Text => Self::Words,
        }
    }

    /// Says what is doubtful in the configuration.
    pub(super) fn warn(self, loaded: &Loaded) {
        match self {
            Self::Log => loaded.warnings.iter().for_each(|one| one.log(DOUBTFUL)),
            Self::Words => tell(&loaded.warnings.clone().into()),
        }
    }

    /// Says a line that is for a person alone.
    pub(super) fn say(self, text: &str) {
        if self == Self::Words {
            say(text);
        }
    }

    /// Says why a gateway ends, unless that is left to whoever called it.
    pub(super) fn end(self, ended: Result<Exit, Trouble>) -> Result<Exit, Trouble> {
        match self {
            Self::Log => ended.map_err(Trouble::logged),
            Self::Words => ended,
        }
    }
}
