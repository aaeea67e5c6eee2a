//! The last good lists outlive the gateway [TRN-8, OPS-12].

use std::path::Path;

use crate::support::{Child, Client, Era, Gateway, TestApp, folder, until};

/// Starts a gateway whose one server begins when the file is there.
async fn start(state: &Path, lines: &str, more: &str) -> Gateway {
    let (tables, names) = TestApp::servers(&[("up", format!("{lines}\n{more}"))]);
    let rest = format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
    Gateway::try_start_in(&[("PORTCULLIS_STATE_DIR", state)], "127.0.0.1:0", &rest)
        .await
        .unwrap_or_else(|ended| panic!("{ended:?}"))
}

/// [TRN-8]: after a restart the list of before is there at once, a call waits for the server, and the fresh list takes its
/// place; FC-STD-12.
#[tokio::test]
async fn the_list_of_before_serves_until_the_fresh_one_arrives() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo", "old"]));
    let (state, file) = (home.join("state"), home.join("go"));
    let lines = child.lines_after(&file.display().to_string());
    std::fs::write(&file, "").unwrap();
    let gateway = start(&state, &lines, "").await;
    assert!(gateway.said.contains("ready, 2 tools"), "{}", gateway.said);
    until("the list is kept", || std::fs::read_dir(state.join("lists")).is_ok_and(|all| all.count() == 1)).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));

    std::fs::remove_file(&file).unwrap();
    child.set(&["echo", "new"], 1);
    let gateway = start(&state, &lines, "").await;
    assert!(gateway.said.contains("starting"), "{}", gateway.said);
    let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", None).await;
    assert_eq!(client.names().await, ["up__echo", "up__old"]);
    let (answer, ()) = futures_util::future::join(client.call_with("up__echo", r#"{"k":1}"#), async {
        std::fs::write(&file, "").unwrap();
    })
    .await;
    assert_eq!(answer.raw("result.echo"), r#"{"k":1}"#, "{answer:?}");
    assert_eq!(client.names().await, ["up__echo", "up__new"]);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// [OPS-12]: a file that was broken is ignored with a warning, and replaced.
#[tokio::test]
async fn a_broken_list_is_ignored_and_replaced() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo"]));
    let state = home.join("state");
    let gateway = start(&state, &child.lines(), "").await;
    let kept = || std::fs::read_dir(state.join("lists")).ok()?.next()?.ok().map(|entry| entry.path());
    until("the list is kept", || kept().is_some_and(|path| path.extension().is_some_and(|end| end == "json"))).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
    let path = kept().unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let gateway = start(&state, &child.lines(), "").await;
    assert!(gateway.said.contains("its kept list is ignored") && gateway.said.contains("P507"), "{}", gateway.said);
    until("it is replaced", || std::fs::read(&path).is_ok_and(|text| text == whole)).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// [OPS-12]: without a folder that it may write to the gateway runs all the same, and says what it cannot do once.
#[tokio::test]
async fn without_a_state_folder_the_gateway_runs_from_memory() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo"]));
    let state = home.join("file");
    std::fs::write(&state, "").unwrap();
    let gateway = start(&state, &child.lines(), "").await;
    assert!(gateway.said.contains("ready, 1 tools"), "{}", gateway.said);
    let said: Vec<_> = gateway.said.lines().filter(|line| line.contains("P507")).collect();
    assert!(said.len() == 1 && said[0].contains("cannot be made"), "{}", gateway.said);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}
