//! A server of raw bytes, and a link to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, Uri};

use crate::exchange::{Answer, ClientFacts, Event, Outcome, Owner, Reject, Reply, ReplyBody, ServerCall, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::net::script::{Recorded, ScriptedServer, Step, json, response, stream};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::http::connector::HttpServer;
use crate::upstream::http::target::Pauses;
use crate::upstream::link::{Connector as _, Link, Outgoing, StartError, Started, Want};
use crate::upstream::{ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, ErrorObject, Limits, Message, decode};
use crate::wire::mcp::{CallParams, Era, Method, ProtocolVersion, RequestMeta};

pub(super) type Way = fn() -> Vec<Step>;

pub(super) type Script = Box<dyn Fn(&Recorded) -> Vec<Step> + Send + Sync>;

pub(super) struct Lab {
    pub(super) server: ScriptedServer,
    pub(super) http: Arc<HttpServer>,
    pub(super) tasks: Tasks,
}

pub(super) fn settings(uri: &str) -> ServerSettings {
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

pub(super) fn quick(settings: ServerSettings, tasks: &Tasks) -> Arc<HttpServer> {
    let mut http = HttpServer::new(Arc::new(settings), tasks.clone()).unwrap();
    let target = Arc::get_mut(&mut http.target).unwrap();
    let short = Duration::from_millis(1);
    target.pauses = Pauses { first: short, most: short * 20, lived: Duration::from_secs(600) };
    Arc::new(http)
}

impl Lab {
    pub(super) async fn new(script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with(|_| {}, script).await
    }

    pub(super) async fn with(
        adjust: impl FnOnce(&mut ServerSettings),
        script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let tasks = Tasks::new();
        let server = ScriptedServer::start(&tasks, script).await;
        let mut settings = settings(&format!("http://{}/mcp?key=canary", server.addr));
        adjust(&mut settings);
        Self { server, http: quick(settings, &tasks), tasks }
    }

    pub(super) async fn open(&self, want: Want) -> Result<Started, StartError> {
        Arc::clone(&self.http).open(want).await
    }

    pub(super) async fn legacy(&self) -> Arc<dyn Link> {
        self.open(Want::of(Era::Legacy)).await.unwrap().link
    }

    pub(super) async fn stateless(&self) -> Arc<dyn Link> {
        self.open(Want::any()).await.unwrap().link
    }

    pub(super) fn calls(&self) -> usize {
        self.server.kinds().iter().filter(|kind| *kind == "tools/call").count()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

pub(super) const CAPABILITIES: &str = r#"{"tools":{"listChanged":true}}"#;

pub(super) fn result(request: &Recorded, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.member("id"))
}

pub(super) fn error(request: &Recorded, code: i64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"m{code}"}}}}"#, request.member("id"))
}

pub(super) fn initialized(request: &Recorded) -> String {
    result(request, &format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{CAPABILITIES},"serverInfo":{{}}}}"#))
}

pub(super) fn accepted() -> Vec<Step> {
    response("202 Accepted", "", "")
}

/// What a well-behaved legacy server does, but for requests.
pub(super) fn legacy(request: &Recorded, rest: impl FnOnce(&Recorded) -> Vec<Step>) -> Vec<Step> {
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

pub(super) fn discovered(request: &Recorded) -> Vec<Step> {
    let text = format!(r#"{{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{CAPABILITIES}}}"#);
    json("200 OK", &result(request, &text))
}

/// What a well-behaved stateless server does, but for requests.
pub(super) fn modern(request: &Recorded, rest: impl FnOnce(&Recorded) -> Vec<Step>) -> Vec<Step> {
    if request.kind() == "server/discover" { discovered(request) } else { rest(request) }
}

pub(super) fn upstream_call(meta: &str, arguments: &str) -> UpstreamCall {
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
        owner: Owner::principal(principal.clone()),
        principal,
        request_state: None,
        trace: None,
    }
}

pub(super) fn call() -> Outgoing {
    Outgoing::Call(Arc::new(upstream_call(r#""_meta":{"progressToken":"tok"},"#, "{}")))
}

pub(super) fn list() -> Outgoing {
    Outgoing::Own { method: "tools/list", members: String::new() }
}

/// Reads a reply to its end.
pub(super) async fn drain(reply: Reply) -> (Vec<String>, Outcome) {
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
                    Event::Paused => seen.push("paused".to_owned()),
                    Event::Ask(_) | Event::Changed(_) | Event::Said(_) | Event::Watch(_) => panic!("not of this layer"),
                }
            }
            panic!("no outcome")
        }
    }
}

pub(super) async fn ask(link: &Arc<dyn Link>, outgoing: Outgoing) -> Outcome {
    drain(Arc::clone(link).request(outgoing).await).await.1
}

pub(super) fn payload(outcome: Outcome) -> String {
    match outcome {
        Ok(Answer::Upstream { response, .. }) => {
            String::from_utf8(response.result().or_else(|| response.error()).unwrap().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn error_code(outcome: Outcome) -> i64 {
    match outcome {
        Ok(Answer::Upstream { response, .. }) => ErrorObject::read(&response.error().unwrap()).code.0,
        other => panic!("{other:?}"),
    }
}

pub(super) fn refused(outcome: Outcome) -> Reject {
    let reject = outcome.unwrap_err();
    assert!(reject.public.contains("'srv'"), "{}", reject.public);
    assert!(!reject.public.contains("127.0.0.1"), "{}", reject.public);
    assert!(!format!("{reject:?}").contains("canary"), "{reject:?}");
    assert!(reject.detail.chars().count() <= 200, "{}", reject.detail);
    reject
}

pub(super) fn sse(events: &[&str]) -> Vec<Step> {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![stream(&body), Step::Close]
}
