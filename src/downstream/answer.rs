//! Outcomes and events as the client that asked must read them; and the choice between JSON and an event stream.
//!
//! Invariant: no head is sent before the first thing for the client is known, or the silence is long enough that a
//! stream must begin [R23, design §12].

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::exchange::{
    Answer, ByteStream, Discovery, Event, Handler, InputRequired, ListPage, Outcome, ReasonCode, Reject, RejectKind,
    Unseen, WatchEvent,
};
use crate::id::PrincipalId;
use crate::runtime::Bell;
use crate::session::Session;
use crate::wire::bridge::{BridgeRefusal, ClientSide, lift_error, lift_result, server_info};
use crate::wire::json;
use crate::wire::jsonrpc::{Payload, RequestId, Response as RpcResponse};
use crate::wire::mcp::{
    Era, Kind, Kinds, Level, LogMessage, ProtocolVersion, SERVER_INFO_KEY, STATELESS_LATEST, SUBSCRIPTION_ID_KEY,
};
use crate::wire::sse;

use super::accept::Take;
use super::body::Body;
use super::refused;
use super::respond::{Fault, Refusal, bare, json_pieces, json_response, status_of};
use super::resume::primes;
use super::running::Running;
use super::server::Door;
use super::spoken::First;
use super::stream::{self, Events};

/// Who asked, and what its answers must look like.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// The revision that the client speaks; where a session's is not known, the newest of its era.
    pub(super) version: ProtocolVersion,
    /// The request's id; a legacy GET has none.
    pub(super) id: Option<RequestId>,
    /// For the log.
    pub(super) principal: PrincipalId,
    /// For the log.
    pub(super) method: &'static str,
    /// From which severity on the client wants logs.
    pub(super) log: Log,
    /// What a stateless client declared with this request.
    pub(super) capabilities: Bytes,
}

/// Which of a server's logs a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// All.
    All,
    /// From this severity on.
    From(Level),
    /// None.
    Nothing,
}

/// An outcome, spelled.
#[derive(Debug)]
pub(super) struct Rendered {
    /// The status, as long as no other has been sent.
    pub(super) status: StatusCode,
    /// The JSON text in parts.
    pub(super) parts: Vec<Bytes>,
    /// What follows the parts, of an answer that nobody looks at.
    pub(super) rest: Option<Rest>,
    /// One header beyond the usual.
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
}

/// The rest of an answer that is passed on as it comes.
pub(super) struct Rest {
    /// How long the answer is in all, if that is known.
    pub(super) length: Option<u64>,
    /// The pieces.
    pub(super) pieces: ByteStream,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest").field("length", &self.length).finish_non_exhaustive()
    }
}

// === impl Log ===

impl Log {
    fn takes(self, message: &LogMessage) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::From(least) => message.level().is_some_and(|level| level >= least),
        }
    }
}

// === impl Rendered ===

impl Rendered {
    /// Wraps a result's text.
    pub(super) fn result(id: &RequestId, result: &str) -> Self {
        let raw = RpcResponse::with_result(id, result.as_bytes()).raw;
        Self { status: StatusCode::OK, parts: vec![raw], rest: None, header: None }
    }

    /// Spells a refusal.
    pub(super) fn refusal(refusal: Refusal, id: Option<&RequestId>) -> Self {
        Self { status: refusal.status, parts: vec![refusal.spell(id)], rest: None, header: refusal.header }
    }

