//! HTTP+SSE of 2024-11-05, against raw bytes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderName, Uri};
use tokio::sync::{mpsc, oneshot};

use crate::exchange::{Answer, Event, EventStream, Outcome, Reject, RejectKind, Reply, ReplyBody, Retry};
use crate::id::UpstreamName;
use crate::net::script::{Recorded, ScriptedServer, Step, json, response, stream, until};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::channel::call_of;
use crate::upstream::http::connector;
use crate::upstream::link::{Connector, Link, Outgoing, StartError, Want};
use crate::upstream::{HttpKind, Isolation, ServerSettings, Transport};
use crate::wire::mcp::{Era, Feature, Features, Kind};

/// The cap of one event here.
const CAP: usize = 64 << 10;
const CAN: &str = r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"serverInfo":{}}"#;
const ASKED: Features = Features::NONE.with(Feature::Roots);

type Way = Box<dyn Fn() -> Vec<Step> + Send + Sync>;
type Reaction = Box<dyn Fn(&Recorded, &Stage) -> Option<Vec<Step>> + Send + Sync>;

/// What the server says on the newest of its streams.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Option<mpsc::Sender<Vec<u8>>>>>);

struct Lab {
    server: Arc<ScriptedServer>,
    stage: Stage,
    connector: Arc<dyn Connector>,
    tasks: Tasks,
}

impl Stage {
    /// Begins a stream whose first event is an endpoint.
    fn open(&self, endpoint: &str) -> Vec<Step> {
        let (say, said) = mpsc::channel(64);
        *self.0.lock().unwrap() = Some(say);
        let first = format!(": hello\n\nevent: endpoint\ndata: {endpoint}\n\n");
        vec![stream(&first), Step::Relay(Arc::new(tokio::sync::Mutex::new(said)))]
    }

    fn say(&self, text: &str) {
        if let Some(say) = &*self.0.lock().unwrap() {
            match say.try_send(text.as_bytes().to_vec()) {
                // Its peer may be gone.
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(_)) => panic!("nobody reads what is said"),
            }
        }
    }

    fn message(&self, message: &str) {
        self.say(&format!("event: message\ndata: {message}\n\n"));
    }

    fn result(&self, request: &Recorded, result: &str) {
        self.message(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.member("id")));
    }

    /// Ends the stream.
    fn end(&self) {
        *self.0.lock().unwrap() = None;
    }
}

fn accepted() -> Vec<Step> {
    response("202 Accepted", "Content-Type: text/plain\r\n", "Accepted")
}

fn settings(url: &str, http: HttpKind) -> ServerSettings {
    let transport = Transport::Http {
        url: Secret::new(url.to_owned()),
        uri: url.parse::<Uri>().unwrap(),
        headers: vec![(HeaderName::from_static("authorization"), Secret::new("Bearer configured".to_owned()))],
    };
    let mut settings = ServerSettings::new(UpstreamName::new("old").unwrap(), transport);
    settings.http = http;
    settings.max_response_bytes = CAP;
    settings.start_timeout = Duration::from_secs(20);
    settings
}

impl Lab {
    /// A server at `/a/b/sse` that takes messages at `/a/b/messages?s=1`; what it does not react to is accepted, and calls
    /// are never answered.
    async fn new(react: impl Fn(&Recorded, &Stage) -> Option<Vec<Step>> + Send + Sync + 'static) -> Self {
        Self::with(HttpKind::Sse, |_| {}, Box::new(react)).await
    }

    async fn with(http: HttpKind, adjust: impl FnOnce(&mut ServerSettings), react: Reaction) -> Self {
        let (tasks, stage) = (Tasks::new(), Stage::default());
        let scene = stage.clone();
        let server = ScriptedServer::start(&tasks, move |request| {
            if let Some(steps) = react(request, &scene) {
                return steps;
            }
            match (request.method.as_str(), request.kind().as_str()) {
                ("GET", _) => return scene.open("messages?s=1"),
                (_, "initialize") => scene.result(request, CAN),
                _ => {}
            }
            if request.path == "/a/b/messages?s=1" { accepted() } else { response("405 Method Not Allowed", "", "") }
        })
        .await;
        let mut settings = settings(&format!("http://{}/a/b/sse", server.addr), http);
        adjust(&mut settings);
        let connector = connector(Arc::new(settings), tasks.clone());
        Self { server: Arc::new(server), stage, connector, tasks }
    }

