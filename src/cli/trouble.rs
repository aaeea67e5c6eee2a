//! Exit codes, and an error as a person reads it.

use std::process::ExitCode;

use crate::app::{AppError, LocalError};
use crate::codes::Code;
use crate::config::{Diagnostics, Spot};
use crate::demo::DemoError;
use crate::exchange::{Reject, RejectKind};

use super::output::{Paint, say, tell};

/// What the log says of a problem with which a gateway starts.
pub(super) const DOUBTFUL: &str = "the configuration is doubtful";

/// What the process ends with [OPS-1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The configuration is refused.
    ConfigInvalid,
    /// Somebody may not do that.
    Denied,
    /// Something went wrong while running.
    Failure,
    /// A server or the gateway is not up.
    NotReady,
    /// All is well.
    Ok,
    /// The arguments make no sense.
    Usage,
}

/// An error of a command.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The configuration cannot be used, and why.
    Config(Diagnostics),
    /// Something else.
    Other(Box<Failure>),
    /// All that can be said has been said.
    Told(Exit),
}

/// What was seen, where, and what helps.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    code: Code,
    words: String,
    at: Vec<Spot>,
    fix: Option<String>,
}

/// Shows what clap has to say: help and version are data, a mistake is talk with a code.
pub(super) fn usage(err: &clap::Error) -> Exit {
    // A closed pipe is no reason to fail.
    let _printed = err.print().is_ok();
    if err.use_stderr() {
        say(&format!("more: portcullis explain {}", Code::Usage.id()));
        return Exit::Usage;
    }
    Exit::Ok
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::ConfigInvalid => 3,
            Exit::NotReady => 4,
            Exit::Denied => 5,
        })
    }
}

// === impl Trouble ===

impl Trouble {
    /// Makes an error; unless another is given, the fix is the code's own.
    pub(super) fn new(exit: Exit, code: Code, words: impl Into<String>) -> Self {
        Self::Other(Box::new(Failure { exit, code, words: words.into(), at: Vec::new(), fix: None }))
    }

    /// Adds lines of files.
    pub(super) fn at(mut self, spots: impl IntoIterator<Item = Spot>) -> Self {
        if let Self::Other(failure) = &mut self {
            failure.at.extend(spots);
        }
        self
    }

    /// Says what helps in this case.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        if let Self::Other(failure) = &mut self {
            failure.fix = Some(fix.into());
        }
        self
    }

    /// Says what helps if this is what is wrong.
    pub(super) fn fix_of(self, code: Code, fix: &str) -> Self {
        let is_it = matches!(&self, Self::Other(failure) if failure.code == code);
        if is_it { self.fix(fix) } else { self }
    }

    /// Writes it to the log, which is all that is read, so that nothing more is to be told.
    pub(super) fn logged(self) -> Self {
        match self {
            Self::Told(exit) => Self::Told(exit),
            Self::Config(found) => {
                for one in &found.0 {
                    one.log(if one.fails { "the configuration is refused" } else { DOUBTFUL });
                }
                Self::Told(Exit::ConfigInvalid)
            }
            Self::Other(failure) => {
                failure.log();
                Self::Told(failure.exit)
            }
        }
    }

    /// Tells a person, and returns the exit code.
    pub(super) fn told(self) -> Exit {
        match self {
            Self::Told(exit) => exit,
            Self::Config(found) => {
                tell(&found);
                Exit::ConfigInvalid
            }
            Self::Other(failure) => {
                failure.tell();
                failure.exit
            }
        }
    }
}

impl Failure {
    fn help(&self) -> &str {
        self.fix.as_deref().unwrap_or_else(|| self.code.page().fix)
    }

    fn log(&self) {
        let at: Vec<_> = self.at.iter().map(ToString::to_string).collect();
        tracing::error!(code = self.code.id(), at = at.join(", "), help = self.help(), "{}", self.words);
    }

    fn tell(&self) {
        let paint = Paint::for_stderr();
        say(&format!("{}: {}", paint.error(&format!("error[{}]", self.code.id())), self.words));
        for spot in &self.at {
            say(&format!("  --> {spot}"));
        }
        say(&format!("  help: {}", self.help()));
        say(&format!("  more: portcullis explain {}", self.code.id()));
    }
}

impl From<Diagnostics> for Trouble {
    fn from(found: Diagnostics) -> Self {
        Self::Config(found)
    }
}

impl From<AppError> for Trouble {
    fn from(err: AppError) -> Self {
        Self::new(Exit::Failure, err.code(), err.to_string())
    }
}

impl From<DemoError> for Trouble {
    fn from(err: DemoError) -> Self {
        Self::new(Exit::Failure, err.code(), err.to_string())
    }
}

impl From<LocalError> for Trouble {
    fn from(err: LocalError) -> Self {
        match err {
            LocalError::Malformed(_) => Self::new(Exit::Usage, Code::BadArgument, err.to_string()),
            LocalError::Refused(reject) => reject.into(),
        }
    }
}

impl From<Reject> for Trouble {
    fn from(reject: Reject) -> Self {
        let code = reject.code();
        let exit = match reject.kind {
            RejectKind::Draining => Exit::NotReady,
            RejectKind::NotMapped | RejectKind::Unauthenticated | RejectKind::Unknown => Exit::Denied,
            RejectKind::Upstream if code == Code::ServerDown => Exit::NotReady,
            RejectKind::Busy
            | RejectKind::HeaderMismatch
            | RejectKind::InvalidParams
            | RejectKind::Limit
            | RejectKind::MethodNotFound
            | RejectKind::TooMany
            | RejectKind::Upstream
            | RejectKind::UpstreamTimeout => Exit::Failure,
        };
        let words = if reject.detail.is_empty() {
            reject.public.into_owned()
        } else if reject.detail.starts_with(&*reject.public) {
            reject.detail
        } else {
            format!("{}: {}", reject.public, reject.detail)
        };
        Self::new(exit, code, words)
    }
}
