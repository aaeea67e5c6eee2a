//! The verbs of the command line: exit codes, what goes where, what is started, and that nothing is left [OPS-1].

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::support::{Child, Command, Ended, Era, Gateway, Speaks, TestApp, Upstream, until, within_deadline};

/// Stands in a secret place of the configuration; must be in nothing that is printed.
const CANARY: &str = "canary-5c1e77";

/// A configuration with two children and two principals.
struct World {
    command: Command,
    one: Child,
    two: Child,
}

impl World {
    fn new() -> Self {
        let one = Child::new(Era::Legacy, &["echo", "secret", "die"]);
        let two = Child::new(Era::Stateless, &["echo", "ask"]);
        let configuration = format!(
            "[listen]\nauth = \"keys\"\n[[mcp.servers]]\nname = \"one\"\nenv = {{ TOKEN = \"{CANARY}\" \
             }}\n{}\n[[mcp.servers]]\nname = \"two\"\n{}\n[mcp_bundles.all]\nservers = [\"one\", \
             \"two\"]\n[principals.alice]\nmcp_bundles = [\"all\"]\n{}[principals.bob]\nmcp_bundles = [\"all\"]\npolicy = \
             \"bob\"\n{}[principals.local]\n{}[policies.bob]\nexcluded_tools = [\"one__secret\"]\n",
            one.lines(),
            two.lines(),
            TestApp::key("alice"),
            TestApp::key("bob"),
            TestApp::key("local"),
        );
        Self { command: Command::new(&configuration), one, two }
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let ended = self.command.run(arguments).await;
        assert!(!ended.stdout.contains(CANARY) && !ended.stderr.contains(CANARY), "{ended:#?}");
        assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'), "colour: {ended:#?}");
        ended
    }
}

fn alive(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()).is_ok()
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

/// [OPS-1]: 0 for what works, with data on stdout alone, as a table and as one line of JSON.
#[tokio::test]
async fn success_is_silent_and_its_data_is_on_stdout() {
    let world = World::new();
    let good =
        "[listen]\nauth = \"keys\"\n[mcp_bundles.b]\nservers = []\n[principals.a]\nmcp_bundles = [\"b\"]\n".to_owned();
    let good = good + &TestApp::key("a");
    let checked = Command::new(&good).run(&["check"]).await.code(0);
    assert_eq!((checked.stdout.as_str(), checked.stderr.as_str()), ("", ""));
    for verb in [
        &["ls", "tools", "--as", "alice"][..],
        &["ls", "servers"],
        &["ls", "servers", "--as", "bob"],
        &["ls", "bundles"],
        &["ls", "principals"],
        &["names"],
        &["names", "two"],
        &["explain", "--as", "bob"],
        &["explain", "--as", "bob", "one__secret"],
        &["explain", "P101"],
        &["call", "--demo", "--as", "alice", "demo__echo", "text=x"],
    ] {
        let plain = world.run(verb).await.code(0);
        assert_eq!(plain.stderr, "", "{verb:?}");
        assert!(!plain.stdout.is_empty(), "{verb:?}: {plain:#?}");
        let json = world.run(&[verb, &["--json"]].concat()).await.code(0);
        assert!(json.json().is_array() || json.json().is_object(), "{verb:?}");
        assert_eq!(json.stderr, "", "{verb:?}");
    }
    let tools = world.run(&["ls", "tools", "--as", "bob", "--json"]).await.json();
    assert_eq!(names(&tools, "name"), ["one__echo", "one__die", "two__echo", "two__ask"]);
    let servers = world.run(&["ls", "servers", "--json"]).await.json();
    assert_eq!(names(&servers, "state"), ["ready", "ready"]);
    assert_eq!(servers[0]["tools"], 3);
    let principals = world.run(&["ls", "principals", "--json", "--as", "alice"]).await.json();
    assert_eq!(names(&principals, "principal"), ["alice"]);
    assert_eq!((&principals[0]["servers"], &principals[0]["keys"]), (&json!(["one", "two"]), &json!(1)));
    let bundles = world.run(&["ls", "bundles", "--json", "--as", "local"]).await.json();
    assert_eq!(bundles, json!([]));
}

