//! Watched resources through the whole gateway, in all mixtures of eras and transports [POL-10, POL-15, R101-R104].

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::{Client, ERAS, Era, Events, TestApp, quoted, within_deadline};

const SCRIPT: &str = "tests/it/support/watched.py";

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Http,
    Stdio,
}

/// A scripted server with resources.
struct Watched {
    lines: String,
    _process: Option<Child>,
}

impl Watched {
    async fn start(era: Era, how: How) -> Self {
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

/// What the server is subscribed to, each as often as it is.
async fn subs(client: &Client) -> Vec<String> {
    let answer = client.call_with("up__subs", "{}").await;
    let subs = &answer.value()["result"]["structuredContent"]["subs"];
    subs.as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().map(|uri| uri.as_str().unwrap().to_owned()).collect()
}

async fn until_subs(client: &Client, wanted: &[&str]) {
    let polling = async {
        while subs(client).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_deadline(&format!("subscribed to {wanted:?}"), polling).await;
}

async fn touch(client: &Client, uri: &str) {
    assert!(client.call_with("up__touch", &format!(r#"{{"uri":"{uri}"}}"#)).await.is_result());
}

/// The URI of the next update.
async fn updated(stream: &mut Events) -> String {
    let event = within_deadline("an update", stream.next()).await.expect("the stream has ended");
    let event: Value = serde_json::from_str(&event).unwrap();
    assert_eq!(event["method"], json!("notifications/resources/updated"), "{event}");
    event["params"]["uri"].as_str().unwrap().to_owned()
}

/// Stops watching: by a request, or by closing the stream.
async fn leave(client: &Client, stream: Events, uri: &str) {
    if client.era == Era::Legacy {
        assert!(client.ask("resources/unsubscribe", &format!(r#""uri":"{uri}""#)).await.is_result());
    }
    drop(stream);
}

async fn shared(server: Era, how: How) {
    const A: &str = "up+file:///a";
    let upstream = Watched::start(server, how).await;
    let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
    let mut watchers = Vec::new();
    for era in ERAS {
        let client = Client::connect(era, app.addr, "/mcp", None).await;
        let (stream, watched) = client.watch(&[A, "up+file:///refused", "other+file:///a", "file:///a"]).await;
        assert_eq!(watched, [A], "{era:?}: what cannot be watched is not");
        watchers.push((client, stream));
    }
    // Two who watch are one subscription at the server.
    until_subs(&watchers[0].0, &["file:///a"]).await;
    for uri in ["file:///a", "file:///a/below"] {
        touch(&watchers[0].0, uri).await;
        for (_, stream) in &mut watchers {
            assert_eq!(updated(stream).await, format!("up+{uri}"));
        }
    }
    touch(&watchers[0].0, "file:///b").await;
    if how == How::Http {
        // The server loses all it knows of us: it is asked again, and something may have been missed.
        assert!(watchers[1].0.call_with("up__forget", "{}").await.is_result());
        for (_, stream) in &mut watchers {
            assert_eq!(updated(stream).await, A);
        }
        until_subs(&watchers[1].0, &["file:///a"]).await;
    }
    let (client, stream) = watchers.pop().unwrap();
    leave(&client, stream, A).await;
    let (last, mut stream) = watchers.pop().unwrap();
    touch(&last, "file:///a").await;
    assert_eq!(updated(&mut stream).await, A);
    assert_eq!(subs(&last).await, ["file:///a"]);
    leave(&last, stream, A).await;
    until_subs(&last, &[]).await;
    app.stop().await;
}

/// `matrix!` of watched resources: both clients at once, each server, each transport; one subscription, counted.
#[tokio::test]
async fn one_subscription_for_all_who_watch() {
    for server in ERAS {
        for how in [How::Http, How::Stdio] {
            within_deadline(&format!("{server:?} {how:?}"), shared(server, how)).await;
        }
    }
}

/// [POL-15, R104]: who may not read a resource cannot watch it, and it looks like one that is not there.
#[tokio::test]
async fn only_who_may_read_may_watch() {
    let upstream = Watched::start(Era::Stateless, How::Http).await;
    let (tables, _) = TestApp::servers(&[("up", upstream.lines.clone())]);
    let mut rest =
        format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n[policies.none]\nexcluded_tools = [\"up__*\"]\n");
    for name in ["ann", "eve"] {
        let policy = if name == "eve" { "policy = \"none\"\n" } else { "" };
        rest.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{policy}{}", TestApp::key(name)));
    }
    let app = TestApp::start("keys", &rest).await;
    for era in ERAS {
        let eve = Client::connect(era, app.addr, "/mcp", Some("eve")).await;
        let (_, watched) = eve.watch(&["up+file:///a", "up+file:///none"]).await;
        assert!(watched.is_empty(), "{watched:?}");
        if era == Era::Legacy {
            let hidden = eve.ask("resources/subscribe", r#""uri":"up+file:///a""#).await;
            let unknown = eve.ask("resources/subscribe", r#""uri":"nothing+file:///a""#).await;
            assert_eq!(hidden.text(), unknown.text());
        }
        let ann = Client::connect(era, app.addr, "/mcp", Some("ann")).await;
        let (mut stream, watched) = ann.watch(&["up+file:///a"]).await;
        assert_eq!(watched, ["up+file:///a"]);
        touch(&ann, "file:///a").await;
        assert_eq!(updated(&mut stream).await, "up+file:///a");
    }
    app.stop().await;
}
