//! The field cases of HTTP servers, against raw bytes.
//!
//! Not for: real servers; those belong to the integration tests.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, Uri};
use tokio::sync::Notify;

use super::super::target::{Pauses, Target};
use super::{HttpServer, dialer};
use crate::exchange::{
    Answer, ClientFacts, Event, Outcome, Owner, OwnerKey, Reject, RejectKind, Reply, ReplyBody, Retry, ServerCall,
    UpstreamCall,
};
use crate::id::{PrincipalId, UpstreamName};
use crate::net::script::{Recorded, ScriptedServer, Step, json, response, stream, until};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::link::{Connector, Link, Outgoing, StartError, Started, Want};
use crate::upstream::{EraChoice, ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, ErrorObject, Limits, Message, code, decode};
use crate::wire::mcp::{CallParams, Era, HeaderParam, Kind, Kinds, Method, ProtocolVersion, RequestMeta};

#[cfg(test)]
#[path = "cap_tests.rs"]
mod caps;

// === helpers ===

type Way = fn() -> Vec<Step>;
type Script = Box<dyn Fn(&Recorded) -> Vec<Step> + Send + Sync>;

struct Lab {
    server: ScriptedServer,
    http: Arc<HttpServer>,
    tasks: Tasks,
}

fn settings(uri: &str) -> ServerSettings {
    let transport = Transport::Http {
        url: Secret::new(uri.to_owned()),
        uri: uri.parse::<Uri>().unwrap(),
        headers: vec![
            (HeaderName::from_static("authorization"), Secret::new("Bearer configured".to_owned())),
            (HeaderName::from_static("user-agent"), Secret::new("mine/1".to_owned())),
        ],
    };
    let mut settings = ServerSettings::new(UpstreamName::new("srv").unwrap(), transport);
    settings.probe_timeout = Duration::from_secs(5);
    settings
}

fn quick(settings: ServerSettings, tasks: &Tasks) -> Arc<HttpServer> {
    let mut http = HttpServer::new(Arc::new(settings), tasks.clone()).unwrap();
    let target = Arc::get_mut(&mut http.target).unwrap();
    let short = Duration::from_millis(1);
    target.pauses = Pauses { first: short, most: short * 20, lived: Duration::from_secs(600) };
    Arc::new(http)
}

impl Lab {
    async fn new(script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with(|_| {}, script).await
    }

    async fn with(
        adjust: impl FnOnce(&mut ServerSettings),
        script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let tasks = Tasks::new();
        let server = ScriptedServer::start(&tasks, script).await;
        let mut settings = settings(&format!("http://{}/mcp?key=canary", server.addr));
        adjust(&mut settings);
        Self { server, http: quick(settings, &tasks), tasks }
    }

    async fn open(&self, want: Want) -> Result<Started, StartError> {
        Arc::clone(&self.http).open(want).await
    }

    async fn legacy(&self) -> Arc<dyn Link> {
        self.open(Want::of(Era::Legacy)).await.unwrap().link
    }

    async fn stateless(&self) -> Arc<dyn Link> {
        self.open(Want::any()).await.unwrap().link
    }

    fn calls(&self) -> usize {
        self.server.kinds().iter().filter(|kind| *kind == "tools/call").count()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true}}"#;

fn result(request: &Recorded, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.member("id"))
}

fn error(request: &Recorded, code: i64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"m{code}"}}}}"#, request.member("id"))
}

fn initialized(request: &Recorded) -> String {
    result(request, &format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{CAPABILITIES},"serverInfo":{{}}}}"#))
}

fn accepted() -> Vec<Step> {
    response("202 Accepted", "", "")
}

/// What a well-behaved legacy server does, but for requests.
fn legacy(request: &Recorded, rest: impl FnOnce(&Recorded) -> Vec<Step>) -> Vec<Step> {
    match request.kind().as_str() {
        "initialize" => {
            response("200 OK", "Content-Type: application/json\r\nMcp-Session-Id: s-1\r\n", &initialized(request))
        }
        "notifications/initialized" | "notifications/cancelled" => accepted(),
        "GET" => response("405 Method Not Allowed", "", ""),
        "DELETE" => response("200 OK", "", ""),
        _ => rest(request),
    }
}

fn discovered(request: &Recorded) -> Vec<Step> {
    let text = format!(r#"{{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{CAPABILITIES}}}"#);
    json("200 OK", &result(request, &text))
}

/// What a well-behaved stateless server does, but for requests.
fn modern(request: &Recorded, rest: impl FnOnce(&Recorded) -> Vec<Step>) -> Vec<Step> {
    if request.kind() == "server/discover" { discovered(request) } else { rest(request) }
}

fn upstream_call(meta: &str, arguments: &str) -> UpstreamCall {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{{{meta}"name":"srv__t","arguments":{arguments}}}}}"#
    );
    let Ok(Decoded::One(Message::Request(request))) = decode(&Bytes::from(text), &Limits::DOWNSTREAM) else {
        panic!("the test's own call is malformed")
    };
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::read(request.params.as_deref()).unwrap();
    let principal = PrincipalId::new("p");
    UpstreamCall {
        call: Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }),
        original: Arc::from("t"),
        original_spelled: Bytes::from_static(b"\"t\""),
        header_params: Arc::from([]),
        client: ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(b"{}")),
        owner: Owner { key: OwnerKey::Principal(principal.clone()), ended: None },
        principal,
        request_state: None,
        trace: None,
    }
}

