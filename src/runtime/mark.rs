//! A mark in the environment of each child, by which its descendants are found wherever they have gone [TRN-3, TRN-4].
//!
//! Not for: process groups (`guardian`), which end first. Invariant: what carries the mark was started below one of our
//! children. Known limits: Linux alone tells the environment of a process; who clears or overwrites its own, or becomes
//! another user's, is not found.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// The variable.
pub const MARK_VARIABLE: &str = "PORTCULLIS_CHILD";

/// How often what is being started meanwhile is looked for again.
const ROUNDS_MAX: usize = 10;

/// The mark of one child: the gateway's own, and a number.
#[derive(Clone, Debug)]
pub struct Mark(String);

// === impl Mark ===

impl Mark {
    /// Makes the mark of the next child.
    #[must_use]
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(format!("{}.{}", of_gateway(), LAST.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the variable's value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.0
    }

    /// Kills what is left of the child's descendants; returns how many there were. Blocks.
    pub fn end(&self) -> usize {
        let mut ended = 0;
        for _ in 0..ROUNDS_MAX {
            let left = carriers(|mark| mark == self.0);
            if left.is_empty() {
                break;
            }
            ended += signal(&left, Signal::KILL);
        }
        ended
    }
}

/// Returns what the marks of all children of this process begin with.
pub(super) fn of_gateway() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let random = crate::seal::random::<8>().map_or_else(|_| u64::from(std::process::id()), u64::from_le_bytes);
        format!("{random:016x}")
    })
}

/// Finds the processes that carry a mark of a gateway.
pub(super) fn of(gateway: &str) -> Vec<Pid> {
    carriers(|mark| mark.strip_prefix(gateway).is_some_and(|rest| rest.starts_with('.')))
}

pub(super) fn signal(processes: &[Pid], signal: Signal) -> usize {
    processes.iter().filter(|process| kill_process(**process, signal).is_ok()).count()
}

fn carriers(is: impl Fn(&str) -> bool) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let carries = |path: &Path| {
        // Those of other users cannot be read, and those that are dead have none.
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| {
            let mark = variable.strip_prefix(MARK_VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            mark.and_then(|mark| std::str::from_utf8(mark).ok()).is_some_and(&is)
        })
    };
    let found = entries.flatten().filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        carries(&entry.path()).then_some(pid)
    });
    found.collect()
}
