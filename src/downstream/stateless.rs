//! Requests of 2026-07-28: checked in the order of protocol §2.3, then handed to the hall.
//!
//! Invariant: what is checked against the headers is exactly what is handed on.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::exchange::{
    Call, ClientFacts, Exchange, Handler, Listen, Owner, ReasonCode, Reject, RejectKind, ServerCall, Told, WATCHED_MAX,
    Watching,
};
use crate::wire::json;
use crate::wire::jsonrpc::{Message, Params, Request};
use crate::wire::mcp::{
    CallParams, Era, Kind, Kinds, Level, Method, ParamsError, ProtocolVersion, RequestMeta, Target, decode_value, name,
};

use super::answer::{Asker, Log, acknowledged, invalid};
use super::body::Body;
use super::headers::{Known, Single};
use super::post::Visit;
use super::respond::{Fault, Refusal, bare};
use super::running::Running;
use super::server::Door;

/// A refusal, and nothing yet of the log.
type Checked<T> = Result<T, Refusal>;

/// Whether the transport repeats parts of the body beside it [R4-R11].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mirror {
    /// In headers, which must agree.
    Headers,
    /// It has no place for that.
    Nothing,
}

/// A request in the hall's hands.
pub(super) struct Opened {
    /// The call.
    pub(super) running: Running,
    /// Who asked.
    pub(super) asker: Asker,
    /// What a listen begins with; where it asks for resources, the hall says it.
    pub(super) first: Option<Bytes>,
    /// It is a listen: its answer is a stream.
    pub(super) listens: bool,
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a message of the stateless era.
    pub(super) async fn stateless(
        &self,
        visit: &Visit<H::Caller>,
        message: Message,
        meta: RequestMeta,
    ) -> Response<Body> {
        let request = match message {
            Message::Request(request) => request,
            Message::Notification(_) => return bare(StatusCode::ACCEPTED),
            Message::Response(_) => {
                return visit.refuse(Fault::NotMessage("A client answers nothing in this revision".to_owned()), None);
            }
        };
        let id = request.id.clone();
        match self.open_stateless(visit, request, meta, Mirror::Headers) {
            Ok(Opened { running, asker, listens: false, .. }) => self.answer(running, asker, visit.take, None).await,
            Ok(Opened { running, asker, first, .. }) if visit.take.events() => self.stream(running, asker, first).await,
            Ok(Opened { .. }) => visit.refuse(Fault::NotAcceptable, Some(id)),
            Err(refusal) => visit.refuse(refusal, Some(id)),
        }
    }

    /// Checks a request and hands it to the hall. A listen ends with the drain.
    ///
    /// # Errors
    /// [`Refusal`]: what is wrong with the request, or a drain.
    pub(super) fn open_stateless(
        &self,
        visit: &Visit<H::Caller>,
        request: Request,
        meta: RequestMeta,
        mirror: Mirror,
    ) -> Checked<Opened> {
        let (method, call, asker, client) = self.checked(visit, request, meta, mirror)?;
        let kinds = match &call {
            Call::Listen(listen) if listen.resources.is_empty() => Some(listen.kinds),
            Call::Discover | Call::List { .. } | Call::Listen(_) | Call::ToServer(_) | Call::Watch { .. } => None,
        };
        let exchange = Exchange {
            endpoint: visit.endpoint.clone(),
            client,
            owner: Owner::principal(visit.principal.clone()),
            call,
        };
        // A listen is what a session and its stream are elsewhere.
        let place = match &exchange.call {
            Call::Listen(_) => Some(self.place(&visit.caller)?),
            Call::Discover | Call::List { .. } | Call::ToServer(_) | Call::Watch { .. } => None,
        };
        let running = self.call_of_stateless(visit, exchange);
        Ok(match (method, &asker.id) {
            (Method::SubscriptionsListen, Some(id)) => {
                let first = kinds.map(|kinds| acknowledged(id, kinds, &[]));
                let drain = self.drain.clone();
                let running = running.stopped_when(async move { drain.started().await }).holding(place);
                Opened { running, asker, first, listens: true }
            }
            _ => Opened { running, asker, first: None, listens: false },
        })
    }

