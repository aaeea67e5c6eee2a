//! A server that is down: its tools stay and fail at once, or go after ten seconds, as `on_down` says; they come back with it,
//! and its neighbours notice nothing [TRN-7].

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Child, Client, ERAS, Era, Gateway, Speaks, Upstream, folder, lives, until, within_deadline};

/// The lines of a server that cannot be started while its program is away.
fn lines(child: &Child, program: &Path) -> String {
    let lines = child.lines();
    std::fs::write(program, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    lines.replace("command = \"python3\"", &format!("command = \"{}\"", program.display()))
}

/// [TRN-7]
#[tokio::test]
async fn what_is_down_stays_or_goes_as_it_is_configured() {
    let folder = folder();
    let program = folder.join("program");
    let (kept, hidden) = (Child::new(Era::Legacy, &["t"]), Child::new(Era::Legacy, &["t"]));
    let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let hide = format!("{}\non_down = \"hide\"", lines(&hidden, &program));
    let gateway = Gateway::start(&[("kept", lines(&kept, &program)), ("hidden", hide), ("good", good.lines())]).await;
    let mut clients = Vec::new();
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", None).await;
        assert_eq!(client.names().await, ["kept__t", "hidden__t", "good__echo"], "{era:?}");
        for name in ["kept__t", "hidden__t"] {
            assert!(client.call_with(name, "{}").await.is_result(), "{era:?} {name}");
        }
        clients.push(client);
    }
    let away = folder.join("away");
    std::fs::rename(&program, &away).unwrap();
    for pid in kept.pids().into_iter().chain(hidden.pids()).filter(|pid| lives(*pid)) {
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    for client in &clients {
        let era = client.era;
        within_deadline("the tools go", async {
            // Until then they are listed, and fail by name; the neighbour's answer meanwhile.
            while client.names().await.contains(&"hidden__t".to_owned()) {
                assert!(client.call_with("good__echo", "{}").await.is_result(), "{era:?}");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        })
        .await;
        assert_eq!(client.names().await, ["kept__t", "good__echo"], "{era:?}");
        // What is not listed is not called either.
        assert_eq!(client.call_with("hidden__t", "{}").await.code(), -32602, "{era:?}");
        let failed = client.call_with("kept__t", "{}").await;
        assert!(!failed.is_result() && failed.raw("error.message").contains("'kept'"), "{era:?}: {failed:?}");
    }
    std::fs::rename(&away, &program).unwrap();
    for client in &clients {
        within_deadline("the tools come back", async {
            while client.names().await != ["kept__t", "hidden__t", "good__echo"] {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        })
        .await;
        for name in ["kept__t", "hidden__t"] {
            within_deadline(name, async { while !client.call_with(name, "{}").await.is_result() {} }).await;
        }
    }
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
    until("every child has ended", || !kept.pids().into_iter().chain(hidden.pids()).any(lives)).await;
    std::fs::remove_dir_all(folder).unwrap();
}
