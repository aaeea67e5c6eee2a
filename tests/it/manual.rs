//! Every command that a manual shows is run by something, and this table says by what [OPS-1, OPS-8].
//!
//! A command in no row fails, and so does a row whose command is gone, or whose runner is. Commands are those of shell fences
//! in every README and SECURITY.md, and those of three words and more in their prose.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command as Process;

use crate::support::{Ended, folder, within_deadline};

/// What runs a command.
#[derive(Clone, Copy, Debug)]
enum By {
    /// Programs that read the document's block of this name and run all of it.
    Block(&'static str, &'static str),
    /// A step of tests/run: these words of it.
    Step(&'static str),
    /// A test: its file and name.
    Test(&'static str, &'static str),
    /// `tests/lab/manual`, which has the command in its list, with what it changes.
    Lab,
    /// Nothing can here: why, and the test (file, name) of what it would do.
    Cannot(&'static str, &'static str, &'static str),
}

use By::{Block, Cannot, Lab, Step, Test};

const MANUAL: &str = "tests/it/manual.rs";
const DEPLOY: &str = "tests/it/deploy.rs";

/// Document, command, what runs it.
const TABLE: &[(&str, &str, By)] = &[
    ("README.md", "<!-- first-call -->", Block("first-call", "tests/lab/first-call")),
    ("README.md", "<!-- real-client -->", Block("real-client", "tests/lab/first-call")),
    ("README.md", "<!-- command-line -->", Block("command-line", "tests/it/help.rs")),
    ("README.md", "cargo run --release -- serve --demo", Step("tests/lab/first-call --here")),
    ("README.md", "portcullis check", Test(MANUAL, "one_s_own_servers_are_checked_and_served")),
    ("README.md", "portcullis serve", Test(MANUAL, "one_s_own_servers_are_checked_and_served")),
    ("README.md", "./tests/run", Cannot("it is what runs this", MANUAL, "the_scripts_that_run_everything_are_whole")),
    (
        "README.md",
        "portcullis key new NAME",
        Test("tests/it/command_line.rs", "a_new_key_is_printed_once_and_nothing_is_written"),
    ),
    (
        "README.md",
        "portcullis import ~/.config/Claude/claude_desktop_config.json",
        Test(MANUAL, "the_desktop_s_commands_run"),
    ),
    ("README.md", "portcullis connect claude-desktop", Test(MANUAL, "the_desktop_s_commands_run")),
    ("tests/README.md", "tests/lab/install", Step("tests/lab/install")),
    ("tests/README.md", "cargo build --release && tests/lab/real-peers", Step("tests/lab/real-peers")),
    ("tests/README.md", "tests/lab/first-call --here", Step("tests/lab/first-call --here")),
    ("tests/README.md", "<!-- by-hand -->", Block("by-hand", "tests/lab/first-call")),
    (
        "tests/README.md",
        "cargo test --test it -- --ignored",
        Cannot("it takes many minutes", "tests/it/stdio.rs", "two_hundred_lives_leave_nothing"),
    ),
    (
        "tests/README.md",
        "npm install --ignore-scripts",
        Cannot("it changes the lock file, from the network", MANUAL, "what_moves_a_pin_is_there"),
    ),
    ("tests/conformance/README.md", "tests/lab/install", Step("tests/lab/install")),
    ("tests/conformance/README.md", "cargo build --release && tests/conformance/run", Step("tests/conformance/run")),
    ("tests/conformance/README.md", "tests/conformance/run --only stdio --keep", Lab),
    (
        "tests/conformance/README.md",
        "npm install --ignore-scripts",
        Cannot("it changes the lock file, from the network", MANUAL, "what_moves_a_pin_is_there"),
    ),
    (
        "deploy/README.md",
        "portcullis check --config deploy/systemd/portcullis.toml",
        Test(DEPLOY, "the_manual_s_commands_run"),
    ),
    ("deploy/README.md", "portcullis check --policy policies/*.toml", Test(DEPLOY, "the_manual_s_commands_run")),
    ("policies/README.md", "portcullis check --policy policies/*.toml", Test(DEPLOY, "the_manual_s_commands_run")),
    (
        "deploy/README.md",
        "install -m 755 target/release/portcullis /usr/local/bin/",
        Test(MANUAL, "the_service_s_files_are_installed"),
    ),
    (
        "deploy/README.md",
        "install -d /etc/portcullis && install -m 644 deploy/systemd/portcullis.toml /etc/portcullis/",
        Test(MANUAL, "the_service_s_files_are_installed"),
    ),
    (
        "deploy/README.md",
        "install -m 644 deploy/systemd/portcullis.service /etc/systemd/system/",
        Test(MANUAL, "the_service_s_files_are_installed"),
    ),
    (
        "deploy/README.md",
        "systemctl daemon-reload && systemctl enable --now portcullis",
        Cannot("it needs systemd as process 1", DEPLOY, "the_unit_runs_what_there_is"),
    ),
    (
        "deploy/README.md",
        "docker build --file deploy/Dockerfile --tag portcullis:0.1.0 .",
        Cannot("it needs a container engine", MANUAL, "what_engine_and_cluster_are_told_is_true"),
    ),
    (
        "deploy/README.md",
        "docker compose --file deploy/compose/compose.yaml up",
        Cannot("it needs a container engine", MANUAL, "what_engine_and_cluster_are_told_is_true"),
    ),
    (
        "deploy/README.md",
        "kubectl create secret generic agent-portcullis --from-file=docs-token",
        Cannot("it needs a cluster", MANUAL, "what_engine_and_cluster_are_told_is_true"),
    ),
    (
        "deploy/README.md",
        "kubectl apply --filename deploy/k8s/sidecar.yaml",
        Cannot("it needs a cluster", MANUAL, "what_engine_and_cluster_are_told_is_true"),
    ),
    (
        "deploy/README.md",
        "systemctl kill --kill-whom=main --signal=HUP portcullis",
        Cannot("it needs systemd as process 1", "tests/it/reload.rs", "a_signal_makes_it_look"),
    ),
    ("certs/README.md", "certs/make-dev-certs", Test(MANUAL, "development_certificates_are_made_as_written")),
    (
        "certs/README.md",
        "certs/make-dev-certs --into /tmp/certs my-host.example",
        Test(MANUAL, "development_certificates_are_made_as_written"),
    ),
    ("bench/README.md", "bench/run gate", Step("bench/run gate --portcullis")),
    ("bench/README.md", "bench/run gate --portcullis BIN", Step("bench/run gate --portcullis")),
    ("bench/README.md", "bench/run gate --verbose", Lab),
    ("bench/README.md", "bench/run gate --only '^instructions/'", Lab),
    (
        "bench/README.md",
        "bench/run gate --update",
        Cannot(
            "it rewrites the baseline",
            "bench/selftest.py",
            "test_an_update_keeps_stated_tolerances_and_leaves_out_what_was_not_counted",
        ),
    ),
    ("bench/README.md", "cargo bench --bench micro", Lab),
    ("bench/README.md", "cargo bench --bench micro -- decide", Lab),
    ("bench/README.md", "cargo bench --bench micro -- --once read-legacy", Lab),
    (
        "bench/README.md",
        "CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --release \
         --target-dir target/profile",
        Test(MANUAL, "a_build_for_profiles_keeps_its_names"),
    ),
    (
        "bench/README.md",
        "TOKIO_WORKER_THREADS=1 valgrind --tool=callgrind target/profile/release/portcullis serve --demo",
        Lab,
    ),
    ("bench/README.md", "bench/run report", Lab),
    ("bench/README.md", "bench/run report --rounds 2 --seconds 0.3 --out /tmp/report", Lab),
    ("bench/README.md", "bench/run report --only 'big|noise' --out /tmp/report", Lab),
    ("bench/README.md", "<!-- peers -->", Block("peers", "tests/lab/manual")),
];

/// A command, and the block that it stands in.
#[derive(Debug)]
struct Shown {
    document: String,
    command: String,
    block: Option<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|err| panic!("{name}: {err}"))
}

/// The manuals below a folder.
fn manuals(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && !name.starts_with('.') && name != "node_modules" && name != "target" {
            found.extend(manuals(&path));
        } else if name.contains("README") && name.ends_with(".md") || name == "SECURITY.md" {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Takes a comment off a line: what follows a `#` outside of quotes, at a word's begin. `None` if a quote is open.
fn bare(line: &str) -> Option<&str> {
    let (mut quote, mut before) = (None, ' ');
    for (at, char) in line.char_indices() {
        match (quote, char) {
            (None, '#') if before.is_whitespace() => return line.get(..at).map(str::trim),
            (None, '\'' | '"') => quote = Some(char),
            (Some(open), _) if open == char => quote = None,
            _ => {}
        }
        before = char;
    }
    quote.is_none().then(|| line.trim())
}

/// The commands of a fence; `console` has a prompt before each.
fn commands(fence: &str, console: bool) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), String::new());
    for line in fence.lines() {
        let line = match line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
            Some(command) if console => command,
            _ if console => panic!("a line without a prompt: {line}"),
            _ => line,
        };
        open.push_str(line.strip_suffix('\\').unwrap_or(line));
        if line.ends_with('\\') {
            continue;
        }
        let Some(command) = bare(&open) else {
            open.push('\n');
            continue;
        };
        if !command.is_empty() {
            found.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        open.clear();
    }
    assert!(open.is_empty(), "a command that does not end: {open}");
    found
}