/// [OPS-1]: colour and a sign of life on a terminal alone, and no colour where NO_COLOR asks for none.
#[tokio::test]
async fn colour_and_spinner_are_for_terminals() {
    let wrong = Command::new("nonsense = 1");
    for line in ["portcullis check", "portcullis explain", "portcullis call a__b"] {
        let on = Ended::of(wrong.terminal(line)).await.code(3);
        assert!(on.stdout.contains("\u{1b}[") && on.stdout.contains("P102"), "{on:#?}");
        let off = Ended::of(wrong.terminal(&format!("NO_COLOR=1 {line}"))).await.code(3);
        assert!(!off.stdout.contains('\u{1b}') && off.stdout.contains("error[P102]"), "{off:#?}");
    }
    let hidden = Ended::of(wrong.terminal("portcullis explain --demo --as bob demo__big")).await.code(0);
    assert!(hidden.stdout.contains("\u{1b}[1;31mhidden from bob"), "{hidden:#?}");

    // A server that starts when it is allowed to, which it is once the sign of life has been seen.
    let child = Child::new(Era::Legacy, &["echo"]);
    let slow = Command::new(&format!(
        "[[mcp.servers]]\nname = \"up\"\n{}\n[mcp_bundles.all]\nservers = [\"up\"]\n[principals.local]\nmcp_bundles = \
         [\"all\"]\n",
        child.lines_after("go")
    ));
    let mut process = slow.terminal("portcullis ls tools").spawn().unwrap();
    let (mut out, mut said) = (process.stdout.take().unwrap(), Vec::new());
    let reading = async {
        let mut chunk = [0; 4096];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut out, &mut chunk).await.unwrap_or(0);
            said.extend_from_slice(&chunk[..count]);
            if String::from_utf8_lossy(&said).contains("waiting for up") {
                slow.write("go", "");
            }
            if count == 0 {
                return String::from_utf8(said).unwrap();
            }
        }
    };
    let said = within_deadline("the list", reading).await;
    assert!(said.contains("waiting for up") && said.contains("up__echo"), "{said}");
    assert_eq!(process.wait().await.unwrap().code(), Some(0));
}

/// [OPS-1]: 2 for arguments that make no sense, each with a code and a way out.
#[tokio::test]
async fn usage_errors_end_with_2() {
    let world = World::new();
    for (verb, words) in [
        (&["nonsense"][..], "nonsense"),
        (&["ls", "tools", "--nonsense"], "P600"),
        (&[], "Usage"),
        (&["ls"], "WHAT"),
        (&["ls", "tools", "--as", "alicia"], "did you mean --as alice?"),
        (&["call", "--as", "nobody", "one__echo"], "P601"),
        (&["call", "--as", "alice", "one__echo", "novalue"], "P602"),
        (&["call", "--as", "alice", "one__echo", "a:=x"], "P602"),
        (&["call", "--as", "alice", "--url", "http://127.0.0.1:1/mcp", "one__echo"], "--as"),
        (&["call", "--url", "not a url", "one__echo"], "http://HOST:PORT/mcp"),
        (&["call", "--url", "127.0.0.1:7800", "one__echo"], "P600"),
        (&["call", "--url", "http://user:canary-5c1e77@127.0.0.1:1/", "one__echo"], "PORTCULLIS_API_KEY"),
        (&["call", "--url", "ftp://127.0.0.1:1/mcp", "one__echo"], "P600"),
        (&["status", "--url", ""], "P600"),
        (&["names", "ones"], "did you mean 'one'?"),
        (&["key", "new", ""], "P600"),
        (&["check", "--schema", "--json"], "--schema"),
    ] {
        let ended = world.run(verb).await.code(2);
        assert!(ended.stdout.is_empty() && ended.stderr.contains(words), "{verb:?}: {ended:#?}");
    }
    assert!(world.one.calls().is_empty(), "a wrong call was sent");
}