    async fn open(&self, features: Features) -> Result<Arc<dyn Link>, StartError> {
        let want = Want { era: Some(Era::Legacy), features, place: None };
        Arc::clone(&self.connector).open(want).await.map(|started| started.link)
    }

    async fn link(&self) -> Arc<dyn Link> {
        self.open(Features::NONE).await.unwrap()
    }

    fn calls(&self) -> Vec<Recorded> {
        self.server.requests().into_iter().filter(|request| request.kind() == "tools/call").collect()
    }

    /// Begins a call; it is given up when what comes back is dropped.
    fn begin(&self, link: &Arc<dyn Link>, outgoing: Outgoing) -> oneshot::Receiver<Reply> {
        let (mut tell, told) = oneshot::channel();
        let request = Arc::clone(link).request(outgoing);
        self.tasks.spawn("a call", async move {
            tokio::select! {
                reply = request => drop(tell.send(reply)),
                () = tell.closed() => {}
            }
        });
        told
    }

    /// Waits until the server has read a message of this method, and returns the last one.
    async fn told(&self, method: &str) -> Recorded {
        until(method, || self.server.kinds().iter().any(|kind| kind == method)).await;
        self.server.requests().into_iter().rfind(|request| request.kind() == method).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

fn call() -> Outgoing {
    call_of(Features::NONE)
}

fn spelled(outcome: Outcome) -> Result<String, Reject> {
    let Answer::Upstream { response, era: Era::Legacy } = outcome? else { panic!("no answer of the server") };
    Ok(String::from_utf8(response.raw.to_vec()).unwrap())
}

/// The one answer of a reply, before which nothing comes.
fn answer(reply: Reply) -> Result<String, Reject> {
    match reply.into_parts().0 {
        ReplyBody::Done(outcome) => spelled(*outcome),
        ReplyBody::Events(_) => panic!("a stream"),
    }
}

fn events(reply: Reply) -> EventStream {
    match reply.into_parts().0 {
        ReplyBody::Events(events) => events,
        ReplyBody::Done(outcome) => panic!("{outcome:?}"),
    }
}

fn words(refused: Result<String, Reject>) -> String {
    let reject = refused.unwrap_err();
    assert!(reject.public.contains("'old'"), "{reject:?}");
    format!("{} {}", reject.public, reject.detail)
}

/// [TRN-1, TRN-6]: the stream first, then the handshake at the URL it names; the configured headers go to both, and an
/// answer comes as an event.
#[tokio::test]
async fn a_session_is_opened_and_called() {
    let lab = Lab::new(|request, stage| {
        if request.kind() == "tools/call" {
            stage.say(": keep-alive\n\n");
            stage.result(request, r#"{"content":[]}"#);
        }
        None
    })
    .await;
    let link = lab.link().await;
    assert!(link.is_channel() && link.era() == Era::Legacy);
    let shown = format!("{link:?}");
    assert!(!shown.contains("s=1") && !shown.contains("configured"), "{shown}");
    let said = answer(Arc::clone(&link).request(call()).await).unwrap();
    assert!(said.contains(r#""result":{"content":[]}"#), "{said}");
    let requests = lab.server.requests();
    let seen: Vec<_> = requests.iter().map(|one| (one.path.as_str(), one.kind())).collect();
    let post = "/a/b/messages?s=1";
    assert_eq!(
        seen,
        [
            ("/a/b/sse", "GET".to_owned()),
            (post, "initialize".to_owned()),
            (post, "notifications/initialized".to_owned()),
            (post, "tools/call".to_owned())
        ]
    );
    assert!(requests.iter().all(|one| one.header("authorization") == Some("Bearer configured")));
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    link.close();
    link.ended().await;
    until("the stream is closed", || lab.server.gone() == 1).await;
}

/// [R60, TRN-6, FC-HTP-16]: the endpoint is resolved as URLs are, and one of another origin is refused before anything is
/// sent there, whatever redirects are allowed.
#[tokio::test]
async fn an_endpoint_is_of_the_same_origin() {
    for (named, path) in [
        ("messages?x=1", "/a/b/messages?x=1"),
        ("/messages?x=1", "/messages?x=1"),
        ("http://@ADDR@/m?x=1", "/m?x=1"),
        ("?x=1", "/a/b/sse?x=1"),
    ] {
        let lab = Lab::new(move |request, stage| {
            if request.method == "GET" {
                return Some(stage.open(&named.replace("@ADDR@", request.header("host").unwrap())));
            }
            if request.kind() == "initialize" {
                stage.result(request, CAN);
            }
            Some(accepted())
        })
        .await;
        let link = lab.link().await;
        assert_eq!(lab.server.requests()[1].path, path, "{named}");
        drop(link);
    }
    let elsewhere = Tasks::new();
    let other = ScriptedServer::start(&elsewhere, |_| accepted()).await;
    for named in [
        format!("http://{}/messages", other.addr),
        format!("//{}/messages", other.addr),
        "https://@ADDR@/m".to_owned(),
        "http://me@@ADDR@/m".to_owned(),
        "ftp://@ADDR@/m".to_owned(),
    ] {
        let lab = Lab::with(
            HttpKind::Sse,
            |settings| settings.redirects = crate::net::Reach::Any,
            Box::new(move |request, stage| Some(stage.open(&named.replace("@ADDR@", request.header("host").unwrap())))),
        )
        .await;
        let refused = lab.open(Features::NONE).await.unwrap_err().to_string();
        assert!(refused.contains("endpoint"), "{refused}");
        assert_eq!(lab.server.requests().len(), 1, "{refused}");
        until("the stream is closed", || lab.server.gone() == 1).await;
    }
    assert!(other.requests().is_empty());
    elsewhere.cancel();
}

/// [TRN-6]: a redirect to another origin is no way to make that one's endpoint good; within the origin it moves the base.
#[tokio::test]
async fn a_redirected_stream_stays_at_its_origin() {
    let redirect = |to: String| response("307 Temporary Redirect", &format!("Location: {to}\r\n"), "");
    let lab = Lab::new(move |request, stage| match request.path.as_str() {
        "/a/b/sse" => Some(redirect("/c/d/sse".to_owned())),
        "/c/d/sse" => Some(stage.open("m")),
        _ => {
            stage.result(request, CAN);
            Some(accepted())
        }
    })
    .await;
    drop(lab.link().await);
    assert_eq!(lab.server.requests()[2].path, "/c/d/m");

    // Another origin names one of its own, or one of ours, or sends us back to where ours names one.
    for (way, requests) in [("m", 1), ("http://@ADDR@/m", 1), ("back", 2)] {
        let (tasks, stage) = (Tasks::new(), Stage::default());
        let ours: Arc<std::sync::OnceLock<std::net::SocketAddr>> = Arc::default();
        let own = Arc::clone(&ours);
        let other = ScriptedServer::start(&tasks, move |_| {
            let addr = own.get().unwrap().to_string();
            if way == "back" {
                return redirect(format!("http://{addr}/chosen"));
            }
            stage.open(&way.replace("@ADDR@", &addr))
        })
        .await;
        let to = format!("http://{}/sse", other.addr);
        let lab = Lab::with(
            HttpKind::Sse,
            |settings| settings.redirects = crate::net::Reach::Any,
            Box::new(move |request, stage| {
                Some(if request.path == "/chosen" { stage.open("m") } else { redirect(to.clone()) })
            }),
        )
        .await;
        ours.set(lab.server.addr).unwrap();
        let refused = lab.open(Features::NONE).await.unwrap_err().to_string();
        assert!(refused.contains("another origin"), "{way}: {refused}");
        assert_eq!(lab.server.requests().len(), requests, "{way}: nothing is posted");
        let seen = other.requests();
        assert!(seen.len() == 1 && seen[0].header("authorization").is_none(), "{seen:?}");
        tasks.cancel();
    }
}

/// [TRN-7]: what does not begin as such a server begins is told at once, by its cause.
#[tokio::test]
async fn what_is_no_such_stream_is_told() {
    let event = |text: &'static str| move || vec![stream(text), Step::Hang];
    let ways: [(&str, Way); 7] = [
        ("another event", Box::new(event("data: {}\n\n"))),
        ("another event", Box::new(event("event: hello\ndata: x\n\n"))),
        ("before it named", Box::new(|| vec![stream(": nothing\n\nid: 1\n\n"), Step::Close])),
        ("no URL", Box::new(event("event: endpoint\ndata: /a b\u{7f}\n\n"))),
        ("404", Box::new(|| response("404 Not Found", "", ""))),
        ("no event stream", Box::new(|| json("200 OK", "{}"))),
        ("credential", Box::new(|| response("401 Unauthorized", "", ""))),
    ];
    for (cause, way) in ways {
        let lab = Lab::with(HttpKind::Sse, |_| {}, Box::new(move |_, _| Some(way()))).await;
        let refused = lab.open(Features::NONE).await.unwrap_err().to_string();
        assert!(refused.contains(cause), "{refused}, not {cause}");
    }
    let waits = |settings: &mut ServerSettings| settings.start_timeout = Duration::from_millis(20);
    let lab = Lab::with(HttpKind::Sse, waits, Box::new(|_, _| Some(vec![stream(": hello\n\n"), Step::Hang]))).await;
    let refused = lab.open(Features::NONE).await.unwrap_err().to_string();
    assert!(refused.contains("0.02 s"), "{refused}");
    until("the stream is closed", || lab.server.gone() == 1).await;
}

/// [TRN-1, protocol §2.8]: a server that takes no POST at its URL is found out, and remembered; one that has become another is found
/// out again.
#[tokio::test]
async fn the_transport_is_found_out() {
    for status in ["400 Bad Request", "404 Not Found", "405 Method Not Allowed"] {
        let modern = Arc::new(Mutex::new(false));
        let is_modern = Arc::clone(&modern);
        let react = move |request: &Recorded, _: &Stage| {
            let post = request.method == "POST" && request.path == "/a/b/sse";
            let id = request.member("id");
            match (post, *is_modern.lock().unwrap(), request.kind().as_str()) {
                (true, false, _) => Some(response(status, "Content-Type: text/html\r\n", "<p>no</p>")),
                (true, true, "initialize") => {
                    Some(json("200 OK", &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{CAN}}}"#)))
                }
                (true, true, _) => Some(accepted()),
                (false, true, _) => Some(response("405 Method Not Allowed", "", "")),
                (false, false, _) => None,
            }
        };
        let lab = Lab::with(HttpKind::Auto, |_| {}, Box::new(react)).await;
        let started = Arc::clone(&lab.connector).open(Want::any()).await.unwrap();
        assert!(started.link.is_channel());
        let found = lab.server.kinds();
        assert_eq!(
            found,
            ["server/discover", "initialize", "GET", "initialize", "notifications/initialized"],
            "{status}"
        );
        drop(lab.link().await);
        assert_eq!(lab.server.kinds()[found.len()..], ["GET", "initialize", "notifications/initialized"]);
        *modern.lock().unwrap() = true;
        assert!(!lab.link().await.is_channel(), "{status}");
    }
}

/// [TRN-1, protocol §2.8]: a server that answers `initialize` with an error of its own is no such server, nor is one that fails.
#[tokio::test]
async fn a_refusal_in_its_own_words_is_not_taken_for_another_transport() {
    for (status, body) in [
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32602,"message":"m"}}"#),
        ("500 Internal Server Error", ""),
        ("406 Not Acceptable", ""),
    ] {
        let react =
            move |request: &Recorded, _: &Stage| Some(json(status, &body.replace("@ID@", &request.member("id"))));
        let lab = Lab::with(HttpKind::Auto, |_| {}, Box::new(react)).await;
        let refused = lab.open(Features::NONE).await.unwrap_err();
        assert!(!lab.server.kinds().contains(&"GET".to_owned()), "{refused}");
    }
    let react = |_: &Recorded, _: &Stage| Some(response("404 Not Found", "", "nothing"));
    let lab = Lab::with(HttpKind::Auto, |_| {}, Box::new(react)).await;
    let refused = lab.open(Features::NONE).await.unwrap_err();
    assert!(matches!(refused, StartError::Era(Era::Legacy, _)), "{refused:?}");
    assert!(refused.to_string().contains("HTTP 404 nothing; as an HTTP+SSE server it answered GET"), "{refused}");
}

/// [TRN-2]: this transport has the older era alone.
#[tokio::test]
async fn there_is_no_newer_era_on_it() {
    let lab = Lab::new(|_, _| None).await;
    let refused = Arc::clone(&lab.connector).open(Want::of(Era::Stateless)).await.unwrap_err();
    assert!(matches!(refused, StartError::Era(Era::Stateless, _)), "{refused:?}");
    assert!(lab.server.requests().is_empty());
}

/// [LIM-1]: an event over the cap costs its own call, by the id at either end, and nothing else.
#[tokio::test]
async fn an_event_over_the_cap_costs_its_own_call() {
    let lab = Lab::new(|_, _| None).await;
    let link = lab.link().await;
    let x = "x".repeat(CAP);
    let mut others = Vec::new();
    for first in [true, false] {
        let other = lab.begin(&link, call());
        let before = lab.calls().len();
        until("the other call", || lab.calls().len() > before).await;
        let large = lab.begin(&link, call());
        until("both calls", || lab.calls().len() == before + 2).await;
        let id = lab.calls()[before + 1].member("id");
        lab.stage.message(&if first {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"{x}"}}}}"#)
        } else {
            format!(r#"{{"jsonrpc":"2.0","result":{{"x":"{x}"}},"id":{id}}}"#)
        });
        let refused = answer(large.await.unwrap()).unwrap_err();
        assert_eq!(refused.kind, RejectKind::Limit);
        assert!(refused.public.contains("max_response_bytes") && refused.public.contains("'old'"), "{refused:?}");
        others.push((other, lab.calls()[before].member("id")));
    }
    for (other, id) in others {
        lab.stage.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        assert!(answer(other.await.unwrap()).is_ok());
    }
    assert!(!link.closed().is_cancelled());
}

