//! One endpoint: how a request for it is dressed, sent, and its response read within the cap.
//!
//! Not for: sessions, eras, or what a message means. Invariants: configured headers go to this endpoint alone and replace
//! ours; what is said in public names the server, never its address.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{StatusCode, Uri};
use smallvec::{SmallVec, smallvec};

use crate::exchange::{Reject, RejectKind, UpstreamCall};
use crate::id::UpstreamName;
use crate::net::{BodyError, Headers, HttpClient, Response, ResponseBody, SendError};
use crate::runtime::TURN_BYTES;
use crate::upstream::secrets::Secrets;
use crate::wire::json::{self, Skim};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode_skimmed};
use crate::wire::sse;

use super::reader::{EventReader, ReadError};
use super::redirect::Redirects;

/// What every POST accepts.
const ACCEPT_BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// What every GET accepts.
const ACCEPT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A smaller answer is looked at in any case: it costs nothing, and what asks for input is small.
const UNSEEN_BYTES_MIN: u64 = 64 << 10;
/// How much of what a server says is repeated, in characters.
const SNIPPET_MAX: usize = 200;
/// Of how much of it, in bytes: more, so that no secret is cut before it is found.
const SNIPPET_BYTES: usize = 8 << 10;

/// One endpoint.
pub(super) struct Target {
    pub(super) name: UpstreamName,
    uri: Uri,
    /// The path and query of its URL.
    path: String,
    host: HeaderValue,
    /// The configured headers, marked as sensitive.
    configured: HeaderMap,
    pub(super) client: HttpClient,
    pub(super) cap: usize,
    pub(super) pauses: Pauses,
    /// Whether large answers are looked at.
    pub(super) inspect: bool,
    redirects: Option<Redirects>,
    /// What its words may not hold.
    secrets: Option<Arc<Secrets>>,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Ends a session.
    Delete,
    /// Opens a stream.
    Get,
    /// Sends a message.
    Post,
}

/// How long to wait before something is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// Before the second try.
    pub(super) first: Duration,
    /// At most.
    pub(super) most: Duration,
    /// How long a stream must live to count as offered.
    pub(super) lived: Duration,
}

/// A response whose head, and body unless it is a stream, has been read.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) content: Content,
}

/// A response whose head has been judged.
enum Begun {
    /// Its body is yet to be read.
    Body { status: StatusCode, json: bool, body: ResponseBody },
    /// It is an event stream.
    Stream(StatusCode, Box<EventReader>),
}

/// What a response holds.
#[derive(Debug)]
pub(super) enum Content {
    /// No JSON-RPC; the beginning of it for the log.
    Foreign(String),
    /// JSON-RPC.
    Messages(SmallVec<[Message; 1]>),
    /// An event stream of a 2xx.
    Stream(Box<EventReader>),
    /// A large answer of a 2xx that nobody looks at.
    Unseen(Box<Unseen>),
}

/// A large answer of which the beginning has been read.
#[derive(Debug)]
pub(super) struct Unseen {
    /// Its beginning.
    pub(super) head: Bytes,
    /// Where in it the id's value lies.
    pub(super) id_at: Range<usize>,
    /// How long it is in all, if that is known.
    pub(super) length: Option<u64>,
    /// What follows.
    pub(super) rest: ResponseBody,
}

// === impl Pauses ===

impl Pauses {
    /// The pauses in production.
    pub(super) const NORMAL: Self =
        Self { first: Duration::from_millis(250), most: Duration::from_secs(60), lived: Duration::from_secs(5) };

    /// The pause before try number `tries + 1`: doubling, with up to a quarter of jitter on top.
    pub(super) fn after(self, tries: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(self.most);
        doubled + doubled / 4 * (random() % 256) / 256
    }
}

/// A number that differs between gateways and calls; for jitter, not for secrets.
fn random() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::hash::RandomState::new().build_hasher().finish();
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

// === impl Target ===

impl Target {
    /// Makes the target of a URL; `configured` headers are marked as sensitive.
    pub(super) fn new(name: UpstreamName, uri: &Uri, configured: HeaderMap, client: HttpClient, cap: usize) -> Self {
        let host = uri.authority().map_or("", http::uri::Authority::as_str);
        let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let (uri, pauses) = (uri.clone(), Pauses::NORMAL);
        Self { name, uri, path, host, configured, client, cap, pauses, inspect: true, redirects: None, secrets: None }
    }