/// [OPS-1, OPS-2]: 3 for a configuration that is refused, from every verb that reads it; `check --json` lists it all.
#[tokio::test]
async fn an_invalid_configuration_ends_with_3() {
    let command = Command::new("[listen]\nhtpp = 1\n[mcp]\nname_budget = \"x\"\n");
    for verb in [
        &["check"][..],
        &["serve"],
        &["ls", "tools"],
        &["ls", "bundles"],
        &["names"],
        &["explain"],
        &["call", "a__b"],
        &["status"],
    ] {
        let ended = command.run(verb).await.code(3);
        for words in ["error[P102]", "portcullis.toml:2:1", "did you mean 'http'?", "error[P104]", "portcullis.toml:4:"]
        {
            assert!(ended.stderr.contains(words), "{words}: {verb:?}: {ended:#?}");
        }
        assert_eq!(ended.stdout, "", "{verb:?}");
    }
    let found = command.run(&["check", "--json"]).await.code(3);
    assert_eq!(found.stderr, "");
    let problems = found.json()[0]["problems"].clone();
    let codes: Vec<_> = problems.as_array().unwrap().iter().map(|one| (&one["code"], &one["line"])).collect();
    assert!(
        codes.contains(&(&json!("P102"), &json!(2))) && codes.contains(&(&json!("P104"), &json!(4))),
        "{problems:#}"
    );
}

/// [OPS-1]: 4 for a server that is down: the rest is listed, its tool cannot be called; each with the server's own words.
#[tokio::test]
async fn a_server_that_is_down_ends_with_4() {
    let up = Child::new(Era::Legacy, &["echo"]);
    let command = Command::new(&format!(
        "[[mcp.servers]]\nname = \"up\"\n{}\n[[mcp.servers]]\nname = \"broken\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo \
         I am out of order >&2; exit 9\"]\n[mcp_bundles.all]\nservers = [\"up\", \
         \"broken\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n",
        up.lines()
    ));
    let listed = command.run(&["ls", "tools", "--json"]).await.code(4);
    assert_eq!(names(&listed.json(), "name"), ["up__echo"]);
    for words in ["error[P204]: server 'broken' is down", "I am out of order", "portcullis.toml:"] {
        assert!(listed.stderr.contains(words), "{words}: {listed:#?}");
    }
    let servers = command.run(&["ls", "servers", "--json"]).await.code(4);
    assert_eq!(names(&servers.json(), "state"), ["ready", "down"]);
    assert!(servers.json()[1]["cause"].as_str().unwrap().contains("I am out of order"));
    command.run(&["names"]).await.code(4);
    let call = command.run(&["call", "broken__anything"]).await.code(4);
    assert!(call.stderr.contains("P204") && call.stderr.contains("I am out of order"), "{call:#?}");
    command.run(&["call", "up__echo"]).await.code(0);
}

/// [OPS-1, POL-11]: 5 for a call that the gate refuses; nothing reaches the server, and the caller is told the line.
#[tokio::test]
async fn a_denied_call_ends_with_5_and_reaches_no_server() {
    let world = World::new();
    let hidden = world.run(&["call", "--as", "bob", "one__secret"]).await.code(5);
    assert!(hidden.stderr.contains("error[P303]") && hidden.stderr.contains("--> portcullis.toml:"), "{hidden:#?}");
    let foreign = world.run(&["call", "two__echo"]).await.code(5);
    assert!(foreign.stderr.contains("error[P301]"), "{foreign:#?}");
    for unknown in ["one__secrets", "nowhere__at_all", "echo"] {
        let unknown = world.run(&["call", "--as", "alice", unknown]).await.code(5);
        assert!(unknown.stderr.contains("error[P304]"), "{unknown:#?}");
    }
    let near = world.run(&["call", "--as", "alice", "one__secrets"]).await;
    assert!(near.stderr.contains("did you mean one__secret?"), "{near:#?}");
    assert!(world.one.calls().is_empty() && world.two.calls().is_empty());
}

/// [promise 1]: what `ls tools` shows is what `call` may call, for each principal.
#[tokio::test]
async fn what_is_listed_can_be_called_and_nothing_else() {
    let world = World::new();
    let all = ["one__echo", "one__secret", "one__die", "two__echo", "two__ask"];
    for principal in ["alice", "bob", "local"] {
        let listed = world.run(&["ls", "tools", "--json", "--as", principal]).await.code(0).json();
        let listed: BTreeSet<_> = names(&listed, "name").into_iter().collect();
        for tool in all {
            let called = world.run(&["call", "--as", principal, tool]).await;
            assert_eq!(called.code != Some(5), listed.contains(tool), "{principal} {tool}: {called:#?}");
        }
    }
}