/// [LIM-1]: an event without an end ends the session at four caps, and every call on it once.
#[tokio::test]
async fn an_endless_event_ends_the_session() {
    let lab = Lab::new(|_, _| None).await;
    let link = lab.link().await;
    let calls: Vec<_> = (0..3).map(|_| lab.begin(&link, call())).collect();
    until("the calls", || lab.calls().len() == 3).await;
    lab.stage.say("data: ");
    lab.stage.say(&"x".repeat(5 * CAP));
    for one in calls {
        let refused = answer(one.await.unwrap()).unwrap_err();
        assert!(refused.kind == RejectKind::Limit && refused.public.contains("max_response_bytes"), "{refused:?}");
    }
    link.closed().cancelled().await;
    Arc::clone(&link).ended().await;
    assert!(link.last_words().unwrap().contains("without an end"));
    until("the stream is closed", || lab.server.gone() == 1).await;
}

/// [TRN-7]: the end of the stream is the end of the session: each call in flight has one clear answer, none is safe to send
/// again, and a later one is told at once.
#[tokio::test]
async fn the_end_of_the_stream_ends_the_session() {
    let lab = Lab::new(|_, _| None).await;
    let link = lab.link().await;
    let calls: Vec<_> = (0..3).map(|_| lab.begin(&link, call())).collect();
    until("the calls", || lab.calls().len() == 3).await;
    lab.stage.end();
    for one in calls {
        let refused = answer(one.await.unwrap()).unwrap_err();
        assert!(refused.public.contains("'old' ended its event stream"), "{refused:?}");
        assert!(refused.retry != Retry::Safe, "the server may have acted on it");
    }
    assert!(link.closed().is_cancelled());
    let late = answer(Arc::clone(&link).request(call()).await).unwrap_err();
    assert_eq!(late.retry, Retry::Safe, "it was not sent");
    assert_eq!(lab.calls().len(), 3);
}

