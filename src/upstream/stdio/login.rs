//! The environment children are started from: the gateway's own, with the PATH of the user's login shell where the
//! gateway was started from a desktop [TRN-3].
//!
//! A desktop gives its programs a short PATH; what a person has installed is in the one their shell makes up. Not for: what
//! of it reaches a child (`env`). Invariants: the shell is asked once, when the first child is started; whatever it does,
//! it is over after its time.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::runtime;

use super::env;

/// How long the shell may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How much it may say.
const OUTPUT_MAX: u64 = 1 << 20;
/// Where what was asked for begins and ends, among whatever else the shell's files print.
const MARK: &str = "--portcullis-login-path--";
/// Shells whose options are others.
const STRANGE: [&str; 2] = ["csh", "tcsh"];

/// Names and values.
type Variables = Arc<[(OsString, OsString)]>;

/// The gateway's environment, as `config` has read it. Its `Debug` shows no value. Clones share what the shell said.
#[derive(Clone)]
pub(in crate::upstream) struct BaseEnv {
    pub(super) own: Variables,
    login: Arc<Login>,
}

#[derive(Debug, Default)]
struct Login {
    wanted: AtomicBool,
    /// The environment with the shell's PATH; `None`: it gave none.
    found: OnceCell<Option<Variables>>,
}

// === impl BaseEnv ===

impl BaseEnv {
    pub(in crate::upstream) fn new(own: Variables) -> Self {
        Self { own, login: Arc::default() }
    }

    /// Has the login shell asked before the first child is started.
    pub(in crate::upstream) fn want_login_path(&self) {
        self.login.wanted.store(true, Ordering::Release);
    }

    /// Returns what children are started from.
    ///
    /// # Cancel safety
    /// Another one asks the shell again.
    pub(super) async fn get(&self) -> Variables {
        if !self.login.wanted.load(Ordering::Acquire) {
            return Arc::clone(&self.own);
        }
        let found = self.login.found.get_or_init(|| async {
            let path = ask(&self.own).await?;
            tracing::info!(path = %path.to_string_lossy(), "programs are looked up in the login shell's PATH");
            let others = self.own.iter().filter(|(name, _)| name != "PATH").cloned();
            Some(others.chain([(OsString::from("PATH"), path)]).collect())
        });
        found.await.as_ref().map_or_else(|| Arc::clone(&self.own), Arc::clone)
    }
}

impl fmt::Debug for BaseEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.own.iter().map(|(name, _)| name)).finish()
    }
}

/// Ends the shell and what it has started.
struct Group(Pid, #[expect(dead_code, reason = "held for its drop")] runtime::Guarded);

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody is left, as a rule.
        let _ended = kill_process_group(self.0, Signal::KILL).is_ok();
    }
}

/// Asks the user's shell for its PATH.
async fn ask(base: &[(OsString, OsString)]) -> Option<OsString> {
    let shell = base.iter().find(|(name, _)| name == "SHELL").map(|(_, shell)| Path::new(shell))?;
    if !shell.is_absolute() || shell.file_name().is_some_and(|name| STRANGE.iter().any(|strange| name == *strange)) {
        return None;
    }
    match tokio::time::timeout(LIMIT, run(shell, base)).await {
        Ok(Ok(text)) => {
            let path = path_in(&text);
            if path.is_none() {
                tracing::warn!(shell = %shell.display(), "the login shell told no PATH; the gateway's own is used");
            }
            path
        }
        Ok(Err(err)) => {
            tracing::warn!(shell = %shell.display(), %err, "the login shell cannot be asked for its PATH");
            None
        }
        Err(_) => {
            let secs = LIMIT.as_secs();
            tracing::warn!(shell = %shell.display(), secs, "the login shell did not tell its PATH in time; the gateway's own is used");
            None
        }
    }
}

async fn run(shell: &Path, base: &[(OsString, OsString)]) -> std::io::Result<Vec<u8>> {
    let mut start = Command::new(shell);
    // Every shell knows this much; `env` spells what some keep as a list.
    start.args(["-l", "-i", "-c", &format!("echo {MARK}; /usr/bin/env; echo {MARK}")]);
    start.env_clear().envs(env::build(base, &[], &[])).env("TERM", "dumb");
    start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    start.process_group(0).kill_on_drop(true);
    let (mut child, _own) = runtime::start_own(|| start.spawn(), |child| child.id())?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let _group = group.map(|group| Group(group, runtime::guard(group)));
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_MAX).read_to_end(&mut text).await?;
    }
    child.wait().await?;
    Ok(text)
}

/// Finds the PATH between the marks.
fn path_in(text: &[u8]) -> Option<OsString> {
    let lines = || text.split(|byte| *byte == b'\n');
    let begin = lines().position(|line| line == MARK.as_bytes())?;
    let mut told = lines().skip(begin + 1).take_while(|line| *line != MARK.as_bytes());
    let path = told.find_map(|line| line.strip_prefix(b"PATH="))?;
    (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()))
}

/// Says whether an environment's PATH is what a system gives to programs that no shell has started.
#[must_use]
pub fn has_system_path(env: &[(OsString, OsString)]) -> bool {
    is_minimal(env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str()))
}

fn is_minimal(path: Option<&OsStr>) -> bool {
    const SYSTEM: [&str; 9] = [
        "/bin",
        "/sbin",
        "/snap/bin",
        "/usr/bin",
        "/usr/games",
        "/usr/local/bin",
        "/usr/local/games",
        "/usr/local/sbin",
        "/usr/sbin",
    ];
    let of_the_system = |part: &[u8]| SYSTEM.iter().any(|system| part == system.as_bytes());
    path.is_none_or(|path| path.as_bytes().split(|byte| *byte == b':').all(of_the_system))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{MARK, is_minimal, path_in};

    /// [TRN-3], FC-STD-11
    #[test]
    fn a_desktops_path_is_told_from_a_persons() {
        for path in ["/usr/bin:/bin", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"] {
            assert!(is_minimal(Some(OsStr::new(path))), "{path}");
        }
        for path in ["/home/ann/.local/bin:/usr/bin", "/opt/homebrew/bin:/usr/bin:/bin", "/usr/bin:"] {
            assert!(!is_minimal(Some(OsStr::new(path))), "{path}");
        }
        assert!(is_minimal(None));
    }

    #[test]
    fn the_path_is_found_among_what_shells_print() {
        let text = format!("welcome\nPATH=/wrong\n{MARK}\nHOME=/h\nPATH=/a:/b\nX=PATH=/c\n{MARK}\nPATH=/wrong\nbye\n");
        assert_eq!(path_in(text.as_bytes()).unwrap(), "/a:/b");
        for text in ["", "PATH=/a\n", &format!("{MARK}\n{MARK}\n"), &format!("{MARK}\nPATH=\n{MARK}\n")] {
            assert_eq!(path_in(text.as_bytes()), None, "{text}");
        }
    }
}
