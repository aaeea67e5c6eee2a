//! Field cases of stdio against python children; framing and redaction without one.

use std::ffi::OsString;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::super::connection::Connection;
use super::super::framing::{Whose, in_head, whose};
use super::super::handshake::{self, Opened, Plan};
use super::super::output::Output;
use super::{BaseEnv, StdioConnector, Unfinished};
use crate::clock::Clock;
use crate::exchange::{
    Answer, ClientFacts, Event, Outcome, Owner, OwnerKey, Reject, RejectKind, Reply, ReplyBody, Retry, ServerCall,
    UpstreamCall,
};
use crate::id::{PrincipalId, UpstreamName};
use crate::net::Ends;
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::link::{Connector as _, Link, Outgoing, StartError, Started, Want};
use crate::upstream::{EraChoice, ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::{CallParams, Era, Features, Kind, Kinds, Method, ProtocolVersion, RequestMeta};

/// What every child begins with: `read`, `send`, `answer`, and `init` for the legacy handshake.
const PRELUDE: &str = r#"
import sys, json, os, time, random, signal, threading
def raw(text): sys.stdout.buffer.write(text if isinstance(text, bytes) else text.encode()); sys.stdout.buffer.flush()
def send(message): raw(json.dumps(dict(jsonrpc="2.0", **message)) + "\n")
def read():
    line = sys.stdin.buffer.readline()
    if not line: sys.exit(0)
    return json.loads(line)
def answer(request, text): send(dict(id=request["id"], result=dict(content=[dict(type="text", text=text)])))
def facts(version="2025-11-25", **more): return dict(protocolVersion=version, capabilities=dict(tools=dict(listChanged=True)), serverInfo=dict(name="t", version="1"), **more)
def accept(request, **more):
    send(dict(id=request["id"], result=facts(**more)))
    assert read()["method"] == "notifications/initialized"
def init(**more):
    request = read()
    assert request["method"] == "initialize", request
    accept(request, **more)
def arguments(request): return request["params"]["arguments"]
def modern(request): send(dict(id=request["id"], result=dict(resultType="complete", supportedVersions=["2026-07-28"], capabilities=dict(tools=dict(listChanged=True)))))
def error(request, code, **more): send(dict(id=request["id"], error=dict(code=code, message="no", **more)))
"#;

/// Answers every call with its own `x`.
const ECHO: &str = r#"
init()
while True:
    request = read()
    if "id" in request: answer(request, str(arguments(request)["x"]))
"#;

/// The interpreter itself, not a wrapper that adds to the environment.
static PYTHON: LazyLock<Option<String>> = LazyLock::new(|| {
    let found =
        std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output();
    found.ok().filter(|found| found.status.success()).and_then(|found| String::from_utf8(found.stdout).ok())
});

fn python() -> bool {
    if PYTHON.is_none() {
        eprintln!("not run: python3 missing");
    }
    PYTHON.is_some()
}

fn stdio(command: &str, args: &[&str]) -> ServerSettings {
    let transport = Transport::Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    let mut settings = ServerSettings::new(UpstreamName::new("srv").unwrap(), transport);
    settings.era = EraChoice::Legacy;
    settings
}

fn script(body: &str) -> ServerSettings {
    stdio(PYTHON.as_deref().unwrap_or("python3"), &["-c", &format!("{PRELUDE}\n{body}")])
}

fn base_env() -> BaseEnv {
    let own = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME");
    let more =
        [("SECRET_X", "leak"), ("LC_ALL", "C.UTF-8"), ("XDG_DATA_HOME", "/x"), ("HTTPS_PROXY", "p"), ("EXTRA", "e")];
    BaseEnv::new(own.chain(more.map(|(name, value)| (OsString::from(name), OsString::from(value)))).collect())
}

fn connector(settings: ServerSettings, tasks: &Tasks) -> Arc<StdioConnector> {
    let settings = ServerSettings { end_grace: Duration::from_millis(100), ..settings };
    Arc::new(StdioConnector::new(Arc::new(settings), tasks.clone(), Clock::manual(), base_env()))
}

/// A hang fails instead of lasting.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("hangs")
}

