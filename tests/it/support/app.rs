//! A gateway inside the test.

use std::net::SocketAddr;
use std::path::Path;

use portcullis::app::{App, Bound};
use portcullis::config;
use portcullis::identity::ApiKeyHash;

/// A gateway that ends when it is dropped.
pub(crate) struct TestApp {
    /// Where clients connect.
    pub(crate) addr: SocketAddr,
    /// What the start block says of each server.
    pub(crate) said: Vec<String>,
    bound: Option<Bound>,
}

impl TestApp {
    /// Starts a gateway with `auth` and the rest of its configuration, and waits until its servers are settled.
    pub(crate) async fn start(auth: &str, rest: &str) -> Self {
        let mut bound = App::build(Self::settings("127.0.0.1:0", auth, rest), &config::base_env()).unwrap();
        let addr = bound.addresses()[0];
        bound.start();
        let said = bound.describe().await.iter().map(|(name, state)| format!("{name} {state}")).collect();
        Self { addr, said, bound: Some(bound) }
    }

    /// Reads a configuration.
    pub(crate) fn settings(http: &str, auth: &str, rest: &str) -> config::Settings {
        let text = format!("[listen]\nhttp = \"{http}\"\nadmin = \"127.0.0.1:0\"\nauth = \"{auth}\"\n{rest}");
        match config::load_text(Path::new("test.toml"), &text, &|_| None) {
            Ok(loaded) => loaded.settings,
            Err(found) => panic!("{}\n{text}", found),
        }
    }

    /// A gateway without keys, whose one principal is granted these servers.
    pub(crate) async fn open(servers: &[(&str, String)]) -> Self {
        let (tables, names) = Self::servers(servers);
        let rest =
            format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
        Self::start("none", &rest).await
    }

    /// The tables of servers, and their names as a list.
    ///
    /// A busy machine may take its time to start them.
    pub(crate) fn servers(servers: &[(&str, String)]) -> (String, String) {
        let tables = servers.iter().map(|(name, lines)| format!("[[mcp.servers]]\nname = \"{name}\"\n{lines}\n"));
        let names: Vec<String> = servers.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        (format!("[mcp]\nfirst_list_wait_secs = 60\n{}", tables.collect::<String>()), names.join(", "))
    }

    /// The line that gives a principal the key of its own name.
    pub(crate) fn key(name: &str) -> String {
        format!("api_keys = [{{ sha256 = \"{}\" }}]\n", ApiKeyHash::of(name).to_hex())
    }

    /// Stops in order; says whether everything ended by itself.
    pub(crate) async fn stop(mut self) -> bool {
        let bound = self.bound.take().unwrap();
        let tasks = bound.tasks().clone();
        let finished = bound.stop(None).await;
        assert_eq!(tasks.panics(), 0, "a task panicked");
        finished
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if let Some(bound) = &self.bound {
            bound.tasks().cancel();
        }
    }
}
