//! `portcullis stdio`: a whole gateway on two pipes, gone with its client [OPS-11].

use std::collections::BTreeSet;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::support::{
    Child, ERAS, Era, Piped, Speaks, TestApp, Upstream, body, folder, lives, peak_memory_kib, raw, until,
    within_deadline,
};

const ARGUMENTS: &str = r#"{"big":123456789012345678901234567890,"n":1.10,"s":"\ud800 \u00e9\/"}"#;

/// [TRN-1, TRN-2]: both eras on both sides: the same list and the same bytes as over HTTP, as `/mcp` and as `/mcp/<server>`.
#[tokio::test]
async fn both_eras_on_both_sides() {
    for server in ERAS {
        let child = Child::new(server, &["echo", "later"]);
        let configuration = Piped::configuration(&[("up", child.lines())]);
        for (args, prefix) in [(&[][..], "up__"), (&["--server", "up"][..], "")] {
            for era in ERAS {
                let context = format!("client {era:?}, server {server:?}, {args:?}");
                let mut client = Piped::start(&configuration, args);
                client.hello(era).await;
                let names = client.names(era).await;
                assert_eq!(names, [format!("{prefix}echo"), format!("{prefix}later")], "{context}");
                client.call(era, "\"c-\\u0031\"", &format!("{prefix}echo"), ARGUMENTS).await;
                let answer = client.answer("\"c-\\u0031\"").await;
                assert_eq!(raw(&answer, "result.echo").unwrap(), ARGUMENTS, "{context}: {answer}");
                let kind = raw(&answer, "result.resultType");
                assert_eq!(kind.is_some(), era == Era::Stateless, "{context}: {answer}");
                client.call(era, "2", "elsewhere__echo", "{}").await;
                assert_eq!(raw(&client.answer("2").await, "error.code").unwrap(), "-32602", "{context}");
                client.close();
                let ended = client.ended().await;
                assert_eq!((ended.code, ended.answers()), (Some(0), Vec::new()), "{context}: {}", ended.said);
            }
        }
        assert!(!child.pids().into_iter().any(lives), "{server:?}: a child has outlived its gateway");
    }
}

/// `--as` chooses the principal, and with it what is seen.
#[tokio::test]
async fn the_principal_is_the_one_named() {
    let child = Child::new(Era::Legacy, &["echo", "secret"]);
    let (tables, _) = TestApp::servers(&[("up", child.lines()), ("other", child.lines())]);
    let configuration = format!(
        "[listen]\nauth = \"keys\"\n{tables}[mcp_bundles.all]\nservers = [\"up\"]\n\
         [policies.narrow]\nexcluded_tools = [\"up__secret\"]\n\
         [principals.ann]\nmcp_bundles = [\"all\"]\n[principals.bob]\nmcp_bundles = [\"all\"]\npolicy = \"narrow\"\n"
    );
    for (name, expected) in [("ann", &["up__echo", "up__secret"][..]), ("bob", &["up__echo"][..])] {
        let mut client = Piped::start(&configuration, &["--as", name]);
        assert_eq!(client.names(Era::Stateless).await, expected);
        client.call(Era::Stateless, "1", "up__secret", "{}").await;
        assert_eq!(raw(&client.answer("1").await, "error").is_some(), name == "bob");
    }
    for (args, code, words) in [
        (&[][..], 2, "say which one with --as NAME"),
        (&["--as", "eve"][..], 2, "there is no principal 'eve'; configured are: ann, bob"),
        (&["--as", "ann", "--server", "upp"][..], 2, "there is no server 'upp'; configured are: up, other"),
        (&["--as", "ann", "--server", "other"][..], 5, "server 'other' is granted to principal 'ann' by none"),
        (&["--as"][..], 2, "--as"),
        (&["--no-such"][..], 2, "--no-such"),
    ] {
        let ended = Piped::start(&configuration, args).ended().await;
        assert_eq!((ended.code, ended.rest), (Some(code), Vec::new()), "{args:?}: {}", ended.said);
        assert!(ended.said.contains(words), "{args:?}: {}", ended.said);
    }
    let ended = Piped::start("nonsense = 1\n", &[]).ended().await;
    assert_eq!((ended.code, ended.rest), (Some(3), Vec::new()), "{}", ended.said);
}

