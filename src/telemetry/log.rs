//! The subscriber: text on a terminal, JSON elsewhere (product §9).

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// `[log]`.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// A level, or a filter such as `info,portcullis::upstream=debug`.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}

/// Installs the subscriber of the process; a second call changes nothing.
pub fn init(settings: &LogSettings) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let registry = tracing_subscriber::registry().with(filter);
    let json = match settings.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let installed = if json {
        registry.with(tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr)).try_init()
    } else {
        registry
            .with(tracing_subscriber::fmt::layer().with_ansi(terminal).with_target(false).with_writer(std::io::stderr))
            .try_init()
    };
    if installed.is_err() {
        tracing::debug!("a subscriber is already installed");
    }
}