async fn open(settings: ServerSettings) -> (Started, Tasks) {
    let tasks = Tasks::new();
    let started = within(connector(settings, &tasks).open(Want::any())).await.unwrap();
    (started, tasks)
}

async fn refused(settings: ServerSettings, want: Want) -> String {
    within(connector(settings, &Tasks::new()).open(want)).await.unwrap_err().to_string()
}

/// Opens a conversation with the state in reach.
async fn opened(settings: ServerSettings) -> (Arc<Connection>, Tasks) {
    let tasks = Tasks::new();
    let connector = connector(settings, &tasks);
    let mut unfinished = Unfinished(None);
    let connection = connector.launch(None, Features::NONE, &mut unfinished).await.unwrap();
    let plan = Plan::new(connector.settings.era, None).unwrap();
    let Opened::Done(_) = within(handshake::open(&connection, plan)).await.unwrap() else { panic!("ended") };
    unfinished.0 = None;
    (connection, tasks)
}

fn call_raw(text: String) -> Outgoing {
    let raw = Bytes::from(text);
    let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else { panic!("{raw:?}") };
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::read(request.params.as_deref()).unwrap();
    let principal = PrincipalId::new("p");
    Outgoing::Call(Arc::new(UpstreamCall {
        call: Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }),
        original: Arc::from("t"),
        original_spelled: Bytes::from_static(b"\"t\""),
        header_params: Arc::from([]),
        client: ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(b"{}")),
        owner: Owner { key: OwnerKey::Principal(principal.clone()), ended: None },
        principal,
        request_state: None,
        trace: None,
    }))
}