/// The commands of prose: those of three words and more.
fn spoken(prose: &str) -> impl Iterator<Item = String> {
    const PROGRAMS: [&str; 9] = ["cargo", "curl", "docker", "git", "kubectl", "npm", "npx", "portcullis", "systemctl"];
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>());
    spans.filter(|words| words.len() > 2 && PROGRAMS.contains(&words[0])).map(|words| words.join(" "))
}

/// Everything that a document shows.
fn shown(path: &Path) -> Vec<Shown> {
    let document = path.strip_prefix(root()).unwrap().display().to_string();
    let (mut found, mut block, mut prose) = (Vec::new(), None, String::new());
    let (text, mut fence) = (std::fs::read_to_string(path).unwrap(), None::<(String, String)>);
    for line in text.lines() {
        match (&mut fence, line.strip_prefix("```")) {
            (None, Some(language)) => fence = Some((language.to_owned(), String::new())),
            (Some((language, body)), Some(_)) => {
                if ["bash", "sh", "shell", "console"].contains(&language.as_str()) {
                    let all = commands(body, language == "console").into_iter();
                    found.extend(all.map(|command| Shown {
                        document: document.clone(),
                        command,
                        block: block.clone(),
                    }));
                }
                fence = None;
            }
            (Some((_, body)), None) => body.extend([line, "\n"]),
            (None, None) => match line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
                Some(name) if name.starts_with('/') => block = None,
                Some(name) => block = Some(name.to_owned()),
                None => prose.extend([line, "\n"]),
            },
        }
    }
    assert!(fence.is_none(), "{document}: a fence that does not end");
    found.extend(spoken(&prose).map(|command| Shown { document: document.clone(), command, block: None }));
    found
}