fn call() -> Outgoing {
    Outgoing::Call(Arc::new(upstream_call(r#""_meta":{"progressToken":"tok"},"#, "{}")))
}

fn list() -> Outgoing {
    Outgoing::Own { method: "tools/list", members: String::new() }
}

/// Reads a reply to its end.
async fn drain(reply: Reply) -> (Vec<String>, Outcome) {
    let mut seen = Vec::new();
    let (body, _guards) = reply.into_parts();
    match body {
        ReplyBody::Done(outcome) => (seen, *outcome),
        ReplyBody::Events(mut events) => {
            while let Some(event) = events.next().await {
                match event {
                    Event::Done(outcome) => {
                        assert!(events.next().await.is_none(), "something follows the outcome");
                        return (seen, outcome);
                    }
                    Event::Log(message) => seen.push(String::from_utf8(message.raw().to_vec()).unwrap()),
                    Event::Progress(raw) => seen.push(String::from_utf8(raw.to_vec()).unwrap()),
                    Event::Ask(_) | Event::Changed(_) | Event::Said(_) | Event::Watch(_) => panic!("not of this layer"),
                }
            }
            panic!("no outcome")
        }
    }
}

async fn ask(link: &Arc<dyn Link>, outgoing: Outgoing) -> Outcome {
    drain(Arc::clone(link).request(outgoing).await).await.1
}

fn payload(outcome: Outcome) -> String {
    match outcome {
        Ok(Answer::Upstream { response, .. }) => {
            String::from_utf8(response.result().or_else(|| response.error()).unwrap().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn error_code(outcome: Outcome) -> i64 {
    match outcome {
        Ok(Answer::Upstream { response, .. }) => ErrorObject::read(&response.error().unwrap()).code.0,
        other => panic!("{other:?}"),
    }
}

fn refused(outcome: Outcome) -> Reject {
    let reject = outcome.unwrap_err();
    assert!(reject.public.contains("'srv'"), "{}", reject.public);
    assert!(!reject.public.contains("127.0.0.1"), "{}", reject.public);
    assert!(!format!("{reject:?}").contains("canary"), "{reject:?}");
    assert!(reject.detail.chars().count() <= 200, "{}", reject.detail);
    reject
}

fn sse(events: &[&str]) -> Vec<Step> {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![stream(&body), Step::Close]
}

// === reading ===

#[tokio::test]
async fn htp_01_every_line_end_is_read() {
    for ends in [["\n", "\n"], ["\r\n", "\r\n"], ["\r", "\r"], ["\r\n", "\n"], ["\n", "\r"]] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let [one, two] = ends;
                vec![stream(&format!("event: message{one}data: {}{two}{two}", result(request, "1"))), Step::Close]
            })
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, call()).await), "1", "{ends:?}");
    }
}

#[tokio::test]
async fn htp_02_data_lines_are_joined_wherever_the_body_is_cut() {
    let text = |id: &str| {
        format!("data: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\ndata: \"result\":\ndata: \"a😀b\"\ndata: }}\n\n")
    };
    let place = Arc::new(AtomicUsize::new(1));
    let length = text("1").len();
    let at = Arc::clone(&place);
    let lab = Lab::new(move |request| {
        legacy(request, |request| {
            let text = text(&request.member("id")).into_bytes();
            let at = at.load(Ordering::SeqCst).min(text.len());
            let mut steps = vec![stream("")];
            steps.extend(text.chunks(at).map(|part| Step::Write(part.to_vec())));
            steps.push(Step::Close);
            steps
        })
    })
    .await;
    let link = lab.legacy().await;
    for at in 1..length {
        place.store(at, Ordering::SeqCst);
        assert_eq!(payload(ask(&link, call()).await), "\"a😀b\"", "cut every {at} bytes");
    }
}

#[tokio::test]
async fn htp_03_long_data_lines_up_to_the_cap() {
    let lab = Lab::with(
        |settings| settings.max_response_bytes = 6 << 20,
        |request| {
            legacy(request, |request| {
                let length: usize = request.member("method").strip_prefix("x/").map_or(0, |text| text.parse().unwrap());
                sse(&[&result(request, &format!("\"{}\"", "a".repeat(length)))])
            })
        },
    )
    .await;
    let link = lab.legacy().await;
    let own = |method| Outgoing::Own { method, members: String::new() };
    assert_eq!(payload(ask(&link, own("x/119808")).await).len(), 119_808 + 2);
    assert_eq!(payload(ask(&link, own("x/5242880")).await).len(), 5_242_880 + 2);
    let reject = refused(ask(&link, own("x/7340032")).await);
    assert_eq!(reject.kind, RejectKind::Limit);
    assert!(reject.public.contains("6291456") && reject.public.contains("max_response_bytes"), "{}", reject.public);
    assert_eq!(payload(ask(&link, own("x/1")).await), "\"a\"", "the link is still good");
}

#[tokio::test]
async fn htp_04_the_answer_is_chosen_by_id() {
    let lab = Lab::new(|request| {
        legacy(request, |request| match request.member("method").as_str() {
            "tools/call" => {
                let id = request.member("id");
                let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#);
                sse(&[
                    &progress,
                    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.10}}"#,
                    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                    r#"{"jsonrpc":"2.0","id":77,"method":"roots/list"}"#,
                    r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
                    r#"{"jsonrpc":"2.0","id":4711,"result":"foreign"}"#,
                    &result(request, "\"ours\""),
                ])
            }
            _ => accepted(),
        })
    })
    .await;
    let link = lab.legacy().await;
    let (seen, outcome) = drain(Arc::clone(&link).request(call()).await).await;
    assert_eq!(payload(outcome), "\"ours\"");
    assert_eq!(
        seen,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.10}}"#,
        ]
    );
    assert_eq!(link.changes().borrow().of(Kind::Tools), 1);
    let posted = |id: &str, what: &str| {
        lab.server.requests().iter().any(|request| {
            request.member("id") == id && request.body.contains(what) && request.header("mcp-session-id") == Some("s-1")
        })
    };
    until("a refusal of roots/list", || posted("77", "-32601")).await;
    until("an answer to ping", || posted("p", "\"result\":{}")).await;
    assert!(!lab.server.kinds().contains(&"notifications/cancelled".to_owned()));
}