/// A call of a client whose ids all are `"c"`; `token` is its progress token.
fn call(x: &str, token: Option<&str>) -> Outgoing {
    let meta = token.map(|token| format!(r#""_meta":{{"progressToken":{token}}},"#)).unwrap_or_default();
    call_raw(format!(
        r#"{{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{{{meta}"name":"srv__t","arguments":{{"x":{x}}}}}}}"#
    ))
}

async fn reply(link: &Arc<dyn Link>, outgoing: Outgoing) -> Reply {
    within(Arc::clone(link).request(outgoing)).await
}

fn done(reply: Reply) -> Outcome {
    let ReplyBody::Done(outcome) = reply.into_parts().0 else { panic!("events") };
    *outcome
}

fn text_of(outcome: Outcome) -> String {
    let Answer::Upstream { response, .. } = outcome.unwrap() else { panic!("no answer of a server") };
    let value: serde_json::Value = serde_json::from_slice(&response.raw).unwrap();
    value["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

async fn ask(link: &Arc<dyn Link>, x: &str) -> String {
    text_of(done(reply(link, call(x, None)).await))
}

async fn failure(link: &Arc<dyn Link>, x: &str) -> Reject {
    done(reply(link, call(x, None)).await).unwrap_err()
}

async fn ended(link: &Arc<dyn Link>, tasks: &Tasks) {
    link.close();
    within(tasks.wait()).await;
}

// --- framing ---

#[test]
fn the_id_is_found_among_the_outermost_members_alone() {
    assert_eq!(in_head(br#"{"jsonrpc":"2.0", "id" : 12 ,"result":{"a"#), Whose::Ours(12));
    assert_eq!(in_head(br#"{"result":{"id":3},"id":4,"#), Whose::Ours(4));
    assert_eq!(in_head(br#"{"result":{"x":"\"id\":5,","id":3,"#), Whose::Unknown);
    assert_eq!(in_head(br#"{"id":12"#), Whose::Unknown);
    assert_eq!(in_head(br#"{"id":"12","#), Whose::Unknown);
    assert_eq!(in_head(br#"{"method":"x","id":1,"#), Whose::Server);
    let tail = |text: &[u8]| whose(&Ends { head: b"{\"result\":{".to_vec(), tail: text.to_vec() });
    assert_eq!(tail(br#"xxx"}]},"id":7,"jsonrpc":"2.0"}"#), Whose::Ours(7));
    assert_eq!(tail(br#"xxx","id":8}}"#), Whose::Unknown);
    assert_eq!(tail(br#""id":8},"jsonrpc":"2.0"}"#), Whose::Unknown);
}

// --- output ---

/// [CFG-3]
#[test]
fn output_is_redacted_escaped_and_bounded() {
    let mut settings = script("");
    let Transport::Stdio { env, .. } = &mut settings.transport else { unreachable!() };
    env.push(("TOKEN".to_owned(), Secret::new("hunter22".to_owned())));
    env.push(("LONGER".to_owned(), Secret::new("hunter22-and-more".to_owned())));
    env.push(("SHORT".to_owned(), Secret::new("abc".to_owned())));
    env.push(("PEM".to_owned(), Secret::new("first line\nsecond line".to_owned())));
    let output = Output::new(&settings, Clock::manual());
    output.stray(b"abc hunter22 hunter22-and-more \x1b[31m second line \xff");
    assert_eq!(output.tail(), "abc [secret:TOKEN] [secret:LONGER] \\u{1b}[31m [secret:PEM] \u{fffd}");
    for _ in 0..100 {
        output.stray(&[b'y'; 8000]);
    }
    assert!(output.tail().len() <= 2000);
    assert_eq!(output.clean(b"abcdef", 3), "abc…");
}

// --- field cases ---

/// [FC-STD-01, R69]
#[tokio::test]
async fn text_on_stdout_is_skipped() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
raw("hello\n[info] x\n{oops\n\n")
init()
request = read()
raw("in the middle\n")
answer(request, "ok")
read()
"#,
    ))
    .await;
    let reply = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(text_of(done(reply)), "ok");
    assert_eq!(connection.counts.noise.load(Ordering::Relaxed), 4);
    assert!(connection.output.tail().contains("in the middle"));
    connection.stop();
}

/// [FC-STD-02]
#[tokio::test]
async fn noise_is_never_answered() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
request = read(); raw("noise\n"); accept(request)
lines = 0
while True:
    request = read(); lines += 1; raw("noise\n")
    answer(request, str(lines))
"#,
    ))
    .await;
    for lines in ["1", "2", "3"] {
        assert_eq!(ask(&started.link, "0").await, lines);
    }
}

/// [FC-STD-03]
#[tokio::test]
async fn utf8_is_exact_whatever_the_reads() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
init()
request = read()
line = json.dumps(dict(jsonrpc="2.0", id=request["id"], result=dict(content=[dict(type="text", text="é€😀")])), ensure_ascii=False) + "\n"
for byte in line.encode(): os.write(1, bytes([byte]))
read()
"#,
    ))
    .await;
    assert_eq!(ask(&started.link, "0").await, "é€😀");
}

/// [FC-STD-04, LIM-1]
#[tokio::test]
async fn one_call_over_the_cap_fails_alone() {
    if !python() {
        return;
    }
    let mut settings = script(
        r#"
init(instructions="i" * 130000)
held = None
while True:
    request = read()
    x = arguments(request)["x"]
    if x == "hold": held = request
    elif x == "tail": raw('{"result":{"content":[{"type":"text","text":"' + "y" * 9000000 + '"}]},"id":%d,"jsonrpc":"2.0"}\n' % request["id"])
    elif x == "both": raw("z" * 9000000 + "\n")
    else: answer(request, "y" * x)
"#,
    );
    settings.max_response_bytes = 8 * 1024 * 1024 + 1000;
    let (started, _tasks) = open(settings).await;
    let link = &started.link;
    assert_eq!(ask(link, "8388608").await.len(), 8_388_608);
    let held = within(Arc::clone(link).request(call("\"hold\"", None)));
    let rest = async {
        let words = "server 'srv' sent a response over max_response_bytes (8389608 bytes)";
        for x in ["9000000", "\"tail\""] {
            let reject = failure(link, x).await;
            assert_eq!((reject.kind, reject.public.as_ref()), (RejectKind::Limit, words));
        }
        assert_eq!(ask(link, "3").await, "yyy");
        assert_eq!(failure(link, "\"both\"").await.kind, RejectKind::Limit);
        assert_eq!(ask(link, "2").await, "yy");
    };
    let (held, ()) = tokio::join!(held, rest);
    assert_eq!(done(held).unwrap_err().kind, RejectKind::Limit);
}

/// [LIM-1, R69]
#[tokio::test]
async fn an_endless_line_ends_the_child() {
    if !python() {
        return;
    }
    let mut settings = script("init(); request = read()\nwhile True: raw('x' * 65536)");
    settings.max_response_bytes = 100_000;
    let (started, tasks) = open(settings).await;
    assert_eq!(failure(&started.link, "1").await.kind, RejectKind::Limit);
    within(tasks.wait()).await;
    assert!(started.link.closed().is_cancelled());
    assert!(started.link.last_words().unwrap().contains("4 × max_response_bytes"));
}

/// [FC-STD-05, R71]
#[tokio::test]
async fn a_flood_on_stderr_is_drained() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
sys.stderr.write("line\n" * 200000); sys.stderr.flush()
init()
request = read()
sys.stderr.write("x" * 1048576); sys.stderr.flush()
answer(request, "ok")
read()
"#,
    ))
    .await;
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// [FC-STD-06, R70]: the socket that the grandchild holds ends with it.
#[tokio::test]
async fn grandchildren_end_with_the_child() {
    if !python() {
        return;
    }
    for wrapper_exits in ["False", "True"] {
        let path = std::env::temp_dir().join(format!("portcullis-{}-{wrapper_exits}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let body = format!(
            r#"
import socket
init()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = socket.socket(socket.AF_UNIX); held.connect({path:?})
    while True: signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if {wrapper_exits}: read(); os._exit(0)
while True: signal.pause()
"#
        );
        let (started, tasks) = open(script(&body)).await;
        let (mut held, _) = within(listener.accept()).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        if wrapper_exits == "True" {
            assert_eq!(failure(&started.link, "0").await.public, "server 'srv' exited with status 0");
        } else {
            started.link.close();
        }
        within(tasks.wait()).await;
        assert_eq!(within(held.read(&mut [0; 1])).await.unwrap(), 0);
        assert!(started.link.closed().is_cancelled());
    }
}

/// The end of all tasks, of the opening future, and of the last link end the child too.
#[tokio::test]
async fn nothing_survives_a_drop() {
    if !python() {
        return;
    }
    for case in ["tasks", "future", "link"] {
        let path = std::env::temp_dir().join(format!("portcullis-{}-{case}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let first = if case == "future" { "pass" } else { "init()" };
        let body = format!(
            "import socket\n{first}\nheld = socket.socket(socket.AF_UNIX); held.connect({path:?})\nwhile True: signal.pause()"
        );
        let tasks = Tasks::new();
        let mut opening = connector(script(&body), &tasks).open(Want::any());
        let (mut held, started) = if case == "future" {
            tokio::select! {
                held = within(listener.accept()) => (held.unwrap().0, None),
                _ = &mut opening => panic!("opened"),
            }
        } else {
            let started = within(&mut opening).await.unwrap();
            (within(listener.accept()).await.unwrap().0, Some(started))
        };
        std::fs::remove_file(&path).unwrap();
        if case == "tasks" {
            let started = started.unwrap();
            let waiting = within(Arc::clone(&started.link).request(call("1", None)));
            tasks.cancel();
            assert_eq!(done(waiting.await).unwrap_err().kind, RejectKind::Upstream);
        } else {
            drop(started);
            drop(opening);
        }
        assert_eq!(within(held.read(&mut [0; 1])).await.unwrap(), 0, "{case}");
        within(tasks.wait()).await;
    }
}

/// [FC-STD-07, FC-STD-13]
#[tokio::test]
async fn the_reason_of_a_failed_start_is_told_without_secrets() {
    if !python() {
        return;
    }
    let body = "sys.stderr.write('no key hunter22 given\\n'); sys.exit(3)";
    for era in [EraChoice::Auto, EraChoice::Legacy, EraChoice::Stateless] {
        let mut settings = script(body);
        settings.era = era;
        let Transport::Stdio { env, .. } = &mut settings.transport else { unreachable!() };
        env.push(("TOKEN".to_owned(), Secret::new("hunter22".to_owned())));
        let words = refused(settings, Want::any()).await;
        assert!(words.contains("server 'srv' exited with status 3"), "{words}");
        assert!(words.contains("no key [secret:TOKEN] given"), "{words}");
    }
}

/// [FC-STD-08, R70]
#[tokio::test]
async fn a_killed_child_fails_its_calls_and_is_not_asked_again() {
    if !python() {
        return;
    }
    let (started, tasks) = open(script("init(); read(); os.kill(os.getpid(), 9)")).await;
    let reject = failure(&started.link, "1").await;
    assert_eq!(reject.public, "server 'srv' was killed by signal 9");
    assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Never));
    within(tasks.wait()).await;
    assert!(started.link.closed().is_cancelled());
    assert_eq!(failure(&started.link, "1").await.retry, Retry::Safe);
}

/// [FC-STD-10]
#[tokio::test]
async fn a_child_that_closes_its_stdin_fails_its_callers_alone() {
    if !python() {
        return;
    }
    for rest in ["sys.exit(0)", "\nwhile True: signal.pause()"] {
        let body = format!("request = read(); os.close(0); send(dict(id=request['id'], result=facts())); {rest}");
        let tasks = Tasks::new();
        match within(connector(script(&body), &tasks).open(Want::any())).await {
            Ok(started) => {
                let reject = failure(&started.link, "1").await;
                assert_eq!(reject.kind, RejectKind::Upstream);
                assert!(reject.public.starts_with("server 'srv' "), "{reject:?}");
            }
            Err(err) => assert!(err.to_string().contains("'srv'"), "{err}"),
        }
        within(tasks.wait()).await;
        assert_eq!(tasks.panics(), 0);
    }
}

/// [FC-STD-11]
#[tokio::test]
async fn a_missing_command_is_named_with_its_path() {
    let words = refused(stdio("no-such-command-here", &[]), Want::any()).await;
    let (_, path) = base_env().own.iter().find(|(name, _)| name == "PATH").cloned().unwrap();
    assert_eq!(
        words,
        format!(
            "server 'srv' cannot start: command 'no-such-command-here' not found in PATH {}",
            path.to_string_lossy()
        )
    );
}

/// [FC-IDS-04, FC-CON-02]: two clients with the same ids, answers in random order, large arguments, few places in the
/// queue.
#[tokio::test]
async fn every_answer_reaches_its_caller() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
seen, waiting = set(), []
lock = threading.Lock()
def reader():
    while True:
        request = read()
        assert request["id"] not in seen
        seen.add(request["id"])
        with lock: waiting.append(request)
threading.Thread(target=reader, daemon=True).start()
done = 0
while done < 1000:
    with lock:
        batch, waiting = waiting, []
    random.shuffle(batch)
    for request in batch: answer(request, arguments(request)["x"][:20])
    done += len(batch)
signal.pause()
"#,
    ))
    .await;
    let calls = (0..1000).map(|number| {
        let connection = Arc::clone(&connection);
        async move {
            let marker = format!("{}-{:017}", number % 2, number);
            let padding = "p".repeat(if number % 20 == 0 { 200_000 } else { 20 });
            let sent = call(&format!("\"{marker} {padding}\""), None);
            let got = text_of(done(connection.request(sent, Era::Legacy).await));
            assert_eq!(got.trim(), marker);
        }
    });
    within(futures_util::future::join_all(calls)).await;
    assert_eq!(connection.table.len(), 0);
    connection.stop();
}

/// [FC-IDS-06, R107]: an abandoned call is cancelled under our id; its late answer is dropped.
#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
first = read()
send(dict(method="notifications/progress", params=dict(progressToken=first["params"]["_meta"]["progressToken"], progress=1)))
cancelled = read()
answer(first, "late")
second = read()
answer(second, json.dumps([cancelled, first["id"]]))
read()
"#,
    ))
    .await;
    let first = within(Arc::clone(&connection).request(call("1", Some("\"tok\"")), Era::Legacy)).await;
    assert!(matches!(first.body, ReplyBody::Events(_)));
    drop(first);
    let second = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(
        text_of(done(second)),
        r#"[{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}, 2]"#
    );
    assert_eq!(connection.counts.answers.load(Ordering::Relaxed), 1);
    connection.stop();
}

/// [FC-IDS-07, R109]
#[tokio::test]
async fn progress_of_live_tokens_alone_reaches_a_client() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
def progress(token, value): send(dict(method="notifications/progress", params=dict(progressToken=token, progress=value, message="m")))
first = read()
token = first["params"]["_meta"]["progressToken"]
progress("made-up", 1); progress(999, 1)
progress(token, 1); progress(token, 1); progress(token, 0.5); progress(token, 2.5)
answer(first, "ok")
progress(token, 3)
second = read()
progress(second["id"], 1)
answer(second, "ok")
read()
"#,
    ))
    .await;
    let first = within(Arc::clone(&connection).request(call("1", Some("\"tok\"")), Era::Legacy)).await;
    let ReplyBody::Events(events) = first.into_parts().0 else { panic!("no events") };
    let mut values = Vec::new();
    let mut outcomes = 0;
    for event in within(events.collect::<Vec<_>>()).await {
        match event {
            Event::Progress(raw) => {
                let value: serde_json::Value = serde_json::from_slice(&raw).unwrap();
                assert_eq!(value["params"]["progressToken"], "tok");
                values.push(value["params"]["progress"].as_f64().unwrap());
            }
            Event::Done(outcome) => {
                outcomes += 1;
                assert_eq!(text_of(outcome), "ok");
            }
            Event::Ask(_) | Event::Changed(_) | Event::Log(_) | Event::Paused | Event::Said(_) | Event::Watch(_) => {
                panic!("unexpected")
            }
        }
    }
    assert_eq!((values, outcomes), (vec![1.0, 2.5], 1));
    let second = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(text_of(done(second)), "ok");
    assert_eq!(connection.counts.progress.load(Ordering::Relaxed), 6);
    connection.stop();
}

/// [FC-IDS-08]
#[tokio::test]
async fn digits_pass_as_they_are() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
init()
line = sys.stdin.buffer.readline().decode()
answer(json.loads(line), line[line.index('"x":') + 4:].rstrip("}\n"))
read()
"#,
    ))
    .await;
    let digits = "[9007199254740993,18446744073709551616,1.10,1e400,-0.0]";
    assert_eq!(ask(&started.link, digits).await, digits);
}

