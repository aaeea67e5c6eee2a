//! The guardian: a small process that ends what the gateway leaves behind, also after `kill -9` [TRN-4].
//!
//! Two halves: [`watch`] is the guardian's whole life; the rest is the gateway's side of the pipe. Not for: ending children
//! in order (`upstream::stdio`). Invariants: the guardian holds one pipe and nothing else, and starts nothing; it has a
//! session of its own, so that no signal for the gateway's group reaches it; one that dies is replaced by one that
//! knows as much, at once and then ever more rarely. What it was not told of, it finds by its mark: a child that was just
//! being started, or has left its group.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group, setsid, test_kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use super::reaper::{Own, start_own};
use super::{Tasks, mark};

/// The hidden verb that makes this binary a guardian.
pub const GUARDIAN_VERB: &str = "guardian";

/// How long a group has between TERM and KILL, and how often it is looked for.
const TERM_GRACE: Duration = Duration::from_secs(2);
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How long what was just being started is looked for, at the least: between its fork and its exec it has no mark yet.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// The pause before another guardian where the last one died soon: none at first, then this, then twice as much each time.
const REPLACE_MIN: Duration = Duration::from_secs(1);
const REPLACE_MAX: Duration = Duration::from_secs(60);

/// The guardian of this process; there is at most one, as there is one process.
static GUARDIAN: Mutex<Option<Guardian>> = Mutex::new(None);

#[derive(Debug)]
struct Guardian {
    /// None between the death of one and the start of the next.
    running: Option<Running>,
    groups: BTreeSet<i32>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    pipe: ChildStdin,
    _own: Own,
}

/// A process group that the guardian knows; dropped when the group has ended.
#[derive(Debug)]
pub struct Guarded(Pid);

// --- the guardian ---

/// Lives as a guardian: learns groups from standard input, and ends those that are left when it ends.
pub fn watch() {
    // Whoever leads a group already is out of reach of the gateway's signals too.
    let _own = setsid().is_ok();
    end(&read(io::stdin().lock()));
}

/// What a guardian knows when its pipe ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    groups: BTreeSet<i32>,
    /// What the marks of the gateway's children begin with; `None` if there is nothing to look for.
    mark: Option<String>,
}

/// Reads to the end of the pipe: `=MARK` names the mark, `+GROUP` and `-GROUP` a group that lives and one that has ended, and
/// `.` says that the gateway ends in order.
fn read(mut pipe: impl io::BufRead) -> Left {
    let mut left = Left::default();
    let mut line = String::new();
    while pipe.read_line(&mut line).is_ok_and(|read| read > 0) {
        let text = line.trim_end();
        if let Some(mark) = text.strip_prefix('=') {
            left.mark = Some(mark.to_owned());
        } else if text == "." {
            left.mark = None;
        } else if let Some(group) = text.strip_prefix('+').and_then(|text| text.parse().ok()) {
            left.groups.insert(group);
        } else if let Some(group) = text.strip_prefix('-').and_then(|text| text.parse::<i32>().ok()) {
            left.groups.remove(&group);
        }
        line.clear();
    }
    left
}

/// Asks every group and every process that carries the mark to end, then makes it.
fn end(left: &Left) {
    // Group 1 and below would be others', or everybody.
    let groups: Vec<Pid> =
        left.groups.iter().filter(|group| **group > 1).filter_map(|group| Pid::from_raw(*group)).collect();
    let signal = |signal| groups.iter().filter(|group| kill_process_group(**group, signal).is_ok()).count();
    let strays = || left.mark.as_deref().map(mark::of).unwrap_or_default();
    signal(Signal::TERM);
    let (mut waited, mut asked) = (Duration::ZERO, Vec::new());
    while waited < TERM_GRACE {
        let found = strays();
        let new: Vec<Pid> = found.iter().filter(|process| !asked.contains(*process)).copied().collect();
        mark::signal(&new, Signal::TERM);
        asked.extend(new);
        let searched = left.mark.is_none() || waited >= LOOK_MIN;
        if searched && found.is_empty() && !groups.iter().any(|group| test_kill_process_group(*group).is_ok()) {
            break;
        }
        #[expect(clippy::disallowed_methods, reason = "a process with one thread, which has nothing else to do")]
        std::thread::sleep(LOOK_PAUSE);
        waited += LOOK_PAUSE;
    }
    signal(Signal::KILL);
    mark::signal(&strays(), Signal::KILL);
}

