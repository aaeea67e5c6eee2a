//! Programs that a person's shell finds, for a gateway that a desktop starts [TRN-3].

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::{Child, Client, Era, Gateway, TestApp, folder, lives, until};

fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Starts a gateway as a desktop does: a short PATH, no terminal, and whatever shell the user has.
async fn start(shell: &Path, more: &str, servers: &[(&str, String)]) -> Gateway {
    let (tables, names) = TestApp::servers(servers);
    let tables = tables.replacen("[mcp]\n", &format!("[mcp]\n{more}"), 1);
    let rest = format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
    let env = [("PATH", Path::new("/usr/bin:/bin")), ("SHELL", shell)];
    Gateway::try_start_in(&env, "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"))
}

/// A server whose program is in a folder that the login shell alone knows.
fn personal(home: &Path, child: &Child) -> (PathBuf, String) {
    let python = std::env::split_paths(&portcullis::config::process_env("PATH").unwrap())
        .map(|folder| folder.join("python3"))
        .find(|path| path.exists())
        .unwrap();
    program(&home.join("bin/of-this-person"), &format!("#!/bin/sh\nexec {} \"$@\"\n", python.display()));
    let shell = home.join("shell");
    let text = format!(
        "#!/bin/sh\necho welcome; PATH={}:$PATH; export PATH\nwhile [ \"$1\" != -c ]; do shift; done\neval \"$2\"\necho bye\n",
        home.join("bin").display()
    );
    program(&shell, &text);
    (shell, child.lines().replace("\"python3\"", "\"of-this-person\""))
}

/// [TRN-3], FC-STD-11: the one is found by the login shell's PATH; for the other, which is nowhere, the error names the
/// command and where it was looked for; with the key off nothing is asked.
#[tokio::test]
async fn programs_are_found_as_in_the_persons_shell() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo"]));
    let (shell, lines) = personal(&home, &child);
    let nowhere = "command = \"exists-nowhere\"".to_owned();
    let gateway = start(&shell, "", &[("mine", lines.clone()), ("other", nowhere)]).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
    assert!(client.call_with("mine__echo", "{}").await.is_result());
    let searched = format!("command 'exists-nowhere' not found in PATH {}:/usr/bin:/bin", home.join("bin").display());
    assert!(gateway.said.contains(&searched), "{}", gateway.said);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
    let gateway = start(&shell, "login_path = false\n", &[("mine", lines)]).await;
    assert!(gateway.said.contains("command 'of-this-person' not found in PATH /usr/bin:/bin"), "{}", gateway.said);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// A shell that hangs is ended after its time, and servers start with what there is.
#[tokio::test]
async fn a_shell_that_hangs_holds_nothing_up_for_long() {
    let (home, child) = (folder(), Child::new(Era::Legacy, &["echo"]));
    let (_, lines) = personal(&home, &child);
    let lines = lines.replace("of-this-person", &home.join("bin/of-this-person").display().to_string());
    let (shell, file) = (home.join("shell"), home.join("pid"));
    program(&shell, &format!("#!/bin/sh\necho $$ >{}\nsleep 86400\n", file.display()));
    let gateway = start(&shell, "", &[("mine", lines)]).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
    assert!(client.call_with("mine__echo", "{}").await.is_result());
    let asked: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    until("the shell has ended", || !lives(asked)).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}
