//! A way to stderr that never waits for whoever reads it: a short queue and a thread of its own.
//!
//! A client that starts us may give us a pipe for stderr and never read it. Invariant: a line that finds no room is
//! dropped and counted, and the count is written once there is room again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How many lines wait to be written.
const LINES_MAX: usize = 1024;
/// How long the last lines have to be written.
const FLUSH_MAX: Duration = Duration::from_millis(200);

/// The way in. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Shed {
    queue: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

/// Gives the last lines a moment when it is dropped.
#[derive(Debug)]
pub struct LogGuard(Shed);

#[derive(Debug)]
enum Item {
    Flush(SyncSender<()>),
    Line(Vec<u8>),
}

// === impl Shed ===

impl Shed {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Self, LogGuard)> {
        let (queue, items) = sync_channel(LINES_MAX);
        let shed = Self { queue, lost: Arc::default() };
        let lost = Arc::clone(&shed.lost);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(out, &items, &lost))?;
        let guard = LogGuard(shed.clone());
        Ok((shed, guard))
    }
}

impl Write for Shed {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.queue.try_send(Item::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Shed {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.queue.try_send(Item::Flush(done)).is_ok() {
            // Who does not read now will not.
            let _written = written.recv_timeout(FLUSH_MAX).is_ok();
        }
    }
}

/// Writes until the way in is closed. A pipe that is broken takes the rest in silence.
fn write(mut out: impl Write, items: &Receiver<Item>, lost: &AtomicU64) {
    while let Ok(item) = items.recv() {
        let written = match item {
            Item::Line(line) => out.write_all(&line),
            Item::Flush(done) => {
                let flushed = out.flush();
                done.try_send(()).unwrap_or_default();
                flushed
            }
        };
        let count = lost.swap(0, Ordering::Relaxed);
        let told = if count > 0 {
            out.write_all(format!("{count} lines of the log found no room\n").as_bytes())
        } else {
            Ok(())
        };
        if written.and(told).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::{LINES_MAX, Shed};

    /// Writes what it is given to a test, when the test lets it.
    struct Gate(Receiver<()>, SyncSender<Vec<u8>>);

    impl std::io::Write for Gate {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.recv().unwrap();
            self.1.send(text.to_vec()).unwrap();
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_without_room_is_counted_and_nobody_waits() {
        let (open, gate) = sync_channel(4 * LINES_MAX);
        let (seen, lines) = sync_channel(4 * LINES_MAX);
        let (mut shed, guard) = Shed::start(Gate(gate, seen)).unwrap();
        for _ in 0..2 * LINES_MAX {
            shed.write_all(b"line\n").unwrap();
        }
        for _ in 0..4 * LINES_MAX {
            open.send(()).unwrap();
        }
        let mut lost = 0;
        let mut kept = 0;
        while kept + lost < 2 * LINES_MAX {
            let text = String::from_utf8(lines.recv().unwrap()).unwrap();
            match text.split_once(" lines of the log") {
                Some((count, _)) => lost += count.parse::<usize>().unwrap(),
                None => kept += 1,
            }
        }
        assert!(lost > 0 && kept >= LINES_MAX, "{lost} lost, {kept} kept");
        drop(guard);
    }
}