/// [OPS-1]: 1 for a call that fails after it was let through, with a code for each way.
#[tokio::test]
async fn a_failed_call_ends_with_1() {
    let world = World::new();
    let died = world.run(&["call", "--as", "alice", "one__die"]).await.code(1);
    assert!(died.stderr.contains("error[P207]") && died.stderr.contains("'one'"), "{died:#?}");
    let asks = world.run(&["call", "--as", "alice", "two__ask"]).await.code(1);
    assert!(asks.stderr.contains("error[P605]"), "{asks:#?}");
    let failed = world.run(&["call", "--demo", "--as", "alice", "demo__add", "a:=\"x\"", "b=1"]).await.code(1);
    assert!(failed.stderr.contains("error[P606]") && failed.stdout.contains("must be numbers"), "{failed:#?}");
}

/// [OPS-1]: 4 where no gateway takes a connection, whichever verb asks for it.
#[tokio::test]
async fn a_gateway_that_is_not_up_ends_with_4() {
    let world = World::new();
    let error = world.run(&["call", "--url", "http://127.0.0.1:1/mcp", "a__b"]).await.code(4);
    assert!(error.stderr.contains("error[P603]") && error.stderr.contains("127.0.0.1:1"), "{error:#?}");
    world.run(&["call", "--url", &format!("http://127.0.0.1:1/mcp?k={CANARY}"), "a__b"]).await.code(4);
    world.run(&["status", "--url", "http://127.0.0.1:1"]).await.code(4);
    let trust = world.run(&["call", "--url", "https://127.0.0.1:1/mcp", "a__b"]).await.code(4);
    assert!(trust.stderr.contains("SSL_CERT_FILE"), "{trust:#?}");
}

/// Arguments arrive as they were meant, byte for byte where they are raw.
#[tokio::test]
async fn arguments_arrive_as_they_were_given() {
    let world = World::new();
    let call = ["call", "--json", "--as", "alice", "one__echo", "text=2", "n:=1.10", "o:={\"a\": [1E+2]}"];
    let ended = world.run(&call).await.code(0);
    assert!(ended.stdout.contains(r#""echo":{"text":"2","n":1.10,"o":{"a": [1E+2]}}"#), "{ended:#?}");
    let demo = world.run(&["call", "--demo", "--as", "bob", "demo__add", "a=2.5", "b=3"]).await.code(0);
    assert_eq!(demo.stdout, "5.5\n");
    let typed = world.run(&["call", "--demo", "--as", "bob", "demo__add", "a=two", "b=3"]).await.code(2);
    assert!(typed.stderr.contains("'a' must be of type number"), "{typed:#?}");
}

/// Only what a command needs is started, and when it has ended nothing of it lives.
#[tokio::test]
async fn only_what_is_needed_is_started_and_nothing_is_left() {
    let world = World::new();
    for verb in [
        &["ls", "bundles"][..],
        &["ls", "principals"],
        &["ls", "tools"],
        &["check"],
        &["explain", "one__echo"],
        &["explain", "P204"],
        &["call", "one__echo"],
    ] {
        world.run(verb).await;
        assert!(world.one.pids().is_empty() && world.two.pids().is_empty(), "{verb:?} started a server");
    }
    world.run(&["call", "--as", "alice", "one__echo"]).await.code(0);
    assert_eq!((world.one.pids().len(), world.two.pids().len()), (2, 0), "one child for the list, one for the call");
    world.run(&["explain", "--as", "bob", "two__echo"]).await.code(0);
    world.run(&["names", "two"]).await.code(0);
    assert_eq!(world.one.pids().len(), 2);
    world.run(&["ls", "tools", "--as", "alice"]).await.code(0);
    for pid in world.one.pids().into_iter().chain(world.two.pids()) {
        assert!(!alive(pid), "child {pid} has outlived its command");
    }
}

/// A signal ends a command in the middle of a call: the call is cancelled, the child is gone, the code is 1.
#[tokio::test]
async fn a_signal_ends_a_call_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let child = Child::new(Era::Legacy, &["together"]);
        child.set(&["together"], 2);
        let command = Command::new(&format!(
            "[[mcp.servers]]\nname = \"up\"\n{}\n[mcp_bundles.all]\nservers = [\"up\"]\n[principals.local]\nmcp_bundles \
             = [\"all\"]\n",
            child.lines()
        ));
        // The server answers the second call only, which never comes.
        let process = command.process(&["call", "up__together"]).spawn().unwrap();
        until("the call is under way", || !child.calls().is_empty()).await;
        kill_process(Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()).unwrap(), signal).unwrap();
        let output = within_deadline("the end of the command", process.wait_with_output()).await.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("error[P607]"), "{output:?}");
        for pid in child.pids() {
            assert!(!alive(pid), "child {pid} has outlived its command");
        }
    }
}