#[tokio::test]
async fn htp_05_unnamed_events_count_and_unknown_ones_do_not() {
    let lab = Lab::new(|request| {
        legacy(request, |request| {
            let answer = result(request, "1");
            let wrong = result(request, "2");
            vec![
                stream(&format!(
                    ": hello\n\nretry: 5\n\nid: e\ndata:\n\nevent: other\ndata: {wrong}\n\nfoo: bar\ndata: {answer}\n\n"
                )),
                Step::Close,
            ]
        })
    })
    .await;
    let link = lab.legacy().await;
    assert_eq!(payload(ask(&link, call()).await), "1");
}

/// [R59]
#[tokio::test]
async fn htp_06_a_stream_that_ends_early_is_not_replayed() {
    for end in [Step::Close, Step::Reset] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let id = request.member("id");
                let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#);
                vec![stream(&format!("data: {progress}\n\n")), end.clone()]
            })
        })
        .await;
        let link = lab.legacy().await;
        let (_, outcome) = drain(Arc::clone(&link).request(call()).await).await;
        let reject = refused(outcome);
        assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Never));
        assert!(reject.public.contains("outcome is unknown"), "{}", reject.public);
        assert_eq!(lab.calls(), 1);
    }
}

/// [R59]
#[tokio::test]
async fn htp_06_a_stream_with_an_id_is_resumed() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "GET" if request.header("last-event-id") == Some("e-1") => {
            vec![stream("id: e-2\nretry: 1\ndata:\n\n"), Step::Close]
        }
        "GET" if request.header("last-event-id") == Some("e-2") => {
            sse(&[r#"{"jsonrpc":"2.0","id":2,"result":"late"}"#])
        }
        _ => legacy(request, |_| vec![stream("id: e-1\nretry: 1\ndata:\n\n"), Step::Close]),
    })
    .await;
    let link = lab.legacy().await;
    assert_eq!(payload(ask(&link, call()).await), "\"late\"");
    assert_eq!(lab.calls(), 1);
    let gets: Vec<Recorded> = lab.server.requests().into_iter().filter(|request| request.method == "GET").collect();
    assert_eq!(gets.len(), 2);
    assert_eq!(gets[0].header("mcp-session-id"), Some("s-1"));
    assert_eq!(gets[0].header("accept"), Some("text/event-stream"));
}

#[tokio::test]
async fn htp_06_resuming_has_an_end() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "GET" => response("503 Service Unavailable", "", ""),
        _ => legacy(request, |_| vec![stream("id: e-1\ndata:\n\n"), Step::Close]),
    })
    .await;
    let link = lab.legacy().await;
    assert!(refused(ask(&link, call()).await).public.contains("outcome is unknown"));
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "GET").count(), 3);
}

#[tokio::test]
async fn htp_07_any_2xx_acknowledges_a_notification() {
    let acks: [Way; 5] = [
        accepted,
        || response("200 OK", "", ""),
        || vec![Step::Write(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
        || json("200 OK", "null"),
        || response("202 Accepted", "Content-Type: text/plain\r\n", "Accepted"),
    ];
    for ack in acks {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "notifications/initialized" => ack(),
            _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, list()).await), "1");
    }
    let lab = Lab::new(|request| match request.kind().as_str() {
        "notifications/initialized" => response("500 Oops", "", ""),
        _ => legacy(request, |_| Vec::new()),
    })
    .await;
    let Err(StartError::Failed(why)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    assert!(why.contains("HTTP 500"), "{why}");
}

#[tokio::test]
async fn htp_08_a_server_without_a_stream_is_left_alone() {
    let ways: [(usize, Way); 6] = [
        (1, || response("405 Method Not Allowed", "", "")),
        (4, || response("404 Not Found", "", "")),
        (4, || response("400 Bad Request", "", "")),
        (4, || response("406 Not Acceptable", "", "")),
        (4, || json("200 OK", "{}")),
        (4, || vec![stream(""), Step::Close]),
    ];
    for (tries, way) in ways {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "GET" => way(),
            _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
        })
        .await;
        let link = lab.legacy().await;
        Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
        // The watch holds the link until it gives up.
        until("the watch to give up", || Arc::strong_count(&link) == 1).await;
        assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "GET").count(), tries);
        assert_eq!(payload(ask(&link, list()).await), "1");
    }
}

#[tokio::test]
async fn a_session_stream_tells_of_changes_and_is_resumed() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let lab = Lab::new(move |request| match (request.kind().as_str(), request.header("last-event-id")) {
        ("GET", None) => vec![
            stream(&format!(
                "id: 1\ndata: {changed}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"roots/list\"}}\n\n"
            )),
            Step::Close,
        ],
        ("GET", Some("1")) => vec![stream(&format!("data: {changed}\n\n")), Step::Hang],
        _ => legacy(request, |_| accepted()),
    })
    .await;
    let link = lab.legacy().await;
    let changes = link.changes();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    until("two changes", || changes.borrow().of(Kind::Tools) == 2).await;
    until("a refusal", || lab.server.requests().iter().any(|request| request.body.contains("-32601"))).await;
    link.close();
    until("the stream to be closed", || lab.server.gone() == 1).await;
}

