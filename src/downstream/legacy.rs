//! Requests of a legacy session: 2024-11-05 to 2025-11-25 [R35-R46].
//!
//! Invariants: a method's error is never a 404 here [R39]; a call outlives its connection [R45].

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use http::{Response, StatusCode};

use crate::exchange::{Aside, Call, Event, Exchange, Handler, Listen, Reject, Reply, ReplyBody, ServerCall};
use crate::session::Session;
use crate::wire::json;
use crate::wire::jsonrpc::{Message, Notification, Params, Request, RequestId};
use crate::wire::mcp::{Era, Feature, Kind, Kinds, Level, Method, ProtocolVersion, RequestMeta};

use super::answer::{Asker, Log, Rendered, invalid};
use super::body::Body;
use super::headers::{Known, Single};
use super::post::{Visit, label};
use super::respond::{Fault, Refusal, bare};
use super::resume::priming;
use super::running::Running;
use super::server::Door;
use super::stateless::{call_params, cursor_of};

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Alone.
    Alone,
    /// In a batch, whose answer is one array.
    Batch,
}

/// What became of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "the large form is the common one, and a box would be one more allocation"
)]
pub(super) enum Begun {
    /// It is answered.
    Answered(Rendered),
    /// The hall has it.
    Calling(Running, Asker),
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a message of a legacy session.
    pub(super) async fn legacy(&self, visit: &Visit<H::Caller>, message: Message, meta: RequestMeta) -> Response<Body> {
        let session = match self.session(visit) {
            Ok(session) => session,
            Err(fault) => {
                return visit.refuse(
                    fault,
                    match message {
                        Message::Request(request) => Some(request.id),
                        Message::Notification(_) | Message::Response(_) => None,
                    },
                );
            }
        };
        let take = visit.take.in_session();
        match message {
            Message::Request(request) => match self.begin(visit, &session, (request, meta), Form::Alone) {
                Begun::Answered(rendered) => rendered.respond(take, Vec::new()),
                Begun::Calling(running, asker) => self.answer(running, asker, take, Some(&session)).await,
            },
            Message::Notification(notification) => {
                note(&session, &notification);
                bare(StatusCode::ACCEPTED)
            }
            Message::Response(response) => {
                session.answer(&response);
                bare(StatusCode::ACCEPTED)
            }
        }
    }

    /// Finds the session that the headers name.
    ///
    /// # Errors
    /// [`Fault`]: no id, not found, or a version no legacy session speaks.
    pub(super) fn session(&self, visit: &Visit<H::Caller>) -> Result<Arc<Session>, Fault> {
        let id = match visit.headers.text(Known::SessionId) {
            Single::Value(id) if !id.is_empty() => id,
            Single::Absent | Single::Value(_) => return Err(Fault::SessionMissing),
            Single::Bad => return Err(Fault::NotMessage("Mcp-Session-Id must come once, in visible ASCII".to_owned())),
        };
        let session = self.sessions.get(id, &visit.principal, &visit.endpoint).ok_or(Fault::SessionUnknown)?;
        match visit.headers.text(Known::ProtocolVersion) {
            Single::Absent => Ok(session),
            Single::Value(version)
                if ProtocolVersion::from_text(version).is_some_and(|version| version.era() == Era::Legacy) =>
            {
                Ok(session)
            }
            Single::Bad | Single::Value(_) => Err(Fault::LegacyVersion),
        }
    }

    /// Begins a request of a session.
    pub(super) fn begin(
        &self,
        visit: &Visit<H::Caller>,
        session: &Arc<Session>,
        (request, meta): (Request, RequestMeta),
        form: Form,
    ) -> Begun {
        let method = label(&request.method);
        let log = session.log().map_or(Log::All, Log::From);
        let asker =
            Asker { version: session.client.version, method, log, ..visit.legacy_asker(Some(request.id.clone())) };
        match self.call_of(visit, session, request, meta) {
            Ok(Some(call)) => self.dispatch_legacy(visit, session, (call, form), asker),
            Ok(None) => Begun::Answered(match &asker.id {
                Some(id) => Rendered::result(id, "{}"),
                None => asker.refuse(Fault::Method.into()),
            }),
            Err(refusal) => Begun::Answered(asker.refuse(refusal)),
        }
    }

