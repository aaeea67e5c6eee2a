//! Servers that die while they are started: at every byte of what their handshake and their list are answered with, over every
//! transport [TRN-3, TRN-4, TRN-7, TRN-8].

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use portcullis::runtime::Tasks;

use crate::support::{
    Answer, At, Client, Deaths, Era, Framing, Gateway, Speaks, TestApp, Upstream, folder, raw, until, within_deadline,
};

/// How many gateways share the bytes of one answer: 256 files of lists are kept on disk, and a server may have two.
const PARTS: usize = 3;
/// How long is waited before something is looked at again.
const POLL: Duration = Duration::from_millis(20);

/// A gateway before servers that die, and before a good one.
struct Ward {
    gateway: Gateway,
    client: Client,
    names: Vec<String>,
}

impl Ward {
    async fn open(state: &Path, servers: &[(String, String)]) -> Self {
        let servers: Vec<(&str, String)> = servers.iter().map(|(name, lines)| (name.as_str(), lines.clone())).collect();
        let (tables, granted) = TestApp::servers(&servers);
        let rest =
            format!("{tables}[mcp_bundles.all]\nservers = [{granted}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
        let gateway = Gateway::try_start_in(&[("PORTCULLIS_STATE_DIR", state)], "127.0.0.1:0", &rest).await;
        let gateway = gateway.unwrap_or_else(|ended| panic!("{ended:?}"));
        let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", None).await;
        let names = servers.iter().map(|(name, _)| name).filter(|name| **name != "good");
        let names = names.map(|name| format!("{name}__attack")).collect();
        Self { gateway, client, names }
    }

    /// Waits until all is listed.
    async fn lists_all(&self) {
        let listed = async { while self.client.names().await.len() <= self.names.len() {} };
        within_deadline("all lists", listed).await;
    }

    /// Calls one; there is one answer, and it is a result or names the server.
    async fn call(&self, name: &str) -> Answer {
        let answer = self.client.call("\"h\"", name, "", r#""arguments":{}"#).await;
        assert_eq!(answer.messages.len(), 1, "{name}: {answer:?}");
        assert_eq!(raw(answer.text(), "id").as_deref(), Some("\"h\""), "{name}: {answer:?}");
        if !answer.is_result() {
            let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("{name}: {answer:?}"));
            let server = name.trim_end_matches("__attack");
            assert!(words.contains(&format!("'{server}'")), "{name}: {words}");
        }
        answer
    }

    /// Waits until each has answered a call.
    async fn serves_all(&self) {
        let served = self.names.iter().map(|name| async {
            while !self.call(name).await.is_result() {
                tokio::time::sleep(POLL).await;
            }
        });
        within_deadline("all are served", join_all(served)).await;
    }

    async fn end(self) {
        self.gateway.terminate();
        assert_eq!(self.gateway.ended().await, Some(0));
    }
}

/// The servers of which lists are kept.
fn kept(state: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(state.join("lists")).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok()).filter(|name| name.ends_with(".json"));
    names.filter_map(|name| Some(name.split_once('-')?.0.to_owned())).collect()
}

/// With the lists of before, all die as they are started: these stand, each call has one answer and the good server's go on;
/// then all are served, each death was one, and nothing is left over.
async fn die(framing: Framing, era: Era, at: At, part: usize) {
    let what = format!("{framing:?} {} {at:?}", era.word());
    let deaths = Deaths::start(framing, era, at, (part, PARTS)).await;
    let (home, good) = (folder(), Upstream::start(Speaks::Both, false, &["echo"]).await);
    let state = home.join("state");
    let mut servers = deaths.servers();
    servers.push(("good".to_owned(), good.lines()));
    let ward = Ward::open(&state, &servers).await;
    ward.lists_all().await;
    until("the lists are kept", || kept(&state).len() == servers.len()).await;
    ward.end().await;

    deaths.begin();
    let (mut ward, tasks) = (Ward::open(&state, &servers).await, Tasks::new());
    ward.gateway.overhear(&tasks);
    let over = AtomicBool::new(false);
    let beside = async {
        while !over.load(Ordering::SeqCst) {
            let answer = ward.client.call_with("good__echo", r#"{"k":1.10}"#).await;
            assert_eq!(answer.raw("result.echo"), r#"{"k":1.10}"#, "{what}: the good server is hurt");
            assert_eq!(ward.client.names().await.len(), servers.len(), "{what}: a list that was kept is gone");
            tokio::time::sleep(POLL).await;
        }
    };
    let serving = async {
        ward.serves_all().await;
        until(&format!("{what}: all have died"), || deaths.left() == 0).await;
        assert!(deaths.have_said_all(), "{what}: there are more bytes than servers");
        // Those that died of a later start are served again too.
        ward.serves_all().await;
        over.store(true, Ordering::SeqCst);
    };
    join(serving, beside).await;
    if framing == Framing::Line {
        until(&format!("{what}: one process for each"), || deaths.living() == ward.names.len()).await;
    }
    ward.end().await;
    assert_eq!(deaths.living(), 0, "{what}: a process has outlived its gateway");
    tasks.cancel();
    std::fs::remove_dir_all(home).unwrap();
}

macro_rules! deaths {
    ($($name:ident $framing:ident $era:ident $at:ident;)*) => { $(
        #[tokio::test]
        async fn $name() {
            for part in 0..PARTS {
                die(Framing::$framing, Era::$era, At::$at, part).await;
            }
        }
    )* };
}

deaths! {
    a_handshake_of_an_older_child Line Legacy Handshake;
    a_handshake_of_a_newer_child Line Stateless Handshake;
    a_list_of_an_older_child Line Legacy List;
    a_list_of_a_newer_child Line Stateless List;
    a_handshake_of_a_session Json Legacy Handshake;
    a_handshake_of_a_session_by_events Sse Legacy Handshake;
    a_handshake_by_http Json Stateless Handshake;
    a_handshake_by_events Sse Stateless Handshake;
    a_list_of_a_session Json Legacy List;
    a_list_of_a_session_by_events Sse Legacy List;
    a_list_by_http Json Stateless List;
    a_list_by_events Sse Stateless List;
    a_handshake_on_a_stream Events Legacy Handshake;
    a_list_on_a_stream Events Legacy List;
}
