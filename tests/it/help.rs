//! Every command that `--help` shows, and every one of README's section on the command line, is run [OPS-1].

use std::path::Path;

use crate::support::{Command, Ended, Gateway, TestApp, within_deadline};

/// The verbs of a help text.
fn verbs(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// The examples of a help text.
fn examples(help: &str) -> Vec<String> {
    let list = help.split("Examples:\n").nth(1).unwrap_or_default();
    list.lines().map_while(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

/// The gateway that examples with an address mean, with the demo's own server and keys.
async fn demo_gateway() -> (Gateway, Command) {
    let program = env!("CARGO_BIN_EXE_portcullis");
    let servers = format!("[[mcp.servers]]\nname = \"demo\"\ncommand = '{program}'\nargs = [\"demo-server\"]\n");
    let principal = |name: &str| {
        format!("[principals.{name}]\nmcp_bundles = [\"demo\"]\n{}", TestApp::key(&format!("demo-{name}")))
    };
    let rest = format!(
        "{servers}[mcp_bundles.demo]\nservers = [\"demo\"]\n{}{}{}",
        principal("alice"),
        principal("bob"),
        principal("local")
    );
    let gateway =
        Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    let listen = format!("[listen]\nauth = \"keys\"\nhttp = \"{}\"\nadmin = \"{}\"\n", gateway.addr, gateway.admin);
    let command = Command::new(&format!("{listen}{rest}"));
    let entry = serde_json::json!({ "command": program, "args": ["demo-server"] });
    command.write(".cursor/mcp.json", &serde_json::json!({ "mcpServers": { "demo": entry } }).to_string());
    (gateway, command)
}

/// Runs one line as a person types it; the demo's well-known ports are those of this test's own gateway.
async fn typed(line: &str, gateway: &Gateway, command: &Command) -> Ended {
    let line =
        line.replace("127.0.0.1:7800", &gateway.addr.to_string()).replace("127.0.0.1:7801", &gateway.admin.to_string());
    Ended::of(command.shell(&line)).await
}

/// The demo's ports are there once.
static DEMO: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// `serve` does not end by itself: it is started, waited for and stopped.
async fn served(line: &str) {
    // The demo's ports are fixed; where they are taken, the demo says so, which is an answer too.
    let command = Command::new("[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[principals.local]\n");
    let _alone = DEMO.lock().await;
    let mut process = command.shell(&format!("exec {line}")).spawn().unwrap();
    let mut talk = process.stderr.take().unwrap();
    let mut said = Vec::new();
    let reading = async {
        loop {
            let mut chunk = [0; 1024];
            let count = tokio::io::AsyncReadExt::read(&mut talk, &mut chunk).await.unwrap();
            said.extend_from_slice(&chunk[..count]);
            let text = String::from_utf8_lossy(&said).into_owned();
            if count == 0 || text.contains("MCP ") {
                return text;
            }
        }
    };
    let said = within_deadline("the start block", reading).await;
    assert!(said.contains("  MCP ") || said.contains("error[P501]"), "{line}: {said}");
    process.kill().await.unwrap();
}

/// Each verb has examples, and each of them works as it stands.
#[tokio::test]
async fn every_example_of_the_help_works() {
    let (gateway, command) = demo_gateway().await;
    let help = command.run(&["--help"]).await.code(0).stdout;
    let verbs = verbs(&help);
    assert!(verbs.len() > 8 && verbs.contains(&"explain".to_owned()), "{verbs:?}");
    for verb in verbs.iter().filter(|verb| *verb != "help") {
        let help = command.run(&[verb, "--help"]).await.code(0).stdout;
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{verb} has no example:\n{help}");
        for example in examples {
            assert!(example.contains(&format!("portcullis {verb}")), "{example}");
            if verb == "serve" {
                served(&example).await;
                continue;
            }
            let ended = typed(&example, &gateway, &command).await;
            assert_eq!(ended.code, Some(0), "{example}: {ended:#?}");
        }
    }
}

/// The text between a pair of markers in README.
fn block(name: &str) -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("<!-- {name} -->\n")).unwrap_or_else(|| panic!("no block {name}"));
    rest.split_once(&format!("<!-- /{name} -->")).unwrap().0.to_owned()
}

/// README's commands print what it says they print: `# expect: TEXT` above a command, `# exit: CODE` where it is not 0.
#[tokio::test]
async fn every_command_of_readme_works() {
    let (gateway, command) = demo_gateway().await;
    let block = block("command-line");
    let mut commands = 0;
    for fence in block.split("```bash\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let (mut expected, mut code) = (Vec::new(), 0);
        for line in fence.lines() {
            if let Some(text) = line.strip_prefix("# expect: ") {
                expected.push(text.to_owned());
            } else if let Some(text) = line.strip_prefix("# exit: ") {
                code = text.parse().unwrap();
            } else if !line.is_empty() && !line.starts_with('#') {
                let ended = typed(line, &gateway, &command).await.code(code);
                for text in expected.drain(..) {
                    assert!(ended.stdout.contains(&text) || ended.stderr.contains(&text), "{line}: {text}: {ended:#?}");
                }
                (code, commands) = (0, commands + 1);
            }
        }
        assert!(expected.is_empty(), "an expectation without a command: {expected:?}");
    }
    assert!(commands > 5, "{commands}");
}

/// The demo's addresses stand in no file, so what helps is to end whoever has them [OPS-2].
#[tokio::test]
async fn a_demo_whose_port_is_taken_says_what_helps() {
    let _alone = DEMO.lock().await;
    // Whether this takes it or a program of the machine has it: a demo has no room.
    let _taken = tokio::net::TcpListener::bind("127.0.0.1:7800").await;
    let command = Command::new("");
    let said = command.run(&["serve", "--demo"]).await.code(1).stderr;
    assert!(said.contains("error[P501]: cannot listen on 127.0.0.1:780"), "{said}");
    assert!(said.contains("help: End the other process") && !said.contains("in [listen]"), "{said}");
}
