//! The pool with real processes: how many there are, whose they are, and when they end [TRN-3, TRN-4].

use crate::support::{Child, Client, ERAS, Era, Gateway, Speaks, TestApp, Upstream, folder, lives, quoted, until};

/// A configuration with keys whose principals `ann` and `bob` are granted these servers.
fn two_principals(servers: &[(&str, String)]) -> String {
    let (tables, names) = TestApp::servers(servers);
    let principal = |name: &str| format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(name));
    format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n{}{}", principal("ann"), principal("bob"))
}

/// [TRN-4, TRN-8], FC-CON-03: a hundred calls at once to a server that has not started yet start one process beside that of
/// its list, and each is answered.
#[tokio::test]
async fn a_hundred_calls_to_a_cold_server_start_one_process() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo"]));
    let file = home.join("go");
    let gateway = Gateway::start(&[("up", child.lines_after(&file.display().to_string()))]).await;
    let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", None).await;
    let arguments: Vec<String> = (0..100).map(|number| format!("{{\"k\":{number}}}")).collect();
    let calls = futures_util::future::join_all(arguments.iter().map(|text| client.call_with("up__echo", text)));
    let (answers, ()) = futures_util::future::join(calls, async { std::fs::write(&file, "").unwrap() }).await;
    for (answer, text) in answers.iter().zip(&arguments) {
        assert_eq!(answer.raw("result.echo"), *text, "{answer:?}");
    }
    assert_eq!(child.pids().len(), 2);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// [TRN-4], FC-STD-09: what nobody uses is stopped and comes back with the next call; a call that takes longer than
