//! Servers of HTTP+SSE, of 2024-11-05: whose their sessions are, how many there are, and when they end [TRN-1, TRN-4].

use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::future::join;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::support::quiz::ABLE;
use crate::support::{Authority, Client, Command, Era, TestApp, Tunnel, folder, quoted, until, within_deadline};

/// A server, `whole.py`.
pub(crate) struct Whole {
    port: String,
    log: PathBuf,
    process: Child,
}

impl Whole {
    async fn start() -> Self {
        Self::of("sse", "2025-11-25").await
    }

    /// One that speaks a revision over "sse" or "http".
    pub(crate) async fn of(how: &str, revision: &str) -> Self {
        let era = if revision == "2026-07-28" { Era::Stateless } else { Era::Legacy };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/whole.py");
        let log = folder().join("whole.log");
        let mut command = tokio::process::Command::new("python3");
        command.arg(script).args([era.word(), how]).arg(&log).arg(revision).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut port = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        within_deadline("its port", stdout.read_line(&mut port)).await.unwrap();
        Self { port: port.trim().to_owned(), log, process }
    }

    fn lines(&self) -> String {
        format!("url = \"{}/sse\"\n", self.origin())
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The sessions in which this was heard: a method, or that one `opens` or `closes`.
    fn sessions(&self, heard: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines = lines.filter(|line| line["message"] == heard || line["message"]["method"] == heard);
        lines.map(|line| line["session"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn distinct(&self, heard: &str) -> usize {
        self.sessions(heard).into_iter().collect::<std::collections::BTreeSet<_>>().len()
    }

    fn open_now(&self) -> usize {
        self.sessions("opens").len() - self.sessions("closes").len()
    }
}

/// A gateway with keys, whose principals `ann` and `bob` are granted the server.
async fn gateway(whole: &Whole, lines: &str) -> TestApp {
    let (tables, names) = TestApp::servers(&[("up", format!("{}{lines}", whole.lines()))]);
    let principal = |name: &str| format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(name));
    let rest = format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n{}{}", principal("ann"), principal("bob"));
    TestApp::start("keys", &rest).await
}

/// [TRN-4, LIM-6]: a session that nobody uses is closed, its stream and all, and opened again by the next call; that of the
/// list too. One that is used is not.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_uses_is_closed() {
    let whole = Whole::start().await;
    let app = gateway(&whole, "transport = \"sse\"\nidle_stop_secs = 1\n").await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", Some("ann")).await;
    for _ in 0..2 {
        assert!(client.call_with("up__echo", "{}").await.is_result());
        until("every stream is closed", || whole.open_now() == 0).await;
    }
    let mut held = Box::pin(client.tries("up__hold"));
    tokio::select! {
        answer = &mut held => panic!("{answer:?}"),
        () = until("the call", || whole.sessions("tools/call").len() == 3) => {}
    }
    let busy = whole.sessions("tools/call").pop().unwrap();
    // Meanwhile others have come and gone.
    let bob = Client::connect(Era::Legacy, app.addr, "/mcp", Some("bob")).await;
    for _ in 0..2 {
        assert!(bob.call_with("up__echo", "{}").await.is_result());
        let idle = whole.sessions("tools/call").pop().unwrap();
        until("what is idle is closed", || whole.sessions("closes").contains(&idle)).await;
    }
    assert!(!whole.sessions("closes").contains(&busy));
    drop(held);
    app.stop().await;
    until("all is closed with the gateway", || whole.open_now() == 0).await;
}

/// [TRN-4]: by default each session of a client has one of its own, with `principal` each principal, with `shared` nobody.
#[tokio::test(flavor = "multi_thread")]
async fn isolation_is_a_matter_of_sessions() {
    for (isolation, sessions) in [("session", 3), ("principal", 2), ("shared", 1)] {
        let whole = Whole::start().await;
        let app = gateway(&whole, &format!("isolation = \"{isolation}\"\n")).await;
        let mut clients = Vec::new();
        for key in ["ann", "ann", "bob"] {
            let client = Client::connect(Era::Legacy, app.addr, "/mcp", Some(key)).await;
            for _ in 0..2 {
                assert!(client.call_with("up__echo", "{}").await.is_result());
            }
            clients.push(client);
        }
        assert_eq!(whole.distinct("tools/call"), sessions, "{isolation}");
        // But for `shared`, one more is there for the list.
        let all = if isolation == "shared" { 1 } else { sessions + 1 };
        assert_eq!(whole.open_now(), all, "{isolation}");
        app.stop().await;
    }
}

/// [TRN-4, R100]: a call that its server may ask back has a session alone; others share one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_be_asked_has_its_session_alone() {
    for (able, sessions) in [(ABLE, 2), ("{}", 1)] {
        let whole = Whole::start().await;
        let app = gateway(&whole, "").await;
        let client = Client::able(Era::Legacy, app.addr, "/mcp", Some("ann"), able).await;
        let calls =
            join(client.asks("1", "up__hold", "\"arguments\":{}"), client.asks("2", "up__hold", "\"arguments\":{}"));
        let held = calls.await;
        until("both calls", || whole.sessions("tools/call").len() == 2).await;
        assert_eq!(whole.distinct("tools/call"), sessions, "{able}");
        drop(held);
        app.stop().await;
    }
}

/// [TRN-7]: a server that has gone fails the calls in flight, once, and calls after it are told at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_gone_is_told() {
    let mut whole = Whole::start().await;
    let app = gateway(&whole, "").await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", Some("ann")).await;
    let held = client.tries("up__hold");
    let dies = async {
        until("the call", || whole.sessions("tools/call").len() == 1).await;
        whole.process.start_kill().unwrap();
    };
    let (answer, ()) = within_deadline("the end", join(held, dies)).await;
    let words = answer.expect("an answer").raw("error.message");
    assert!(words.contains("server 'up'") && words.contains("event stream"), "{words}");
    let down = client.call_with("up__echo", "{}").await.raw("error.message");
    assert!(down.contains("server 'up'"), "{down}");
    app.stop().await;
}