fn all_shown() -> Vec<Shown> {
    manuals(root()).iter().flat_map(|path| shown(path)).collect()
}

/// The command of a document that begins so, as it is written there.
fn written(document: &str, start: &str) -> String {
    let all = shown(&root().join(document));
    let mut found = all.into_iter().map(|one| one.command).filter(|command| command.starts_with(start));
    found.next().unwrap_or_else(|| panic!("{document} does not show {start}"))
}

/// Says whether a test of that name is one: it is there, and marked so, or a method of Python's kind.
fn is_test(file: &str, name: &str) -> bool {
    let text = text(file);
    let mut before = "";
    for line in text.lines() {
        let line = line.trim();
        if line.contains(&format!("fn {name}(")) {
            return before.starts_with("#[test]") || before.starts_with("#[tokio::test");
        }
        if line.starts_with(&format!("def {name}(")) {
            return name.starts_with("test_");
        }
        before = line;
    }
    false
}

/// What is wrong with a row.
fn fault(document: &str, command: &str, by: By, runs: &str) -> Option<String> {
    let step_of = |program: &str| runs.contains(program) || program.starts_with("tests/it/");
    match by {
        Block(name, program) => {
            let reads = text(program).contains(&format!("\"{name}\""));
            let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
            let document = text(document);
            let there = command == begin && document.contains(&begin) && document.contains(&end);
            (!(reads && there && step_of(program))).then(|| format!("{program} does not run the block {name}"))
        }
        Step(words) => (!runs.contains(words)).then(|| format!("tests/run has no step '{words}'")),
        Test(file, name) => (!is_test(file, name)).then(|| format!("{file} has no test {name}")),
        Lab => {
            let listed = text("tests/lab/manual").contains(&format!("(\"{document}\", \"{command}\""));
            (!listed || !step_of("tests/lab/manual")).then(|| "tests/lab/manual does not list it".to_owned())
        }
        Cannot(why, file, name) => {
            (why.is_empty() || !is_test(file, name)).then(|| format!("{file} has no test {name}"))
        }
    }
}