/// that is left alone.
#[tokio::test]
async fn idle_is_stopped_and_busy_is_not() {
    let (idle, busy) = (Child::new(Era::Legacy, &["echo"]), Child::new(Era::Legacy, &["together", "echo"]));
    busy.set(&["together", "echo"], 2);
    let secs = "\nidle_stop_secs = 1";
    let gateway = Gateway::start(&[("idle", idle.lines() + secs), ("busy", busy.lines() + secs)]).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
    assert!(client.call_with("busy__echo", "{}").await.is_result());
    let (first, ()) =
        futures_util::future::join(client.call("1", "busy__together", "", r#""arguments":{"k":1}"#), async {
            until("the call is under way", || busy.calls().len() == 2).await;
            // The one that was opened for the list has given way to the caller's own.
            until("one process is left", || busy.pids().into_iter().filter(|pid| lives(*pid)).count() == 1).await;
            let processes = busy.pids();
            // Three times over, what is idle has been stopped and started again: for the calls, and for the list.
            for _ in 0..3 {
                let before = idle.pids().len();
                assert!(client.call("2", "idle__echo", "", r#""arguments":{}"#).await.is_result());
                let stopped = || idle.pids().len() > before && !idle.pids().into_iter().any(lives);
                until("what is idle is stopped", stopped).await;
            }
            assert!(lives(*processes.last().unwrap()) && busy.pids() == processes);
            let second = client.call("3", "busy__together", "", r#""arguments":{"k":3}"#).await;
            assert_eq!(second.raw("result.echo"), r#"{"k":3}"#);
        })
        .await;
    assert_eq!(first.raw("result.echo"), r#"{"k":1}"#, "{first:?}");
    until("it is idle now", || !busy.pids().into_iter().any(lives)).await;
    assert_eq!(client.names().await, ["idle__echo", "busy__together", "busy__echo"], "what rests can be called");
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// [TRN-4]: by default each principal has a process of its own, with `session` each session, with `shared` nobody.
#[tokio::test]
async fn isolation_is_a_matter_of_processes() {
    for (isolation, processes) in [("principal", 3), ("session", 4), ("shared", 1)] {
        let child = Child::new(Era::Legacy, &["echo"]);
        let lines = format!("{}\nisolation = \"{isolation}\"", child.lines());
        let rest = two_principals(&[("up", lines)]);
        let gateway =
            Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
        for key in ["ann", "ann", "bob"] {
            let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some(key)).await;
            for _ in 0..2 {
                assert!(client.call_with("up__echo", "{}").await.is_result());
            }
        }
        // But for `shared`, one of them is there for the list.
        assert_eq!(child.pids().len(), processes, "{isolation}");
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
        assert!(!child.pids().into_iter().any(lives));
    }
}

/// [TRN-4]: the bound of a principal holds over its servers.
#[tokio::test]
async fn a_principal_has_no_more_processes_than_it_may() {
    let (one, two) = (Child::new(Era::Legacy, &["together"]), Child::new(Era::Legacy, &["echo"]));
    one.set(&["together"], 2);
    let rest = format!(
        "[limits]\nprocesses_per_principal = 1\n{}",
        two_principals(&[("one", one.lines()), ("two", two.lines())])
    );
    let gateway =
        Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    let ann = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    let bob = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("bob")).await;
    let (first, ()) = futures_util::future::join(ann.call("1", "one__together", "", r#""arguments":{}"#), async {
        until("the call is under way", || one.calls().len() == 1).await;
        let refused = ann.call("2", "two__echo", "", r#""arguments":{}"#).await;
        assert!(format!("{refused:?}").contains("processes_per_principal"), "{refused:?}");
        assert!(bob.call_with("two__echo", "{}").await.is_result(), "another principal does not feel it");
        assert!(ann.call("3", "one__together", "", r#""arguments":{}"#).await.is_result());
    })
    .await;
    assert!(first.is_result(), "{first:?}");
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// [TRN-3, TRN-4], FC-STD-07, FC-STD-13: why a server is down is in the start block, without its secrets; a principal reads it with
/// `show_stderr` alone.
#[tokio::test]
async fn the_last_words_are_for_the_operator() {
    for shown in [false, true] {
        let home = folder();
        let child = Child::new(Era::Legacy, &["echo"]);
        let lines = child.lines();
        let (_, args) = lines.split_once("args = [").unwrap();
        // The second start fails: the list is known by then, so that there is something to call.
        let start = format!(
            "[ ! -e {0} ] || {{ echo \"no luck with $TOKEN\" >&2; exit 3; }}; touch {0}; exec python3 \"$@\"",
            home.join("started").display()
        );
        let lines = format!(
            "command = \"sh\"\nargs = [\"-c\", {}, \"sh\", {args}\nenv = {{ TOKEN = \"a-secret-value\" }}\nshow_stderr = {shown}",
            quoted(&start)
        );
        let rest = two_principals(&[("up", lines)]);
        let mut gateway =
            Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
        let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
        let answer = format!("{:?}", client.call_with("up__echo", "{}").await);
        assert!(answer.contains("server 'up' is down"), "{answer}");
        assert_eq!(
            answer.contains("exited with status 3") && answer.contains("no luck with [secret:TOKEN]"),
            shown,
            "{answer}"
        );
        assert!(!answer.contains("a-secret-value"), "{answer}");
        let said = gateway.says("child ended").await;
        assert!(said.contains("no luck with [secret:TOKEN]") && !said.contains("a-secret-value"), "{said}");
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
    }
}

/// [CFG-3]: what a server is given as a secret does not come back in an error of it, however it spells that; the rest of the
/// error is the server's own.
#[tokio::test]
async fn an_error_that_repeats_a_secret_comes_without_it() {
    let up = Upstream::start(Speaks::Both, false, &["fail"]).await;
    let lines = up.lines() + "\nheaders = { Authorization = \"Bearer hunter2-secret\" }";
    let rest = two_principals(&[("up", lines)]);
    let gateway =
        Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
        let error =
            r#"{"code":-32603,"message":"no hunter2-secret","data":{"n":1.10,"h":"Bearer \u0068unter2-secret!"}}"#;
        let answer = client.call_with("up__fail", error).await;
        let plain =
            r#"{"code":-32603,"message":"no [secret:authorization]","data":{"n":1.10,"h":"[secret:authorization]!"}}"#;
        assert_eq!(answer.raw("error"), plain, "{era:?}");
        let other = r#"{"code":-32603,"message":"no \u0068unter","data":{"n":1.10}}"#;
        assert_eq!(client.call_with("up__fail", other).await.raw("error"), other, "{era:?}");
    }
}
