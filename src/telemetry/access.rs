//! The access line: one for each request, put into a buffer by whoever serves it and written by a thread of its own.
//!
//! A line through `tracing` costs a request about half of what the request itself costs: fields, format, and a write each.
//! Not for: refusals and everything else that is rare (`log`), or the audit. Invariants: nobody waits for whoever reads
//! the log; a line that finds no room is counted, and the count is written.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tracing::Level;

use crate::clock::Clock;
use crate::wire::json;

/// How long a line waits for others to be written with.
const BATCH: Duration = Duration::from_millis(50);
/// So much is written without waiting for more.
const BATCH_BYTES: usize = 64 << 10;
/// So much is kept for somebody who does not read.
const KEPT_BYTES: usize = 1 << 20;

static LINES: OnceLock<Lines> = OnceLock::new();

struct Lines {
    clock: Clock,
    text: bool,
    waiting: Mutex<Waiting>,
    come: Condvar,
    out: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    lost: u64,
    /// The second of `stamp`.
    second: u64,
    stamp: String,
}

/// Writes a request's line, in the form of the log and if the log shows `info` of `portcullis::access`.
pub fn access_line(principal: &str, method: &str, status: u16) {
    if !tracing::enabled!(target: "portcullis::access", Level::INFO) {
        return;
    }
    match LINES.get() {
        Some(lines) => lines.add(principal, method, status),
        None => tracing::info!(target: "portcullis::access", principal, method, status, "request"),
    }
}

/// Writes what waits: at the end of the process.
pub fn flush() {
    if let Some(lines) = LINES.get() {
        lines.write();
    }
}

/// Starts the thread that writes to `out`.
///
/// # Errors
/// The operating system refuses a thread.
pub(super) fn start(text: bool, out: impl Write + Send + 'static) -> std::io::Result<()> {
    let new = || Lines {
        clock: Clock::real(),
        text,
        waiting: Mutex::default(),
        come: Condvar::new(),
        out: Mutex::new(Box::new(out)),
    };
    let lines = LINES.get_or_init(new);
    std::thread::Builder::new().name("access lines".to_owned()).spawn(|| lines.run()).map(drop)
}

// === impl Lines ===

impl Lines {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, principal: &str, method: &str, status: u16) {
        let now = self.clock.unix_millis();
        let mut waiting = self.waiting();
        if waiting.lines.len() >= KEPT_BYTES {
            waiting.lost += 1;
            return;
        }
        let first = waiting.lines.is_empty();
        waiting.stamp(now / 1000);
        let full = waiting.lines.len() >= BATCH_BYTES;
        waiting.line(self.text, now % 1000, principal, method, status);
        let filled = !full && waiting.lines.len() >= BATCH_BYTES;
        drop(waiting);
        if first || filled {
            self.come.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let waiting = self.come.wait_while(self.waiting(), |waiting| waiting.lines.is_empty());
            let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            let batched = self.come.wait_timeout_while(waiting, BATCH, |waiting| waiting.lines.len() < BATCH_BYTES);
            drop(batched);
            self.write();
        }
    }

    /// Writes what waits, in one piece. A log that is broken takes it in silence.
    fn write(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, lost) = {
            let mut waiting = self.waiting();
            (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost))
        };
        if lost > 0 {
            lines.extend_from_slice(format!("{lost} access lines found no room\n").as_bytes());
        }
        if out.write_all(&lines).and_then(|()| out.flush()).is_err() {
            return;
        }
        lines.clear();
        let mut waiting = self.waiting();
        // The memory is used again, unless somebody has begun another.
        if waiting.lines.capacity() == 0 && lines.capacity() <= 2 * BATCH_BYTES {
            waiting.lines = lines;
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Spells the second once for all its lines.
    fn stamp(&mut self, second: u64) {
        if self.second != second || self.stamp.is_empty() {
            self.second = second;
            self.stamp = date(second);
        }
    }

    fn line(&mut self, text: bool, millis: u64, principal: &str, method: &str, status: u16) {
        let Self { lines, stamp, .. } = self;
        let mut number = String::with_capacity(8);
        let stamped = |lines: &mut Vec<u8>, number: &mut String| {
            lines.extend_from_slice(stamp.as_bytes());
            // Writing to a String cannot fail.
            write!(number, ".{millis:03}Z").unwrap_or_default();
            lines.extend_from_slice(number.as_bytes());
            number.clear();
        };
        if text {
            stamped(lines, &mut number);
            lines.extend_from_slice(b"  INFO request principal=");
            lines.extend_from_slice(&json::quoted(principal));
            lines.extend_from_slice(b" method=");
            lines.extend_from_slice(&json::quoted(method));
            lines.extend_from_slice(b" status=");
        } else {
            lines.extend_from_slice(b"{\"timestamp\":\"");
            stamped(lines, &mut number);
            lines.extend_from_slice(b"\",\"level\":\"INFO\",\"fields\":{\"message\":\"request\",\"principal\":");
            lines.extend_from_slice(&json::quoted(principal));
            lines.extend_from_slice(b",\"method\":");
            lines.extend_from_slice(&json::quoted(method));
            lines.extend_from_slice(b",\"status\":");
        }
        write!(number, "{status}").unwrap_or_default();
        lines.extend_from_slice(number.as_bytes());
        lines.extend_from_slice(if text { b"\n" } else { b"},\"target\":\"portcullis::access\"}\n" });
    }
}

/// Spells a second since 1970 in UTC, as RFC 3339 does up to its fraction.
#[must_use]
pub fn date(second: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, rest) = (second / 86_400, second % 86_400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::{Waiting, date};

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (second, spelled) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (1_796_024_678, "2026-11-30T07:44:38"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(date(second), spelled);
        }
    }

    #[test]
    fn a_line_is_what_the_log_writes_elsewhere() {
        let mut waiting = Waiting::default();
        waiting.stamp(1_796_024_678);
        waiting.line(false, 7, "a\"b\n", "tools/call", 200);
        let line = String::from_utf8(std::mem::take(&mut waiting.lines)).unwrap();
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["timestamp"], "2026-11-30T07:44:38.007Z");
        assert_eq!(read["fields"]["principal"], "a\"b\n");
        assert_eq!((&read["fields"]["status"], &read["level"]), (&200.into(), &"INFO".into()));
        waiting.line(true, 70, "alice", "tools/list", 404);
        assert_eq!(
            String::from_utf8(waiting.lines).unwrap(),
            "2026-11-30T07:44:38.070Z  INFO request principal=\"alice\" method=\"tools/list\" status=404\n"
        );
    }
}