    /// Reads what is asked; `None` for what needs no hall: a ping, the end of a watch, a level of
    /// logs, which is the session's own.
    fn call_of(
        &self,
        visit: &Visit<H::Caller>,
        session: &Session,
        request: Request,
        meta: RequestMeta,
    ) -> Result<Option<Call>, Refusal> {
        let rejected = |reject| Refusal::of_reject(reject, Era::Legacy);
        let call = match Method::from_name(&request.method) {
            Some(Method::Ping) => return Ok(None),
            Some(Method::LoggingSetLevel) => {
                let level = request.params.as_deref().and_then(|params| params.get("level").ok().flatten());
                let level = level.and_then(|level| Level::of_text(level.get()));
                session.set_log(level.ok_or_else(|| rejected(invalid("'level' names no level")))?);
                return Ok(None);
            }
            Some(
                method @ (Method::PromptsList
                | Method::ResourcesList
                | Method::ResourcesTemplatesList
                | Method::ToolsList),
            ) => {
                let kind = method.spec().lists.unwrap_or(Kind::Tools);
                let cursor = cursor_of(request.params.as_deref()).map_err(rejected)?;
                Call::List { kind, cursor, told: session.told.clone() }
            }
            Some(
                method @ (Method::CompletionComplete | Method::PromptsGet | Method::ResourcesRead | Method::ToolsCall),
            ) => {
                let params = call_params(method, &request).map_err(|(_, words)| rejected(invalid(words)))?;
                let trace = visit.trace(&meta);
                Call::ToServer(Arc::new(ServerCall { request, params, meta, param_headers: None, trace }))
            }
            Some(Method::ResourcesSubscribe) => {
                let (uri, watching) = (uri_of(request.params.as_deref()).map_err(rejected)?, session.watching.clone());
                Call::Watch { uri, watching }
            }
            Some(Method::ResourcesUnsubscribe) => {
                // What is not watched any more is as it was asked for.
                session.watching.end(&uri_of(request.params.as_deref()).map_err(rejected)?);
                return Ok(None);
            }
            Some(Method::Discover | Method::Initialize | Method::SubscriptionsListen) | None => {
                return Err(Refusal { status: StatusCode::OK, ..Fault::Method.into() });
            }
        };
        if self.drain.is_draining() { Err(Fault::Draining.into()) } else { Ok(Some(call)) }
    }

    fn dispatch_legacy(
        &self,
        visit: &Visit<H::Caller>,
        session: &Arc<Session>,
        (call, form): (Call, Form),
        asker: Asker,
    ) -> Begun {
        let Some(guard) = asker.id.as_ref().and_then(|id| session.begin(id)) else {
            return Begun::Answered(asker.refuse(Fault::DuplicateId.into()));
        };
        let survives = match &call {
            Call::ToServer(call) => Some(Arc::clone(call)),
            Call::Discover | Call::List { .. } | Call::Listen(_) | Call::Watch { .. } => None,
        };
        let exchange =
            Exchange { endpoint: visit.endpoint.clone(), client: session.facts(), owner: session.owner(), call };
        let running = self.call_of_session(visit, session, exchange, form).in_session(guard, self.drain.guard());
        let running = match survives {
            Some(call) => running.surviving(self.survive(visit), call),
            None => running,
        };
        Begun::Calling(running, asker)
    }