/// [TRN-7]: what a POST is refused with concerns its own call, at once; a body may hold the answer, and 404 says that the
/// session is gone.
#[tokio::test]
async fn a_post_is_answered_for_its_own_call() {
    let turn = Arc::new(Mutex::new(0));
    let lab = Lab::new(move |request, stage| {
        if request.kind() != "tools/call" {
            return None;
        }
        let id = request.member("id");
        let mut turn = turn.lock().unwrap();
        *turn += 1;
        let error = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"m"}}}}"#);
        Some(match *turn {
            1 => response("500 Internal Server Error", "", "canary"),
            2 => json("200 OK", &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"here":1}}}}"#)),
            3 => json("400 Bad Request", &error(&id)),
            4 => json("400 Bad Request", &error("null")),
            5 => response("403 Forbidden", "", ""),
            6 => vec![Step::Close],
            7 => vec![stream("data: {}\n\n"), Step::Close],
            8 => {
                stage.result(request, r#"{"there":1}"#);
                response("204 No Content", "", "")
            }
            _ => response("404 Not Found", "", "Session not found"),
        })
    })
    .await;
    let link = lab.link().await;
    let once = || async { answer(Arc::clone(&link).request(call()).await) };
    let refused = once().await.unwrap_err();
    assert!(refused.public.contains("'old' answered HTTP 500") && !refused.public.contains("canary"), "{refused:?}");
    assert!(once().await.unwrap().contains("here"));
    assert!(once().await.unwrap().contains("-32000"));
    assert!(once().await.unwrap().contains("-32000"));
    assert!(words(once().await).contains("credential"));
    assert!(words(once().await).contains("the outcome is unknown"));
    assert!(words(once().await).contains("event stream"));
    assert!(once().await.unwrap().contains("there"));
    assert!(!link.closed().is_cancelled());
    let lost = once().await.unwrap_err();
    assert!(lost.retry == Retry::Safe && link.closed().is_cancelled(), "{lost:?}");
    Arc::clone(&link).ended().await;
    until("the stream is closed", || lab.server.gone() == 1).await;
}