/// [FC-IDS-10, R46]; other requests of a legacy server are refused, list changes are counted.
#[tokio::test]
async fn ping_is_answered_at_once_and_others_are_refused() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
request = read()
send(dict(id="early", method="ping"))
early = read()
accept(request)
call = read()
send(dict(method="notifications/tools/list_changed"))
send(dict(id=call["id"], method="ping"))
send(dict(id="r", method="roots/list"))
answers = [early, read(), read()]
answer(call, json.dumps(answers))
read()
"#,
    ))
    .await;
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    let changes = started.link.changes();
    let answers: serde_json::Value = serde_json::from_str(&ask(&started.link, "0").await).unwrap();
    assert_eq!(
        answers,
        serde_json::json!([
            {"jsonrpc": "2.0", "id": "early", "result": {}},
            {"jsonrpc": "2.0", "id": 2, "result": {}},
            {"jsonrpc": "2.0", "id": "r", "error": {"code": -32601, "message": "Method not found"}},
        ])
    );
    assert_eq!(changes.borrow().of(Kind::Tools), 1);
}

/// [R69]
#[tokio::test]
async fn line_breaks_in_params_become_spaces() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(ECHO)).await;
    let pretty = "{\n \"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"tools/call\",\"params\":{\n\"name\":\"srv__t\",\n\"arguments\":{\n\t\"x\":\n\"a\\nb\"}}\n}";
    let reply = reply(&started.link, call_raw(pretty.to_owned())).await;
    assert_eq!(text_of(done(reply)), "a\nb");
}