    /// Spells the head of a request, all but its last lines: what every request says, what is configured, then `lines`.
    pub(super) fn head(&self, method: Verb, lines: &[(HeaderName, HeaderValue)]) -> Vec<u8> {
        const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        let (verb, accept) = match method {
            Verb::Delete => ("DELETE", ACCEPT_BOTH),
            Verb::Get => ("GET", ACCEPT_STREAM),
            Verb::Post => ("POST", ACCEPT_BOTH),
        };
        let mut head = [verb, " ", &self.path, " HTTP/1.1\r\n"].concat().into_bytes();
        self.add(&mut head, &HOST, &self.host);
        self.add(&mut head, &ACCEPT, &accept);
        self.add(&mut head, &ACCEPT_ENCODING, &HeaderValue::from_static("identity"));
        self.add(&mut head, &USER_AGENT, &AGENT);
        if method == Verb::Post {
            self.add(&mut head, &CONTENT_TYPE, &JSON);
        }
        for (name, value) in &self.configured {
            line(&mut head, name, value);
        }
        for (name, value) in lines {
            self.add(&mut head, name, value);
        }
        head
    }

    /// Makes the target of another URL of the same origin.
    pub(super) fn at(&self, uri: &Uri) -> Self {
        let (name, configured, client) = (self.name.clone(), self.configured.clone(), self.client.clone());
        let redirects = self.redirects.as_ref().map(|redirects| redirects.at(uri));
        let other = Self::new(name, uri, configured, client, self.cap);
        Self { pauses: self.pauses, inspect: self.inspect, redirects, secrets: self.secrets.clone(), ..other }
    }

    /// Passes large answers on without looking at them.
    pub(super) fn with_inspect(self, inspect: bool) -> Self {
        Self { inspect, ..self }
    }