/// [R100, TRN-10]: a question belongs to the only call in flight, and its answer is posted; one that could be of two is
/// refused, and a ping is always answered.
#[tokio::test]
async fn questions_are_of_the_only_call() {
    let lab = Lab::new(|_, _| None).await;
    let link = lab.open(ASKED).await.unwrap();
    assert!(lab.told("initialize").await.body.contains(r#""roots""#));
    let ask =
        |id: &str, method: &str| lab.stage.message(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}"}}"#));
    let posted = |id: &'static str| {
        let mine = move |request: &Recorded| request.method == "POST" && request.member("id") == id;
        let server = Arc::clone(&lab.server);
        async move {
            until(id, || server.requests().iter().any(mine)).await;
            server.requests().into_iter().find(mine).unwrap().body
        }
    };
    ask("p", "ping");
    assert!(posted("p").await.contains(r#""result":{}"#));
    ask("none", "sampling/createMessage");
    assert!(posted("none").await.contains("-32601"), "there is no call");
    // Roots are its client's, whoever that will be: they are asked for before the first call is sent.
    ask("early", "roots/list");
    link.early().unwrap().cancelled().await;
    let mut told = events(lab.begin(&link, call_of(ASKED)).await.unwrap());
    let Some(Event::Ask(question)) = told.next().await else { panic!("no question") };
    assert!(lab.calls().is_empty());
    question.responder.settle(Ok(bytes::Bytes::from_static(br#"{"roots":[]}"#)));
    assert!(posted("early").await.contains(r#""result":{"roots":[]}"#));
    tokio::select! {
        _ = told.next() => panic!("nothing is to be said"),
        _ = lab.told("tools/call") => {}
    }
    ask("one", "roots/list");
    let Some(Event::Ask(question)) = told.next().await else { panic!("no question") };
    question.responder.settle(Ok(bytes::Bytes::from_static(br#"{"roots":[]}"#)));
    assert!(posted("one").await.contains(r#""result":{"roots":[]}"#));
    let second = lab.begin(&link, call_of(ASKED));
    until("two calls", || lab.calls().len() == 2).await;
    ask("two", "roots/list");
    assert!(posted("two").await.contains("-32601"), "it may be of either");
    drop(told);
    drop(second);
}

/// [TRN-4, TRN-10]: what everybody shares asks nobody.
#[tokio::test]
async fn a_shared_session_declares_nothing() {
    let shared = |settings: &mut ServerSettings| settings.isolation = Some(Isolation::Shared);
    let lab = Lab::with(HttpKind::Sse, shared, Box::new(|_, _| None)).await;
    let link = lab.open(ASKED).await.unwrap();
    assert!(lab.told("initialize").await.body.contains(r#""capabilities":{}"#));
    drop(link);
}

/// [R107, LIM-4]: a call that is given up is cancelled; a session that nobody has is closed.
#[tokio::test]
async fn what_is_given_up_is_cancelled_and_closed() {
    let lab = Lab::new(|_, _| None).await;
    let link = lab.link().await;
    let given_up = lab.begin(&link, call());
    let id = lab.told("tools/call").await.member("id");
    drop(given_up);
    let cancelled = lab.told("notifications/cancelled").await;
    assert!(cancelled.path == "/a/b/messages?s=1" && cancelled.body.contains(&format!(r#""requestId":{id}"#)));
    // Nobody waits for its answer any more.
    lab.stage.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    drop(link);
    until("the stream is closed", || lab.server.gone() == 1).await;
}

/// [R109, R111, R81]: progress and logs of a call come before its answer; a changed list is told of.
#[tokio::test]
async fn what_comes_before_an_answer_is_the_calls() {
    let lab = Lab::new(|request, stage| {
        if request.kind() == "tools/call" {
            let id = request.member("id");
            let note = |method: &str, params: &str| {
                stage.message(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}}"#
                ));
            };
            note("tools/list_changed", "");
            note("progress", &format!(r#""progressToken":{id},"progress":1"#));
            note("progress", r#""progressToken":999,"progress":2"#);
            note("message", r#""level":"info","data":"d""#);
            stage.result(request, r#"{"content":[]}"#);
        }
        None
    })
    .await;
    let link = lab.link().await;
    let before = *link.changes().borrow();
    let told: Vec<Event> = events(Arc::clone(&link).request(call()).await).collect().await;
    let [Event::Progress(progress), Event::Log(_), Event::Done(done)] = <[Event; 3]>::try_from(told).unwrap() else {
        panic!("others, or in another order")
    };
    assert!(String::from_utf8_lossy(&progress).contains(r#""progressToken":"mine""#));
    assert!(spelled(done).is_ok());
    assert_eq!(link.changes().borrow().of(Kind::Tools), before.of(Kind::Tools) + 1);
}

/// [LIM-6, R60]: answers to nothing, answers twice, another endpoint, noise and a flood of notifications change nothing.
#[tokio::test]
async fn what_nobody_asked_for_is_dropped() {
    let lab = Lab::new(|request, stage| {
        if request.kind() == "tools/call" {
            stage.say("event: endpoint\ndata: /elsewhere\n\n");
            stage.say("event: other\ndata: {\n\ndata: noise\n\ndata: [1,{\"x\":2}]\n\n: comment\n\n");
            stage.message(r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#);
            stage.message(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
            stage.say(&"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n".repeat(10_000));
            stage.result(request, r#"{"nth":1}"#);
            stage.result(request, r#"{"nth":2}"#);
        }
        None
    })
    .await;
    let link = lab.link().await;
    for _ in 0..2 {
        assert!(answer(Arc::clone(&link).request(call()).await).unwrap().contains(r#""nth":1"#));
    }
    assert!(lab.calls().iter().all(|one| one.path == "/a/b/messages?s=1"));
}
