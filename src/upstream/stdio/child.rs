//! A child process with its group: started, watched, ended with all descendants [TRN-3, R70].
//!
//! Not for: what is said on its pipes. Invariant: whatever drops a [`Supervisor`], the whole group is dead afterwards and
//! nobody waits for an answer any more. A descendant that has left the group is found by its mark where the child's end is
//! waited for.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use crate::runtime::{self, Guarded, Mark, Own, Tasks};
use crate::upstream::link::StartError;
use crate::upstream::{ServerSettings, Transport};

use super::connection::Connection;
use super::env;

/// How long the pipes of a dead child are still read, and how long one that closed its stdout has for its exit.
const PIPES_GRACE: Duration = Duration::from_millis(500);
/// How long a killed child has to vanish before it is left to the runtime's reaper.
const KILLED_GRACE: Duration = Duration::from_secs(5);

/// The pipes of a child.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Its standard input.
    pub(super) stdin: ChildStdin,
    /// Its standard output.
    pub(super) stdout: ChildStdout,
    /// Its standard error.
    pub(super) stderr: ChildStderr,
}

/// A process group that is killed when this is dropped; the guardian knows it.
#[derive(Debug)]
struct Group(Option<(Pid, Guarded)>);

/// A child and its group, before somebody watches them.
#[derive(Debug)]
pub(super) struct Running {
    // The group first: while the child is not reaped, its number cannot be another's.
    group: Group,
    child: Child,
    mark: Mark,
    #[expect(dead_code, reason = "held for its drop, after the child is reaped")]
    own: Own,
}

/// Watches a child to its end.
#[derive(Debug)]
pub(super) struct Supervisor {
    running: Running,
    connection: Arc<Connection>,
    tasks: Tasks,
    /// How long each step of an orderly end may take.
    grace: Duration,
    /// Cancelled when stdout, and when stderr, has been read to its end.
    read: [CancellationToken; 2],
}

/// How a child ended, in words for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending(pub(super) Option<ExitStatus>);

/// Starts the child of a server.
pub(super) async fn spawn(
    settings: &ServerSettings,
    base_env: &[(OsString, OsString)],
) -> Result<(Running, Pipes), StartError> {
    let name = &settings.name;
    let failed = |why: String| StartError::Failed(format!("server '{name}' {why}"));
    let Transport::Stdio { command, args, env, inherit_env, cwd } = &settings.transport else {
        return Err(failed("has no command".to_owned()));
    };
    if let Some(cwd) = cwd
        && !tokio::fs::metadata(cwd).await.is_ok_and(|found| found.is_dir())
    {
        return Err(failed(format!("cannot start: its working folder '{}' does not exist", cwd.display())));
    }
    let env = env::build(base_env, inherit_env, env);
    let mark = Mark::next();
    let mut start = Command::new(command);
    start.args(args).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    start.env(runtime::MARK_VARIABLE, mark.value());
    start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    start.process_group(0).kill_on_drop(true);
    if let Some(cwd) = cwd {
        start.current_dir(cwd);
    }
    let started = runtime::start_own(|| start.spawn(), |child| child.id());
    let (mut child, own) = started.map_err(|err| {
        let words = if err.kind() != std::io::ErrorKind::NotFound {
            format!("cannot start: command '{command}': {err}")
        } else if command.contains('/') {
            format!("cannot start: command '{command}' not found")
        } else {
            format!("cannot start: command '{command}' not found in PATH {}", env::path(&env))
        };
        failed(words)
    })?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let group = Group(id.map(|id| (id, runtime::guard(id))));
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed("cannot start: it has no pipes".to_owned()));
    };
    Ok((Running { group, child, mark, own }, Pipes { stdin, stdout, stderr }))
}

// === impl Group ===

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some((group, _)) = &self.0
            && let Err(err) = kill_process_group(*group, signal)
        {
            // Nobody is left, as a rule.
            tracing::trace!(%err, "a process group could not be signalled");
        }
    }
}

impl Group {
    /// Kills what is left of the group, and forgets its number.
    fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// Takes a child under watch.
    pub(super) const fn new(
        running: Running,
        connection: Arc<Connection>,
        tasks: Tasks,
        grace: Duration,
        read: [CancellationToken; 2],
    ) -> Self {
        Self { running, connection, tasks, grace, read }
    }

    /// Waits for the child's end, or brings it about; then ends its group and the connection.
    ///
    /// # Cancel safety
    /// Dropping the future kills the group.
    pub(super) async fn run(mut self) {
        let connection = Arc::clone(&self.connection);
        let child = &mut self.running.child;
        let status = tokio::select! {
            biased;
            status = child.wait() => status.ok(),
            () = connection.kill.cancelled() => self.kill().await,
            () = connection.stop.cancelled() => self.end().await,
            () = connection.read_end.cancelled() => match tokio::time::timeout(PIPES_GRACE, child.wait()).await {
                Ok(status) => status.ok(),
                Err(_) => {
                    connection.fail("closed its output");
                    self.end().await
                }
            },
        };
        // The rest of the group holds the pipes; without it, they end. This is the last signal: the child is reaped, and its
        // number may soon be another's.
        self.running.group.end();
        let [stdout, stderr] = self.read.clone();
        let read = async move { tokio::join!(stdout.cancelled(), stderr.cancelled()) };
        if tokio::time::timeout(PIPES_GRACE, read).await.is_err() {
            tracing::debug!(server = %connection.settings.name, "a process outside of the group holds a pipe");
        }
        connection.died(Ending(status));
        let mark = self.running.mark.clone();
        let strays = self.tasks.blocking(move || mark.end()).await.unwrap_or_default();
        if strays > 0 {
            tracing::warn!(server = %connection.settings.name, strays, "processes that had left its group were killed");
        }
    }

    async fn end(&mut self) -> Option<ExitStatus> {
        self.connection.stop();
        for signal in [None, Some(Signal::TERM)] {
            if let Some(signal) = signal {
                self.running.group.signal(signal);
            }
            tokio::select! {
                biased;
                status = self.running.child.wait() => return status.ok(),
                () = self.connection.kill.cancelled() => break,
                () = tokio::time::sleep(self.grace) => {}
            }
        }
        self.kill().await
    }

    async fn kill(&mut self) -> Option<ExitStatus> {
        self.connection.stop();
        self.running.group.signal(Signal::KILL);
        tokio::time::timeout(KILLED_GRACE, self.running.child.wait()).await.ok()?.ok()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.running.group.signal(Signal::KILL);
        // Does nothing if the end was reported.
        self.connection.died(Ending(None));
    }
}

// === impl Ending ===

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.0 else { return f.write_str("was killed") };
        match (status.code(), status.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {signal}"),
            (None, None) => f.write_str("exited"),
        }
    }
}