    /// Makes the response: JSON, unless the client can take an event stream alone.
    pub(super) fn respond(self, take: Take, guards: Vec<Box<dyn Send>>) -> Response<Body> {
        let events = take == Take::Events && self.status == StatusCode::OK;
        let mut response = match (self.rest, events) {
            (Some(rest), true) => {
                stream::respond(Body::pieces(stream::begin_event(&self.parts), stream::end_event(rest.pieces), guards))
            }
            (Some(rest), false) => json_pieces(self.parts, rest, guards),
            (None, true) => stream::respond(Body::parts(sse::message(sse::Head::default(), &self.parts), guards)),
            (None, false) => json_response(self.status, self.parts, guards),
        };
        if let Some((name, value)) = self.header.map(|header| *header) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

// === impl Asker ===

impl Asker {
    /// Returns the client's era.
    const fn era(&self) -> Era {
        self.version.era()
    }

    /// Spells an outcome.
    pub(super) fn render(&self, outcome: Outcome) -> Rendered {
        let Some(id) = &self.id else { return self.refuse(Refusal::from(Fault::Method)) };
        match outcome {
            Ok(Answer::Discovery(discovery)) => Rendered::result(id, &discovered(&discovery)),
            Ok(Answer::Ended) => Rendered::result(id, &ended(id, self.era())),
            Ok(Answer::InputRequired(input)) => self.input_required(id, &input),
            Ok(Answer::Page(page)) => {
                Rendered { status: StatusCode::OK, parts: listed(id, page, self.era()), rest: None, header: None }
            }
            Ok(Answer::Unseen(unseen)) => {
                let Unseen { head, length, rest } = *unseen;
                let rest = Some(Rest { length, pieces: rest });
                Rendered { status: StatusCode::OK, parts: head, rest, header: None }
            }
            Ok(Answer::Upstream { response, era }) => self.lift(id, &response, era),
            Err(reject) => self.refuse(Refusal::of_reject(reject, self.era())),
        }
    }

    /// Reads what is passed on as it comes to its end, for an answer that has to be one text.
    pub(super) async fn whole(&self, rendered: Rendered) -> Rendered {
        let Some(mut rest) = rendered.rest else { return rendered };
        let mut parts = rendered.parts;
        while let Some(piece) = rest.pieces.next().await {
            match piece {
                Ok(piece) => parts.push(piece),
                Err(reject) => return self.refuse(Refusal::of_reject(reject, self.era())),
            }
        }
        Rendered { parts, rest: None, ..rendered }
    }

    /// Writes the refusal's line and spells it: as the result of a call where that is what its client's model can read.
    pub(super) fn refuse(&self, refusal: Refusal) -> Rendered {
        log_refusal(&refusal, Some(&self.principal), self.method);
        if let (true, Some(id), "tools/call") = (refusal.by_result, &self.id, self.method) {
            let parts = vec![refused::result(&refusal, id, self.era())];
            return Rendered { status: StatusCode::OK, parts, rest: None, header: None };
        }
        Rendered::refusal(refusal, self.id.as_ref())
    }

    fn lift(&self, id: &RequestId, response: &RpcResponse, from: Era) -> Rendered {
        let info = server_info();
        let client = ClientSide { version: self.version, id, server_info: &info, method: self.method };
        let lifted = match &response.payload {
            Payload::Result(_) => lift_result(response, from, &client).map(|parts| (StatusCode::OK, parts)),
            Payload::Error(_) => lift_error(response, &client, self.lacks(response))
                .map(|(code, raw)| (status_of(code, self.era()), vec![raw])),
        };
        match lifted {
            Ok((status, parts)) => Rendered { status, parts, rest: None, header: None },
            Err(refusal) => self.refuse(Refusal::internal(refusal.to_string())),
        }
    }

    /// Spells what a stateless client is asked; a session's client is asked before this, and one that could not be is
    /// told so.
    fn input_required(&self, id: &RequestId, input: &InputRequired) -> Rendered {
        if self.era() == Era::Legacy {
            return self.refuse(Refusal::internal(BridgeRefusal::InputRequired.to_string()));
        }
        let result = input.wanted.spelled((!input.result.is_empty()).then_some(&input.result));
        self.lift(id, &RpcResponse::with_result(id, &result), Era::Stateless)
    }

    /// Says whether the client did not declare what a server's -32021 asks for [R64].
    fn lacks(&self, response: &RpcResponse) -> bool {
        let Some(error) = response.error() else { return false };
        let Ok(error) = json::members(&error) else { return false };
        let Ok(Some(data)) = error.get("data") else { return false };
        let Ok(data) = json::members(data.get()) else { return false };
        let Ok(Some(required)) = data.get("requiredCapabilities") else { return false };
        let Ok(required) = json::members(required.get()) else { return false };
        let Ok(declared) = json::members(&self.capabilities) else { return false };
        required.iter().any(|(key, _)| !declared.iter().any(|(name, _)| name == key))
    }

    /// Spells an event on the way; `None` if this client must not get it.
    pub(super) fn message(&self, event: Event) -> Option<Bytes> {
        match event {
            Event::Done(_) | Event::Paused => None,
            Event::Log(message) => self.log.takes(&message).then(|| message.into_raw()),
            Event::Progress(raw) => Some(raw),
            // A stateless client is told nothing but what its own calls come to.
            Event::Said(raw) => (self.era() == Era::Legacy).then_some(raw),
            // Nobody here can be asked: dropping it refuses it.
            Event::Ask(_) => None,
            Event::Changed(kind) => Some(self.changed(kind)),
            Event::Watch(WatchEvent::Honoured { kinds, resources }) => {
                self.id.as_ref().map(|id| acknowledged(id, kinds, &resources))
            }
            Event::Watch(WatchEvent::Updated(uri)) => Some(self.updated(&uri)),
        }
    }

    fn changed(&self, kind: Kind) -> Bytes {
        match (self.era(), &self.id) {
            (Era::Stateless, Some(id)) => notification(kind.changed_method(), &format!("{{{}}}", subscription(id))),
            (Era::Stateless | Era::Legacy, _) => {
                Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, kind.changed_method()))
            }
        }
    }