/// No command without a row, no row without its command, no row whose runner is not there.
#[test]
fn every_command_of_every_manual_is_run_by_something() {
    let (all, runs) = (all_shown(), text("tests/run"));
    assert!(all.len() > 40, "{all:#?}");
    let rows = |one: &Shown| {
        let mine = TABLE.iter().filter(|(document, ..)| *document == one.document);
        mine.filter(|(_, command, by)| match by {
            Block(name, _) => one.block.as_deref() == Some(*name),
            Step(_) | Test(..) | Lab | Cannot(..) => *command == one.command,
        })
        .count()
    };
    let mut wrong: Vec<String> = Vec::new();
    for one in &all {
        match rows(one) {
            1 => {}
            count => wrong.push(format!("{}: '{}' is in {count} rows", one.document, one.command)),
        }
    }
    for (document, command, by) in TABLE {
        let there = all.iter().any(|one| {
            one.document == *document
                && match by {
                    Block(name, _) => one.block.as_deref() == Some(*name),
                    Step(_) | Test(..) | Lab | Cannot(..) => one.command == *command,
                }
        });
        if !there {
            wrong.push(format!("{document} does not show '{command}' any more"));
        }
        wrong.extend(fault(document, command, *by, &runs).map(|fault| format!("{document}: '{command}': {fault}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The table's own rules can fail.
#[test]
fn a_row_that_claims_too_much_is_found() {
    let runs = text("tests/run");
    assert!(fault("README.md", "<!-- nothing -->", Block("nothing", "tests/lab/first-call"), &runs).is_some());
    assert!(fault("README.md", "<!-- first-call -->", Block("first-call", "tests/it/deploy.rs"), &runs).is_some());
    assert!(fault("README.md", "x", Step("bench/run nonsense"), &runs).is_some());
    assert!(fault("README.md", "x", Test(MANUAL, "fault"), &runs).is_some(), "a helper is no test");
    assert!(fault("README.md", "x", Test(MANUAL, "nothing"), &runs).is_some());
    assert!(fault("README.md", "portcullis nothing at all", Lab, &runs).is_some());
    assert!(fault("README.md", "x", Cannot("", MANUAL, "a_row_that_claims_too_much_is_found"), &runs).is_some());
    assert_eq!(commands("a  'b # c' \\\n  d # e\n# f\n\ng 'h\ni'\n", false), ["a 'b # c' d", "g 'h i'"]);
    assert_eq!(commands("# a b\n$ c\n", true), ["a b", "c"]);
    assert_eq!(
        spoken("`portcullis x` and `cargo test\n--test it`, `cargox a b`").collect::<Vec<_>>(),
        ["cargo test --test it"]
    );
}

/// A folder that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Self(folder())
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0).is_ok();
    }
}

/// Prepares a line in a folder, as a person types it.
fn shell(line: &str, place: &Path, env: &[(&str, &str)]) -> Process {
    let mut shell = Process::new("sh");
    let binary = Path::new(env!("CARGO_BIN_EXE_portcullis")).parent().unwrap();
    let inherited = portcullis::config::process_env("PATH").unwrap_or_default();
    let path = format!("{}:{}:{}", place.display(), binary.display(), inherited);
    // The machine's own state folder is left alone.
    shell.env("PORTCULLIS_STATE_DIR", place.join("state"));
    shell.args(["-euc", line]).current_dir(place).env("PATH", path).envs(env.iter().copied()).kill_on_drop(true);
    shell.stdin(std::process::Stdio::null());
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    shell
}

/// Runs it.
async fn types(line: &str, place: &Path, env: &[(&str, &str)]) -> Ended {
    Ended::of(shell(line, place, env)).await
}

/// Writes a program that stands for `npx` and serves the demo.
fn write_npx(place: &Path) {
    let path = place.join("npx");
    std::fs::write(&path, format!("#!/bin/sh\nexec '{}' demo-server\n", env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// README's configuration, as it stands but for the ports, with a stand-in for its server's program.
#[tokio::test]
async fn one_s_own_servers_are_checked_and_served() {
    let readme = text("README.md");
    let own = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let place = Place::new();
    write_npx(&place.0);
    std::fs::write(place.0.join("portcullis.toml"), own).unwrap();
    let checked = types(&written("README.md", "portcullis check"), &place.0, &[]).await.code(0);
    assert_eq!((checked.stdout.as_str(), checked.stderr.as_str()), ("", ""), "not a warning");
    let listen = "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";
    std::fs::write(place.0.join("portcullis.toml"), format!("{listen}{own}")).unwrap();
    let mut served =
        shell(&format!("exec {}", written("README.md", "portcullis serve")), &place.0, &[]).spawn().unwrap();
    let mut said = BufReader::new(served.stderr.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = said.next_line().await.unwrap() {
            if line.trim().starts_with("server ") {
                return line;
            }
        }
        panic!("it has ended");
    };
    let line = within_deadline("the start block", ready).await;
    assert!(line.contains("files") && line.contains("ready, "), "{line}");
    kill_process(Pid::from_raw(i32::try_from(served.id().unwrap()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(within_deadline("its end", served.wait()).await.unwrap().code(), Some(0));
}

/// The desktop's two commands, at the place that README names.
#[tokio::test]
async fn the_desktop_s_commands_run() {
    let place = Place::new();
    write_npx(&place.0);
    let config = place.0.join(".config/Claude/claude_desktop_config.json");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    let before = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "a-server"]}}}"#;
    std::fs::write(&config, before).unwrap();
    let home = place.at("");
    let env = [("HOME", home.as_str()), ("XDG_CONFIG_HOME", "")];
    let import = types(&written("README.md", "portcullis import"), &place.0, &env).await.code(0);
    assert!(import.stderr.contains("npx"), "each command is shown: {import:?}");
    types("portcullis check", &place.0, &env).await.code(0);
    let connect = written("README.md", "portcullis connect");
    types(&connect, &place.0, &env).await.code(0);
    let after = std::fs::read_to_string(&config).unwrap();
    assert!(after.contains("\"stdio\"") && after.contains("portcullis"), "{after}");
    types(&format!("{connect} --undo"), &place.0, &env).await.code(0);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before, "byte for byte");
}

/// The service's files, installed below a folder in place of the machine's.
#[tokio::test]
async fn the_service_s_files_are_installed() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_portcullis");
    for folder in ["usr/local/bin", "etc/systemd/system"] {
        std::fs::create_dir_all(place.0.join(folder)).unwrap();
    }
    for start in ["install -m 755", "install -d", "install -m 644 deploy/systemd/portcullis.service"] {
        let line = written("deploy/README.md", start).replace("target/release/portcullis", binary);
        let line = line
            .replace(" /usr/", &format!(" {}/", place.at("usr")))
            .replace(" /etc/", &format!(" {}/", place.at("etc")));
        types(&line, root(), &[]).await.code(0);
    }
    // What the unit starts is where it was installed.
    let unit = std::fs::read_to_string(place.0.join("etc/systemd/system/portcullis.service")).unwrap();
    let pre = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=")).unwrap();
    let pre = pre.replace("/usr/", &format!("{}/", place.at("usr"))).replace("/etc/", &format!("{}/", place.at("etc")));
    types(&pre, &place.0, &[]).await.code(0);
}

/// Files, names and keys in what an engine and a cluster are told; `kubectl` itself where it is there, without a cluster.
#[tokio::test]
async fn what_engine_and_cluster_are_told_is_true() {
    let manifest = text("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    let build = written("deploy/README.md", "docker build");
    let words: Vec<&str> = build.split(' ').collect();
    let after = |flag: &str| words[words.iter().position(|word| *word == flag).unwrap() + 1];
    assert!(
        root().join(after("--file")).is_file() && root().join(format!("{}.dockerignore", after("--file"))).is_file()
    );
    assert_eq!((after("--tag"), words.last()), (format!("portcullis:{version}").as_str(), Some(&".")));
    assert!(text("deploy/README.md").contains(&format!("FROM portcullis:{version}")), "the same tag");
    for (start, flag) in [("docker compose", "--file"), ("kubectl apply", "--filename")] {
        let line = written("deploy/README.md", start);
        let path = line.split(' ').skip_while(|word| *word != flag).nth(1).unwrap();
        let documents = crate::support::yaml::documents(&text(path));
        assert!(!documents.is_empty(), "{line}");
        if start == "docker compose" {
            // What is built is what the line above builds.
            let service = &documents[0]["services"]["portcullis"];
            let from = Path::new(path).parent().unwrap();
            let context = root().join(from).join(service["build"]["context"].as_str().unwrap());
            assert_eq!(context.canonicalize().unwrap(), root().canonicalize().unwrap());
            assert_eq!(service["build"]["dockerfile"], after("--file"));
        }
    }
    let secret = written("deploy/README.md", "kubectl create secret");
    let words: Vec<&str> = secret.split(' ').collect();
    let (name, file) = (words[4], words[5].strip_prefix("--from-file=").unwrap());
    let sidecar = text("deploy/k8s/sidecar.yaml");
    assert!(sidecar.contains(&format!("secretName: {name}")), "{name}");
    assert!(sidecar.lines().any(|line| line.contains("${file:") && line.contains(&format!("/{file}}}"))), "{file}");
    let place = Place::new();
    std::fs::write(place.0.join(file), "t0ken").unwrap();
    if types("command -v kubectl", &place.0, &[]).await.code == Some(0) {
        let made = types(&format!("{secret} --dry-run=client -o json"), &place.0, &[]).await.code(0);
        let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
        assert_eq!((&made["kind"], &made["metadata"]["name"]), (&"Secret".into(), &name.into()));
        assert!(made["data"][file].is_string(), "{made}");
    }
}

/// Certificates, made by a copy of the script in a folder of its own.
#[tokio::test]
async fn development_certificates_are_made_as_written() {
    let place = Place::new();
    std::fs::create_dir(place.0.join("certs")).unwrap();
    std::fs::copy(root().join("certs/make-dev-certs"), place.0.join("certs/make-dev-certs")).unwrap();
    let elsewhere = written("certs/README.md", "certs/make-dev-certs --into");
    assert!(elsewhere.contains(" /tmp/certs "), "{elsewhere}");
    let elsewhere = elsewhere.replace("/tmp/certs", &place.at("elsewhere"));
    for (line, made) in [(written("certs/README.md", "certs/make-dev-certs"), "certs"), (elsewhere, "elsewhere")] {
        let ended = types(&line, &place.0, &[]).await;
        // The script's own code for a machine that lacks openssl.
        if ended.code == Some(69) {
            assert_ne!(portcullis::config::process_env("CI").as_deref(), Some("true"), "{ended:?}");
            eprintln!("not run: development certificates ({})", ended.stderr.trim());
            return;
        }
        let ended = ended.code(0);
        for file in ["ca.pem", "ca-key.pem", "cert.pem", "key.pem"] {
            assert!(place.0.join(made).join(file).is_file(), "{line}: no {file}: {ended:?}");
        }
    }
}

/// The build for profiles, in a package of one line, for the real one takes minutes: the names stay in the binary.
#[tokio::test]
async fn a_build_for_profiles_keeps_its_names() {
    let place = Place::new();
    let profile = text("Cargo.toml").split("[profile.release]").nth(1).unwrap().split("\n[").next().unwrap().to_owned();
    std::fs::create_dir(place.0.join("src")).unwrap();
    let manifest =
        format!("[package]\nname = \"portcullis\"\nedition = \"2024\"\n[workspace]\n[profile.release]{profile}\n");
    std::fs::write(place.0.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(
        place.0.join("src/main.rs"),
        "#[inline(never)]\nfn a_name_to_be_found() { println!(\"{:?}\", std::env::args()); }\nfn main() { a_name_to_be_found(); }\n",
    )
    .unwrap();
    let names = |folder: &str| {
        let binary = std::fs::read(place.0.join(folder).join("release/portcullis")).unwrap();
        memchr::memmem::find(&binary, b"a_name_to_be_found").is_some()
    };
    let line = written("bench/README.md", "CARGO_PROFILE_RELEASE_STRIP");
    types(&format!("{line} --offline"), &place.0, &[]).await.code(0);
    types("cargo build --release --target-dir target/plain --offline", &place.0, &[]).await.code(0);
    assert_eq!((names("target/profile"), names("target/plain")), (true, false));
}

/// `./tests/run` and `.ci/run` cannot run inside of themselves: they parse, and every program they name is there.
#[tokio::test]
async fn the_scripts_that_run_everything_are_whole() {
    for script in ["tests/run", ".ci/run"] {
        types(&format!("bash -n {script} && test -x {script}"), root(), &[]).await.code(0);
        let text = text(script);
        let programs = text.split_whitespace().filter(|word| {
            ["tests/", "bench/", "./tests/"].iter().any(|start| word.starts_with(start)) && !word.contains(':')
        });
        let mut count = 0;
        for program in programs {
            let program = program.trim_end_matches([';', ')', '"', '\'']).trim_start_matches("./");
            types(&format!("test -x {program}"), root(), &[]).await.code(0);
            count += 1;
        }
        assert!(count > 0, "{script}");
    }
}

/// The files that a pin is moved in.
#[test]
fn what_moves_a_pin_is_there() {
    for folder in ["tests/lab", "tests/conformance"] {
        let package: serde_json::Value = serde_json::from_str(&text(&format!("{folder}/package.json"))).unwrap();
        let lock: serde_json::Value = serde_json::from_str(&text(&format!("{folder}/package-lock.json"))).unwrap();
        let wanted = package["dependencies"].as_object().or_else(|| package["devDependencies"].as_object()).unwrap();
        for (name, version) in wanted {
            let locked = &lock["packages"][format!("node_modules/{name}")]["version"];
            assert_eq!(locked, version, "{folder}: {name} is pinned, and locked at its pin");
        }
    }
}
