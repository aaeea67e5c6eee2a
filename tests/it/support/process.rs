//! Processes: the gateway's own binary, and a scripted stdio server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis::runtime::Tasks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStderr, Command};

use super::Era;

/// Fails what hangs.
pub(crate) async fn within_deadline<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Polls until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_deadline(what, polling).await;
}

/// A folder of this test's own, which is emptied by the next build alone.
pub(crate) fn folder() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A scripted stdio server: its facts and its traces. The gateway starts it.
pub(crate) struct Child {
    era: Era,
    folder: PathBuf,
}

impl Child {
    /// Prepares a server.
    pub(crate) fn new(era: Era, tools: &[&str]) -> Self {
        let child = Self { era, folder: folder() };
        child.set(tools, 1);
        child
    }

    /// Changes its facts.
    pub(crate) fn set(&self, tools: &[&str], batch: usize) {
        let facts = serde_json::json!({ "tools": tools, "batch": batch }).to_string();
        // Replaced whole, because the child may read at any moment.
        std::fs::write(self.path("facts.new"), facts).unwrap();
        std::fs::rename(self.path("facts.new"), self.path("facts")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The lines of its table.
    pub(crate) fn lines(&self) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/child.py");
        let args = [script, PathBuf::from(self.era.word()), self.path("facts")];
        let args: Vec<String> = args.iter().map(|arg| super::quoted(&arg.display().to_string())).collect();
        format!("command = \"python3\"\nargs = [{}]", args.join(", "))
    }

    /// The lines of its table, if it is to begin when a file is there, in the gateway's working folder.
    pub(crate) fn lines_after(&self, file: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/child.py");
        let wait = format!("until [ -e {file} ]; do sleep 0.05; done; exec python3 \"$0\" \"$1\" \"$2\"");
        let args = [
            "-c".into(),
            wait,
            script.display().to_string(),
            self.era.word().into(),
            self.path("facts").display().to_string(),
        ];
        format!("command = \"sh\"\nargs = [{}]", args.map(|arg| super::quoted(&arg)).join(", "))
    }

    /// The `tools/call` lines that it and its predecessors have read.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("facts.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(r#""method":"tools/call""#)).map(str::to_owned).collect()
    }

    /// The ids of all processes that were started.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pids = std::fs::read_to_string(self.path("facts.pid")).unwrap_or_default();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

/// The gateway as a process.
pub(crate) struct Gateway {
    /// Where clients connect.
    pub(crate) addr: SocketAddr,
    /// Where probes are answered.
    pub(crate) admin: SocketAddr,
    /// What it said up to the end of its start block.
    pub(crate) said: String,
    child: tokio::process::Child,
    /// What it says; `None` once somebody else reads it.
    talk: Option<Lines<BufReader<ChildStderr>>>,
    folder: PathBuf,
}

impl Gateway {
    /// Starts `portcullis serve` with a configuration; `Err` is what it said if it ended instead.
    pub(crate) async fn try_start(http: &str, rest: &str) -> Result<Self, (Option<i32>, String)> {
        Self::try_start_with("none", http, rest).await
    }

    /// The same, for callers that are known in this way.
    pub(crate) async fn try_start_with(auth: &str, http: &str, rest: &str) -> Result<Self, (Option<i32>, String)> {
        Self::launch(&[], auth, http, rest).await
    }

    /// The same, with these variables in its environment.
    pub(crate) async fn try_start_in(
        env: &[(&str, &Path)],
        http: &str,
        rest: &str,
    ) -> Result<Self, (Option<i32>, String)> {
        Self::launch(env, "none", http, rest).await
    }

    async fn launch(env: &[(&str, &Path)], auth: &str, http: &str, rest: &str) -> Result<Self, (Option<i32>, String)> {
        let folder = folder();
        let text = format!("[listen]\nhttp = \"{http}\"\nadmin = \"127.0.0.1:0\"\nauth = \"{auth}\"\n{rest}");
        std::fs::write(folder.join("portcullis.toml"), text).unwrap();
        Self::try_start_at(env, folder).await
    }

