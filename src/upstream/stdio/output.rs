//! What a child writes for humans: kept in a ring, logged at a bounded rate, secrets replaced [TRN-3, CFG-3].
//!
//! Not for: judging a server's health; nothing on stderr does [R71]. Invariant: no text leaves here unredacted.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Moment};
use crate::upstream::ServerSettings;
use crate::upstream::secrets::Secrets;

/// How much output is kept per child.
const RING_BYTES: usize = 64 * 1024;
/// The longest line that is put together; the rest of it goes to the ring alone.
const LINE_BYTES: usize = 8 * 1024;
/// How much of a line is logged, in characters.
const LOGGED_CHARS: usize = 1024;
/// How many lines are logged per second.
const LINES_PER_SECOND: u32 = 20;
/// How many lines, and how many characters, are repeated as last words.
const TAIL_LINES: usize = 5;
const TAIL_CHARS: usize = 2000;

/// The output of one child.
#[derive(Debug)]
pub(super) struct Output {
    server: String,
    secrets: Secrets,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: VecDeque<u8>,
    window: Moment,
    lines: u32,
    unshown: u64,
}

// === impl Output ===

impl Output {
    /// Starts empty.
    pub(super) fn new(settings: &ServerSettings, clock: Clock) -> Self {
        let state = State { ring: VecDeque::new(), window: clock.now(), lines: 0, unshown: 0 };
        Self { server: settings.name.to_string(), secrets: Secrets::of(settings), clock, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a pipe to its end, or until the child is dead; keeps and logs what comes.
    pub(super) async fn drain(self: Arc<Self>, mut pipe: impl AsyncRead + Unpin, dead: CancellationToken) {
        let mut chunk = vec![0; LINE_BYTES];
        let mut line = Vec::new();
        loop {
            let read = tokio::select! {
                biased;
                read = pipe.read(&mut chunk) => read.unwrap_or(0),
                () = dead.cancelled() => 0,
            };
            let part = chunk.get(..read).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            self.keep(part);
            for piece in part.split_inclusive(|byte| *byte == b'\n') {
                let room = LINE_BYTES.saturating_sub(line.len()).min(piece.len());
                line.extend_from_slice(piece.get(..room).unwrap_or_default());
                if piece.ends_with(b"\n") {
                    self.log(&line);
                    line.clear();
                }
            }
        }
        if !line.is_empty() {
            self.log(&line);
        }
    }

    /// Keeps and logs a line that was meant for nobody.
    pub(super) fn stray(&self, line: &[u8]) {
        let line = line.get(..LINE_BYTES).unwrap_or(line);
        self.keep(line);
        self.keep(b"\n");
        self.log(line);
    }

    fn keep(&self, part: &[u8]) {
        let part = part.get(part.len().saturating_sub(RING_BYTES)..).unwrap_or_default();
        let mut state = self.state();
        let surplus = (state.ring.len() + part.len()).saturating_sub(RING_BYTES);
        state.ring.drain(..surplus);
        state.ring.extend(part);
    }

    fn log(&self, line: &[u8]) {
        let Some(unshown) = self.admit() else { return };
        if unshown > 0 {
            tracing::info!(server = self.server, lines = unshown, "server output not shown");
        }
        let text = self.clean(line, LOGGED_CHARS);
        if !text.trim().is_empty() {
            tracing::info!(server = self.server, output = text, "server output");
        }
    }

    /// Says whether a line may be logged now, and how many were not since the last one.
    fn admit(&self) -> Option<u64> {
        let now = self.clock.now();
        let mut state = self.state();
        if now.since(state.window) >= Duration::from_secs(1) {
            state.window = now;
            state.lines = 0;
        }
        if state.lines >= LINES_PER_SECOND {
            state.unshown += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.unshown))
    }

    /// Spells foreign bytes for a log or a status: secrets replaced, control characters escaped, at most `chars` long.
    pub(super) fn clean(&self, text: &[u8], chars: usize) -> String {
        let text = self.secrets.replaced(&String::from_utf8_lossy(text));
        let text = text.trim_end();
        let mut out = String::new();
        for (count, char) in text.chars().enumerate() {
            if count == chars {
                out.push('…');
                break;
            }
            escape(char, &mut out);
        }
        out
    }

    /// Returns the last lines.
    pub(super) fn tail(&self) -> String {
        let ring: Vec<u8> = self.state().ring.iter().copied().collect();
        let text = self.secrets.replaced(&String::from_utf8_lossy(&ring));
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join(" | ");
        let surplus = last.chars().count().saturating_sub(TAIL_CHARS);
        let mut out = String::new();
        last.chars().skip(surplus).for_each(|char| escape(char, &mut out));
        out
    }
}

/// Escapes what could act on a terminal: control characters and marks that turn the direction of text.
fn escape(char: char, out: &mut String) {
    if char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    {
        // Writing to a String cannot fail.
        write!(out, "{}", char.escape_default()).unwrap_or_default();
    } else {
        out.push(char);
    }
}
