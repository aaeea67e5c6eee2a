//! A way to stderr that never waits for whoever reads it: a bounded queue and a thread of its own.
//!
//! Whoever starts us may give us a pipe for stderr and never read it. Invariants: a line that finds no room is dropped and
//! counted, and the count is written once there is room again; at the end everything is written that somebody reads.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::clock::Clock;

/// How many bytes wait to be written, in lines or in batches of them.
const WAITING_MAX: usize = 2 << 20;
/// What each costs beside its text.
const ITEM_BYTES: usize = 64;
/// How long the last lines have to be written while nothing is read, and how long whatever is read.
const FLUSH_PAUSE: Duration = Duration::from_millis(200);
const FLUSH_PAUSES_MAX: usize = 25;

/// The way in. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Shed {
    queue: Sender<Item>,
    counts: Arc<Counts>,
}

/// Gives the last lines their time when it is dropped.
#[derive(Debug)]
pub struct LogGuard(Shed);

#[derive(Debug, Default)]
struct Counts {
    /// How much waits.
    waiting: AtomicUsize,
    /// How many lines found no room.
    lost: AtomicU64,
}

#[derive(Debug)]
enum Item {
    Flush(SyncSender<()>),
    Lines(Vec<u8>),
}

// === impl Shed ===

impl Shed {
    /// Starts the thread that writes to `out`, where lines are `text` or JSON.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(super) fn start(out: impl Write + Send + 'static, text: bool) -> io::Result<(Self, LogGuard)> {
        let (queue, items) = channel();
        let shed = Self { queue, counts: Arc::default() };
        let counts = Arc::clone(&shed.counts);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(out, &items, &counts, text))?;
        let guard = LogGuard(shed.clone());
        Ok((shed, guard))
    }
}

impl Write for Shed {
    /// Takes a line, or several, whole.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let size = lines.len() + ITEM_BYTES;
        let room = |waiting: usize| (waiting + size <= WAITING_MAX).then_some(waiting + size);
        let taken = self.counts.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok();
        if !taken || self.queue.send(Item::Lines(lines.to_vec())).is_err() {
            let count = memchr::memchr_iter(b'\n', lines).count();
            self.counts.lost.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Ok(lines.len())
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
        if self.0.queue.send(Item::Flush(done)).is_err() {
            return;
        }
        let mut waiting = usize::MAX;
        for _ in 0..FLUSH_PAUSES_MAX {
            let left = self.0.counts.waiting.load(Ordering::Acquire);
            // Who does not read now will not.
            if left >= waiting || written.recv_timeout(FLUSH_PAUSE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            waiting = left;
        }
    }
}

/// Writes until the way in is closed. A pipe that is broken takes the rest in silence.
fn write(mut out: impl Write, items: &Receiver<Item>, counts: &Counts, text: bool) {
    let clock = Clock::real();
    let mut broken = false;
    while let Ok(item) = items.recv() {
        match item {
            Item::Lines(lines) => {
                broken = broken || out.write_all(&lines).is_err();
                counts.waiting.fetch_sub(lines.len() + ITEM_BYTES, Ordering::AcqRel);
            }
            Item::Flush(done) => {
                broken = broken || out.flush().is_err();
                done.try_send(()).unwrap_or_default();
            }
        }
        let lost = counts.lost.swap(0, Ordering::Relaxed);
        if lost > 0 && !broken {
            broken = out.write_all(notice(&clock, lost, text).as_bytes()).is_err();
        }
    }
}

/// Says how many lines are missing here, in the form of the others.
fn notice(clock: &Clock, lost: u64, text: bool) -> String {
    let now = clock.unix_millis();
    let stamp = format!("{}.{:03}Z", super::access::date(now / 1000), now % 1000);
    let words = format!("{lost} lines of the log found no room");
    if text {
        format!("{stamp}  WARN {words}\n")
    } else {
        format!(
            "{{\"timestamp\":\"{stamp}\",\"level\":\"WARN\",\"fields\":{{\"message\":\"{words}\"}},\"target\":\"portcullis::telemetry\"}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::{ITEM_BYTES, Shed, WAITING_MAX};

    /// Writes what it is given to a test, when the test lets it.
    struct Gate(Receiver<()>, Sender<Vec<u8>>);

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

    /// [LIM-6] Nobody waits for whoever does not read, what is missing is counted to the line, and what is kept is written at the
    /// end, by whoever reads then.
    #[test]
    fn a_line_without_room_is_counted_and_nobody_waits() {
        let (open, gate) = channel();
        let (seen, lines) = channel();
        let (mut shed, guard) = Shed::start(Gate(gate, seen), false).unwrap();
        let room = WAITING_MAX / (1_000 + ITEM_BYTES);
        let line = format!("{}\n", "a".repeat(999));
        for _ in 0..2 * room {
            shed.write_all(line.as_bytes()).unwrap();
        }
        // Several at once count as so many.
        shed.write_all(line.repeat(3).as_bytes()).unwrap();
        for _ in 0..2 * room {
            open.send(()).unwrap();
        }
        drop(guard);
        let (mut lost, mut kept) = (0, 0);
        for text in lines.try_iter() {
            if text == line.as_bytes() {
                kept += 1;
                continue;
            }
            let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let words = read["fields"]["message"].as_str().unwrap();
            lost += words.strip_suffix(" lines of the log found no room").unwrap().parse::<usize>().unwrap();
        }
        assert_eq!(kept + lost, 2 * room + 3, "{kept} kept, {lost} lost");
        assert!(kept >= room && lost > 0, "{kept} kept, {lost} lost");
    }

    /// Who does not read at the end is not waited for, and what is broken takes everything.
    #[test]
    fn the_end_waits_for_nobody() {
        let (open, gate) = channel();
        let (seen, _lines) = channel();
        let (mut shed, guard) = Shed::start(Gate(gate, seen), true).unwrap();
        shed.write_all(b"line\n").unwrap();
        drop(guard);
        drop(open);
        struct Broken;
        impl std::io::Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (mut shed, guard) = Shed::start(Broken, true).unwrap();
        for _ in 0..10 {
            shed.write_all(&[b'a'; WAITING_MAX / 2]).unwrap();
        }
        drop(guard);
        assert_eq!(shed.counts.waiting.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}
