//! The application in this process, and scripted servers behind it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use portcullis::app::{App, Bound};
use portcullis::config;

/// The era of a scripted server, or of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Stateless,
}

impl Era {
    pub(crate) const ALL: [Self; 2] = [Self::Legacy, Self::Stateless];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Stateless => "stateless",
        }
    }
}

/// Where the scripted server is.
fn upstream_py() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/upstream.py")
}

/// An application that is stopped when the test ends.
pub(crate) struct TestApp {
    bound: Option<Bound>,
    pub(crate) address: SocketAddr,
}

impl TestApp {
    /// Builds and starts one from the configuration without `[listen]`; every principal `p` has the key `p`.
    pub(crate) fn start(toml: &str) -> Self {
        let text = format!("[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n{toml}");
        let loaded =
            config::load_text(Path::new("test.toml"), &text, &|_| None).unwrap_or_else(|found| panic!("{found}"));
        let mut bound = App::build(loaded.settings, &config::base_env()).unwrap();
        let address = bound.addresses()[0];
        bound.start();
        Self { bound: Some(bound), address }
    }

    /// Stops it in order.
    pub(crate) async fn stop(mut self) {
        self.bound.take().unwrap().stop(std::future::pending()).await;
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if let Some(bound) = &self.bound {
            bound.tasks().cancel();
        }
    }
}

/// A scripted server over HTTP, in a process of its own; it ends with its stdin.
pub(crate) struct HttpUpstream {
    child: Child,
    pub(crate) url: String,
}

impl HttpUpstream {
    pub(crate) fn start(era: Era) -> Self {
        let mut child = Command::new("python3")
            .arg(upstream_py())
            .args(["--http", "--era", era.word()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, url: format!("http://127.0.0.1:{}/mcp", port.trim()) }
    }

    pub(crate) fn toml(&self, name: &str, more: &str) -> String {
        format!("[[mcp.servers]]\nname = \"{name}\"\nurl = \"{}\"\n{more}\n", self.url)
    }
}

impl Drop for HttpUpstream {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The entry of a scripted server over stdio.
pub(crate) fn server_toml(name: &str, era: Era, more: &str) -> String {
    format!(
        "[[mcp.servers]]\nname = \"{name}\"\ncommand = \"python3\"\nargs = [\"{}\", \"--era\", \"{}\"]\n{more}\n",
        upstream_py().display(),
        era.word()
    )
}