/// [FC-CFG-03, TRN-9]
#[tokio::test]
async fn the_environment_is_the_short_list_and_what_is_named() {
    if !python() {
        return;
    }
    let mut settings =
        script("init(); answer(read(), ' '.join(sorted(os.environ)) + ' ' + os.environ['LC_ALL']); read()");
    let Transport::Stdio { env, inherit_env, .. } = &mut settings.transport else { unreachable!() };
    env.push(("LC_ALL".to_owned(), Secret::new("C".to_owned())));
    inherit_env.push("EXTRA".to_owned());
    let (started, _tasks) = open(settings).await;
    let names = ask(&started.link, "0").await;
    let names: Vec<&str> = names.split(' ').filter(|name| !matches!(*name, "HOME" | "LC_CTYPE")).collect();
    assert_eq!(names, ["EXTRA", "LC_ALL", "PATH", "XDG_DATA_HOME", "C"]);
}

/// [FC-CFG-02]
#[tokio::test]
async fn arguments_are_passed_without_a_shell() {
    if !python() {
        return;
    }
    let exact = ["Authorization: Bearer x", "/a path/b", "\"'", "$HOME", "*", "", "a\nb"];
    let code = format!("{PRELUDE}\ninit(); answer(read(), json.dumps(sys.argv[1:])); read()");
    let mut args = vec!["-c", code.as_str()];
    args.extend(exact);
    let (started, _tasks) = open(stdio(PYTHON.as_deref().unwrap_or("python3"), &args)).await;
    let got: Vec<String> = serde_json::from_str(&ask(&started.link, "0").await).unwrap();
    assert_eq!(got, exact);
}