    /// Answers a GET: a stream that its client comes back to [R43], or the session's stream of list changes, of which the
    /// newest wins [FC-SES-06].
    pub(super) async fn get(&self, visit: &Visit<H::Caller>) -> Response<Body> {
        if visit.headers.text(Known::SessionId) == Single::Absent {
            return visit.refuse(Fault::Verb("POST"), None);
        }
        let session = match self.session(visit) {
            Ok(session) => session,
            Err(fault) => return visit.refuse(fault, None),
        };
        if !visit.take.events() {
            return visit.refuse(Fault::NotAcceptable, None);
        }
        match visit.headers.text(Known::LastEventId) {
            Single::Value(event_id) if !event_id.is_empty() && priming(session.client.version).is_some() => {
                return self.resume(visit, &session, event_id);
            }
            Single::Bad => return visit.refuse(Fault::EventUnknown, None),
            Single::Absent | Single::Value(_) => {}
        }
        if self.drain.is_draining() {
            return visit.refuse(Fault::Draining, None);
        }
        let running = self.hear_changes(visit, &session);
        self.stream(running, visit.legacy_asker(None), None).await
    }

    /// Opens the session's stream of list changes; it ends with the session, the drain, or a newer one.
    pub(super) fn hear_changes(&self, visit: &Visit<H::Caller>, session: &Arc<Session>) -> Running {
        let guard = session.open_stream();
        let exchange = Exchange {
            endpoint: visit.endpoint.clone(),
            client: session.client.clone(),
            owner: session.owner(),
            call: Call::Listen(Listen {
                kinds: Kinds::ALL,
                told: session.told.clone(),
                own: false,
                resources: Vec::new(),
                watching: session.watching.clone(),
            }),
        };
        let (drain, token) = (self.drain.clone(), guard.token().clone());
        let (reply, aside) = (self.handler.call(visit.caller.clone(), exchange), Arc::clone(&session.aside));
        Running::new(Box::pin(async move { beside(reply.await, aside) }))
            .stopped_when(async move {
                tokio::select! {
                    () = drain.started() => {}
                    () = token.cancelled() => {}
                }
            })
            .holding(guard)
    }

    /// Answers a DELETE: the session ends with all it has in flight [R38].
    pub(super) fn delete(&self, visit: &Visit<H::Caller>) -> Response<Body> {
        if visit.headers.text(Known::SessionId) == Single::Absent && is_stateless_version(visit) {
            return visit.refuse(Fault::Verb("POST"), None);
        }
        match self.session(visit) {
            Ok(session) => {
                self.sessions.remove(&session);
                bare(StatusCode::OK)
            }
            Err(fault) => visit.refuse(fault, None),
        }
    }
}

/// Lets what servers say beside the calls join the events of the session's stream.
fn beside(reply: Reply, aside: Arc<Aside>) -> Reply {
    let (body, guards) = reply.into_parts();
    let reply = match body {
        ReplyBody::Done(outcome) => Reply::done(outcome),
        ReplyBody::Events(events) => {
            Reply::events(Box::pin(stream::unfold((events, aside), async |(mut events, aside)| {
                tokio::select! {
                    biased;
                    event = events.next() => Some((event?, (events, aside))),
                    message = aside.said() => Some((Event::Said(message), (events, aside))),
                }
            })))
        }
    };
    reply.with_guards(guards)
}

fn is_stateless_version<C>(visit: &Visit<C>) -> bool {
    matches!(visit.headers.text(Known::ProtocolVersion), Single::Value(version)
        if ProtocolVersion::from_text(version).is_some_and(|version| version.era() == Era::Stateless))
}

/// Reads the URI that a resource is watched by.
fn uri_of(params: Option<&Params>) -> Result<String, Reject> {
    let uri = params.and_then(|params| json::text(params.get("uri").ok()??));
    uri.map(std::borrow::Cow::into_owned).ok_or_else(|| invalid("'uri' must name a resource"))
}

/// Takes note of a notification; what is not known is dropped.
pub(super) fn note(session: &Session, notification: &Notification) {
    if notification.method == "notifications/cancelled"
        && let Some(id) = cancelled_id(notification.params.as_deref())
    {
        session.cancel(&id);
    }
    if notification.method == "notifications/roots/list_changed"
        && session.client.features.contains(Feature::RootsChanged)
    {
        session.aside.roots_changed();
    }
}

/// Reads which request a `notifications/cancelled` means.
pub(super) fn cancelled_id(params: Option<&Params>) -> Option<RequestId> {
    RequestId::from_raw(params?.slice("requestId").ok()??)
}
