//! Children in Python, and a link to them.

use std::ffi::OsString;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::exchange::{Answer, ClientFacts, Outcome, Owner, Reject, Reply, ReplyBody, ServerCall, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::Tasks;
use crate::upstream::link::{Connector as _, Link, Outgoing, Started, Want};
use crate::upstream::stdio::connection::Connection;
use crate::upstream::stdio::connector::{BaseEnv, StdioConnector, Unfinished};
use crate::upstream::stdio::handshake::{self, Opened, Plan};
use crate::upstream::{EraChoice, ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::{CallParams, Features, Method, ProtocolVersion, RequestMeta};

/// What every child begins with: `read`, `send`, `answer`, and `init` for the legacy handshake.
pub(super) const PRELUDE: &str = r#"
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
pub(super) const ECHO: &str = r#"
init()
while True:
    request = read()
    if "id" in request: answer(request, str(arguments(request)["x"]))
"#;

/// The interpreter itself, not a wrapper that adds to the environment.
pub(super) static PYTHON: LazyLock<Option<String>> = LazyLock::new(|| {
    let found =
        std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output();
    found.ok().filter(|found| found.status.success()).and_then(|found| String::from_utf8(found.stdout).ok())
});

pub(super) fn python() -> bool {
    if PYTHON.is_none() {
        eprintln!("not run: python3 missing");
    }
    PYTHON.is_some()
}

pub(super) fn stdio(command: &str, args: &[&str]) -> ServerSettings {
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

pub(super) fn script(body: &str) -> ServerSettings {
    stdio(PYTHON.as_deref().unwrap_or("python3"), &["-c", &format!("{PRELUDE}\n{body}")])
}

pub(super) fn base_env() -> BaseEnv {
    let own = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME");
    let more =
        [("SECRET_X", "leak"), ("LC_ALL", "C.UTF-8"), ("XDG_DATA_HOME", "/x"), ("HTTPS_PROXY", "p"), ("EXTRA", "e")];
    BaseEnv::new(own.chain(more.map(|(name, value)| (OsString::from(name), OsString::from(value)))).collect())
}

pub(super) fn connector(settings: ServerSettings, tasks: &Tasks) -> Arc<StdioConnector> {
    let settings = ServerSettings { end_grace: Duration::from_millis(100), ..settings };
    Arc::new(StdioConnector::new(Arc::new(settings), tasks.clone(), Clock::manual(), base_env()))
}

/// A hang fails instead of lasting.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("hangs")
}

pub(super) async fn open(settings: ServerSettings) -> (Started, Tasks) {
    let tasks = Tasks::new();
    let started = within(connector(settings, &tasks).open(Want::any())).await.unwrap();
    (started, tasks)
}

pub(super) async fn refused(settings: ServerSettings, want: Want) -> String {
    within(connector(settings, &Tasks::new()).open(want)).await.unwrap_err().to_string()
}

/// Opens a conversation with the state in reach.
pub(super) async fn opened(settings: ServerSettings) -> (Arc<Connection>, Tasks) {
    let tasks = Tasks::new();
    let connector = connector(settings, &tasks);
    let mut unfinished = Unfinished(None);
    let connection = connector.launch(None, Features::NONE, &mut unfinished).await.unwrap();
    let plan = Plan::new(connector.settings.era, None).unwrap();
    let Opened::Done(_) = within(handshake::open(&connection, plan)).await.unwrap() else { panic!("ended") };
    unfinished.0 = None;
    (connection, tasks)
}

pub(super) fn call_raw(text: String) -> Outgoing {
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
        owner: Owner::principal(principal.clone()),
        principal,
        request_state: None,
        trace: None,
    }))
}

/// A call of a client whose ids all are `"c"`; `token` is its progress token.
pub(super) fn call(x: &str, token: Option<&str>) -> Outgoing {
    let meta = token.map(|token| format!(r#""_meta":{{"progressToken":{token}}},"#)).unwrap_or_default();
    call_raw(format!(
        r#"{{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{{{meta}"name":"srv__t","arguments":{{"x":{x}}}}}}}"#
    ))
}

pub(super) async fn reply(link: &Arc<dyn Link>, outgoing: Outgoing) -> Reply {
    within(Arc::clone(link).request(outgoing)).await
}

pub(super) fn done(reply: Reply) -> Outcome {
    let ReplyBody::Done(outcome) = reply.into_parts().0 else { panic!("events") };
    *outcome
}

pub(super) fn text_of(outcome: Outcome) -> String {
    let Answer::Upstream { response, .. } = outcome.unwrap() else { panic!("no answer of a server") };
    let value: serde_json::Value = serde_json::from_slice(&response.raw).unwrap();
    value["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

pub(super) async fn ask(link: &Arc<dyn Link>, x: &str) -> String {
    text_of(done(reply(link, call(x, None)).await))
}

pub(super) async fn failure(link: &Arc<dyn Link>, x: &str) -> Reject {
    done(reply(link, call(x, None)).await).unwrap_err()
}

pub(super) async fn ended(link: &Arc<dyn Link>, tasks: &Tasks) {
    link.close();
    within(tasks.wait()).await;
}