// --- handshake ---

fn auto(body: &str) -> ServerSettings {
    let mut settings = script(body);
    settings.era = EraChoice::Auto;
    settings
}

const STATELESS: &str = r#"
request = read()
assert request["method"] == "server/discover" and "_meta" in request["params"]
modern(request)
"#;

/// [protocol §2.8] [R68]
#[tokio::test]
async fn a_stateless_server_is_found_and_listened_to() {
    if !python() {
        return;
    }
    let body = format!(
        r#"{STATELESS}
listen = read()
assert listen["method"] == "subscriptions/listen" and listen["params"]["notifications"] == dict(toolsListChanged=True)
send(dict(id="x", method="ping"))
send(dict(method="notifications/tools/list_changed", params=dict(_meta={{"io.modelcontextprotocol/subscriptionId": listen["id"]}})))
request = read()
answer(request, json.dumps(sorted(request["params"]["_meta"])))
read()
"#
    );
    let (started, tasks) = open(auto(&body)).await;
    assert_eq!(started.link.era(), Era::Stateless);
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    let mut changes = started.link.changes();
    Arc::clone(&started.link).watch(Kinds::NONE.with(Kind::Tools));
    within(changes.wait_for(|count| count.of(Kind::Tools) == 1)).await.unwrap();
    // The ping was not answered: the next line the child reads is the call.
    let outcome = done(reply(&started.link, call("1", None)).await);
    assert!(matches!(&outcome, Ok(Answer::Upstream { era: Era::Stateless, .. })));
    assert!(text_of(outcome).contains("io.modelcontextprotocol/protocolVersion"));
    ended(&started.link, &tasks).await;
}