    fn checked(
        &self,
        visit: &Visit<H::Caller>,
        request: Request,
        meta: RequestMeta,
        mirror: Mirror,
    ) -> Checked<(Method, Call, Asker, ClientFacts)> {
        let version = match &meta.version {
            Some(Some(version)) => &**version,
            Some(None) | None => return Err(Fault::Meta("'_meta' must hold the protocol version".to_owned()).into()),
        };
        let Some(capabilities) = meta.capabilities.clone() else {
            return Err(Fault::Meta("'_meta' must hold the client's capabilities".to_owned()).into());
        };
        if mirror == Mirror::Headers {
            check_headers(visit, &request, version)?;
        }
        let Some(version) = ProtocolVersion::from_text(version).filter(|version| version.era() == Era::Stateless)
        else {
            return Err(Fault::Version(version.to_owned()).into());
        };
        let served = |method: &Method| method.spec().stateless && method.spec().served;
        let method = Method::from_name(&request.method).filter(served).ok_or(Fault::Method)?;
        let wanted = meta
            .log_level
            .as_ref()
            .map(|level| Level::of_text(level).ok_or_else(|| rejected(invalid("'logLevel' names no level"))));
        let wanted = wanted.transpose()?;
        let log = wanted.map_or(Log::Nothing, Log::From);
        if self.drain.is_draining() {
            return Err(Fault::Draining.into());
        }
        let client = ClientFacts::new(version, meta.client_info.clone(), capabilities.clone()).logging(wanted);
        let (principal, id) = (visit.principal.clone(), Some(request.id.clone()));
        let asker = Asker { version, id, principal, method: method.spec().name, log, capabilities };
        let call = call_of(visit, method, request, meta, mirror)?;
        Ok((method, call, asker, client))
    }
}

fn rejected(reject: Reject) -> Refusal {
    Refusal::of_reject(reject, Era::Stateless)
}

/// Checks the standard headers against the body [R4-R11].
fn check_headers<C>(visit: &Visit<C>, request: &Request, version: &str) -> Checked<()> {
    let mismatch =
        |name: &str| Refusal::from(Fault::Header(format!("Header {name} is missing or disagrees with the body")));
    if visit.headers.text(Known::ProtocolVersion) != Single::Value(version) {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    if visit.headers.text(Known::Method) != Single::Value(&request.method) {
        return Err(mismatch("Mcp-Method"));
    }
    let key = match Method::from_name(&request.method).map_or(Target::None, |method| method.spec().target) {
        Target::Name => "name",
        Target::Uri => "uri",
        Target::None | Target::Ref => return Ok(()),
    };
    let twice = |err: json::JsonError| Refusal::from(Fault::Meta(err.to_string()));
    let target = request.params.as_deref().map(|params| params.get(key)).transpose().map_err(twice)?.flatten();
    let header = visit.headers.text(Known::Name);
    if let (Single::Value(header), Some(spelled)) = (header, target)
        && says_the_same(header, spelled.get())
    {
        return Ok(());
    }
    match (header, target.and_then(json::text)) {
        (Single::Value(header), Some(target)) => {
            let header = decode_value(header).map_err(|_| mismatch("Mcp-Name"))?;
            if header == target { Ok(()) } else { Err(mismatch("Mcp-Name")) }
        }
        // Neither side names a target: the params are what is wrong, and are read later.
        (Single::Absent, None) => Ok(()),
        (Single::Absent | Single::Bad | Single::Value(_), _) => Err(mismatch("Mcp-Name")),
    }
}

/// Says whether a header is what a JSON string spells, without a look at what either has to be decoded for: what it does not
/// see is read in full.
fn says_the_same(header: &str, spelled: &[u8]) -> bool {
    let plain = !header.starts_with("=?") && memchr::memchr(b'\\', spelled).is_none();
    plain && spelled.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) == Some(header.as_bytes())
}