/// [TRN-5]: over https the stream and what is posted are both under TLS, with an authority of the server's own.
#[tokio::test(flavor = "multi_thread")]
async fn both_urls_are_spoken_to_over_tls() {
    let (whole, authority, home) = (Whole::start().await, Authority::new(), folder());
    std::fs::write(home.join("ca.pem"), &authority.pem).unwrap();
    let plain = format!("127.0.0.1:{}", whole.port).parse().unwrap();
    let front = Tunnel::of_tls(&authority.leaf(&["localhost"]), plain).await;
    let url = format!("url = \"https://localhost:{}/sse\"\n", front.addr.port());
    let trusted = format!("{url}tls_ca_cert_path = {}", quoted(&home.join("ca.pem").display().to_string()));
    let app = TestApp::open(&[("up", trusted), ("foreign", url)]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    let said = app.said.iter().find(|line| line.starts_with("foreign")).unwrap();
    assert!(said.contains("of no authority that is trusted"), "{said}");
    app.stop().await;
}

/// [TRN-1, OPS-1]: the command line names the transport that is spoken, configured or found out.
#[tokio::test]
async fn the_transport_is_named_as_it_is() {
    let whole = Whole::start().await;
    let command = Command::new(&format!(
        "[[mcp.servers]]\nname = \"found\"\n{0}[[mcp.servers]]\nname = \"said\"\ntransport = \"sse\"\n{0}[mcp_bundles.all]\n\
         servers = [\"found\", \"said\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n",
        whole.lines()
    ));
    command.run(&["check"]).await.code(0);
    let servers = command.run(&["ls", "servers", "--json"]).await.code(0).json();
    for (at, name) in ["found", "said"].into_iter().enumerate() {
        let row = &servers[at];
        assert_eq!((&row["server"], &row["transport"], &row["state"]), (&name.into(), &"sse".into(), &"ready".into()));
    }
    let call = command.run(&["call", "said__echo", "a=1"]).await.code(0);
    assert!(call.stdout.contains("echo"), "{call:?}");
    until("what was opened is closed", || whole.open_now() == 0).await;
}