/// Fifty calls at once over one pipe and one child that answers in random order: each gets its own [IDS-1].
#[tokio::test]
async fn calls_run_side_by_side() {
    const CALLS: usize = 50;
    for server in ERAS {
        for era in ERAS {
            let child = Child::new(server, &["together"]);
            child.set(&["together"], CALLS);
            let mut client = Piped::start(&Piped::configuration(&[("up", child.lines())]), &[]);
            client.hello(era).await;
            for at in 0..CALLS {
                let members = format!(r#""name":"up__together","arguments":{{"m":{at}}}"#);
                let token = format!(r#""progressToken":"t-{at}""#);
                client.request(era, &format!("\"{at}\""), "tools/call", &token, &members).await;
            }
            let mut steps = vec![0; CALLS];
            let mut answered = BTreeSet::new();
            while answered.len() < CALLS {
                let message = client.next().await;
                if let Some(token) = raw(&message, "params.progressToken") {
                    let at: usize = token.trim_matches('"').trim_start_matches("t-").parse().unwrap();
                    steps[at] += 1;
                    assert_eq!(raw(&message, "params.progress").unwrap(), steps[at].to_string(), "{message}");
                    assert!(!answered.contains(&at), "progress after its answer: {message}");
                    continue;
                }
                if message.contains("notifications/tools/list_changed") {
                    continue; // the server has listed after the session began
                }
                let at: usize = raw(&message, "id").unwrap().trim_matches('"').parse().unwrap();
                assert_eq!(raw(&message, "result.echo").unwrap(), format!(r#"{{"m":{at}}}"#), "{message}");
                assert!(answered.insert(at), "answered twice: {message}");
            }
            assert!(steps.iter().all(|count| *count == 2), "{server:?} {era:?}: {steps:?}");
        }
    }
}

/// A cancellation goes through to the server, and nothing more is said.
#[tokio::test]
async fn a_cancellation_reaches_the_server() {
    for era in ERAS {
        let upstream = Upstream::start(Speaks::Both, false, &["hold", "echo"]).await;
        let mut client = Piped::start(&Piped::configuration(&[("up", upstream.lines())]), &[]);
        client.hello(era).await;
        client.call(era, "7", "up__hold", "{}").await;
        until("the call is under way", || !upstream.calls().is_empty()).await;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
        client.call(era, "8", "up__echo", "{}").await;
        assert!(raw(&client.answer("8").await, "result").is_some());
        upstream.release();
        client.close();
        let ended = client.ended().await;
        assert_eq!((ended.code, ended.answers()), (Some(0), Vec::new()), "{era:?}: {}", ended.said);
    }
}

/// A server that comes back with other tools: a session is told, and so is a listen [POL-10].
#[tokio::test]
async fn changes_are_told() {
    for server in ERAS {
        for era in ERAS {
            let child = Child::new(server, &["echo", "die"]);
            let mut client = Piped::start(&Piped::configuration(&[("up", child.lines())]), &[]);
            client.hello(era).await;
            assert_eq!(client.names(era).await, ["up__echo", "up__die"]);
            if era == Era::Stateless {
                let wanted = r#""notifications":{"toolsListChanged":true}"#;
                client.request(era, "\"l\"", "subscriptions/listen", "", wanted).await;
                let acknowledged = client.next().await;
                assert!(acknowledged.contains("notifications/subscriptions/acknowledged"), "{acknowledged}");
            }
            child.set(&["echo", "later"], 1);
            client.call(era, "1", "up__die", "{}").await;
            let mut seen = (false, false);
            while seen != (true, true) {
                let message = client.next().await;
                if raw(&message, "id").as_deref() == Some("1") {
                    assert_eq!(raw(&message, "error.code").unwrap(), "-32603");
                    seen.0 = true;
                } else {
                    assert!(message.contains("notifications/tools/list_changed"), "{message}");
                    assert_eq!(message.contains("subscriptionId"), era == Era::Stateless, "{message}");
                    seen.1 = true;
                }
            }
            assert_eq!(client.names(era).await, ["up__echo", "up__later"]);
            client.close();
            let ended = client.ended().await;
            assert_eq!((ended.code, ended.answers().len()), (Some(0), usize::from(era == Era::Stateless)));
        }
    }
}

/// The end of the input lets calls finish; a signal does not. Children are gone either way, the stubborn ones too.
#[tokio::test]
async fn children_end_with_the_gateway() {
    for signal in [None, Some(Signal::TERM), Some(Signal::INT)] {
        let upstream = Upstream::start(Speaks::Both, false, &["hold"]).await;
        let children = [Child::new(Era::Legacy, &["stubborn"]), Child::new(Era::Stateless, &["echo"])];
        let servers = [("http", upstream.lines()), ("old", children[0].lines()), ("new", children[1].lines())];
        let mut client = Piped::start(&Piped::configuration(&servers), &[]);
        client.hello(Era::Legacy).await;
        for (id, name) in [("1", "old__stubborn"), ("2", "new__echo")] {
            client.call(Era::Legacy, id, name, "{}").await;
            assert!(raw(&client.answer(id).await, "result").is_some());
        }
        client.call(Era::Legacy, "3", "http__hold", "{}").await;
        until("the call is under way", || !upstream.calls().is_empty()).await;
        match signal {
            Some(signal) => client.signal(signal),
            None => {
                client.close();
                upstream.release();
            }
        }
        let ended = client.ended().await;
        assert_eq!(ended.code, Some(0), "{signal:?}: {}", ended.said);
        assert_eq!(ended.answers().len(), usize::from(signal.is_none()), "{signal:?}: {:?}", ended.rest);
        // One that was killed last may need a moment to die.
        let pids: Vec<u32> = children.iter().flat_map(Child::pids).collect();
        until("the children have ended", || !pids.iter().copied().any(lives)).await;
    }
}

/// `kill -9` of the client ends everything, even while another process keeps its ends of the pipes open.
#[tokio::test]
async fn the_client_is_killed() {
    for how in ["alone", "shared"] {
        let child = Child::new(Era::Legacy, &["echo", "together"]);
        child.set(&["echo", "together"], 2);
        let folder = folder();
        let config = folder.join("portcullis.toml");
        std::fs::write(&config, Piped::configuration(&[("up", child.lines())])).unwrap();
        let mut parent = Command::new("python3")
            .arg(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/parent.py"))
            .args([how, env!("CARGO_BIN_EXE_portcullis"), "stdio", "--config"])
            .arg(&config)
            .env("PORTCULLIS_STATE_DIR", folder.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(parent.stdout.take().unwrap()).lines();
        let line = within_deadline("the first answer", said.next_line()).await.unwrap().unwrap();
        let pids: Vec<u32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
        let family: Vec<u32> = std::iter::once(pids[0]).chain(child.pids()).collect();
        // A child that was opened for the list may have given way to the caller's own, the last.
        assert!(lives(pids[0]) && lives(*family.last().unwrap()), "{how}: {family:?}");
        parent.kill().await.unwrap();
        until("everything has ended", || !family.iter().any(|pid| lives(*pid))).await;
        if let Some(other) = Pid::from_raw(i32::try_from(pids[1]).unwrap()) {
            assert!(lives(pids[1]), "the pipes were not kept open");
            kill_process(other, Signal::KILL).unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Whatever servers, clients and the log say: stdout carries MCP alone, and no log of the gateway is made MCP.
#[tokio::test]
async fn stdout_carries_mcp_alone() {
    for server in ERAS {
        let child = Child::new(server, &["noisy", "die", "endless"]);
        let log = "[log]\nlevel = \"trace\"\nformat = \"text\"\naccess = true\n";
        let configuration = format!(
            "{log}{}",
            Piped::configuration(&[("up", format!("max_response_bytes = 65536\n{}", child.lines()))])
        );
        let mut client = Piped::start(&configuration, &[]);
        client.hello(Era::Legacy).await;
        for (at, line) in
            ["garbage", "{}", "[]", "\u{0}", "nul", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}"].iter().enumerate()
        {
            client.send(line).await;
            client.request(Era::Legacy, &format!("\"p{at}\""), "ping", "", "").await;
            assert!(raw(&client.answer(&format!("\"p{at}\"")).await, "result").is_some());
        }
        for name in ["noisy", "die", "noisy", "endless"] {
            loop {
                client.call(Era::Legacy, "\"c\"", &format!("up__{name}"), "{}").await;
                let good = raw(&client.answer("\"c\"").await, "result").is_some();
                // A call may meet the child that is just dying.
                if good == (name == "noisy") {
                    break;
                }
                assert!(!good, "{name}");
            }
        }
        client.close();
        let ended = client.ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        assert!(ended.rest.iter().all(|line| !line.contains("notifications/message")), "{:?}", ended.rest);
        assert!(ended.said.contains("request") && ended.said.contains("noise"), "the log says nothing");
    }
}

/// More calls than a gateway takes whose client does not read.
const TOO_MUCH: usize = 4000;

/// Calls with 64 KiB of text each.
fn calls() -> impl Iterator<Item = String> {
    let text = "x".repeat(64 << 10);
    (0..TOO_MUCH).map(move |id| {
        let members = format!(r#""name":"up__echo","arguments":{{"text":"{text}"}}"#);
        body(Era::Legacy, &id.to_string(), "tools/call", "", &members)
    })
}

/// A client that writes and does not read is not read from: what is held is bounded, and nothing is lost [LIM-1].
#[tokio::test]
async fn a_client_that_does_not_read() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let mut client = Piped::start(&Piped::configuration(&[("up", child.lines())]), &[]);
    client.hello(Era::Legacy).await;
    let (whole, rest) = client.fill(calls()).await;
    assert!(whole > 0 && whole < TOO_MUCH, "{whole}");
    let peak = peak_memory_kib(client.pid());
    assert!(peak < 300 << 10, "{peak} KiB for {whole} calls");
    let reading = async {
        let mut missing: BTreeSet<String> = (0..=whole).map(|id| id.to_string()).collect();
        while !missing.is_empty() {
            let message = client.next().await;
            let Some(id) = raw(&message, "id") else { continue };
            assert!(missing.remove(&id), "answered twice, or not asked: {id}");
            let code = raw(&message, "error.code");
            assert!(code.is_none_or(|code| code == "-31002"), "{message}");
        }
    };
    within_deadline("every answer", futures_util::future::join(rest, reading)).await;
}

/// A signal ends it, however full its pipes are.
#[tokio::test]
async fn a_full_pipe_holds_no_end_up() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let mut client = Piped::start(&Piped::configuration(&[("up", child.lines())]), &[]);
    client.hello(Era::Legacy).await;
    let (whole, _rest) = client.fill(calls()).await;
    assert!(whole > 0 && whole < TOO_MUCH, "{whole}");
    client.signal(Signal::TERM);
    assert_eq!(client.exited().await, Some(0));
    until("the child has ended", || !child.pids().into_iter().any(lives)).await;
}

/// A client that never reads stderr holds nothing up: the log is cut short, the answers are not.
#[tokio::test]
async fn a_log_that_nobody_reads() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let log = "[log]\nlevel = \"trace\"\nformat = \"json\"\naccess = true\n";
    let mut client = Piped::start(&format!("{log}{}", Piped::configuration(&[("up", child.lines())])), &[]);
    client.hello(Era::Legacy).await;
    // More lines than the pipe and the queue before it hold.
    for at in 0..20_000 {
        client.request(Era::Legacy, &at.to_string(), "ping", "", "").await;
        assert!(raw(&client.answer(&at.to_string()).await, "result").is_some());
    }
    client.call(Era::Legacy, "\"c\"", "up__echo", "{}").await;
    assert!(raw(&client.answer("\"c\"").await, "result").is_some());
    // Once somebody reads, it says that lines were lost.
    client.says("lines of the log found no room").await;
    client.close();
    assert_eq!(client.ended().await.code, Some(0));
}

/// Processes that carry this mark in their environment.
fn marked(mark: &str) -> Vec<String> {
    let needle = format!("CYCLE={mark}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let carries = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|one| one == needle.as_bytes())
    };
    processes.filter(carries).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// One life of a gateway and its client, each ending in another way.
async fn cycle(at: usize, mark: &str) {
    let folder = folder();
    let temporary = folder.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let binary = env!("CARGO_BIN_EXE_portcullis");
    let lines = format!("command = \"{binary}\"\nargs = [\"demo-server\"]\nenv = {{ CYCLE = \"{mark}\" }}");
    let configuration = Piped::configuration(&[("demo", lines)]);
    let env = [("CYCLE", mark), ("TMPDIR", temporary.to_str().unwrap())];
    let mut client = Piped::start_in(folder.clone(), &configuration, &[], &env);
    let era = ERAS[at % 2];
    let how = at / 2 % 5;
    if how > 0 {
        client.hello(era).await;
        client.call(era, "1", "demo__echo", r#"{"text":"x"}"#).await;
    }
    if how > 1 {
        assert!(raw(&client.answer("1").await, "result").is_some());
    }
    let ended = match how {
        // The end of the input, before a word and in the middle of a call.
        0 | 1 => {
            client.close();
            client.ended().await
        }
        2 => {
            client.signal(Signal::TERM);
            client.ended().await
        }
        3 => client.abandon().await,
        _ => {
            client.signal(Signal::KILL);
            client.ended().await
        }
    };
    assert_eq!(ended.code, (how < 4).then_some(0), "{how}: {}", ended.said);
    assert_eq!(ended.left, Vec::<std::path::PathBuf>::new(), "{how}");
    assert!(how > 1 || ended.answers().iter().filter(|id| *id == "1").count() == how, "{how}: {:?}", ended.rest);
}

async fn cycles(count: usize, mark: &str) {
    let mut next = 0;
    while next < count {
        // A few at a time: their ends may meet.
        let some = (next..count.min(next + 4)).map(|at| cycle(at, mark));
        futures_util::future::join_all(some).await;
        next += 4;
    }
    until("every child has ended", || marked(mark).is_empty()).await;
}

/// 200 starts and kills leave no child, no pipe held open, and no file.
#[tokio::test]
async fn two_hundred_lives_leave_nothing() {
    cycles(200, &format!("short-{}", std::process::id())).await;
}

/// The same, longer.
#[tokio::test]
#[ignore = "1,000 processes with their children; run it before a release"]
async fn a_thousand_lives_leave_nothing() {
    cycles(1000, &format!("long-{}", std::process::id())).await;
}