/// [R55]: any error, an answer without the revision, and silence lead to `initialize` on the same child.
#[tokio::test]
async fn a_probe_falls_back_on_the_same_child() {
    if !python() {
        return;
    }
    for refusal in [
        "error(probe, -32601)",
        "error(probe, 1)",
        "error(probe, -32022, data=dict(supported=['2099-01-01']))",
        "send(dict(id=probe['id'], result=dict(supportedVersions=['2025-11-25'])))",
        "late = True",
    ] {
        let mut settings = auto(&format!(
            r#"
late = False
probe = read()
{refusal}
request = read()
assert request["method"] == "initialize", request
if late: modern(probe)
accept(request, version="2024-11-05")
answer(read(), "ok")
read()
"#
        ));
        if refusal == "late = True" {
            settings.probe_timeout = Duration::from_millis(50);
        }
        let (started, _tasks) = open(settings).await;
        assert_eq!(started.link.era(), Era::Legacy, "{refusal}");
        assert_eq!(ask(&started.link, "0").await, "ok", "{refusal}");
    }
}

/// A stateless server that was slow to start refuses the `initialize` that came after the silence [R55].
#[tokio::test]
async fn a_slow_stateless_server_is_not_taken_for_legacy() {
    if !python() {
        return;
    }
    let mut settings = auto(
        r#"
probe, request = read(), read()
modern(probe); error(request, -32601)
answer(read(), "ok")
read()
"#,
    );
    settings.probe_timeout = Duration::from_millis(50);
    let (started, _tasks) = open(settings).await;
    assert_eq!(started.link.era(), Era::Stateless);
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// A child that ends at the probe is started once more, with `initialize` first.
#[tokio::test]
async fn a_child_that_ends_at_the_probe_is_started_again() {
    if !python() {
        return;
    }
    let body = r#"
request = read()
if request["method"] != "initialize": sys.exit(1)
accept(request)
answer(read(), "ok")
read()
"#;
    let (started, _tasks) = open(auto(body)).await;
    assert_eq!(started.link.era(), Era::Legacy);
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// [R56]
#[tokio::test]
async fn the_wanted_era_is_kept_to() {
    if !python() {
        return;
    }
    let stateless = || Want::of(Era::Stateless);
    let tasks = Tasks::new();
    let open = |settings, want| within(connector(settings, &tasks).open(want));
    let legacy = open(auto("error(read(), -32601); read()"), stateless()).await;
    assert!(matches!(legacy, Err(StartError::Era(Era::Stateless, _))));
    let started = open(auto(&format!("{STATELESS}\nread()")), stateless()).await.unwrap();
    assert_eq!(started.link.era(), Era::Stateless);
    let modern = open(auto("error(read(), -32022); read()"), Want::of(Era::Legacy)).await;
    assert!(matches!(modern, Err(StartError::Era(Era::Legacy, _))));
    let started = open(auto("init(); read()"), Want::of(Era::Legacy)).await.unwrap();
    assert_eq!(started.link.era(), Era::Legacy);
    let mut configured = auto("error(read(), -32601); read()");
    configured.era = EraChoice::Stateless;
    let started = open(configured, Want::any()).await.unwrap();
    assert_eq!(started.link.era(), Era::Stateless);
    assert!(matches!(open(script(""), stateless()).await, Err(StartError::Era(Era::Stateless, _))));
}

#[tokio::test]
async fn an_unknown_version_is_named() {
    if !python() {
        return;
    }
    let words = refused(script("init(version='1999-01-01')"), Want::any()).await;
    assert_eq!(words, "server 'srv' answers initialize with the unknown protocol version '1999-01-01'");
}

#[tokio::test]
async fn a_start_has_a_limit_and_tells_the_last_output() {
    if !python() {
        return;
    }
    let mut settings = script("read(); sys.stderr.write('still busy\\n'); sys.stderr.flush(); signal.pause()");
    settings.start_timeout = Duration::from_millis(1500);
    let words = refused(settings, Want::any()).await;
    assert_eq!(words, "server 'srv' did not start within 1.5 s; last output: still busy");
}