#[tokio::test]
async fn a_subscription_tells_of_changes_and_of_gaps() {
    let opened = Arc::new(AtomicUsize::new(0));
    let lab = Lab::new(move |request| {
        modern(request, |_| {
            let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}"#;
            let body = stream(&format!("data: {changed}\n\n"));
            if opened.fetch_add(1, Ordering::SeqCst) == 0 { vec![body, Step::Close] } else { vec![body, Step::Hang] }
        })
    })
    .await;
    let link = lab.stateless().await;
    let changes = link.changes();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    until("two changes and a gap", || changes.borrow().of(Kind::Tools) == 3).await;
    let listen = lab.server.requests().pop().unwrap();
    assert_eq!(listen.header("mcp-method"), Some("subscriptions/listen"));
    assert!(listen.body.contains(r#""notifications":{"toolsListChanged":true}"#), "{}", listen.body);
    link.close();
    until("the stream to be closed", || lab.server.gone() == 1).await;
}

#[tokio::test]
async fn htp_10_both_types_are_accepted_and_configured_headers_win() {
    let lab = Lab::new(|request| legacy(request, |request| json("200 OK", &result(request, "1")))).await;
    let link = lab.legacy().await;
    ask(&link, list()).await.unwrap();
    for request in lab.server.requests() {
        assert_eq!(request.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("authorization"), Some("Bearer configured"));
        let agents: Vec<&(String, String)> = request.headers.iter().filter(|(name, _)| name == "user-agent").collect();
        assert_eq!(agents.len(), 1);
        assert_eq!(agents[0].1, "mine/1");
    }
    let uri = Uri::from_static("http://h/mcp");
    let tasks = Tasks::new();
    let client = crate::net::HttpClient::new(&tasks, dialer(&settings("http://h/mcp"), &tasks), uri.clone());
    let own = Target::new(UpstreamName::new("srv").unwrap(), &uri, http::HeaderMap::new(), client, 1);
    let own = String::from_utf8(own.head(super::super::target::Verb::Post, &[])).unwrap();
    assert!(own.starts_with("POST /mcp HTTP/1.1\r\nhost: h\r\n"), "{own}");
    assert!(own.contains(concat!("\r\nuser-agent: portcullis/", env!("CARGO_PKG_VERSION"), "\r\n")), "{own}");
}

#[tokio::test]
async fn htp_11_media_types_are_compared_without_parameters_and_case() {
    for (media, is_stream) in [
        ("application/json; charset=utf-8", false),
        ("Application/JSON;charset=\"UTF-8\"", false),
        ("text/event-stream;charset=utf-8", true),
        ("Text/Event-Stream", true),
    ] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let answer = result(request, "1");
                let body = if is_stream { format!("data: {answer}\n\n") } else { answer };
                response("200 OK", &format!("Content-Type: {media}\r\n"), &body)
            })
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, list()).await), "1", "{media}");
    }
}

/// [R65, R118]
#[tokio::test]
async fn htp_12_errors_are_kept_and_foreign_bodies_are_not() {
    let lab = Lab::new(|request| {
        modern(request, |request| match request.member("method").as_str() {
            "x/error" => json("400 Bad Request", &error(request, -32050)),
            "x/no-id" => json("400 Bad Request", r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"m"}}"#),
            "x/null" => json("500 Oops", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"m"}}"#),
            "x/python" => {
                json("400 Bad", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#)
            }
            "x/html" => {
                let page = format!("<html>\u{1b}[31m{}</html>", "x".repeat(5000));
                response("500 Oops", "Content-Type: text/html\r\n", &page)
            }
            "x/other" => json("200 OK", r#"{"hello":1}"#),
            "x/foreign" => json("200 OK", r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#),
            "x/moved" => response("307 Moved", "Location: http://127.0.0.1:1/\r\n", ""),
            "x/denied" => response("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "secret"),
            _ => Vec::new(),
        })
    })
    .await;
    let link = lab.stateless().await;
    let own = |method| Outgoing::Own { method, members: String::new() };
    for (method, code) in [("x/error", -32050), ("x/no-id", -32602), ("x/null", -32603), ("x/python", -32600)] {
        assert_eq!(error_code(ask(&link, own(method)).await), code, "{method}");
    }
    for (method, public) in [
        ("x/html", "server 'srv' answered HTTP 500"),
        ("x/other", "server 'srv' answered HTTP 200 without a JSON-RPC answer"),
        ("x/foreign", "server 'srv' answered with a foreign id"),
        ("x/moved", "server 'srv' redirects a request to where it cannot be sent"),
        ("x/denied", "server 'srv' refused the gateway's credential"),
    ] {
        let reject = refused(ask(&link, own(method)).await);
        assert_eq!((reject.public.as_ref(), reject.kind), (public, RejectKind::Upstream));
        assert!(!reject.detail.chars().any(char::is_control) && !reject.detail.contains("secret"));
    }
}

#[tokio::test]
async fn htp_12_a_refused_connection_is_safe_to_retry() {
    let tasks = Tasks::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/mcp?key=canary", listener.local_addr().unwrap());
    drop(listener);
    let http = quick(settings(&uri), &tasks);
    let link: Arc<dyn Link> =
        Arc::new(super::super::stateless::StatelessLink::new(Arc::clone(&http.target), tasks.clone()));
    let reject = refused(ask(&link, call()).await);
    assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Safe));
    let Err(StartError::Failed(why)) = http.open(Want::any()).await else { panic!("opened") };
    assert!(why.contains("cannot be reached") && !why.contains("canary"), "{why}");
}

#[tokio::test]
async fn htp_17_the_answer_to_delete_does_not_matter() {
    let ways: [Way; 5] = [
        || response("200 OK", "", ""),
        || response("405 Method Not Allowed", "", ""),
        || response("500 Oops", "", "oops"),
        || vec![Step::Close],
        || vec![Step::Hang],
    ];
    for way in ways {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "DELETE" => way(),
            _ => legacy(request, |_| Vec::new()),
        })
        .await;
        let link = lab.legacy().await;
        link.close();
        link.close();
        assert!(link.closed().is_cancelled());
        until("a DELETE", || lab.server.kinds().contains(&"DELETE".to_owned())).await;
        let deletes: Vec<Recorded> =
            lab.server.requests().into_iter().filter(|request| request.method == "DELETE").collect();
        assert_eq!(deletes.len(), 1);
        assert_eq!(deletes[0].header("mcp-session-id"), Some("s-1"));
        assert_eq!(deletes[0].header("mcp-protocol-version"), Some("2025-06-18"));
    }
}

