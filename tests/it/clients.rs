//! The files of MCP clients: every sample imports, connects and lists, and an undo restores every byte
//! [CFG-6, CFG-8, OPS-11].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use portcullis::clients::{self, Client as Kind, How};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::support::{Client, Era, folder, until, within_deadline};

/// The variables that the samples refer to.
const VARIABLES: &[(&str, &str)] = &[
    ("FIXTURE_API_KEY", "fixture-variable"),
    ("FIXTURE_KEY", "fixture-variable"),
    ("FIXTURE_GITHUB_TOKEN", "fixture-variable"),
    ("FIXTURE_FIGMA_TOKEN", "fixture-variable"),
    ("FIXTURE_USER", "fixture-variable"),
];

/// A sample: its file, where it lies below the home folder, its client, and its servers as they are called here.
struct Sample {
    file: &'static str,
    place: &'static str,
    client: Option<Kind>,
    servers: &'static [&'static str],
}

const fn sample(
    file: &'static str,
    place: &'static str,
    client: Option<Kind>,
    servers: &'static [&'static str],
) -> Sample {
    Sample { file, place, client, servers }
}

const SAMPLES: &[Sample] = &[
    sample(
        "claude-desktop.json",
        ".config/Claude/claude_desktop_config.json",
        Some(Kind::ClaudeDesktop),
        &["filesystem", "Brave-Search"],
    ),
    sample("claude-code-2.1.user.json", ".claude.json", Some(Kind::ClaudeCode), &["playwright", "api"]),
    sample("claude-code-2.1.project.mcp.json", "project/.mcp.json", Some(Kind::ClaudeCode), &["local-tool"]),
    sample("vscode-2026-05.mcp.json", ".config/Code/User/mcp.json", Some(Kind::VsCode), &["perplexity", "docs"]),
    sample("vscode-1.99.settings.json", ".config/Code/User/settings.json", None, &["time"]),
    sample("cursor-2.mcp.json", ".cursor/mcp.json", Some(Kind::Cursor), &["github", "linear"]),
    sample("codex-0.159.config.toml", ".codex/config.toml", Some(Kind::Codex), &["context7", "figma"]),
    sample("zed-2026.settings.json", ".config/zed/settings.json", Some(Kind::Zed), &["weather", "remote"]),
    sample("inner-object.json", "inner.json", None, &["one", "two"]),
];

/// A home folder with a stand-in for `npx`, a server on HTTP, and a folder to work in.
struct Home {
    root: PathBuf,
    url: String,
    _server: tokio::process::Child,
}

