//! Orphans of others are reaped where they come to the gateway, as to process 1 of a container [TRN-3].

use std::path::Path;

use tokio::process::Command;

use crate::support::{Child, Client, Era, Gateway, TestApp, folder, quoted, until};

/// How many processes outlive those that have started them.
const ORPHANS: usize = 500;

/// A python that makes itself the parent of all orphans below it, and then becomes the gateway.
const ADOPTS: &str = "import ctypes, os, sys\n\
    assert ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) == 0\n\
    os.execv(sys.argv[1], sys.argv[1:])\n";

/// [TRN-3], FC-STD-14: five hundred orphans leave no zombie, and how an own child has ended is still known.
#[tokio::test]
async fn orphans_are_reaped_and_own_children_are_not_lost() {
    let home = folder();
    let (file, child) = (home.join("orphans"), Child::new(Era::Legacy, &["echo", "die"]));
    let lines = child.lines();
    let (_, args) = lines.split_once("args = [").unwrap();
    let start = format!(
        "i=0; while [ $i -lt {ORPHANS} ]; do (sh -c 'echo $$ >> {}' &); i=$((i+1)); done; exec python3 \"$@\"",
        file.display()
    );
    let lines = format!("command = \"sh\"\nargs = [\"-c\", {}, \"sh\", {args}", quoted(&start));
    let (tables, _) = TestApp::servers(&[("up", lines)]);
    let text = format!(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"none\"\n{tables}\
         [mcp_bundles.all]\nservers = [\"up\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n"
    );
    let config = folder();
    std::fs::write(config.join("portcullis.toml"), text).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", ADOPTS, env!("CARGO_BIN_EXE_portcullis")]);
    let mut gateway = Gateway::try_start_by(python, &[], config).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    let orphans =
        || -> Vec<String> { std::fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect() };
    until("all have started", || orphans().len() >= ORPHANS).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    until("no zombie is left", || !orphans().iter().any(|pid| Path::new("/proc").join(pid).exists())).await;
    client.call_with("up__die", "{}").await;
    gateway.says("exited with status 3").await;
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}