// === sessions ===

/// A server that forgets its session once; `lost` is what it says then.
async fn forgetful(lost: fn(&Recorded) -> Vec<Step>) -> Lab {
    let sessions = Arc::new(AtomicUsize::new(0));
    Lab::new(move |request| match request.kind().as_str() {
        "initialize" => {
            let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let headers = format!("Content-Type: application/json\r\nMcp-Session-Id: s-{number}\r\n");
            response("200 OK", &headers, &initialized(request))
        }
        _ => legacy(request, |request| match request.header("mcp-session-id") {
            Some("s-2") => json("200 OK", &result(request, "1")),
            _ => lost(request),
        }),
    })
    .await
}

/// [R58]
#[tokio::test]
async fn ses_01_one_renewal_for_all_and_each_call_once_more() {
    let ways: [fn(&Recorded) -> Vec<Step>; 6] = [
        |_| response("404 Not Found", "", ""),
        |_| response("404 Not Found", "Content-Type: text/plain\r\n", "Session not found"),
        |request| json("404 Not Found", &error(request, -32001)),
        |request| json("400 Bad Request", &error(request, -32000)),
        |_| json("400 Bad", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#),
        |_| response("400 Bad Request", "", "no session"),
    ];
    for way in ways {
        let lab = forgetful(way).await;
        let link = lab.legacy().await;
        let outcomes = futures_util::future::join_all((0..10).map(|_| ask(&link, call()))).await;
        for outcome in outcomes {
            assert_eq!(payload(outcome), "1");
        }
        let requests = lab.server.requests();
        let handshakes: Vec<&Recorded> = requests.iter().filter(|request| request.kind() == "initialize").collect();
        assert_eq!(handshakes.len(), 2);
        assert!(handshakes.iter().all(|request| request.header("mcp-session-id").is_none()));
        let served = requests
            .iter()
            .filter(|request| request.kind() == "tools/call" && request.header("mcp-session-id") == Some("s-2"));
        assert_eq!(served.count(), 10);
        assert!(!link.closed().is_cancelled());
    }
}

/// [R58]
#[tokio::test]
async fn ses_01_an_unknown_method_is_no_lost_session_and_there_is_no_loop() {
    let lab = Lab::new(|request| legacy(request, |request| json("404 Not Found", &error(request, -32601)))).await;
    let link = lab.legacy().await;
    assert_eq!(error_code(ask(&link, call()).await), code::METHOD_NOT_FOUND.0);
    assert_eq!(lab.calls(), 1);

    let lab = Lab::new(|request| legacy(request, |request| json("404 Not Found", &error(request, -32001)))).await;
    let link = lab.legacy().await;
    assert_eq!(error_code(ask(&link, call()).await), -32001);
    assert_eq!(lab.calls(), 2);
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "initialize").count(), 2);
}

#[tokio::test]
async fn ses_01_a_session_that_cannot_be_renewed_ends_the_link() {
    let opened = Arc::new(AtomicBool::new(false));
    let lab = Lab::new(move |request| match request.kind().as_str() {
        "initialize" if opened.swap(true, Ordering::SeqCst) => response("503 Later", "", ""),
        _ => legacy(request, |_| response("404 Not Found", "", "")),
    })
    .await;
    let link = lab.legacy().await;
    let outcomes = futures_util::future::join_all((0..10).map(|_| ask(&link, call()))).await;
    for outcome in outcomes {
        assert_eq!(refused(outcome).public, "server 'srv' answered HTTP 404");
    }
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "initialize").count(), 2);
    assert!(link.closed().is_cancelled());
    assert!(link.last_words().unwrap().contains("HTTP 503"));
}

/// [R57]
#[tokio::test]
async fn ses_07_both_headers_on_each_later_request_and_never_on_initialize() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "tools/call" => vec![Step::Hang],
        _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
    })
    .await;
    let link = lab.legacy().await;
    ask(&link, list()).await.unwrap();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    let waiting = Arc::clone(&link).request(call());
    let called = until("the call", || lab.calls() == 1);
    tokio::select! { _ = waiting => panic!("answered"), () = called => {} }
    link.close();
    let kinds = ["notifications/initialized", "tools/list", "tools/call", "GET", "notifications/cancelled", "DELETE"];
    until("all kinds", || kinds.iter().all(|kind| lab.server.kinds().contains(&(*kind).to_owned()))).await;
    for request in lab.server.requests() {
        let both = (request.header("mcp-session-id"), request.header("mcp-protocol-version"));
        let wanted = if request.kind() == "initialize" { (None, None) } else { (Some("s-1"), Some("2025-06-18")) };
        assert_eq!(both, wanted, "{}", request.kind());
        assert!(request.header("mcp-method").is_none());
    }
}

#[tokio::test]
async fn ses_08_no_request_before_the_acknowledgement() {
    let release = Arc::new(Notify::new());
    let gate = Arc::clone(&release);
    let lab = Lab::new(move |request| match request.kind().as_str() {
        "notifications/initialized" => [vec![Step::Wait(Arc::clone(&gate))], accepted()].concat(),
        _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
    })
    .await;
    let mut opening = Box::pin(lab.open(Want::of(Era::Legacy)));
    let posted = until("initialized", || lab.server.kinds().contains(&"notifications/initialized".to_owned()));
    tokio::select! { _ = &mut opening => panic!("opened before the acknowledgement"), () = posted => {} }
    release.notify_one();
    let link = opening.await.unwrap().link;
    ask(&link, list()).await.unwrap();
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized", "tools/list"]);
}

#[tokio::test]
async fn a_session_without_an_id_works_and_is_not_deleted() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "initialize" => {
            sse(&[r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#, &initialized(request)])
        }
        _ => legacy(request, |_| response("404 Not Found", "", "")),
    })
    .await;
    let started = lab.open(Want::of(Era::Legacy)).await.unwrap();
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    assert_eq!(refused(ask(&started.link, call()).await).public, "server 'srv' answered HTTP 404");
    started.link.close();
    lab.tasks.cancel();
    lab.tasks.wait().await;
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized", "tools/call"]);
}

