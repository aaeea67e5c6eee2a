//! The log on stderr: lines for a person on a terminal, JSON for everything else.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::shed::{LogGuard, Shed};

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object per line.
    Json,
    /// Lines for a person.
    Text,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level, or directives as `info,portcullis::upstream=debug`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// Why the log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Something else already receives events.
    #[error("a log is already running")]
    AlreadyRunning,
    /// The level is neither a level nor a list of directives.
    #[error("{0}")]
    Level(String),
    /// The operating system refuses a thread.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
}

// === impl LogSettings ===

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}

impl LogSettings {
    /// Checks the text of a level.
    ///
    /// # Errors
    /// What is wrong with it. A lone word must be a level: the filter would take a misspelt one for a target.
    pub fn check_level(text: &str) -> Result<(), String> {
        filter(text).map(drop)
    }
}

/// Starts the log for the whole process. Nobody ever waits for whoever reads stderr; lines may be lost then.
///
/// # Errors
/// [`InitError`].
pub fn init(settings: &LogSettings) -> Result<LogGuard, InitError> {
    start(settings).map(|(_, guard)| guard)
}

/// The same for a gateway of many requests, whose lines are written in batches ([`super::access_line`]).
///
/// # Errors
/// [`InitError`].
pub fn init_batching(settings: &LogSettings) -> Result<LogGuard, InitError> {
    let (shed, guard) = start(settings)?;
    super::access::start(is_text(settings), shed).map_err(InitError::Thread)?;
    Ok(guard)
}

fn is_text(settings: &LogSettings) -> bool {
    match settings.format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Json => false,
        LogFormat::Text => true,
    }
}

fn start(settings: &LogSettings) -> Result<(Shed, LogGuard), InitError> {
    let (text, terminal) = (is_text(settings), std::io::stderr().is_terminal());
    let registry = tracing_subscriber::registry().with(filter(&settings.level).map_err(InitError::Level)?);
    let (shed, guard) = Shed::start(std::io::stderr(), text).map_err(InitError::Thread)?;
    let layer = tracing_subscriber::fmt::layer().with_writer(shed.clone());
    let started = if text {
        registry.with(layer.with_ansi(terminal).with_target(false)).try_init()
    } else {
        registry.with(layer.json()).try_init()
    };
    started.map(|()| (shed, guard)).map_err(|_| InitError::AlreadyRunning)
}

fn filter(text: &str) -> Result<EnvFilter, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    let lone = |part: &&str| !part.contains(['=', '[']) && !LEVELS.contains(&part.trim().to_ascii_lowercase().as_str());
    if !text.contains('[')
        && let Some(word) = text.split(',').find(lone)
    {
        return Err(format!("'{}' is no level; levels are {}", word.trim(), LEVELS.join(", ")));
    }
    EnvFilter::builder().with_regex(false).parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::LogSettings;

    #[test]
    fn a_misspelt_level_is_refused() {
        for good in ["info", "DEBUG", "off", "info,portcullis::upstream=debug", "portcullis[call{server=\"a\"}]=trace"]
        {
            assert_eq!(LogSettings::check_level(good), Ok(()), "{good}");
        }
        for bad in ["", "inof", "info,debgu", "portcullis=loud"] {
            assert!(LogSettings::check_level(bad).is_err(), "{bad}");
        }
    }
}
