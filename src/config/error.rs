//! What is wrong with a configuration, where, and how it is shown.
//!
//! Invariant: a diagnostic holds no secret: the line it shows was masked when it was made.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::codes::Code;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something configured does not work.
    Error,
    /// Probably not what was meant.
    Warning,
}

/// Whether the text is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// With ANSI colours, for a terminal.
    Always,
    /// Plain text.
    #[default]
    Never,
}

/// A place in a file, with its line as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line, with every secret masked and without its comment.
    pub shown: String,
    /// What is marked in `shown`, in bytes.
    pub marked: Range<usize>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Its stable code, for `portcullis explain`.
    pub code: Code,
    /// The path of the key, as `mcp.servers[0].url`; empty if it is about the whole file.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would help.
    pub help: Option<String>,
    /// Where.
    pub place: Option<Place>,
    /// Whether the configuration is refused for it.
    pub fails: bool,
}

/// All problems of a configuration, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

/// Collects problems while files are read.
#[derive(Debug, Default)]
pub(super) struct Report {
    fatal: RefCell<Vec<Diagnostic>>,
    others: RefCell<Vec<Diagnostic>>,
}

/// Renders problems for a person, one after the other.
#[must_use]
pub fn render(diagnostics: &Diagnostics, color: Color) -> String {
    let renderer = match color {
        Color::Always => Renderer::styled(),
        Color::Never => Renderer::plain(),
    };
    let texts = diagnostics.0.iter().map(|diagnostic| diagnostic.render(&renderer));
    texts.collect::<Vec<_>>().join("\n\n")
}

// === impl Diagnostic ===

impl Diagnostic {
    /// Writes it to the log, under `words`.
    pub fn log(&self, words: &str) {
        // What a problem does not have, as the place of a file that is gone, is left out.
        let (file, line) = self.place.as_ref().map(|place| (place.path.display().to_string(), place.line)).unzip();
        let (Self { key, message: why, help, .. }, code) = (self, self.code.id());
        let (key, help) = (Some(key.as_str()).filter(|key| !key.is_empty()), help.as_deref());
        match self.severity {
            Severity::Error => tracing::error!(file, line, key, why, code, help, "{words}"),
            Severity::Warning => tracing::warn!(file, line, key, why, code, help, "{words}"),
        }
    }

    fn render(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = if self.key.is_empty() { self.message.clone() } else { format!("{}: {}", self.key, self.message) };
        let mut group = Group::with_title(level.primary_title(title).id(self.code.id()));
        if let Some(place) = &self.place {
            let mark = AnnotationKind::Primary.span(place.marked.clone());
            let snippet = Snippet::source(place.shown.as_str()).line_start(place.line).annotation(mark);
            group = group.element(snippet.path(place.path.display().to_string()));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let text = renderer.render(&[group]);
        self.place.as_ref().map_or_else(|| text.clone(), |place| place.restore_column(&text))
    }

    fn order(&self) -> (PathBuf, usize, usize) {
        self.place.as_ref().map_or_else(Default::default, |place| (place.path.clone(), place.line, place.column))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

// === impl Place ===

impl Place {
    /// The renderer counts columns in the masked line; a person looks for them in the file.
    fn restore_column(&self, text: &str) -> String {
        let counted = self.shown.get(..self.marked.start).unwrap_or_default().chars().count() + 1;
        let start = format!("{}:{}:", self.path.display(), self.line);
        text.replacen(&format!("{start}{counted}"), &format!("{start}{}", self.column), 1)
    }
}

// === impl Diagnostics ===

impl Diagnostics {
    /// Makes a list of one problem that has no place.
    pub(super) fn whole(message: String) -> Self {
        let (severity, code) = (Severity::Error, Code::Unreadable);
        let help = Some(code.page().fix.to_owned());
        Self(vec![Diagnostic { severity, code, key: String::new(), message, help, place: None, fails: true }])
    }
}

impl From<Vec<Diagnostic>> for Diagnostics {
    fn from(list: Vec<Diagnostic>) -> Self {
        Self(list)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self, Color::Never))
    }
}

impl std::error::Error for Diagnostics {}

// === impl Report ===

impl Report {
    /// Adds a problem that fails the start.
    pub(super) fn fatal(&self, diagnostic: Diagnostic) {
        self.fatal.borrow_mut().push(Diagnostic { fails: true, ..diagnostic });
    }

    /// Adds a problem with which the gateway starts.
    pub(super) fn other(&self, diagnostic: Diagnostic) {
        self.others.borrow_mut().push(diagnostic);
    }

    /// Returns the problems with which the gateway starts.
    ///
    /// # Errors
    /// Every problem, if one fails the start.
    pub(super) fn finish(self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let (fatal, mut list) = (self.fatal.into_inner(), self.others.into_inner());
        let failed = !fatal.is_empty();
        list.extend(fatal);
        list.sort_by_key(Diagnostic::order);
        if failed { Err(Diagnostics(list)) } else { Ok(list) }
    }
}