// === cancelling ===

#[tokio::test]
async fn ids_06_a_dropped_call_is_cancelled_by_its_own_id() {
    for as_stream in [false, true] {
        let lab = Lab::new(move |request| {
            legacy(request, |_| {
                let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
                if as_stream { vec![stream(&format!("data: {log}\n\n")), Step::Hang] } else { vec![Step::Hang] }
            })
        })
        .await;
        let link = lab.legacy().await;
        let request = Arc::clone(&link).request(call());
        if as_stream {
            drop(request.await);
        } else {
            let called = until("the call", || lab.calls() == 1);
            tokio::select! { _ = request => panic!("answered"), () = called => {} }
        }
        until("a cancel", || lab.server.kinds().contains(&"notifications/cancelled".to_owned())).await;
        let requests = lab.server.requests();
        let id = requests.iter().find(|request| request.kind() == "tools/call").unwrap().member("id");
        let cancel = requests.iter().find(|request| request.kind() == "notifications/cancelled").unwrap();
        assert!(cancel.body.contains(&format!("\"requestId\":{id}}}")), "{}", cancel.body);
        assert_eq!(cancel.member("id"), "");
    }
}

#[tokio::test]
async fn ids_06_initialize_is_never_cancelled() {
    let lab = Lab::with(
        |settings| settings.start_timeout = Duration::from_millis(50),
        |request| legacy(request, |_| Vec::new()).into_iter().map(|_| Step::Hang).collect(),
    )
    .await;
    let Err(StartError::Failed(_)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    until("the connection to be closed", || lab.server.gone() == 1).await;
    assert_eq!(lab.server.kinds(), ["initialize"]);
}

/// [R106]
#[tokio::test]
async fn a_stateless_call_is_cancelled_by_closing_its_response() {
    let lab = Lab::new(|request| {
        modern(request, |_| {
            let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
            vec![stream(&format!("data: {log}\n\n")), Step::Hang]
        })
    })
    .await;
    let link = lab.stateless().await;
    let reply = Arc::clone(&link).request(call()).await;
    assert!(matches!(reply.body, ReplyBody::Events(_)));
    drop(reply);
    until("the response to be closed", || lab.server.gone() == 1).await;
    assert_eq!(lab.server.kinds(), ["server/discover", "tools/call"]);
}

/// [R108, R109]
#[tokio::test]
async fn ids_07_only_our_own_growing_progress_passes() {
    let lab = Lab::new(|request| {
        modern(request, |request| {
            let id = request.member("id");
            let mut body = String::new();
            for (token, value) in
                [("\"made-up\"", "1"), (&id, "1"), (&id, "1"), (&id, "0.5"), (&id, "2"), ("999", "3"), (&id, "\"x\"")]
            {
                write!(body, "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{value}}}}}\n\n").unwrap();
            }
            write!(body, "data: {}\n\n", result(request, "1")).unwrap();
            write!(body, "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{id},\"progress\":9}}}}\n\n").unwrap();
            vec![stream(&body), Step::Close]
        })
    })
    .await;
    let link = lab.stateless().await;
    let (seen, outcome) = drain(Arc::clone(&link).request(call()).await).await;
    assert_eq!(payload(outcome), "1");
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|event| event.contains("\"progressToken\":\"tok\"")), "{seen:?}");
    let without = Outgoing::Call(Arc::new(upstream_call("", "{}")));
    assert!(drain(Arc::clone(&link).request(without).await).await.0.is_empty());
}

#[tokio::test]
async fn ids_08_numbers_keep_their_digits() {
    const NUMBERS: &str = "[9007199254740993,1915883588174806058,18446744073709551616,1.10,1e400,-0.0]";
    let lab = Lab::new(|request| legacy(request, |request| json("200 OK", &result(request, NUMBERS)))).await;
    let link = lab.legacy().await;
    let outgoing = Outgoing::Call(Arc::new(upstream_call("", &format!("{{\"n\":{NUMBERS}}}"))));
    assert_eq!(payload(ask(&link, outgoing).await), NUMBERS);
    assert!(lab.server.requests().pop().unwrap().body.contains(NUMBERS));
}

// === stateless ===