// --- the gateway's side ---

/// Starts the guardian; to be called before the process has threads or children.
///
/// # Errors
/// The operating system refuses the process. Then nothing is guarded.
pub fn start_guardian() -> io::Result<()> {
    let groups = BTreeSet::new();
    *held() = Some(Guardian { running: Some(Running::start(&groups)?), groups });
    Ok(())
}

/// Replaces the guardian when it has died; needs a runtime. Does nothing where none was started.
pub fn keep_guardian(tasks: &Tasks) {
    if held().is_none() {
        return;
    }
    let Ok(mut children) = signal(SignalKind::child()) else { return };
    let died = async move || {
        loop {
            match held().as_mut().map(Guardian::has_died) {
                Some(true) => return true,
                Some(false) => {}
                None => return false,
            }
            if children.recv().await.is_none() {
                return false;
            }
        }
    };
    tasks.spawn("keep the guardian", replace(died, || held().as_mut().is_none_or(Guardian::replace)));
}

/// Starts another one each time one has died, as long as there is one to keep: at once, but ever more rarely while none of
/// them lives for long.
async fn replace(mut died: impl AsyncFnMut() -> bool, mut start: impl FnMut() -> bool) {
    let mut pause = Duration::ZERO;
    loop {
        let soon = tokio::time::timeout(REPLACE_MAX, died()).await;
        let died = match soon {
            Ok(died) => died,
            Err(_lived) => {
                pause = Duration::ZERO;
                died().await
            }
        };
        if !died {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = longer(pause);
        while !start() {
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(REPLACE_MIN, REPLACE_MAX)
}

/// Lets the guardian go: the process is about to end. Waits for it where it has nothing left to do.
pub fn dismiss_guardian() {
    let Some(Guardian { running: Some(Running { mut child, mut pipe, _own: own }), groups }) = held().take() else {
        return;
    };
    if groups.is_empty() {
        // One that does not listen looks for what is not there.
        let _told = pipe.write_all(b".\n").is_ok();
    }
    drop(pipe);
    if groups.is_empty() {
        // It ends with the pipe; if not, the end of this process leaves it to the system.
        let _ended = child.wait().is_ok();
    }
    drop(own);
}

/// Has the guardian end this group, should the process die before the guard is dropped.
#[must_use]
pub fn guard(group: Pid) -> Guarded {
    if let Some(guardian) = held().as_mut() {
        let number = group.as_raw_nonzero().get();
        guardian.groups.insert(number);
        guardian.tell(&format!("+{number}\n"));
    }
    Guarded(group)
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(guardian) = held().as_mut() {
            let number = self.0.as_raw_nonzero().get();
            guardian.groups.remove(&number);
            guardian.tell(&format!("-{number}\n"));
        }
    }
}

fn held() -> MutexGuard<'static, Option<Guardian>> {
    GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Guardian ===

impl Guardian {
    fn has_died(&mut self) -> bool {
        let dead = self.running.as_mut().is_none_or(|running| matches!(running.child.try_wait(), Ok(Some(_))));
        if dead {
            self.running = None;
        }
        dead
    }

    /// Writes a line, which a pipe takes whole or not at all. One that has died is replaced by one that is told it all.
    fn tell(&mut self, line: &str) {
        let Some(running) = &mut self.running else { return };
        match running.pipe.write_all(line.as_bytes()) {
            Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
                tracing::warn!(%err, "the guardian does not listen: should the gateway be killed, children may stay");
            }
            _ => {}
        }
    }

    /// Puts another one in the place of one that has died; says whether it could be started.
    fn replace(&mut self) -> bool {
        match Running::start(&self.groups) {
            Ok(other) => {
                tracing::warn!("the guardian had died; another one is in its place");
                self.running = Some(other);
                true
            }
            Err(err) => {
                tracing::error!(%err, "the guardian has died and cannot be replaced: should the gateway be killed, children stay");
                false
            }
        }
    }
}

// === impl Running ===

impl Running {
    fn start(groups: &BTreeSet<i32>) -> io::Result<Self> {
        let mut start = Command::new(this_program()?);
        start
            .arg0(env!("CARGO_PKG_NAME"))
            .arg(GUARDIAN_VERB)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (mut child, own) = start_own(|| start.spawn(), |child| Some(child.id()))?;
        let told = child.stdin.take().ok_or_else(|| io::Error::other("no pipe")).and_then(|pipe| begin(pipe, groups));
        match told {
            Ok(pipe) => Ok(Self { child, pipe, _own: own }),
            Err(err) => {
                // Its pipe has ended, and it knows of nothing that it could end.
                let _ended = child.kill().and_then(|()| child.wait()).is_ok();
                Err(err)
            }
        }
    }
}

/// Tells a new guardian what it has to know.
fn begin(mut pipe: ChildStdin, groups: &BTreeSet<i32>) -> io::Result<ChildStdin> {
    // One that does not read must not hold the gateway up.
    fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
    let groups: String = groups.iter().map(|group| format!("+{group}\n")).collect();
    pipe.write_all(format!("={}\n{groups}", mark::of_gateway()).as_bytes())?;
    Ok(pipe)
}

/// What is started is what runs, whatever lies at its path by now.
fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{read, replace};

    fn now() -> tokio::time::Instant {
        #[expect(clippy::disallowed_methods, reason = "the time that the tests move")]
        tokio::time::Instant::now()
    }

    /// [TRN-3, TRN-4]: where no guardian can live (or none can be started), the gateway does not start one after the other.
    #[tokio::test(start_paused = true)]
    async fn one_that_dies_soon_is_replaced_ever_more_rarely() {
        for starts in [true, false] {
            let (begun, mut at) = (now(), Vec::new());
            let kept = replace(
                async || true,
                || {
                    at.push(begun.elapsed().as_secs());
                    starts
                },
            );
            assert!(tokio::time::timeout(Duration::from_secs(300), kept).await.is_err());
            assert_eq!(at, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243], "starts: {starts}");
        }
    }

    /// One that has lived for a while is replaced at once, and nothing is started when nothing is to be kept.
    #[tokio::test(start_paused = true)]
    async fn one_that_has_lived_is_replaced_at_once() {
        let (begun, mut at, mut deaths) = (now(), Vec::new(), 0);
        let died = async || {
            // A watch that is given up half way and begun again sees the same death.
            tokio::time::sleep_until(begun + Duration::from_secs(100) * (deaths + 1)).await;
            deaths += 1;
            deaths < 4
        };
        let start = || {
            at.push(begun.elapsed().as_secs());
            true
        };
        replace(died, start).await;
        assert_eq!(at, [100, 200, 300]);
    }

    /// [TRN-4]: what was taken back is not ended, and no line can name everybody.
    #[test]
    fn the_groups_that_are_left_are_those_not_taken_back() {
        let left = read(&b"=abc\n+12\n+13\n-12\nnonsense\n-99\n+14"[..]);
        assert_eq!(left.groups.into_iter().collect::<Vec<_>>(), [13, 14]);
        assert_eq!(left.mark.as_deref(), Some("abc"));
        assert_eq!(read(&b"=abc\n.\n"[..]).mark, None, "an orderly end leaves nothing to look for");
    }
}
