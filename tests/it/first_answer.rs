//! The first answer is fast: who waits for servers that are still starting, for how long, and who never does [TRN-8].
//!
//! The slow server begins when a file is there, as one does that is downloaded first. Nothing measures time: what must not
//! wait is answered while something that waits is still without its answer.

use std::path::PathBuf;
use std::pin::pin;

use futures_util::future::join;

use crate::support::{Child, Client, ERAS, Era, Piped, Speaks, TestApp, Upstream, folder, raw, within_deadline};

/// A server that does not begin yet.
struct Slow {
    child: Child,
    /// It begins once this is there.
    file: PathBuf,
}

impl Slow {
    fn new() -> Self {
        Self { child: Child::new(Era::Legacy, &["t"]), file: folder().join("begin") }
    }

    fn lines(&self, start_secs: u32) -> String {
        let lines = self.child.lines_after(&self.file.display().to_string());
        format!("{lines}\nstart_timeout_secs = {start_secs}")
    }

    fn begins(&self) {
        std::fs::write(&self.file, "").unwrap();
    }
}

/// A gateway before a slow server, one that cannot be started, and a good one; lists wait so long.
async fn gateway(slow: &Slow, good: &Upstream, wait_secs: u32) -> TestApp {
    let missing = "command = \"there-is-no-such-program\"".to_owned();
    let servers = [("slow", slow.lines(600)), ("gone", missing), ("good", good.lines())];
    let (tables, names) = TestApp::servers(&servers);
    let tables = tables.replace("first_list_wait_secs = 60", &format!("first_list_wait_secs = {wait_secs}"));
    let grants = format!("[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
    TestApp::start("none", &format!("http_sse = true\n{tables}{grants}")).await
}

/// [TRN-8, R31]: `initialize` and `server/discover` wait for no server, on no path and over neither transport; nor does a call
/// of a server that is there, nor a list of one that has failed. A list and a call of the slow server wait, and have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_waits_for_no_server() {
    let (slow, good) = (Slow::new(), Upstream::start(Speaks::Both, false, &["echo"]).await);
    let app = gateway(&slow, &good, 60).await;
    let said = app.said.iter().find(|line| line.starts_with("slow")).unwrap();
    assert!(said.ends_with("starting"), "{said}");
    let first = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let mut waits = pin!(join(first.names(), first.call_with("slow__t", r#"{"k":1}"#)));
    let greetings = async {
        for path in ["/mcp", "/mcp/slow", "/sse", "/sse/slow"] {
            for era in ERAS {
                // A legacy client has sent `initialize`, and has its answer.
                let client = Client::connect(era, app.addr, path, None).await;
                let method = if era == Era::Legacy { "ping" } else { "server/discover" };
                assert!(client.ask(method, "").await.is_result(), "{era:?} {path}");
            }
        }
        for era in ERAS {
            let client = Client::connect(era, app.addr, "/mcp", None).await;
            assert!(client.call_with("good__echo", "{}").await.is_result(), "{era:?}");
            let gone = Client::connect(era, app.addr, "/mcp/gone", None).await;
            assert!(gone.names().await.is_empty(), "{era:?}");
        }
    };
    tokio::select! {
        biased;
        ended = &mut waits => panic!("it has not waited, or others have: {ended:?}"),
        () = within_deadline("greetings", greetings) => {}
    }
    slow.begins();
    let (names, answer) = within_deadline("the slow server", waits).await;
    assert_eq!(names, ["slow__t", "good__echo"]);
    assert_eq!(answer.raw("result.echo"), r#"{"k":1}"#, "{answer:?}");
    assert!(app.stop().await);
}

/// [TRN-8]: a list, and a call of what is not known, wait no longer than they are told; what comes late is told as a change.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_is_told_as_a_change() {
    for (wait_secs, era) in [(0, Era::Legacy), (0, Era::Stateless), (1, Era::Legacy), (1, Era::Stateless)] {
        let (slow, good) = (Slow::new(), Upstream::start(Speaks::Both, false, &["echo"]).await);
        let app = gateway(&slow, &good, wait_secs).await;
        let context = format!("{era:?}, {wait_secs} s");
        let client = Client::connect(era, app.addr, "/mcp", None).await;
        // The server cannot have begun: whatever is answered here has not waited for it to the end.
        assert_eq!(within_deadline(&context, client.names()).await, ["good__echo"], "{context}");
        let mut stream = client.listen().await;
        assert_eq!(within_deadline(&context, client.call_with("slow__t", "{}")).await.code(), -32602, "{context}");
        slow.begins();
        let event = within_deadline("a list change", stream.next()).await.unwrap();
        assert!(event.contains("notifications/tools/list_changed"), "{context}: {event}");
        assert_eq!(client.names().await, ["slow__t", "good__echo"], "{context}");
        assert!(client.call_with("slow__t", "{}").await.is_result(), "{context}");
        assert!(app.stop().await, "{context}");
    }
}

/// [TRN-8]: the same for the client of `portcullis stdio`, whose list stands in the way of nothing that it asks behind it.
#[tokio::test]
async fn a_greeting_on_a_pipe_waits_for_no_server() {
    for era in ERAS {
        let slow = Slow::new();
        // Had `initialize` waited, the server would have failed to start before its time, and no list would wait for it.
        let mut client = Piped::start(&Piped::configuration(&[("slow", slow.lines(45))]), &[]);
        client.hello(era).await;
        client.request(era, "\"list\"", "tools/list", "", "").await;
        let method = if era == Era::Legacy { "ping" } else { "server/discover" };
        client.request(era, "\"next\"", method, "", "").await;
        let next = client.next().await;
        assert_eq!(raw(&next, "id").as_deref(), Some("\"next\""), "{era:?}: {next}");
        assert!(raw(&next, "result").is_some(), "{era:?}: {next}");
        slow.begins();
        let list = client.answer("\"list\"").await;
        assert!(list.contains("slow__t"), "{era:?}: {list}");
        client.close();
        let ended = client.ended().await;
        assert_eq!(ended.code, Some(0), "{era:?}: {}", ended.said);
    }
}