impl Home {
    async fn new() -> Self {
        let root = folder();
        for name in ["bin", "home", "work"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let npx = format!(
            "#!/bin/sh\n[ ! -e \"$0.dies\" ] || {{ echo gone >&2; exit 4; }}\ncase \"$*\" in *fixture-dies*) echo 'it dies of '\"$TOKEN\" >&2; exit 3;; *fixture-hangs*) echo $$ >\"$0.pid\"; exec sleep 600;; esac\nexec {} demo-server\n",
            env!("CARGO_BIN_EXE_portcullis")
        );
        std::fs::write(root.join("bin/npx"), npx).unwrap();
        std::fs::set_permissions(root.join("bin/npx"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["demo-server", "--http", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let url = within_deadline("the server's url", lines.next_line()).await.unwrap().unwrap();
        Self { root, url, _server: server }
    }

    /// Puts a sample where its client looks for it; returns the place and the bytes.
    fn place(&self, sample: &str, place: &str) -> (PathBuf, Vec<u8>) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/clients").join(sample);
        let text = std::fs::read_to_string(from).unwrap().replace("http://127.0.0.1:8931/mcp", &self.url);
        let to = self.root.join("home").join(place);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(&to, &text).unwrap();
        (to, text.into_bytes())
    }

    /// A configuration that listens on free ports, for the servers to be added to.
    fn configuration(&self) {
        let text = "# mine\n[listen]\nhttp = \"127.0.0.1:0\"   # any\nadmin = \"127.0.0.1:0\"\nauth = \"none\"\n";
        std::fs::write(self.path("portcullis.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("work").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let path = format!("{}:/usr/bin:/bin", self.root.join("bin").display());
        command.args(args).current_dir(self.root.join("work")).env_clear().env("PATH", path);
        command.env("HOME", self.root.join("home")).envs(VARIABLES.iter().copied());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs the binary to its end.
    async fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } =
            within_deadline("the end of a verb", self.command(args).output()).await.unwrap();
        let said = String::from_utf8(stderr).unwrap() + &String::from_utf8(stdout).unwrap();
        assert!(!said.contains("fixture-secret"), "a secret is shown: {said}");
        (status.code(), said)
    }

    /// Runs a verb that must succeed.
    async fn good(&self, args: &[&str]) -> String {
        let (code, said) = self.run(args).await;
        assert_eq!(code, Some(0), "{args:?}: {said}");
        said
    }

    /// Everything below the folder of secrets, by path.
    fn secrets(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let Ok(servers) = std::fs::read_dir(self.path("secrets")) else { return found };
        for server in servers {
            let server = server.unwrap();
            assert_eq!(server.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            for file in std::fs::read_dir(server.path()).unwrap() {
                let file = file.unwrap();
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
                let name = format!("{}/{}", server.file_name().display(), file.file_name().display());
                found.insert(name, std::fs::read_to_string(file.path()).unwrap());
            }
        }
        found
    }

    /// Starts the gateway on what was imported.
    async fn serve(&self) -> (tokio::process::Child, SocketAddr) {
        let log = std::fs::File::create(self.path("serve.log")).unwrap();
        let child = self.command(&["serve"]).stderr(log).spawn().unwrap();
        let addr = || {
            let talk = self.text("serve.log");
            let line = talk.lines().find_map(|line| Some(line.trim().strip_prefix("MCP ")?.trim().to_owned()))?;
            line.trim_start_matches("http://").trim_end_matches("/mcp").parse().ok()
        };
        until("the start block", || self.text("serve.log").contains("probes")).await;
        (child, addr().unwrap())
    }

    /// What lies beside a client's file.
    fn beside(file: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .filter(|name| name.contains("portcullis"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.root).is_ok();
    }
}

/// What the demo's server lists.
const TOOLS: [&str; 5] = ["add", "echo", "time", "secret_note", "big"];

/// Speaks to a written entry as its client would: start the program, initialize, list.
///
/// `variables` are what the client gives the program: its own environment does not reach it.
async fn list_over_stdio(home: &Home, program: &str, args: &[String], variables: &[String]) -> Vec<String> {
    assert_eq!(program, env!("CARGO_BIN_EXE_portcullis"));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // A client starts its programs somewhere else.
    let mut command = home.command(&args);
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    for (name, _) in VARIABLES.iter().filter(|(name, _)| !variables.iter().any(|given| given == name)) {
        command.env_remove(name);
    }
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = async |line: &str, id: u64| -> serde_json::Value {
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        loop {
            let line = within_deadline("an answer", lines.next_line()).await.unwrap().expect("it has ended");
            let answer: serde_json::Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    };
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"it","version":"1"}}}"#;
    assert!(ask(hello, 1).await["serverInfo"].is_object());
    let list = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}";
    let tools = ask(list, 2).await["tools"].clone();
    drop(input);
    within_deadline("its end", child.wait()).await.unwrap();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Connects a client's file in every way there is, lists through each entry, and undoes it.
async fn there_and_back(home: &Home, client: Kind, servers: &[&str], path: &Path, addr: SocketAddr) {
    let (name, shown, base) = (client.name(), path.to_str().unwrap(), format!("http://{addr}"));
    let bytes = std::fs::read(path).unwrap();
    let mut ways = vec![vec!["connect", name, "--file", shown]];
    if client.takes_urls() {
        ways.push(vec!["connect", name, "--file", shown, "--url", &base]);
    }
    for args in ways {
        home.good(&args).await;
        let now = std::fs::read_to_string(path).unwrap();
        assert_ne!(now.as_bytes(), bytes, "{shown}");
        let mut through = Vec::new();
        for entry in clients::read_client(client, &now).unwrap() {
            let names = match entry.how {
                How::Stdio { command, args, env, inherit_env, .. }
                    if args.first().is_some_and(|arg| arg == "stdio") =>
                {
                    assert!(env.iter().all(|(_, value)| value.expose().starts_with("${")), "{shown}: secrets stay");
                    let given = env.into_iter().map(|(name, _)| name).chain(inherit_env).collect::<Vec<_>>();
                    assert!(args.ends_with(&[servers[through.len()].to_owned()]), "{shown}: {args:?}");
                    list_over_stdio(home, &command, &args, &given).await
                }
                How::Http { url, headers } if url.expose().starts_with(&base) => {
                    assert!(headers.is_empty(), "{shown}: secrets stay in {}", entry.name);
                    let path = url.expose().trim_start_matches(&base).to_owned();
                    Client::connect(Era::Stateless, addr, &path, None).await.names().await
                }
                How::Stdio { .. } | How::Http { .. } | How::Not(_) => continue,
            };
            assert_eq!(names, TOOLS, "{shown}: {}", entry.name);
            through.push(entry.name);
        }
        assert_eq!(through.len(), servers.len(), "{shown}: {through:?}\n{now}");
        let (code, said) = home.run(&args).await;
        assert_eq!((code, said.contains("nothing was changed")), (Some(0), true), "{shown}: {said}");
        home.good(&["connect", name, "--undo", "--file", shown]).await;
        assert_eq!(std::fs::read(path).unwrap(), bytes, "{shown}");
        assert_eq!(Home::beside(path), [""; 0], "{shown}");
    }
}

/// [CFG-6, OPS-11]
#[tokio::test]
async fn every_sample_imports_connects_and_lists_and_undo_restores_every_byte() {
    let home = Home::new().await;
    std::fs::write(home.root.join("home/github.env"), "# mine\nexport EXTRA=\"fixture-secret-env-file\"\n").unwrap();
    for Sample { file, place, client, servers } in SAMPLES {
        let _old = std::fs::remove_dir_all(home.path("secrets")).is_ok();
        home.configuration();
        let (path, bytes) = home.place(file, place);
        let shown = path.to_str().unwrap();

        // While its programs are dead, nothing of it is saved.
        let (dies, mine) = (home.root.join("bin/npx.dies"), home.text("portcullis.toml"));
        std::fs::write(&dies, "").unwrap();
        let (code, said) = home.run(&["import", shown]).await;
        assert_eq!((code, said.contains("cannot be reached: ")), (Some(1), true), "{file}: {said}");
        assert!(home.text("portcullis.toml") == mine && !home.path("secrets").exists(), "{file}");
        std::fs::remove_file(dies).unwrap();

        let said = home.good(&["import", shown]).await;
        for server in *servers {
            assert!(said.contains(&format!("{server}__secret_note")), "{file}: no high-risk tool of {server}: {said}");
        }
        let text = home.text("portcullis.toml");
        assert!(text.starts_with("# mine\n[listen]\nhttp = \"127.0.0.1:0\"   # any\n"), "{file}: {text}");
        assert!(!text.contains("fixture-secret"), "{file}: {text}");
        let kept = home.secrets();
        for secret in String::from_utf8(bytes.clone()).unwrap().split(['"', ' ', '}']) {
            if secret.starts_with("fixture-secret") {
                assert!(kept.values().any(|value| value.ends_with(secret)), "{file}: {secret} is lost: {kept:?}");
            }
        }

        let (mut gateway, addr) = home.serve().await;
        for server in *servers {
            let names = Client::connect(Era::Legacy, addr, &format!("/mcp/{server}"), None).await.names().await;
            assert_eq!(names, TOOLS, "{file}: {server}");
        }
        if let Some(client) = *client {
            there_and_back(&home, client, servers, &path, addr).await;
        }
        gateway.start_kill().unwrap();
        within_deadline("the gateway's end", gateway.wait()).await.unwrap();
    }
}

/// Who is named and is not there is a mistake in the command, as for every other verb [OPS-1].
#[tokio::test]
async fn a_principal_that_is_not_there_is_not_connected() {
    let home = Home::new().await;
    home.configuration();
    let (path, bytes) = home.place("dead-server.json", "servers.json");
    let (code, said) = home.run(&["connect", "cursor", "--file", path.to_str().unwrap(), "--as", "nobody"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error[P601]"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// A server that cannot be reached is reported with its reason, and nothing is saved unless forced [CFG-6].
#[tokio::test]
async fn a_dead_server_is_reported_and_nothing_is_saved() {
    let home = Home::new().await;
    home.configuration();
    let before = home.text("portcullis.toml");
    let (path, bytes) = home.place("dead-server.json", "servers.json");
    let shown = path.to_str().unwrap();
    let (code, said) = home.run(&["import", shown]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("dead                 cannot be reached: "), "{said}");
    assert!(said.contains("it dies of [secret:TOKEN]"), "{said}");
    assert!(said.contains("alive                ready, 5 tools"), "{said}");
    assert!(said.contains("nothing is saved"), "{said}");
    assert_eq!(home.text("portcullis.toml"), before);
    assert!(home.secrets().is_empty() && !home.path("secrets").exists());

    let (code, said) = home.run(&["import", shown, "--force", "--as", "someone"]).await;
    assert_eq!(code, Some(0), "{said}");
    let text = home.text("portcullis.toml");
    assert!(text.contains("[principals.someone]\nmcp_bundles = [\"imported\"]"), "{text}");
    assert_eq!(home.secrets().len(), 2);
    assert_eq!(home.text("portcullis.toml.before-import"), before);
    assert_eq!(std::fs::read(path).unwrap(), bytes, "an import never writes the client's file");
}

/// A second import of the same file changes nothing; a trial run changes nothing at all [CFG-6].
#[tokio::test]
async fn importing_again_adds_nothing() {
    let home = Home::new().await;
    let (path, _) = home.place("claude-desktop.json", "desktop.json");
    let shown = path.to_str().unwrap();
    let said = home.good(&["import", shown, "--dry-run"]).await;
    assert!(said.contains("[[mcp.servers]]") && said.contains("${file:secrets/Brave-Search/BRAVE_API_KEY}"), "{said}");
    assert!(!home.path("portcullis.toml").exists() && !home.path("secrets").exists());
    home.good(&["import", shown]).await;
    let (first, secrets) = (home.text("portcullis.toml"), home.secrets());
    let mode = std::fs::metadata(home.path("portcullis.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = home.good(&["import", shown]).await;
    assert!(said.contains("(is there already)"), "{said}");
    assert_eq!(home.text("portcullis.toml"), first);
    assert_eq!(home.secrets(), secrets);
    // Another server of the same name gets another one, and both stay.
    let other = r#"{"mcpServers":{"filesystem":{"command":"npx","args":["other"]}}}"#;
    std::fs::write(home.path("other.json"), other).unwrap();
    home.good(&["import", "other.json"]).await;
    let text = home.text("portcullis.toml");
    assert!(text.starts_with(first.split("[mcp_bundles").next().unwrap()), "{text}");
    assert!(text.contains("name = \"filesystem-2\""), "{text}");
    assert!(text.contains("servers = [\"filesystem\", \"Brave-Search\", \"filesystem-2\"]"), "{text}");
    home.good(&["check"]).await;
}

/// ZeroClaw's agents, bundles and risk profiles; what asked a person there is not dropped silently [CFG-8].
#[tokio::test]
async fn a_zeroclaw_file_becomes_principals_and_policies() {
    let home = Home::new().await;
    let (path, _) = home.place("zeroclaw-0.8.config.toml", ".zeroclaw/config.toml");
    let shown = path.to_str().unwrap();
    let (code, said) = home.run(&["import", shown]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("risk profile 'careful' asks a person before a call"), "{said}");
    assert!(said.contains("tool_filter_groups of agent 'writer' is not carried over"), "{said}");
    assert!(said.contains("agent 'idle' is switched off"), "{said}");
    assert!(said.contains("bundle 'all' names 'gone'"), "{said}");
    assert!(!home.path("portcullis.toml").exists());

    let said = home.good(&["import", shown, "--force"]).await;
    assert!(said.contains("principal 'writer' needs a key"), "{said}");
    let text = home.text("portcullis.toml");
    for part in [
        "[listen]\nauth = \"keys\"",
        "name = \"filesystem\"",
        "tool_timeout_secs = 30",
        "name = \"docs.site\"",
        "[mcp_bundles.files]\nservers = [\"filesystem\"]",
        "[mcp_bundles.all]\nservers = [\"filesystem\", \"docs.site\"]\nexclude = [\"filesystem\"]",
        "allowed_tools = [\"filesystem__echo\"]\nauto_admit_mcp_tools = true\nexcluded_tools = [\"filesystem__secret_note\"]",
        "# with a later version: approval = \"off\"",
        "# with a later version: approval = \"all\"\n# with a later version: auto_approve = [\"filesystem__echo\"]",
        "[principals.writer]\nmcp_bundles = [\"files\"]\npolicy = \"trusted\"",
        "[principals.reader]\nmcp_bundles = [\"files\", \"all\"]\npolicy = \"careful\"",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("unused") && !text.contains("idle") && !text.contains("local"), "{text}");
    assert_eq!(home.secrets().len(), 2);

    // Each agent with a key sees what it saw there.
    let keys = |name: &str| format!("[principals.{name}]\n{}", crate::support::TestApp::key(name));
    let text = text.replace("[listen]\n", "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
    let text = ["writer", "reader"]
        .iter()
        .fold(text, |text, name| text.replace(&format!("[principals.{name}]\n"), &keys(name)));
    std::fs::write(home.path("portcullis.toml"), text).unwrap();
    let (_gateway, addr) = home.serve().await;
    let writer = Client::connect(Era::Stateless, addr, "/mcp", Some("writer")).await.names().await;
    assert_eq!(writer, ["filesystem__add", "filesystem__echo", "filesystem__time", "filesystem__big"]);
    let reader = Client::connect(Era::Stateless, addr, "/mcp", Some("reader")).await.names().await;
    assert_eq!(reader, TOOLS.map(|tool| format!("docs_site__{tool}")));
}

/// An undo after the client itself has written its file puts the entries back and keeps the rest [OPS-11].
#[tokio::test]
async fn an_undo_keeps_what_the_client_has_written_since() {
    let home = Home::new().await;
    for (file, place, client, mark, written) in [
        ("claude-code-2.1.user.json", ".claude.json", Kind::ClaudeCode, "\"numStartups\": 41", "\"numStartups\": 42"),
        ("codex-0.159.config.toml", ".codex/config.toml", Kind::Codex, "notifications = true", "notifications = false"),
        ("zed-2026.settings.json", ".config/zed/settings.json", Kind::Zed, "\"vim_mode\": true", "\"vim_mode\": false"),
    ] {
        home.configuration();
        let (path, bytes) = home.place(file, place);
        home.good(&["import", path.to_str().unwrap()]).await;
        home.good(&["connect", client.name()]).await;
        let now = std::fs::read_to_string(&path).unwrap();
        assert!(now.contains(mark), "{file}");
        std::fs::write(&path, now.replace(mark, written)).unwrap();
        let said = home.good(&["connect", client.name(), "--undo"]).await;
        assert!(said.contains("had changed since"), "{file}: {said}");
        let now = std::fs::read_to_string(&path).unwrap();
        let before = String::from_utf8(bytes).unwrap();
        if client == Kind::Codex {
            // Tables keep their content; their comments may move.
            let parsed = |text: &str| text.parse::<toml::Table>().unwrap();
            assert_eq!(parsed(&now), parsed(&before.replace(mark, written)), "{file}");
        } else {
            assert_eq!(now, before.replace(mark, written), "{file}");
        }
        assert_eq!(Home::beside(&path), [""; 0], "{file}");
        let _gone = std::fs::remove_dir_all(home.path("secrets")).is_ok();
    }
}

/// Where a client has no file there is one entry for everything, and none after the undo [OPS-11].
#[tokio::test]
async fn a_client_without_a_file_gets_one_and_loses_it() {
    let home = Home::new().await;
    home.configuration();
    let (path, _) = home.place("inner-object.json", "inner.json");
    home.good(&["import", path.to_str().unwrap()]).await;
    for client in Kind::ALL {
        let file = client.location(&|name| (name == "HOME").then(|| home.root.join("home").display().to_string()));
        let file = file.unwrap();
        let said = home.good(&["connect", client.name(), "--dry-run"]).await;
        assert!(said.contains("nothing was changed") && !file.exists(), "{client:?}: {said}");
        home.good(&["connect", client.name(), "--as", "local"]).await;
        let entries = clients::read_client(client, &std::fs::read_to_string(&file).unwrap()).unwrap();
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        let How::Stdio { args, .. } = &entry.how else { panic!("{entry:?}") };
        let config = home.path("portcullis.toml").display().to_string();
        assert_eq!(args.join(" "), format!("stdio --config {config} --as local"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        home.good(&["connect", client.name(), "--undo"]).await;
        assert!(!file.exists(), "{client:?}");
        let (code, said) = home.run(&["connect", client.name(), "--undo"]).await;
        assert_eq!((code, said.contains("nothing to undo")), (Some(1), true), "{said}");
    }
}

/// What stays as it is, and what is refused [OPS-1, OPS-11].
#[tokio::test]
async fn entries_that_would_not_work_are_left_alone() {
    let home = Home::new().await;
    home.configuration();
    let (path, bytes) = home.place("claude-desktop.json", "desktop.json");
    let shown = path.to_str().unwrap();
    // Nothing is imported yet.
    let said = home.good(&["connect", "claude-desktop", "--file", shown]).await;
    assert!(said.contains("take it over with portcullis import"), "{said}");
    // Imported, but for somebody else.
    home.good(&["import", shown, "--as", "someone"]).await;
    let both = home.text("portcullis.toml") + "\n[principals.local]\n";
    std::fs::write(home.path("portcullis.toml"), both).unwrap();
    let said = home.good(&["connect", "claude-desktop", "--file", shown]).await;
    assert!(said.contains("no bundle grants server 'filesystem' to principal 'local'"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    for (args, words) in [
        (vec!["connect", "claude-desktop", "--url", "http://127.0.0.1:1"], "starts programs alone"),
        (vec!["import", "nowhere.json"], "does not exist"),
        (vec!["import", "portcullis.toml.before-import"], "of Portcullis already"),
        (vec!["connect", "cursor", "--config", "nowhere.toml"], "cannot be read"),
    ] {
        let (code, said) = home.run(&args).await;
        assert!(code.is_some_and(|code| code == 1 || code == 3) && said.contains(words), "{args:?}: {code:?} {said}");
    }
    assert_eq!(home.run(&["connect", "emacs"]).await.0, Some(2));
    // What is no address is written nowhere.
    for url in ["127.0.0.1:7800", "ftp://127.0.0.1", "http://me:hush@127.0.0.1"] {
        let (code, said) = home.run(&["connect", "cursor", "--dry-run", "--url", url]).await;
        assert_eq!(
            (code, said.contains("error[P600]"), said.contains("hush")),
            (Some(2), true, false),
            "{url}: {said}"
        );
    }
    // A running gateway that asks for keys would refuse what is written.
    let keys = home.text("portcullis.toml").replace("auth = \"none\"", "auth = \"keys\"");
    std::fs::write(home.path("keys.toml"), keys).unwrap();
    let (code, said) = home.run(&["connect", "cursor", "--config", "keys.toml", "--url", "http://127.0.0.1:1"]).await;
    assert_eq!((code, said.contains("asks callers for a key")), (Some(1), true), "{said}");
    // A file that links somewhere else stays a link.
    let link = home.root.join("home/link.json");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    home.good(&["connect", "claude-desktop", "--file", link.to_str().unwrap(), "--as", "someone"]).await;
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_ne!(std::fs::read(&path).unwrap(), bytes);
    // What goes through the gateway is not imported into it.
    let (code, said) = home.run(&["import", shown]).await;
    assert_eq!((code, said.contains("it goes through the gateway already")), (Some(1), true), "{said}");
    home.good(&["connect", "claude-desktop", "--undo", "--file", link.to_str().unwrap()]).await;
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// An interrupt during the trial ends what was started, and nothing is saved [CFG-6].
#[tokio::test]
async fn an_interrupt_ends_what_was_started() {
    let home = Home::new().await;
    let file = home.path("hangs.json");
    std::fs::write(&file, r#"{"mcpServers":{"hangs":{"command":"npx","args":["fixture-hangs"]}}}"#).unwrap();
    let mut import = home.command(&["import", file.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
    let note = home.root.join("bin/npx.pid");
    let pid = || std::fs::read_to_string(&note).ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    until("the server is started", || pid().is_some()).await;
    kill_process(Pid::from_raw(i32::try_from(import.id().unwrap()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert_eq!(within_deadline("its end", import.wait()).await.unwrap().code(), Some(1));
    // Interrupted between a child's start and its taking over, the import leaves its end to the guardian.
    until("the server is gone too", || test_kill_process(pid().unwrap()).is_err()).await;
    assert!(!home.path("portcullis.toml").exists());
}
