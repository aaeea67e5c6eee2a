//! The command line, run as a child process in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::process::{folder, within_deadline};

/// A folder with a configuration, in which commands are run.
pub(crate) struct Command {
    folder: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Command {
    /// Prepares a folder with this `portcullis.toml`.
    pub(crate) fn new(configuration: &str) -> Self {
        let command = Self { folder: folder() };
        command.write("portcullis.toml", configuration);
        command
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// What lies in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap().map(Result::unwrap);
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Prepares the binary with arguments.
    pub(crate) fn process(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_portcullis"));
        process.args(arguments);
        self.placed(process)
    }

    /// Prepares a line for the shell, in which `portcullis` is the binary.
    pub(crate) fn shell(&self, line: &str) -> tokio::process::Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_portcullis")).parent().unwrap();
        let mut process = tokio::process::Command::new("sh");
        process.args(["-euc", line]).env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", binary.display()));
        process.env("HOME", &self.folder);
        self.placed(process)
    }

    /// The same on a terminal; what is printed comes back as stdout.
    pub(crate) fn terminal(&self, line: &str) -> tokio::process::Command {
        const SPAWN: &str =
            "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(['sh', '-c', sys.argv[1]])))";
        let mut process = self.shell("exec python3 -c \"$0\" \"$1\"");
        process.args([SPAWN, line]).env("TERM", "xterm").env_remove("NO_COLOR");
        process
    }

    fn placed(&self, mut process: tokio::process::Command) -> tokio::process::Command {
        process.current_dir(&self.folder).env_remove("PORTCULLIS_API_KEY").kill_on_drop(true);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.process(arguments)).await
    }
}

impl Ended {
    /// Waits for a process.
    pub(crate) async fn of(mut process: tokio::process::Command) -> Self {
        let output = within_deadline("the end of a command", process.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Expects an exit code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Reads what was printed as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|err| panic!("{err}: {self:#?}"))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}