    fn updated(&self, uri: &str) -> Bytes {
        let uri = json::quoted(uri);
        let uri = String::from_utf8_lossy(&uri);
        let meta = match (self.era(), &self.id) {
            (Era::Stateless, Some(id)) => format!(",{}", subscription(id)),
            (Era::Stateless | Era::Legacy, _) => String::new(),
        };
        notification("notifications/resources/updated", &format!(r#"{{"uri":{uri}{meta}}}"#))
    }

    /// Spells the last message of a listen that we end; other streams just end.
    pub(super) fn farewell(&self) -> Option<Bytes> {
        let id = self.id.as_ref().filter(|_| self.method == "subscriptions/listen")?;
        Some(RpcResponse::with_result(id, ended(id, self.era()).as_bytes()).raw)
    }
}

/// Writes the one line of a refusal: what the log alone may hold, else what the client reads.
pub(super) fn log_refusal(refusal: &Refusal, principal: Option<&PrincipalId>, method: &str) {
    let detail = if refusal.detail.is_empty() { &*refusal.message } else { refusal.detail.as_str() };
    tracing::info!(
        principal = principal.map_or("-", PrincipalId::as_str),
        method,
        status = refusal.status.as_u16(),
        rpc_code = refusal.code.0,
        reason = ?refusal.reason,
        code = refusal.reason.code().id(),
        // Not as it stands: a client may have a part in the words.
        detail,
        "refused"
    );
}

/// Spells a notification.
pub(super) fn notification(method: &str, params: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#))
}

/// Spells the member `_meta` with the id of a subscription, in that id's JSON type.
pub(super) fn subscription(id: &RequestId) -> String {
    format!(r#""_meta":{{"{SUBSCRIPTION_ID_KEY}":{}}}"#, String::from_utf8_lossy(id.raw()))
}

/// Spells the first word of a listen: what of its filter is honoured [R101].
pub(super) fn acknowledged(id: &RequestId, kinds: Kinds, resources: &[String]) -> Bytes {
    let mut honoured: Vec<_> = kinds.iter().map(|kind| format!(r#""{}":true"#, kind.filter())).collect();
    if !resources.is_empty() {
        let uris: Vec<_> =
            resources.iter().map(|uri| String::from_utf8_lossy(&json::quoted(uri)).into_owned()).collect();
        honoured.push(format!(r#""resourceSubscriptions":[{}]"#, uris.join(",")));
    }
    let params = format!(r#"{{"notifications":{{{}}},{}}}"#, honoured.join(","), subscription(id));
    notification("notifications/subscriptions/acknowledged", &params)
}

fn server_meta() -> String {
    format!(r#""{SERVER_INFO_KEY}":{}"#, String::from_utf8_lossy(&server_info()))
}

fn ended(id: &RequestId, era: Era) -> String {
    match era {
        Era::Legacy => "{}".to_owned(),
        Era::Stateless => format!(
            r#"{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_ID_KEY}":{},{}}}}}"#,
            String::from_utf8_lossy(id.raw()),
            server_meta()
        ),
    }
}

fn discovered(discovery: &Discovery) -> String {
    let instructions = discovery.instructions.as_deref().map(member_instructions).unwrap_or_default();
    let capabilities = discovery.capabilities.spelled();
    format!(
        r#"{{"resultType":"complete","supportedVersions":["{STATELESS_LATEST}"],"capabilities":{capabilities},{instructions}"ttlMs":0,"cacheScope":"private","_meta":{{{}}}}}"#,
        server_meta()
    )
}

/// Spells `"instructions":…,`.
pub(super) fn member_instructions(text: &str) -> String {
    format!(r#""instructions":{},"#, String::from_utf8_lossy(&json::quoted(text)))
}

fn listed(id: &RequestId, page: ListPage, era: Era) -> Vec<Bytes> {
    let kind = if era == Era::Stateless { r#""resultType":"complete","# } else { "" };
    let member = page.kind.member();
    let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{{kind}"{member}":"#, String::from_utf8_lossy(id.raw()));
    let mut tail = String::new();
    if let Some(cursor) = &page.next_cursor {
        tail.push_str(&format!(r#","nextCursor":{}"#, String::from_utf8_lossy(&json::quoted(cursor))));
    }
    if era == Era::Stateless {
        let scope = if page.private { "private" } else { "public" };
        let meta = server_meta();
        tail.push_str(&format!(r#","ttlMs":{},"cacheScope":"{scope}","_meta":{{{meta}}}"#, page.ttl_ms));
    }
    tail.push_str("}}");
    vec![Bytes::from(head), page.items, Bytes::from(tail)]
}

/// A request that its client has cancelled waits for nothing. One whose session has ended still does.
fn unanswered(asker: &Asker, session: Option<&Session>) -> Response<Body> {
    match session {
        Some(session) if session.is_over() => Refusal::from(Fault::SessionUnknown).respond(asker.id.as_ref()),
        Some(_) | None => bare(StatusCode::ACCEPTED),
    }
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a POST with what the hall says; `session` is where its client may come back to it.
    pub(super) async fn answer(
        &self,
        mut running: Running,
        asker: Asker,
        take: Take,
        session: Option<&Session>,
    ) -> Response<Body> {
        let mut silence = Bell::after(self.silence(session));
        loop {
            let event = tokio::select! {
                biased;
                event = running.next() => event,
                () = &mut silence, if take.events() => {
                    return self.events(running, asker, None, session).with_comment().respond();
                }
            };
            match event {
                None => return unanswered(&asker, session),
                Some(Event::Done(outcome)) => {
                    let rendered = asker.render(outcome);
                    let guards = running.take_guards();
                    let stream = take == Take::Events && rendered.status == StatusCode::OK;
                    if stream && running.survives() && primes(session) {
                        let first = First::Answer(Box::new((rendered, guards)));
                        return self.events(running, asker, Some(first), session).respond();
                    }
                    return rendered.respond(take, guards);
                }
                // Before it is said that the client may leave, it must be told how to come back.
                Some(Event::Paused) if take.events() && primes(session) => {
                    return self.events(running, asker, Some(First::Pause), session).respond();
                }
                Some(event) if take.events() => {
                    if let Some(message) = asker.message(event) {
                        return self.events(running, asker, Some(First::Message(message)), session).respond();
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Answers with a stream at once, unless the hall refuses at once; `first` is what the stream begins with.
    pub(super) async fn stream(&self, mut running: Running, asker: Asker, first: Option<Bytes>) -> Response<Body> {
        let early = tokio::select! {
            biased;
            event = running.next() => Some(event),
            () = std::future::ready(()) => None,
        };
        let mut messages: Vec<Bytes> = first.into_iter().collect();
        match early {
            Some(Some(Event::Done(Err(reject)))) => {
                return asker.refuse(Refusal::of_reject(reject, asker.era())).respond(Take::Any, running.take_guards());
            }
            Some(Some(Event::Done(Ok(_))) | None) => messages.extend(asker.farewell()),
            Some(Some(event)) => messages.extend(asker.message(event)),
            None => {}
        }
        let events = self.events(running, asker, None, None);
        messages.into_iter().fold(events, Events::with_message).respond()
    }
}

/// Makes the reject for params that cannot be read.
pub(super) fn invalid(words: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::client(RejectKind::InvalidParams, words, ReasonCode::BadRequest)
}
