//! The first and the last moments of the binary [OPS-1, OPS-4, OPS-5].

use portcullis::app::{App, AppError};
use portcullis::config;
use rustix::process::{Pid, test_kill_process};

use crate::support::{Child, Client, ERAS, Era, Gateway, Speaks, TestApp, Upstream, until, within_deadline};

/// A port that is taken fails the start, before any server is started [OPS-5].
#[tokio::test]
async fn a_port_that_is_taken_fails_the_start() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let child = Child::new(Era::Legacy, &["echo"]);
    let (tables, _) = TestApp::servers(&[("up", child.lines())]);
    let rest = format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
    let err = App::build(TestApp::settings(&addr, "none", &rest), &config::base_env()).unwrap_err();
    assert!(matches!(err, AppError::Bind(..)) && err.to_string().contains(&addr), "{err}");

    let (code, said) = Gateway::try_start(&addr, &rest).await.err().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("error[P501]: cannot listen on") && said.contains(&addr), "{said}");
    assert!(child.pids().is_empty(), "a server was started");
}

/// A configuration with mistakes is refused with code 3 and every mistake [OPS-1, CFG-1].
#[tokio::test]
async fn a_wrong_configuration_is_refused() {
    let (code, said) = Gateway::try_start("127.0.0.1:0", "nonsense = 1\n[mcp]\nmore = 2\n").await.err().unwrap();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("nonsense") && said.contains("more"), "{said}");
}

/// Says whether a process is there, dead or alive.
fn alive(pid: u32) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    test_kill_process(pid).is_ok()
}

/// TERM: running calls finish, new ones are refused, children are gone, and the code is 0 [OPS-5].
#[tokio::test]
async fn a_stop_lets_running_calls_finish() {
    for era in ERAS {
        let upstream = Upstream::start(Speaks::Both, false, &["hold"]).await;
        let children = [Child::new(Era::Legacy, &["echo"]), Child::new(Era::Stateless, &["echo"])];
        let servers = [("http", upstream.lines()), ("old", children[0].lines()), ("new", children[1].lines())];
        let mut gateway = Gateway::start(&servers).await;
        let client = Client::connect(era, gateway.addr, "/mcp", None).await;
        for name in ["old__echo", "new__echo"] {
            let answer = client.call_with(name, "{}").await;
            assert!(answer.is_result(), "{answer:?}");
        }
        let pids: Vec<u32> = children.iter().flat_map(Child::pids).collect();
        assert!(pids.len() >= 2 && pids.iter().any(|pid| alive(*pid)));

        let (held, ()) = within_deadline(
            "the held call",
            futures_util::future::join(client.call_with("http__hold", r#"{"k":1}"#), async {
                until("the call is under way", || !upstream.calls().is_empty()).await;
                gateway.terminate();
                gateway.says("stopping").await;
                upstream.release();
            }),
        )
        .await;
        assert_eq!(held.raw("result.echo"), r#"{"k":1}"#, "{held:?}");
        assert_eq!(gateway.ended().await, Some(0), "{era:?}");
        for pid in children.iter().flat_map(Child::pids) {
            assert!(!alive(pid), "{era:?}: child {pid} has outlived the gateway");
        }
    }
}