    /// The same with the `portcullis.toml` of a folder, which goes away with it.
    pub(crate) async fn try_start_at(env: &[(&str, &Path)], folder: PathBuf) -> Result<Self, (Option<i32>, String)> {
        Self::try_start_by(Command::new(env!("CARGO_BIN_EXE_portcullis")), env, folder).await
    }

    /// The same by a command that becomes the gateway once it has its arguments.
    pub(crate) async fn try_start_by(
        mut command: Command,
        env: &[(&str, &Path)],
        folder: PathBuf,
    ) -> Result<Self, (Option<i32>, String)> {
        let mut child = command
            .args(["serve", "--config"])
            .arg(folder.join("portcullis.toml"))
            .env("PORTCULLIS_STATE_DIR", folder.join("state"))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let (mut addr, mut admin) = (None, None);
        while let Some(line) = within_deadline("the start block", talk.next_line()).await.unwrap() {
            if let Some(at) = line.trim().strip_prefix("MCP ") {
                let at = at.trim().trim_start_matches("http://").trim_start_matches("https://");
                // A local socket has no address; whoever asked for one knows where it is.
                let at = if at.starts_with("unix:") { "0.0.0.0:0" } else { at.trim_end_matches("/mcp") };
                addr = Some(at.parse().unwrap());
            }
            if let Some(at) = line.trim().strip_prefix("probes ") {
                let at = at.trim().trim_start_matches("http://").trim_end_matches("/readyz");
                admin = Some(at.parse().unwrap());
            }
            // With `[log] format = "json"` the block is lines of the log.
            let places = serde_json::from_str::<Value>(&line).unwrap_or_default()["fields"].take();
            if places["message"] == "serving" {
                let port = |url: &Value| url.as_str()?.split('/').nth(2)?.parse().ok();
                (addr, admin) = (port(&places["mcp"]), port(&places["probes"]));
            }
            said.push_str(&line);
            said.push('\n');
            let whole = line.trim().is_empty() || places["message"] == "serving";
            if let (true, Some(addr), Some(admin)) = (whole, addr, admin) {
                return Ok(Self { addr, admin, said, child, talk: Some(talk), folder });
            }
        }
        let status = child.wait().await.unwrap();
        let _removed = std::fs::remove_dir_all(&folder).is_ok();
        Err((status.code(), said))
    }

    /// Starts it on a free port with servers that its one principal is granted.
    pub(crate) async fn start(servers: &[(&str, String)]) -> Self {
        let (tables, names) = super::TestApp::servers(servers);
        let rest =
            format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
        Self::try_start("127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks it to read its configuration again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Where its configuration stands.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it at once, without a chance to tidy up.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Has its talk read to the end by a task: a log that nobody reads would hold it up.
    pub(crate) fn overhear(&mut self, tasks: &Tasks) {
        let mut talk = self.talk.take().unwrap();
        tasks.spawn("overhear", async move { while talk.next_line().await.is_ok_and(|line| line.is_some()) {} });
    }

    /// Waits for a line of its talk.
    pub(crate) async fn says(&mut self, words: &str) -> String {
        let reading = async {
            while let Some(line) = self.talk.as_mut().unwrap().next_line().await.unwrap() {
                if line.contains(words) {
                    return line;
                }
            }
            panic!("it ended without '{words}'");
        };
        within_deadline(words, reading).await
    }

    /// Waits for its end, and reads nothing of what it says; returns the exit code.
    pub(crate) async fn ended_unread(mut self) -> Option<i32> {
        within_deadline("the gateway's end", self.child.wait()).await.unwrap().code()
    }

    /// Waits for its end; returns the exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let status = within_deadline("the gateway's end", async {
            while let Some(talk) = &mut self.talk
                && talk.next_line().await.unwrap().is_some()
            {}
            self.child.wait().await.unwrap()
        });
        status.await.code()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

/// Says whether a process runs: one that is dead and not yet reaped does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The most memory that a process has held, in KiB.
pub(crate) fn peak_memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