/// `call --url` uses a running gateway with the key of the environment, and says what it may know [POL-11].
#[tokio::test]
async fn a_running_gateway_is_called_with_the_key_of_the_environment() {
    let routed = r#"{"name":"routed","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let up = Upstream::start(Speaks::Both, false, &["echo", "secret", routed]).await;
    let child = Child::new(Era::Legacy, &["together"]);
    let rest = format!(
        "[[mcp.servers]]\nname = \"up\"\n{}\n[[mcp.servers]]\nname = \"child\"\n{}\n[mcp_bundles.all]\nservers = [\"up\", \"child\"]\n[principals.alice]\nmcp_bundles = \
         [\"all\"]\n{}[principals.bob]\nmcp_bundles = [\"all\"]\npolicy = \"bob\"\n{}[policies.bob]\nexcluded_tools = \
         [\"up__secret\"]\n",
        up.lines(),
        child.lines(),
        TestApp::key("alice"),
        TestApp::key("bob"),
    );
    let app = TestApp::start("keys", &rest).await;
    let url = format!("http://{}/mcp", app.addr);
    let command = Command::new("");
    let call = async |key: Option<&str>, arguments: &[&str]| {
        let mut process = command.process(&[&["call", "--url", &url], arguments].concat());
        if let Some(key) = key {
            process.env("PORTCULLIS_API_KEY", key);
        }
        let ended = Ended::of(process).await;
        assert!(key.is_none_or(|key| !ended.stderr.contains(key)), "{ended:#?}");
        ended
    };
    let answer = call(Some("alice"), &["--json", "up__echo", "text=x", "n:=1.10"]).await.code(0);
    assert!(answer.stdout.contains(r#"{"text":"x","n":1.10}"#), "{answer:#?}");
    call(Some("alice"), &["up__secret"]).await.code(0);
    // Annotated arguments travel as headers too [R53], and an answer after progress comes as events.
    let routed = call(Some("alice"), &["--json", "up__routed", "r=eu wäst"]).await.code(0);
    assert!(routed.stdout.contains(r#"{"r":"eu wäst"}"#), "{routed:#?}");
    let events = call(Some("alice"), &["--json", "child__together", "k=v"]).await.code(0);
    assert!(events.stdout.contains(r#"{"k":"v"}"#), "{events:#?}");
    let sent = up.calls().len();
    let hidden = call(Some("bob"), &["up__secret"]).await.code(5);
    let unknown = call(Some("bob"), &["up__nothing"]).await.code(5);
    assert_eq!(
        hidden.stderr.replace("secret", "nothing"),
        unknown.stderr,
        "hidden and unknown look alike from outside"
    );
    for key in [None, Some("mallory")] {
        let refused = call(key, &["up__echo"]).await.code(5);
        assert!(refused.stderr.contains("error[P306]"), "{refused:#?}");
    }
    assert_eq!(up.calls().len(), sent, "a refused call reached the server");
    app.stop().await;
}

/// `key new` prints the key on stdout alone and its hash on stderr alone, and touches no file [AUT-1].
#[tokio::test]
async fn a_new_key_is_printed_once_and_nothing_is_written() {
    let command = Command::new("# nothing");
    let mut keys = BTreeSet::new();
    for name in ["alice", "a.b c"] {
        let ended = command.run(&["key", "new", name]).await.code(0);
        let key = ended.stdout.strip_suffix('\n').unwrap().to_owned();
        assert!(key.len() > 40 && !key.contains(char::is_whitespace), "{ended:#?}");
        assert!(!ended.stderr.contains(&key), "{ended:#?}");
        // What stands on stderr is the rest of a configuration in which this key is that principal's.
        let head = ended.stderr.lines().next().unwrap().strip_prefix("# add to ").unwrap().split(';').next().unwrap();
        let settings = TestApp::settings("127.0.0.1:0", "keys", &format!("{head}\n{}", ended.stderr));
        assert_eq!(settings.gateway.keys.find(&key).unwrap().1.as_str(), name);
        keys.insert(key);
    }
    assert_eq!(keys.len(), 2);
    assert_eq!(command.files(), ["portcullis.toml"]);
}

/// `status` is a probe: 0 when ready, 4 while a required server is awaited or nothing runs [OPS-4].
#[tokio::test]
async fn status_says_whether_the_gateway_is_ready() {
    let none = Command::new("[listen]\nadmin = \"127.0.0.1:1\"\n[principals.local]\n");
    let absent = none.run(&["status"]).await.code(4);
    assert!(absent.stdout.is_empty() && absent.stderr.contains("error[P603]"), "{absent:#?}");

    let child = Child::new(Era::Legacy, &["echo"]);
    let gateway = Gateway::start(&[("up", child.lines())]).await;
    let url = format!("http://{}", gateway.admin);
    let ready = none.run(&["status", "--url", &url]).await.code(0);
    assert_eq!((ready.stdout.as_str(), ready.stderr.as_str()), ("ready\n", ""));
    let ready = none.run(&["status", "--json", "--url", &url]).await.code(0).json();
    assert_eq!(ready, json!({ "admin": url, "ready": true, "draining": false, "waiting_for": [] }));
    let other = format!("http://{}", gateway.addr);
    none.run(&["status", "--url", &other]).await.code(1);

    let waiting = Gateway::start(&[("up", "required = true\ncommand = \"no-such-program-anywhere\"".to_owned())]).await;
    let status = Command::new(&format!("[listen]\nadmin = \"{}\"\n[principals.local]\n", waiting.admin));
    let json = status.run(&["status", "--json"]).await.code(4);
    assert_eq!(json.json()["waiting_for"], json!(["up"]));
    assert!(json.stderr.contains("error[P604]"), "{json:#?}");
}

/// `completions` writes a script for each shell.
#[tokio::test]
async fn every_shell_gets_its_script() {
    let command = Command::new("");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = command.run(&["completions", shell]).await.code(0);
        assert!(script.stdout.contains("explain") && script.stderr.is_empty(), "{shell}");
    }
    let script = command.run(&["completions", "bash"]).await.stdout;
    let read = Ended::of(command.shell(&format!("bash -n <<'END'\n{script}\nEND\n"))).await;
    assert_eq!(read.code, Some(0), "{read:#?}");
}

/// [CFG-3, FC-OBS-01]: no verb prints a secret of the configuration, whatever goes wrong with the servers that hold it.
#[tokio::test]
async fn no_verb_prints_a_secret() {
    let key = format!("KEY = \"{CANARY}\"");
    let command = Command::new(&format!(
        "[[mcp.servers]]\nname = \"web\"\nurl = \"http://127.0.0.1:1/mcp?k={CANARY}\"\nheaders = {{ {key} \
         }}\n[[mcp.servers]]\nname = \"loud\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo $KEY >&2; exit 1\", \
         \"{CANARY}\"]\nenv = {{ {key} }}\n[mcp_bundles.all]\nservers = [\"web\", \
         \"loud\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n"
    ));
    for verb in [
        &["check"][..],
        &["ls", "servers"],
        &["ls", "tools"],
        &["names"],
        &["explain"],
        &["explain", "loud__a"],
        &["call", "web__a"],
        &["call", "loud__a"],
        &["serve", "--config", "absent.toml"],
    ] {
        let ended = command.run(verb).await;
        let json = if verb[0] == "serve" { None } else { Some(command.run(&[verb, &["--json"]].concat()).await) };
        for ended in [Some(ended), json].into_iter().flatten() {
            assert!(!ended.stdout.contains(CANARY) && !ended.stderr.contains(CANARY), "{verb:?}: {ended:#?}");
        }
    }
    let loud = command.run(&["ls", "servers"]).await.code(4);
    assert!(loud.stdout.contains("[secret:KEY]"), "the server's own words are shown without it: {loud:#?}");
}