fn call_of<C: crate::exchange::Caller>(
    visit: &Visit<C>,
    method: Method,
    request: Request,
    meta: RequestMeta,
    mirror: Mirror,
) -> Checked<Call> {
    match method {
        Method::Discover => Ok(Call::Discover),
        Method::PromptsList | Method::ResourcesList | Method::ResourcesTemplatesList | Method::ToolsList => {
            let kind = method.spec().lists.unwrap_or(Kind::Tools);
            let cursor = cursor_of(request.params.as_deref()).map_err(rejected)?;
            Ok(Call::List { kind, cursor, told: Told::default() })
        }
        Method::CompletionComplete | Method::PromptsGet | Method::ResourcesRead | Method::ToolsCall => {
            let params = call_params(method, &request).map_err(|(status, words)| match status {
                StatusCode::BAD_REQUEST => Refusal::from(Fault::Meta(words)),
                _ => rejected(invalid(words)),
            })?;
            let param_headers = match mirror {
                Mirror::Headers => Some(param_headers(visit)?),
                Mirror::Nothing => None,
            };
            let trace = visit.trace(&meta);
            Ok(Call::ToServer(Arc::new(ServerCall { request, params, meta, param_headers, trace })))
        }
        Method::SubscriptionsListen => {
            let (kinds, resources) = wanted(request.params.as_deref()).map_err(|words| rejected(invalid(words)))?;
            let kinds = kinds.and(visit.caller.capabilities(&visit.endpoint).tells);
            let told = Told::new(visit.caller.seen(&visit.endpoint));
            Ok(Call::Listen(Listen { kinds, told, own: true, resources, watching: Watching::default() }))
        }
        Method::Initialize
        | Method::LoggingSetLevel
        | Method::Ping
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe => Err(Fault::Method.into()),
    }
}

/// Collects the headers that mirror arguments; the hall compares them, for it knows the tool's schema [R53].
fn param_headers<C>(visit: &Visit<C>) -> Checked<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (header, value) in visit.headers.all() {
        let Some(param) = header.as_str().strip_prefix(name::PARAM_PREFIX) else { continue };
        let value = value.to_str().map_err(|_| Fault::Header("A Mcp-Param header is no visible ASCII".to_owned()))?;
        if found.iter().any(|(other, _)| other == param) {
            return Err(Fault::Header("A Mcp-Param header stands twice".to_owned()).into());
        }
        found.push((param.to_owned(), value.to_owned()));
    }
    Ok(found)
}

/// Reads the params of a call; a key that stands twice is worth a 400 [R11].
pub(super) fn call_params(method: Method, request: &Request) -> Result<CallParams, (StatusCode, String)> {
    let params = request.params.as_deref().ok_or_else(|| (StatusCode::OK, "'params' are missing".to_owned()))?;
    CallParams::read(method, params).map_err(|err| {
        let status = if matches!(err, ParamsError::Malformed(_)) { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        (status, err.to_string())
    })
}

/// Reads the cursor of a list request; `null` counts as absent.
pub(super) fn cursor_of(params: Option<&Params>) -> Result<Option<String>, Reject> {
    let bad = || Reject::client(RejectKind::InvalidParams, "Invalid cursor", ReasonCode::BadRequest);
    let Some(params) = params else { return Ok(None) };
    match params.get("cursor").map_err(|_| bad())? {
        None => Ok(None),
        Some(cursor) if cursor.get() == b"null" => Ok(None),
        Some(cursor) => json::text(cursor).map(|cursor| Some(cursor.into_owned())).ok_or_else(bad),
    }
}

/// Reads which changes a subscription asks for: of which lists, and of which resources.
///
/// # Errors
/// What is wrong, for the client.
fn wanted(params: Option<&Params>) -> Result<(Kinds, Vec<String>), String> {
    const WORDS: &str = "'notifications' must say what is listened for";
    let filter = params.and_then(|params| params.get("notifications").ok()?).map(|filter| json::members(filter.get()));
    let Some(Ok(filter)) = filter else { return Err(WORDS.to_owned()) };
    let get = |key| filter.get(key).map_err(|err| err.to_string());
    let mut wanted = Kinds::NONE;
    for kind in Kind::TOLD {
        match get(kind.filter())?.map(json::Raw::get) {
            Some(b"true") => wanted = wanted.with(kind),
            None | Some(b"false") => {}
            Some(_) => return Err(WORDS.to_owned()),
        }
    }
    let resources: Vec<String> = match get("resourceSubscriptions")? {
        None => Vec::new(),
        Some(uris) => serde_json::from_slice(uris.get())
            .map_err(|_| "'resourceSubscriptions' must be a list of URIs".to_owned())?,
    };
    if resources.len() > WATCHED_MAX {
        return Err(format!("'resourceSubscriptions' names more than {WATCHED_MAX} resources"));
    }
    Ok((wanted, resources))
}