    /// Replaces these secrets in what the server says.
    pub(super) fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets: Some(Arc::new(secrets)), ..self }
    }

    /// Follows redirects.
    pub(super) fn with_redirects(self, redirects: Redirects) -> Self {
        Self { redirects: Some(redirects), ..self }
    }

    /// Returns its URL.
    pub(super) const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the configured headers.
    pub(super) const fn configured(&self) -> &HeaderMap {
        &self.configured
    }

    /// Adds a header, unless it is configured.
    pub(super) fn add(&self, head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
        if !self.configured.contains_key(name) {
            line(head, name, value);
        }
    }

    /// Adds the headers of a trace, as in the call's `_meta` [R123].
    pub(super) fn add_trace(&self, head: &mut Vec<u8>, call: &UpstreamCall) {
        for (key, value) in call.trace.iter().flat_map(|trace| trace.iter()) {
            if let Ok(value) = HeaderValue::from_str(value) {
                self.add(head, &HeaderName::from_static(key), &value);
            }
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(&self, head: &[u8], body: &Bytes) -> Result<Response, Reject> {
        let sent = self.client.send(head, body).await.map_err(|err| self.unsent(err))?;
        match &self.redirects {
            Some(redirects) if sent.status.is_redirection() => {
                Box::pin(redirects.follow(self, sent, head, body.clone())).await.map(|(response, _)| response)
            }
            Some(_) | None => Ok(sent),
        }
    }

    /// The same; returns also the URL that has answered at last; none where another origin was on the way.
    pub(super) async fn send_from(&self, head: &[u8], body: Bytes) -> Result<(Response, Option<Uri>), Reject> {
        let sent = self.client.send(head, &body).await.map_err(|err| self.unsent(err))?;
        match &self.redirects {
            Some(redirects) if sent.status.is_redirection() => redirects.follow(self, sent, head, body).await,
            Some(_) | None => Ok((sent, Some(self.uri.clone()))),
        }
    }

    /// Says why there is no response.
    fn unsent(&self, err: SendError) -> Reject {
        match err {
            SendError::Connect(why) => {
                self.reject(format!("server '{}' cannot be reached", self.name), why).safe_to_retry()
            }
            SendError::Ended(why) => self.unknown_outcome(why),
        }
    }

    /// Sends a request and reads its response, as [`Self::read`] does. In one, so that what waits for the body does not carry
    /// the head.
    pub(super) async fn ask(&self, head: &[u8], body: &Bytes, unseen: Option<u64>) -> Result<Answered, Reject> {
        let (status, json, body) = match self.send(head, body).await.and_then(|sent| self.begin(sent)) {
            Ok(Begun::Body { status, json, body }) => (status, json, body),
            Ok(Begun::Stream(status, reader)) => return Ok(Answered { status, content: Content::Stream(reader) }),
            Err(reject) => return Err(reject),
        };
        self.rest(status, json, body, unseen).await
    }

    /// Reads a response: an event stream up to its head, all else to its end. With `unseen`, the number of a request, a
    /// large answer to that is read up to its id alone.
    pub(super) fn read(
        &self,
        response: Response,
        unseen: Option<u64>,
    ) -> impl Future<Output = Result<Answered, Reject>> {
        let begun = self.begin(response);
        async move {
            match begun? {
                Begun::Stream(status, reader) => Ok(Answered { status, content: Content::Stream(reader) }),
                Begun::Body { status, json, body } => self.rest(status, json, body, unseen).await,
            }
        }
    }

    /// Takes a response as a stream of all that a session says; `None` if it is none.
    pub(super) fn shared_events(&self, response: Response) -> Result<Option<EventReader>, Reject> {
        if !response.status.is_success() || !is_event_stream(&response.headers) {
            return Ok(None);
        }
        self.refuse_encoding(&response.headers)?;
        let limits = sse::Limits { event_bytes_max: self.cap, stream_bytes_max: usize::MAX };
        Ok(Some(EventReader::shared(response.body, limits)))
    }

    fn refuse_encoding(&self, headers: &Headers) -> Result<(), Reject> {
        let Some(encoding) = encoding(headers) else { return Ok(()) };
        let public = format!("server '{}' answered in an encoding that was not asked for", self.name);
        Err(self.reject(public, self.snippet(encoding)))
    }

    /// Judges a response by its head. Apart from the rest, so that what waits for the body does not carry the head.
    fn begin(&self, response: Response) -> Result<Begun, Reject> {
        let Response { status, headers, body } = response;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let public = format!("server '{}' refused the gateway's credential", self.name);
            return Err(self.reject(public, format!("HTTP {}", status.as_u16())));
        }
        self.refuse_encoding(&headers)?;
        // What nearly every answer says needs no closer look.
        if status.is_success() && headers.get("content-type") == Some(b"application/json") {
            return Ok(Begun::Body { status, json: true, body });
        }
        let media = media_type(&headers);
        if status.is_success() && media.is_some_and(is_event_stream_type) {
            let limits = sse::Limits { event_bytes_max: self.cap, stream_bytes_max: self.cap.saturating_mul(4) };
            return Ok(Begun::Stream(status, Box::new(EventReader::new(body, limits))));
        }
        let json = !status.is_success() || media.is_none_or(|media| media.eq_ignore_ascii_case(b"application/json"));
        Ok(Begun::Body { status, json, body })
    }

    /// Reads a body to its end, or a large one that nobody looks at up to its id.
    async fn rest(
        &self,
        status: StatusCode,
        json: bool,
        mut body: ResponseBody,
        unseen: Option<u64>,
    ) -> Result<Answered, Reject> {
        let unreadable = |err| match err {
            BodyError::Broken(why) => self.unknown_outcome(why),
            BodyError::TooLarge(_) => self.over_cap(),
        };
        let mut begun = Bytes::new();
        if let Some(id) = unseen.filter(|_| json && status.is_success()) {
            let length = body.length();
            if length.is_some_and(|length| length > self.cap as u64) {
                return Err(self.over_cap());
            }
            if length.is_none_or(|length| length >= UNSEEN_BYTES_MIN) {
                begun = body.data().await.map_err(unreadable)?.unwrap_or_default();
                if let Some(id_at) = answer_to(id, &begun) {
                    let content = Content::Unseen(Box::new(Unseen { head: begun, id_at, length, rest: body }));
                    return Ok(Answered { status, content });
                }
            }
        }
        let mut skim = Skim::default();
        let seen = |so_far: &[u8]| {
            if json {
                skim.look(so_far)
            }
        };
        let raw = match begun.is_empty() {
            true => body.collect_seen(self.cap, seen).await,
            // Boxed, so that a body that is read in one go does not carry its room.
            false => Box::pin(body.collect_after(begun, self.cap)).await,
        };
        let raw = raw.map_err(unreadable)?;
        if raw.len() - skim.plain_bytes() >= TURN_BYTES {
            tokio::task::yield_now().await;
        }
        let content = match json.then(|| messages_skimmed(&raw, &skim)).flatten() {
            Some(messages) => Content::Messages(messages),
            None => Content::Foreign(self.snippet(&raw)),
        };
        Ok(Answered { status, content })
    }

    // --- refusals ---

    /// Returns the printable beginning of what the server sent, without secrets, as one may be what it complains of.
    pub(super) fn snippet(&self, raw: &[u8]) -> String {
        let head = String::from_utf8_lossy(raw.get(..raw.len().min(SNIPPET_BYTES)).unwrap_or_default());
        let head = self.secrets.as_ref().map_or_else(|| head.clone().into_owned(), |secrets| secrets.replaced(&head));
        head.chars()
            .map(|char| if char.is_control() || char == char::REPLACEMENT_CHARACTER { ' ' } else { char })
            .take(SNIPPET_MAX)
            .collect()
    }

    /// The server failed.
    pub(super) fn reject(&self, public: String, detail: String) -> Reject {
        tracing::debug!(server = %self.name, detail, "{public}");
        Reject::upstream(RejectKind::Upstream, public, detail)
    }

    /// A response is larger than is allowed [LIM-1].
    pub(super) fn over_cap(&self) -> Reject {
        let public = format!("server '{}' answered with more than {} bytes (max_response_bytes)", self.name, self.cap);
        Reject::upstream(RejectKind::Limit, public, String::new())
    }

    /// The stream of one call is larger in sum than is allowed [LIM-1].
    fn stream_over_cap(&self) -> Reject {
        let (name, cap) = (&self.name, self.cap);
        let public =
            format!("server '{name}' sent more than 4 × {cap} bytes (max_response_bytes) in the stream of one call");
        Reject::upstream(RejectKind::Limit, public, String::new())
    }

    /// The request may have been read, and there is no answer (FC-TMO-03).
    pub(super) fn unknown_outcome(&self, why: String) -> Reject {
        let public = format!(
            "server '{}' ended the connection before it answered; the outcome is unknown, the request was not sent again",
            self.name
        );
        self.reject(public, why)
    }

    /// The response is none to any JSON-RPC request.
    pub(super) fn foreign(&self, status: StatusCode, snippet: String) -> Reject {
        let (name, code) = (&self.name, status.as_u16());
        if status.is_success() {
            self.reject(format!("server '{name}' answered HTTP {code} without a JSON-RPC answer"), snippet)
        } else {
            self.reject(format!("server '{name}' answered HTTP {code}"), snippet)
        }
    }

    /// The response is one to another request.
    pub(super) fn foreign_id(&self) -> Reject {
        self.reject(format!("server '{}' answered with a foreign id", self.name), String::new())
    }

    /// The stream cannot be read on.
    pub(super) fn unreadable(&self, err: &ReadError) -> Reject {
        match err {
            ReadError::Broken(why) => self.unknown_outcome(why.clone()),
            ReadError::Stream(sse::DecodeError::EventTooLarge { .. }) => self.over_cap(),
            ReadError::Stream(sse::DecodeError::StreamTooLarge { .. }) => self.stream_over_cap(),
            ReadError::Stream(other) => {
                self.reject(format!("server '{}' sent a malformed event stream", self.name), other.to_string())
            }
        }
    }
}

