//! One endpoint: how a request for it is dressed, sent, and its response read within the cap.
//!
//! Not for: sessions, eras, or what a message means. Invariants: configured headers go to this endpoint alone and replace
//! ours; what is said in public names the server, never its address.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use smallvec::{SmallVec, smallvec};

use crate::exchange::{Reject, RejectKind};
use crate::id::UpstreamName;
use crate::net::{HttpClient, ResponseBody, SendError};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::sse;

use super::reader::{EventReader, ReadError};

/// What every POST accepts.
const ACCEPT_BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// What every GET accepts.
pub(super) const ACCEPT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

const SNIPPET_MAX: usize = 200;

/// One endpoint.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: UpstreamName,
    /// The path and query of its URL: a request in origin form.
    pub(super) path: Uri,
    /// The configured headers, marked as sensitive.
    configured: HeaderMap,
    /// The headers of every POST.
    posting: HeaderMap,
    pub(super) client: HttpClient,
    pub(super) cap: usize,
    pub(super) pauses: Pauses,
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

/// What a response holds.
#[derive(Debug)]
pub(super) enum Content {
    /// No JSON-RPC; the beginning of it for the log.
    Foreign(String),
    /// JSON-RPC.
    Messages(SmallVec<[Message; 1]>),
    /// An event stream of a 2xx.
    Stream(Box<EventReader>),
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
        const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));
        let host = uri.authority().map_or("", http::uri::Authority::as_str);
        let mut posting = HeaderMap::with_capacity(16);
        posting.insert(HOST, HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("")));
        posting.insert(ACCEPT, ACCEPT_BOTH);
        posting.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        posting.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        posting.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for name in configured.keys() {
            posting.remove(name);
        }
        for (name, value) in &configured {
            posting.append(name, value.clone());
        }
        let path = uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()));
        Self { name, path, configured, posting, client, cap, pauses: Pauses::NORMAL }
    }

    /// Returns the headers of every POST; a caller adds those of its era.
    pub(super) fn posting(&self) -> HeaderMap {
        self.posting.clone()
    }

    /// Sets a header, unless it is configured.
    pub(super) fn set(&self, headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
        if !self.configured.contains_key(&name) {
            headers.insert(name, value);
        }
    }

    /// Sends a request and waits for the head of its response; `headers` are those of a POST with what was added.
    pub(super) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<http::Response<ResponseBody>, Reject> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        self.client.send(request).await.map_err(|err| match err {
            SendError::Connect(why) => {
                self.reject(format!("server '{}' cannot be reached", self.name), why).safe_to_retry()
            }
            SendError::Ended(why) => self.unknown_outcome(why),
        })
    }

    /// Reads a response: an event stream up to its head, all else to its end.
    pub(super) async fn read(&self, response: http::Response<ResponseBody>) -> Result<Answered, Reject> {
        let (head, body) = response.into_parts();
        let status = head.status;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let public = format!("server '{}' refused the gateway's credential", self.name);
            return Err(self.reject(public, format!("HTTP {}", status.as_u16())));
        }
        if let Some(encoding) = encoding(&head.headers) {
            let public = format!("server '{}' answered in an encoding that was not asked for", self.name);
            return Err(self.reject(public, snippet(encoding.as_bytes())));
        }
        let media = media_type(&head.headers);
        if status.is_success() && is_event_stream(&head.headers) {
            let limits = sse::Limits { event_bytes_max: self.cap, stream_bytes_max: self.cap.saturating_mul(4) };
            return Ok(Answered { status, content: Content::Stream(Box::new(EventReader::new(body, limits))) });
        }
        let raw = self.collect(body).await?;
        let json = !status.is_success() || media.is_none_or(|media| media.eq_ignore_ascii_case("application/json"));
        let content = match json.then(|| messages(&raw)).flatten() {
            Some(messages) => Content::Messages(messages),
            None => Content::Foreign(snippet(&raw)),
        };
        Ok(Answered { status, content })
    }

    async fn collect(&self, mut body: ResponseBody) -> Result<Bytes, Reject> {
        let announced = body.size_hint().exact();
        let room = match announced.map(usize::try_from) {
            None => 0,
            Some(Ok(length)) if length <= self.cap => length,
            Some(_) => return Err(self.over_cap()),
        };
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|err| self.unknown_outcome(err.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > self.cap {
                return Err(self.over_cap());
            }
            if whole.is_empty() && data.len() == room {
                return Ok(data);
            }
            whole.reserve(room.saturating_sub(whole.len()).max(data.len()));
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    // --- refusals ---

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
            ReadError::Stream(sse::DecodeError::EventTooLarge { .. } | sse::DecodeError::StreamTooLarge { .. }) => {
                self.over_cap()
            }
            ReadError::Stream(other) => {
                self.reject(format!("server '{}' sent a malformed event stream", self.name), other.to_string())
            }
        }
    }
}

/// Reads a body as JSON-RPC; `None` if it is none.
pub(super) fn messages(raw: &Bytes) -> Option<SmallVec<[Message; 1]>> {
    match decode(raw, &Limits::UPSTREAM).ok()? {
        Decoded::One(message) => Some(smallvec![message]),
        Decoded::Batch(all) => Some(all.into_iter().filter_map(Result::ok).collect()),
    }
}

/// Returns the media type without parameters, in any case.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

/// Says whether a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|media| media.eq_ignore_ascii_case("text/event-stream"))
}

fn encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let plain = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value.is_empty() || value.eq_ignore_ascii_case(b"identity")
    };
    headers.get_all(CONTENT_ENCODING).iter().find(|value| !plain(value))
}

/// Returns the printable beginning of what a server sent.
pub(super) fn snippet(raw: &[u8]) -> String {
    let head = raw.get(..raw.len().min(SNIPPET_MAX * 4)).unwrap_or_default();
    String::from_utf8_lossy(head)
        .chars()
        .map(|char| if char.is_control() || char == char::REPLACEMENT_CHARACTER { ' ' } else { char })
        .take(SNIPPET_MAX)
        .collect()
}
