//! A server whose resources can be watched, and whose calls can be held: `watched.py`, in either era and over either transport.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Era, quoted, within_deadline};

const SCRIPT: &str = "tests/it/support/watched.py";

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Over Streamable HTTP, as a process of the test.
    Http,
    /// As the gateway's child.
    Stdio,
}

/// A scripted server with resources.
pub(crate) struct Watched {
    /// The lines of its table.
    pub(crate) lines: String,
    _process: Option<Child>,
}

impl Watched {
    /// Starts it, or says how it is started.
    pub(crate) async fn start(era: Era, how: How) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
        if how == How::Stdio {
            let args = [script.display().to_string(), era.word().to_owned(), "stdio".to_owned()];
            let lines = format!("command = \"python3\"\nargs = [{}]", args.map(|arg| quoted(&arg)).join(", "));
            return Self { lines, _process: None };
        }
        let mut process = Command::new("python3")
            .args([script.as_os_str(), era.word().as_ref(), "http".as_ref()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        within_deadline("its port", stdout.read_line(&mut port)).await.unwrap();
        let lines = format!("url = \"http://127.0.0.1:{}/mcp\"", port.trim());
        Self { lines, _process: Some(process) }
    }
}
