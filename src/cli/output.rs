//! Data on stdout, talk on stderr; what servers wrote is made harmless before a person reads it [OPS-1].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use serde_json::Value;

use crate::codes::Code;
use crate::config::{self, Color, Diagnostics};

use super::trouble::{Exit, Trouble};

/// The longest cell of a table, in characters.
const CELL_MAX: usize = 100;
/// The longest foreign sentence outside of a table, in characters: a server's last words are at most 2,000.
const SENTENCE_MAX: usize = 2_500;

/// Whether words are coloured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(Color);

/// Says something to a person.
pub(super) fn say(text: &str) {
    // A closed stderr is no reason to fail.
    let _said = writeln!(std::io::stderr(), "{text}").is_ok();
}

/// Shows problems of a configuration, one after the other, and where more is said of each kind.
pub(super) fn tell(found: &Diagnostics) {
    let codes: BTreeSet<_> = found.0.iter().map(|one| one.code.id()).collect();
    let mut codes = codes.into_iter();
    if let Some(first) = codes.next() {
        let others: Vec<_> = codes.map(|code| format!(" {code}")).collect();
        let found = config::render(found, Paint::for_stderr().0);
        say(&format!("{found}\n\nmore: portcullis explain {first}{}", others.concat()));
    }
}

/// Writes data as it is; a reader that has seen enough is no failure.
pub(super) fn data(bytes: &[u8]) -> Result<Exit, Trouble> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(err) if err.kind() != ErrorKind::BrokenPipe => {
            Err(Trouble::new(Exit::Failure, Code::Machine, format!("stdout: {err}")))
        }
        Ok(()) | Err(_) => Ok(Exit::Ok),
    }
}

/// Writes one JSON value as a line.
pub(super) fn json(value: &Value) -> Result<Exit, Trouble> {
    data(format!("{value}\n").as_bytes())
}

/// Returns a JSON text in one line, else as it is: between tokens a line end is white space, and inside of strings there
/// is none.
pub(super) fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Writes rows in columns; the first row is the head.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> Result<Exit, Trouble> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a text does not fail.
            let _written = write!(line, "{cell:<width$}  ").is_ok();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    data(text.as_bytes())
}

/// Makes a cell of a foreign text: its first line without control characters and without what turns the direction of
/// writing, cut at a length.
pub(super) fn line(text: &str) -> String {
    first_line(text, CELL_MAX)
}

/// The same for a sentence that stands alone, of which nothing should be missing.
pub(super) fn sentence(text: &str) -> String {
    first_line(text, SENTENCE_MAX)
}

fn first_line(text: &str, chars_max: usize) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut line: String = first.chars().filter(|c| is_harmless(*c)).take(chars_max + 1).collect();
    if line.chars().count() > chars_max {
        line = line.chars().take(chars_max - 1).collect();
        line.push('…');
    }
    line
}

/// Spells a number with the word for what it counts.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Makes a foreign text harmless for a terminal; for a pipe or a file it stays as it is.
pub(super) fn foreign(text: &str) -> String {
    if std::io::stdout().is_terminal() {
        text.chars().filter(|c| matches!(c, '\n' | '\t') || is_harmless(*c)).collect()
    } else {
        text.to_owned()
    }
}

fn is_harmless(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

// === impl Paint ===

impl Paint {
    /// Colours talk on a terminal alone, and not if NO_COLOR is set.
    pub(super) fn for_stderr() -> Self {
        Self::on(std::io::stderr().is_terminal())
    }

    /// Colours data on a terminal alone, and not if NO_COLOR is set.
    pub(super) fn for_stdout() -> Self {
        Self::on(std::io::stdout().is_terminal())
    }

    fn on(terminal: bool) -> Self {
        let plain = config::process_env("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(if terminal && !plain { Color::Always } else { Color::Never })
    }

    /// Paints the head of an error.
    pub(super) fn error(self, text: &str) -> String {
        match self.0 {
            Color::Always => format!("\u{1b}[1;31m{text}\u{1b}[0m"),
            Color::Never => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{line, sentence};

    /// [OPS-1]
    #[test]
    fn a_foreign_text_becomes_one_harmless_line() {
        assert_eq!(line("\n  Reads\u{1b}[31m a \u{202e}file.\nMore."), "Reads[31m a file.");
        let long = line(&"x".repeat(500));
        assert!(long.chars().count() == 100 && long.ends_with('…'));
        assert_eq!(sentence(&format!("\u{1b}{}\n", "x".repeat(500))).len(), 500);
        assert_eq!(line(""), "");
    }
}
