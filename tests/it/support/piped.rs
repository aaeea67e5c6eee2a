//! `portcullis stdio` as a process, with the test as its client.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::client::body;
use super::process::{folder, within_deadline};
use super::{Era, quoted, raw};

/// After so long a pipe that takes nothing counts as full. Too short a pause only makes a test see less.
const PAUSE: Duration = Duration::from_secs(2);

/// A gateway on pipes. What it writes to stdout must be lines of JSON-RPC, all of them, always.
pub(crate) struct Piped {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    stderr: Option<ChildStderr>,
    /// Its working folder, with its configuration.
    pub(crate) folder: PathBuf,
}

/// How a process has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its code; `None` if a signal has killed it.
    pub(crate) code: Option<i32>,
    /// What it said to people.
    pub(crate) said: String,
    /// What else it wrote for its client.
    pub(crate) rest: Vec<String>,
    /// The files it left in its folder.
    pub(crate) left: Vec<PathBuf>,
}

impl Piped {
    /// Starts it with a whole configuration and arguments beside `--config`.
    pub(crate) fn start(configuration: &str, args: &[&str]) -> Self {
        Self::start_in(folder(), configuration, args, &[])
    }

    /// The same in a folder, with variables of its own.
    pub(crate) fn start_in(folder: PathBuf, configuration: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let config = folder.join("portcullis.toml");
        std::fs::write(&config, configuration).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["stdio", "--config"])
            .arg(&config)
            .args(args)
            .env("PORTCULLIS_STATE_DIR", folder.with_extension("state"))
            .envs(env.iter().copied())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        Self { child, stdin, stdout, stderr, folder }
    }

    /// The configuration of servers that the one principal `local` is granted.
    pub(crate) fn configuration(servers: &[(&str, String)]) -> String {
        let (tables, names) = super::TestApp::servers(servers);
        format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n")
    }

    /// Opens a session where the era has one.
    pub(crate) async fn hello(&mut self, era: Era) {
        if era == Era::Legacy {
            self.send(r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"it","version":"1"}}}"#).await;
            assert_eq!(raw(&self.next().await, "result.protocolVersion").unwrap(), "\"2025-11-25\"");
            self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        }
    }

    /// Writes a line.
    pub(crate) async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        within_deadline("it reads", stdin.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    /// Sends a request; `members` stand in its params, `meta` in their `_meta`, each without braces.
    pub(crate) async fn request(&mut self, era: Era, id: &str, method: &str, meta: &str, members: &str) {
        self.send(&body(era, id, method, meta, members)).await;
    }

    /// Sends a call.
    pub(crate) async fn call(&mut self, era: Era, id: &str, name: &str, arguments: &str) {
        let members = format!(r#""name":{},"arguments":{arguments}"#, quoted(name));
        self.request(era, id, "tools/call", "", &members).await;
    }

    /// Sends calls until the pipe is full, which only a pause can tell, or there are none. Returns how many it took whole,
    /// and what goes on with the next.
    pub(crate) async fn fill<I>(&mut self, calls: I) -> (usize, impl Future<Output = ()> + use<I>)
    where
        I: Iterator<Item = String>,
    {
        let mut stdin = self.stdin.take().unwrap();
        let (mut whole, mut rest) = (0, Vec::new());
        'calls: for call in calls {
            rest = format!("{call}\n").into_bytes();
            while !rest.is_empty() {
                let Ok(written) = tokio::time::timeout(PAUSE, stdin.write(&rest)).await else { break 'calls };
                rest.drain(..written.unwrap());
            }
            whole += 1;
        }
        (whole, async move { stdin.write_all(&rest).await.unwrap() })
    }

    /// Reads the next message.
    pub(crate) async fn next(&mut self) -> String {
        let line = within_deadline("a message", self.stdout.as_mut().unwrap().next_line()).await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it has ended"));
        message(&line);
        line
    }

    /// Reads to the answer of that id, past everything else.
    pub(crate) async fn answer(&mut self, id: &str) -> String {
        loop {
            let message = self.next().await;
            if raw(&message, "method").is_none() && raw(&message, "id").as_deref() == Some(id) {
                return message;
            }
        }
    }

    /// Lists the names of the tools.
    pub(crate) async fn names(&mut self, era: Era) -> Vec<String> {
        self.request(era, "\"names\"", "tools/list", "", "").await;
        let answer: Value = serde_json::from_str(&self.answer("\"names\"").await).unwrap();
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Reads what it says to people until that says something.
    pub(crate) async fn says(&mut self, words: &str) {
        let mut said = BufReader::new(self.stderr.as_mut().unwrap()).lines();
        while let Some(line) = within_deadline(words, said.next_line()).await.unwrap() {
            if line.contains(words) {
                return;
            }
        }
        panic!("it has ended and never said: {words}");
    }

    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends its input.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end, reading nothing.
    pub(crate) async fn exited(mut self) -> Option<i32> {
        within_deadline("its end", self.child.wait()).await.unwrap().code()
    }

    /// Lets go of all pipes, as a client does that is gone.
    pub(crate) async fn abandon(mut self) -> Ended {
        drop((self.stdin.take(), self.stdout.take(), self.stderr.take()));
        let code = within_deadline("its end", self.child.wait()).await.unwrap().code();
        Ended { code, said: String::new(), rest: Vec::new(), left: files(&self.folder) }
    }

    /// Reads its pipes to their end, which comes only when nobody else holds them, and waits for it.
    pub(crate) async fn ended(mut self) -> Ended {
        let ending = async {
            let mut rest = Vec::new();
            let mut said = String::new();
            let (mut stdout, mut stderr) = (self.stdout.take().unwrap(), self.stderr.take().unwrap());
            let reading = async {
                while let Some(line) = stdout.next_line().await.unwrap() {
                    message(&line);
                    rest.push(line);
                }
            };
            let (_, read) = tokio::join!(reading, stderr.read_to_string(&mut said));
            read.unwrap();
            let code = self.child.wait().await.unwrap().code();
            Ended { code, said, rest, left: files(&self.folder) }
        };
        within_deadline("its end", ending).await
    }
}

impl Ended {
    /// The ids of the answers among the rest; what a server's start changes may be told at any time.
    pub(crate) fn answers(&self) -> Vec<String> {
        let answers = self.rest.iter().filter(|line| raw(line, "method").is_none());
        answers.map(|line| raw(line, "id").unwrap()).collect()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        for path in [self.folder.clone(), self.folder.with_extension("state")] {
            let _removed = std::fs::remove_dir_all(path).is_ok();
        }
    }
}

/// All files below a folder, but for the configuration.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| !path.ends_with("portcullis.toml")).collect()
}

/// Fails on anything but one JSON-RPC message, or a batch of them. Not read as a tree, which has no lone surrogates.
fn message(line: &str) {
    let batch = serde_json::from_str::<Vec<&RawValue>>(line).unwrap_or_default();
    let all = if batch.is_empty() { vec![line] } else { batch.iter().map(|one| one.get()).collect() };
    for one in all {
        assert_eq!(raw(one, "jsonrpc").as_deref(), Some("\"2.0\""), "not MCP on stdout: {line}");
    }
}
