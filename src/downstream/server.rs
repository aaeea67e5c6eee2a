//! Requests to answers: the order in which a request is judged.
//!
//! Order: Host and Origin, path, preflight, credential, the connection's account, endpoint, the principal's rate, then the
//! verb's own room. Nothing is read of a body before its sender is known.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CONNECTION, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method as Verb, Request, Response, StatusCode, Uri};

use crate::clock::Clock;
use crate::exchange::{Caller as _, Endpoint, Handler};
use crate::id::PrincipalId;
use crate::limit::Seats;
use crate::net::Listener;
use crate::runtime::{Drain, Tasks};
use crate::session::{ParkedCalls, ParkedLimits, SessionLimits, SessionStore};
use crate::telemetry::access_line;
use crate::wire::mcp::{Era, name};

use super::accept::Take;
use super::account::Account;
use super::answer::log_refusal;
use super::body::Body;
use super::headers::Headers;
use super::http_sse::Streams;
use super::origin::{self, Reach};
use super::post::Visit;
use super::respond::{Fault, Refusal, bare, spare};
use super::router::{Route, Transport, route};
use super::{AccessLog, DownstreamSettings, credential};

/// How many calls may go on whose clients are gone.
pub(super) const ORPHANS_MAX: usize = 256;
/// The longest pause between two searches for idle sessions.
const REAP_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The front door. Clones share it.
#[derive(Debug)]
pub struct Downstream<H>(Arc<Door<H>>);

/// What every room of the door can reach.
#[derive(Debug)]
pub(super) struct Door<H> {
    pub(super) settings: DownstreamSettings,
    pub(super) handler: Arc<H>,
    pub(super) tasks: Tasks,
    pub(super) drain: Drain,
    pub(super) sessions: SessionStore,
    /// The connections, by whose they are.
    pub(super) connections: Seats,
    pub(super) orphans: Seats,
    /// The bytes of large requests' bodies, each a seat.
    pub(super) bodies: Seats,
    pub(super) parked: Arc<ParkedCalls>,
    pub(super) streams: Streams<H>,
    pub(super) clock: Clock,
}

/// What is known of a request, for the log.
struct Seen {
    principal: Option<PrincipalId>,
    method: &'static str,
}

// === impl Downstream ===

impl<H> Clone for Downstream<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H: Handler> Downstream<H> {
    /// Makes the door and starts the task that ends idle sessions; needs a runtime.
    #[must_use]
    pub fn new(settings: DownstreamSettings, handler: Arc<H>, tasks: Tasks, drain: Drain, clock: Clock) -> Self {
        let limits = SessionLimits {
            max: settings.sessions_max,
            per_principal_max: settings.sessions_per_principal_max,
            idle: settings.session_idle,
            replay: settings.replay,
        };
        let pause = (settings.session_idle / 4).clamp(Duration::from_millis(10), REAP_PAUSE_MAX);
        let sessions = SessionStore::new(limits, clock.clone());
        let connections = Seats::new(settings.connections_max, usize::MAX);
        let orphans = Seats::new(ORPHANS_MAX, ORPHANS_MAX);
        let bodies = Seats::new(settings.bodies_bytes_max, usize::MAX);
        let limits = ParkedLimits {
            max: settings.parked_max,
            per_principal_max: settings.parked_per_principal_max,
            time: settings.question,
            ..ParkedLimits::default()
        };
        let parked = ParkedCalls::new(limits, clock.clone(), tasks.clone(), drain.clone());
        let streams = Streams::default();
        let door = Arc::new(Door {
            settings,
            handler,
            tasks,
            drain,
            sessions,
            connections,
            orphans,
            bodies,
            parked,
            streams,
            clock,
        });
        let weak = Arc::downgrade(&door);
        door.tasks.spawn("session reaper", async move {
            let mut ticks = tokio::time::interval(pause);
            loop {
                ticks.tick().await;
                let Some(door) = weak.upgrade() else { return };
                let now = door.clock.now();
                door.sessions.reap(now);
                door.streams.reap(now, door.settings.session_idle);
            }
        });
        Self(door)
    }

    /// Serves a listener until the drain begins; its connections go on as tasks that the drain waits for.
    pub async fn serve(&self, listener: Listener) {
        let reach = if listener.is_local() { Reach::Loopback } else { Reach::Network };
        loop {
            let connection = tokio::select! {
                biased;
                () = self.0.drain.started() => return,
                connection = listener.accept() => connection,
            };
            let door = Arc::clone(&self.0);
            let guard = self.0.drain.guard();
            self.0.tasks.spawn("client connection", async move {
                door.connection(connection, reach).await;
                drop(guard);
            });
        }
    }

    /// Returns what both doors share.
    pub(super) const fn door(&self) -> &Arc<Door<H>> {
        &self.0
    }