/// Its URL and headers may hold secrets [CFG-3]: they are not shown.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Reads a body as JSON-RPC; `None` if it is none.
pub(super) fn messages(raw: &Bytes) -> Option<SmallVec<[Message; 1]>> {
    messages_skimmed(raw, &Skim::default())
}

/// Reads a body of which `skim` has seen some already.
fn messages_skimmed(raw: &Bytes, skim: &Skim) -> Option<SmallVec<[Message; 1]>> {
    match decode_skimmed(raw, &Limits::UPSTREAM, skim).ok()? {
        Decoded::One(message) => Some(smallvec![message]),
        Decoded::Batch(all) => Some(all.into_iter().filter_map(Result::ok).collect()),
    }
}

/// Returns where the id lies if this is the beginning of the answer to request `id`, and not one that asks for input.
fn answer_to(id: u64, begun: &[u8]) -> Option<Range<usize>> {
    let at = json::leading(begun, "id")?;
    let ours = std::str::from_utf8(begun.get(at.clone())?).ok()?.parse() == Ok(id);
    (ours && memchr::memmem::find(begun, b"input_required").is_none()).then_some(at)
}

/// Returns the media type without parameters, in any case.
fn media_type(headers: &Headers) -> Option<&[u8]> {
    let value = headers.get("content-type")?;
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    Some(value.get(..end).unwrap_or_default().trim_ascii())
}

/// Says whether a response is an event stream.
pub(super) fn is_event_stream(headers: &Headers) -> bool {
    media_type(headers).is_some_and(is_event_stream_type)
}

const fn is_event_stream_type(media: &[u8]) -> bool {
    media.eq_ignore_ascii_case(b"text/event-stream")
}

fn encoding(headers: &Headers) -> Option<&[u8]> {
    let plain = |value: &&[u8]| {
        let value = value.trim_ascii();
        value.is_empty() || value.eq_ignore_ascii_case(b"identity")
    };
    headers.all("content-encoding").find(|value| !plain(value))
}

fn line(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    head.reserve(name.as_str().len() + value.len() + 4);
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    // A header's value holds no line break, by its type.
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}