/// [R47, R48, R49, R50]
#[tokio::test]
async fn stateless_requests_mirror_their_body_in_headers() {
    let lab = Lab::new(|request| modern(request, |request| json("200 OK", &result(request, "1")))).await;
    let link = lab.stateless().await;
    let mut call = upstream_call("", r#"{"region":"Zürich","deep":{"n":42.0},"gone":null,"list":[1]}"#);
    let param = |header: &str, path: &[&str]| HeaderParam {
        header: header.to_owned(),
        path: path.iter().map(|&name| name.to_owned()).collect(),
    };
    call.original = Arc::from("tööl");
    call.original_spelled = Bytes::from("\"tööl\"");
    call.header_params = Arc::from([
        param("Region", &["region"]),
        param("N", &["deep", "n"]),
        param("Gone", &["gone"]),
        param("List", &["list"]),
    ]);
    let mut tool_call = ServerCall::clone(&call.call);
    tool_call.param_headers = Some(
        [("region", "spoofed"), ("other", "as is"), ("bad name", "x"), ("bad", "a\r\nb: c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
    );
    call.call = Arc::new(tool_call);
    ask(&link, Outgoing::Call(Arc::new(call))).await.unwrap();
    ask(&link, list()).await.unwrap();
    let [discover, called, listed] = &lab.server.requests()[..] else { panic!("three requests") };
    for (request, method) in [(discover, "server/discover"), (called, "tools/call"), (listed, "tools/list")] {
        assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(request.header("mcp-method"), Some(method));
        assert_eq!(request.header("mcp-session-id"), None);
    }
    assert_eq!(called.header("mcp-name"), Some("=?base64?dMO2w7Zs?="));
    assert_eq!(listed.header("mcp-name"), None);
    let mut params: Vec<String> = called
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("mcp-param-"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    params.sort();
    assert_eq!(params, ["mcp-param-n=42", "mcp-param-other=as is", "mcp-param-region==?base64?WsO8cmljaA==?="]);
}

// === probing ===

/// [R54]
#[tokio::test]
async fn the_probe_finds_the_era() {
    let unsupported = |request: &Recorded, versions: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32022,"message":"m","data":{{"supported":{versions}}}}}}}"#,
            request.member("id")
        )
    };
    let cases: Vec<(&str, Era, Script)> = vec![
        ("a result", Era::Stateless, Box::new(discovered)),
        ("-32020", Era::Stateless, Box::new(|request| json("400 Bad", &error(request, -32020)))),
        ("-32021", Era::Stateless, Box::new(|request| json("400 Bad", &error(request, -32021)))),
        (
            "-32022 with ours",
            Era::Stateless,
            Box::new(move |request| json("400 Bad", &unsupported(request, r#"["2026-07-28"]"#))),
        ),
        (
            "-32022 without",
            Era::Legacy,
            Box::new(move |request| json("400 Bad", &unsupported(request, r#"["2025-11-25"]"#))),
        ),
        ("-32601 on 200", Era::Legacy, Box::new(|request| json("200 OK", &error(request, -32601)))),
        ("-32601 on 404", Era::Legacy, Box::new(|request| json("404 Not Found", &error(request, -32601)))),
        ("-32000", Era::Legacy, Box::new(|request| json("400 Bad", &error(request, -32000)))),
        (
            "Python 1.x, with a session id that must not be taken over",
            Era::Legacy,
            Box::new(|_| {
                response(
                    "400 Bad",
                    "Content-Type: application/json\r\nMcp-Session-Id: stray\r\n",
                    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#,
                )
            }),
        ),
        ("an empty 404", Era::Legacy, Box::new(|_| response("404 Not Found", "", ""))),
        ("a page", Era::Legacy, Box::new(|_| response("200 OK", "Content-Type: text/html\r\n", "<html>"))),
        ("no 2026", Era::Legacy, Box::new(|request| json("200 OK", &result(request, r#"{"supportedVersions":[]}"#)))),
        ("silence", Era::Legacy, Box::new(|_| vec![Step::Hang])),
    ];
    for (what, era, probe) in cases {
        let lab = Lab::with(
            |settings| {
                if what == "silence" {
                    settings.probe_timeout = Duration::from_millis(20);
                }
            },
            move |request| match request.kind().as_str() {
                "server/discover" => probe(request),
                _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
            },
        )
        .await;
        let started = lab.open(Want::any()).await.unwrap_or_else(|err| panic!("{what}: {err}"));
        assert_eq!(started.link.era(), era, "{what}");
        assert!(started.can.lists.contains(Kind::Tools), "{what}");
        ask(&started.link, list()).await.unwrap();
        let session = lab.server.requests().pop().unwrap().header("mcp-session-id").map(str::to_owned);
        assert_eq!(session.as_deref(), (era == Era::Legacy).then_some("s-1"), "{what}");
    }
}

#[tokio::test]
async fn failures_are_no_finding() {
    for (status, words) in [("401 No", "needs a credential"), ("403 No", "needs a credential"), ("502 No", "HTTP 502")]
    {
        let lab = Lab::new(move |_| response(status, "", "")).await;
        let Err(StartError::Failed(why)) = lab.open(Want::any()).await else { panic!("{status}") };
        assert!(why.contains(words), "{why}");
        assert_eq!(lab.server.kinds().len(), 1);
    }
    let lab = Lab::new(|_| response("404 Not Found", "", "nothing here")).await;
    let Err(StartError::Failed(why)) = lab.open(Want::any()).await else { panic!("opened") };
    assert!(why.contains("nothing here"), "{why}");
}

#[tokio::test]
async fn an_era_that_is_wanted_or_configured_is_not_probed_for() {
    let lab = Lab::new(|request| legacy(request, |_| Vec::new())).await;
    lab.legacy().await;
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized"]);

    let answers: [fn(&Recorded) -> Vec<Step>; 3] = [
        |request| json("200 OK", &result(request, r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#)),
        |request| json("404 Not Found", &error(request, -32601)),
        |_| response("405 Method Not Allowed", "", ""),
    ];
    for answer in answers {
        let lab = Lab::new(answer).await;
        let Err(StartError::Era(Era::Legacy, _)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    }

    let lab = Lab::with(|settings| settings.era = EraChoice::Legacy, |request| legacy(request, |_| Vec::new())).await;
    assert_eq!(lab.open(Want::any()).await.unwrap().link.era(), Era::Legacy);
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized"]);
    assert!(matches!(lab.open(Want::of(Era::Stateless)).await, Err(StartError::Era(Era::Stateless, _))));

    let lab = Lab::with(|settings| settings.era = EraChoice::Stateless, |_| response("404 Not Found", "", "")).await;
    assert_eq!(lab.open(Want::any()).await.unwrap().link.era(), Era::Stateless);
    assert!(matches!(lab.open(Want::of(Era::Legacy)).await, Err(StartError::Era(Era::Legacy, _))));
}

// === caps ===

#[tokio::test]
async fn lim_1_reading_stops_at_the_cap_and_the_connection_is_dropped() {
    const CAP: usize = 100_000;
    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: ";
    let ways: [Way; 5] = [
        // A body without a length, without an end.
        || {
            let head = format!("{HEAD}application/json\r\n\r\n\"");
            vec![Step::Write(head.into_bytes()), Step::Endless(vec![b'a'; 4096])]
        },
        // A length over the cap is refused before the body.
        || {
            let head = format!("{HEAD}application/json\r\nContent-Length: 100001\r\n\r\n");
            vec![Step::Write(head.into_bytes()), Step::Hang]
        },
        // An error body without an end.
        || {
            let head = "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n";
            vec![Step::Write(head.as_bytes().to_vec()), Step::Endless(vec![b'a'; 4096])]
        },
        // An event without an end.
        || vec![stream("data: \""), Step::Endless(vec![b'a'; 4096])],
        // Small events without an end: their sum counts.
        || vec![stream(""), Step::Endless(b"data: {}\n\n".repeat(100))],
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let lab =
            Lab::with(|settings| settings.max_response_bytes = CAP, move |request| modern(request, |_| way())).await;
        let link = lab.stateless().await;
        let reject = refused(ask(&link, call()).await);
        assert_eq!(reject.kind, RejectKind::Limit, "{index}: {reject:?}");
        assert!(reject.public.contains("100000") && reject.public.contains("max_response_bytes"), "{}", reject.public);
        until("the connection to be dropped", || lab.server.gone() == 1).await;
        // What the two sockets buffer comes on top.
        assert!(lab.server.written() < 4 * CAP + (16 << 20), "{index}: {}", lab.server.written());
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    let lab = Lab::new(|request| {
        modern(request, |request| {
            let encoding = if request.member("method") == "x/gzip" { "gzip" } else { "Identity" };
            let headers = format!("Content-Type: application/json\r\nContent-Encoding: {encoding}\r\n");
            response("200 OK", &headers, &result(request, "1"))
        })
    })
    .await;
    let link = lab.stateless().await;
    let reject = refused(ask(&link, Outgoing::Own { method: "x/gzip", members: String::new() }).await);
    assert_eq!(reject.kind, RejectKind::Upstream);
    assert_eq!(payload(ask(&link, list()).await), "1");
}

#[tokio::test]
async fn settings_that_cannot_be_sent_fail_the_start() {
    let tasks = Tasks::new();
    let mut broken = settings("http://127.0.0.1:1/");
    if let Transport::Http { headers, .. } = &mut broken.transport {
        headers.push((HeaderName::from_static("x-key"), Secret::new("canary\r\nx: y".to_owned())));
    }
    let Err(StartError::Failed(why)) = super::connector(Arc::new(broken), tasks.clone()).open(Want::any()).await else {
        panic!("opened")
    };
    assert!(why.contains("x-key") && !why.contains("canary"), "{why}");
}

/// Reads an answer that is passed on unseen to its end.
async fn read_on(outcome: Outcome) -> Result<String, Reject> {
    let Ok(Answer::Unseen(mut unseen)) = outcome else { panic!("it was looked at: {outcome:?}") };
    let mut text = unseen.head.concat();
    while let Some(piece) = unseen.rest.next().await {
        text.extend_from_slice(&piece?);
    }
    assert!(unseen.length.is_none_or(|length| length == text.len() as u64));
    Ok(String::from_utf8(text).unwrap())
}

/// [LIM-1]: `inspect = "off"` passes a large answer on as it comes, with the client's own id, and no other.
#[tokio::test]
async fn lim_1_a_large_answer_is_passed_on_unseen_where_it_may_be() {
    let large = "x".repeat(300_000);
    let answer = {
        let large = large.clone();
        move |request: &Recorded| {
            let id = request.member("id");
            let result = format!(r#"{{"content":[{{"type":"text","text":"{large}"}}]}}"#);
            match request.member("params") {
                how if how.contains("tail") => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
                how if how.contains("foreign") => format!(r#"{{"jsonrpc":"2.0","id":9{id},"result":{result}}}"#),
                how if how.contains("small") => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            }
        }
    };
    let chunked = |text: &str| {
        let chunks: String = ["", ""].map(|_| format!("{:x}\r\n{text}\r\n", text.len())).concat();
        vec![Step::Write(
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
                .into_bytes(),
        )]
    };
    let lab = Lab::with(
        |settings| {
            settings.inspect = false;
            settings.max_response_bytes = 400_000;
        },
        move |request| {
            legacy(request, |request| {
                let text = answer(request);
                if request.member("params").contains("chunks") { chunked(&text) } else { json("200 OK", &text) }
            })
        },
    )
    .await;
    let link = lab.legacy().await;
    let ask_for = |how: &str| {
        let call = upstream_call("", &format!(r#"{{"how":"{how}"}}"#));
        ask(&link, Outgoing::Call(Arc::new(call)))
    };
    let whole = read_on(ask_for("head").await).await.unwrap();
    assert_eq!(
        whole,
        format!(r#"{{"jsonrpc":"2.0","id":"c","result":{{"content":[{{"type":"text","text":"{large}"}}]}}}}"#)
    );
    // What cannot be passed on is read and looked at as ever.
    assert_eq!(payload(ask_for("small").await), "{}");
    assert!(payload(ask_for("tail").await).contains(&large));
    assert!(ask_for("foreign").await.is_err());
    let mut bridged = upstream_call("", "{}");
    bridged.client.version = ProtocolVersion::V2026_07_28;
    assert!(payload(ask(&link, Outgoing::Call(Arc::new(bridged))).await).contains(&large));
    // The cap holds in the middle too; who stops reading has the call cancelled.
    let reject = read_on(ask_for("chunks").await).await.unwrap_err();
    assert!(reject.public.contains("max_response_bytes"), "{}", reject.public);
    until("the cancel", || lab.server.kinds().iter().any(|kind| kind == "notifications/cancelled")).await;
    let before = lab.server.kinds().iter().filter(|kind| *kind == "notifications/cancelled").count();
    drop(ask_for("head").await);
    let now = || lab.server.kinds().iter().filter(|kind| *kind == "notifications/cancelled").count();
    until("the cancel", || now() > before).await;
}