    /// Says how many legacy sessions are open.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.0.sessions.len()
    }

    /// Says how many calls wait for their clients' answers.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.0.parked.len()
    }

    /// Ends the legacy sessions that `keeps` does not keep, with what they have in flight; returns how many [CFG-4].
    pub fn retain_sessions(&self, keeps: impl Fn(&PrincipalId, &Endpoint) -> bool) -> usize {
        let ended = self.0.sessions.retain(&keeps);
        self.0.parked.retain(|principal| keeps(principal, &Endpoint::All));
        self.0.streams.retain_of(keeps);
        ended
    }

    /// Ends all legacy sessions with what they have in flight: the last step of a drain.
    pub fn close_sessions(&self) {
        self.0.sessions.clear();
        self.0.streams.retain_of(|_, _| false);
    }
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Judges a request and answers it; the connection it came on is then on an account, or ends with the answer.
    pub(super) async fn serve<B>(
        self: &Arc<Self>,
        request: Request<B>,
        reach: Reach,
        account: &Account,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (Parts { method: verb, uri, version, headers, .. }, body) = request.into_parts();
        let headers = Headers::new(headers);
        let mut seen = Seen { principal: None, method: verb_label(&verb) };
        let allowed = origin::check((&uri, version, &headers), reach, &self.settings);
        let mut response = match allowed {
            Ok(None) => self.route((verb, &uri, headers), body, (account, &mut seen)).await,
            Ok(Some(origin)) => with_cors(self.route((verb, &uri, headers), body, (account, &mut seen)).await, origin),
            Err(foreign) => seen.refuse(foreign.refusal(&uri, &headers)),
        };
        if account.is_over(&self.connections) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.settings.access == AccessLog::On {
            let principal = seen.principal.as_ref().map_or("-", PrincipalId::as_str);
            let status = response.status().as_u16();
            access_line(principal, seen.method, status);
        }
        response
    }

    async fn route<B>(
        self: &Arc<Self>,
        (verb, uri, headers): (Verb, &Uri, Headers),
        body: B,
        (account, seen): (&Account, &mut Seen),
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (transport, endpoint) = match route(uri.path(), &self.settings.public_path, self.settings.http_sse) {
            Route::Endpoint(transport, endpoint) => (transport, Some(endpoint)),
            Route::NoServer => (Transport::Streamable, None),
            Route::Unknown => return seen.refuse(Fault::NotFound),
        };
        if verb == Verb::OPTIONS {
            return preflight(headers.all(), transport.verbs());
        }
        let caller = match self.handler.identify(&credential::read(&headers)) {
            Ok(caller) => caller,
            Err(reject) => return seen.refuse(Refusal::of_reject(reject, Era::Stateless)),
        };
        let principal = caller.principal().clone();
        seen.principal = Some(principal.clone());
        if let Err(reject) = account.charge(&self.connections, &caller) {
            return seen.refuse(Refusal::of_reject(reject, Era::Stateless));
        }
        // A server that is not granted and one that is not there are answered with the same bytes.
        let Some(endpoint) = endpoint.filter(|endpoint| *endpoint == Endpoint::All || caller.serves(endpoint)) else {
            return seen.refuse(Fault::NotFound);
        };
        // What is taken away is not counted, so that it always can be.
        let counts = matches!(verb, Verb::GET | Verb::POST);
        let over = if counts { self.handler.admit(&caller).err() } else { None };
        let take = Take::read(&headers);
        let mut visit = Visit { caller, principal, endpoint, headers, take, method: seen.method };
        if let Some(reject) = over {
            let taken = match verb {
                Verb::POST => Box::pin(self.over_rate(transport, &mut visit, uri.query(), body)).await,
                _ => None,
            };
            return taken.unwrap_or_else(|| seen.refuse(Refusal::of_reject(reject, Era::Stateless)));
        }
        let response = match (transport, verb) {
            (Transport::Streamable, Verb::POST) => self.post(&mut visit, body).await,
            (Transport::Streamable, Verb::GET) => self.get(&visit).await,
            (Transport::Streamable, Verb::DELETE) => self.delete(&visit),
            (Transport::HttpSse, Verb::GET) => self.open_stream(&visit),
            // In a box, so that the calls of the other transport do not carry its room.
            (Transport::HttpSse, Verb::POST) => Box::pin(self.post_to_stream(&mut visit, uri.query(), body)).await,
            (Transport::HttpSse | Transport::Streamable, _) => visit.refuse(Fault::Verb(transport.verbs()), None),
        };
        seen.method = visit.method;
        spare(visit.headers.into_map());
        response
    }
}

// === impl Seen ===

impl Seen {
    fn refuse(&self, refusal: impl Into<Refusal>) -> Response<Body> {
        let refusal = refusal.into();
        log_refusal(&refusal, self.principal.as_ref(), self.method);
        refusal.respond(None)
    }
}

fn verb_label(verb: &Verb) -> &'static str {
    match *verb {
        Verb::POST => "POST",
        Verb::GET => "GET",
        Verb::DELETE => "DELETE",
        Verb::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Answers OPTIONS; the origin, if any, has been found allowed [R30, FC-HTP-13].
fn preflight(headers: &HeaderMap, verbs: &'static str) -> Response<Body> {
    const HEADERS: &str = "Authorization, Content-Type, Accept, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, \
                           Mcp-Name, Mcp-Session-Id, X-Api-Key";
    let mut allowed = HEADERS.to_owned();
    for line in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        for asked in line.to_str().unwrap_or_default().split(',').map(str::trim) {
            if asked.to_ascii_lowercase().starts_with(name::PARAM_PREFIX) {
                allowed.push_str(", ");
                allowed.push_str(asked);
            }
        }
    }
    let mut response = bare(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    out.insert(ALLOW, HeaderValue::from_static(verbs));
    if headers.contains_key(http::header::ORIGIN) {
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(verbs));
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        let allowed = HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static(HEADERS));
        out.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}

fn with_cors(mut response: Response<Body>, origin: HeaderValue) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("Mcp-Session-Id, Retry-After, WWW-Authenticate"),
    );
    headers.append(VARY, HeaderValue::from_static("Origin"));
    response
}
