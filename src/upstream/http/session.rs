//! One legacy session: its headers, its loss and renewal, cancelling, and its end.
//!
//! Not for: finding out the era. Invariants: no request before the handshake is acknowledged; a lost session is renewed
//! once for all who noticed; a request that was refused is sent at most once more.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::exchange::{OwnerKey, Question, Reject, Reply, Responder};
use crate::net::Response as HttpResponse;
use crate::runtime::Tasks;
use crate::upstream::link::{BoxFuture, Left, Link, LinkState, Outgoing, ROOTS_CHANGED, StartError};
use crate::upstream::question::{self, ANSWERS_BYTES_MAX, Room, Taken, Verdict};
use crate::wire::jsonrpc::{ErrorCode, ErrorObject, Message, Notification, Request, RequestId, code};
use crate::wire::mcp::{Era, Feature, Features, InputKind, Kinds, ProtocolVersion, name};

use super::call::{Call, Peer, Replied, unseen};
use super::questions::Questions;
use super::target::{Answered, Content, Target, Verb};
use super::{listen, probe};

/// How long what nobody waits for may take: an answer to a server's request, a cancel, a DELETE.
const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a renewal may take, whoever waits for it.
const RENEW_TIMEOUT: Duration = Duration::from_secs(30);
/// How many answers of the gateway's own to a server's requests may be on their way; with those of clients, whose number their
/// questions bound, they may have [`ANSWERS_BYTES_MAX`].
const ANSWERS_MAX: usize = 16;
/// How long the first call waits until it is known whether there is a stream beside the calls.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request that has none.
const NOTHING: Bytes = Bytes::new();

/// What the handshake agreed on.
#[derive(Debug)]
pub(super) struct Session {
    /// Counts the sessions of one link.
    pub(super) generation: u64,
    /// The session's id, if the server gives one.
    pub(super) id: Option<HeaderValue>,
    /// The negotiated version.
    version: HeaderValue,
    posting: Vec<u8>,
}

/// The link of one legacy session.
#[derive(Debug)]
pub(super) struct SessionLink {
    target: Arc<Target>,
    tasks: Tasks,
    session: ArcSwap<Session>,
    /// Held while the session is renewed.
    renewal: tokio::sync::Mutex<()>,
    /// Counts the renewals that have failed.
    failed: AtomicU64,
    ids: AtomicU64,
    state: LinkState,
    /// Cancelled when the server has answered the DELETE, or was not asked.
    deleted: OnceLock<CancellationToken>,
    answers: Arc<Semaphore>,
    answers_bytes: Arc<Semaphore>,
    /// What the session was opened with: what its client can be asked.
    features: Features,
    pub(super) questions: Arc<Questions>,
    /// Bounds the questions that are out.
    asking: Arc<Room>,
    /// Cancelled when it is known whether the session has a stream beside its calls.
    pub(super) listening: CancellationToken,
    /// That stream was asked for.
    streams: AtomicBool,
}

/// Cancels a request when it is dropped before the request has ended.
#[derive(Debug)]
pub(super) struct CancelGuard {
    link: Arc<SessionLink>,
    session: Arc<Session>,
    id: u64,
    armed: bool,
}

/// What came of sending a request.
enum Sent {
    /// The server no longer knows the session; what it said, and the request.
    Lost(Answered, Box<Call>),
    Reply(Reply),
}

// === impl Session ===

impl Session {
    /// Takes note of what a handshake with `target` agreed on.
    pub(super) fn new(target: &Target, generation: u64, id: Option<HeaderValue>, version: ProtocolVersion) -> Self {
        let version = HeaderValue::from_static(version.as_str());
        let mut new = Self { generation, id, version, posting: Vec::new() };
        new.posting = new.head(target, Verb::Post, None);
        new
    }

    /// The head of a POST on this session (FC-SES-07).
    pub(super) fn posting(&self) -> &[u8] {
        &self.posting
    }

    fn head(&self, target: &Target, verb: Verb, last_event_id: Option<HeaderValue>) -> Vec<u8> {
        let mut lines = vec![(name::PROTOCOL_VERSION, self.version.clone())];
        lines.extend(self.id.clone().map(|id| (name::SESSION_ID, id)));
        lines.extend(last_event_id.map(|id| (name::LAST_EVENT_ID, id)));
        target.head(verb, &lines)
    }

    /// Ends the session at the server; its answer does not matter (FC-HTP-17). The token is cancelled when that is done.
    pub(super) fn spawn_delete(&self, target: &Arc<Target>, tasks: &Tasks) -> CancellationToken {
        let done = CancellationToken::new();
        if self.id.is_none() {
            done.cancel();
            return done;
        }
        let guard = done.clone().drop_guard();
        let head = self.head(target, Verb::Delete, None);
        let target = Arc::clone(target);
        tasks.spawn("http session end", async move {
            let sent = tokio::time::timeout(ASIDE_TIMEOUT, target.send(&head, &NOTHING)).await;
            let status = sent.ok().and_then(Result::ok).map(|response| response.status.as_u16());
            tracing::debug!(server = %target.name, status, "session ended");
            drop(guard);
        });
        done
    }
}

// === impl SessionLink ===

impl SessionLink {
    /// Makes the link of a session of one holder, or of one that is `shared` by all who are granted the server.
    pub(super) fn new(
        target: Arc<Target>,
        tasks: Tasks,
        session: Session,
        (features, shared): (Features, bool),
    ) -> Self {
        Self {
            target,
            tasks,
            session: ArcSwap::from_pointee(session),
            renewal: tokio::sync::Mutex::new(()),
            failed: AtomicU64::new(0),
            ids: AtomicU64::new(2),
            state: LinkState::default(),
            deleted: OnceLock::new(),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            answers_bytes: Arc::new(Semaphore::new(ANSWERS_BYTES_MAX)),
            features,
            questions: Questions::new(shared),
            asking: Room::of_connection(),
            listening: CancellationToken::new(),
            streams: AtomicBool::new(false),
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn current(&self) -> Arc<Session> {
        self.session.load_full()
    }

    /// Opens or resumes a stream.
    pub(super) async fn get(&self, session: &Session, last_id: Option<&str>) -> Result<HttpResponse, Reject> {
        let last_id = last_id.and_then(|last_id| HeaderValue::from_str(last_id).ok());
        self.target.send(&session.head(&self.target, Verb::Get, last_id), &NOTHING).await
    }

    /// Takes a request of the server that came on a call's own stream: what its client is asked, if anything.
    pub(super) fn serve(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Request,
        asked: Option<(Features, &Arc<Room>)>,
    ) -> Option<Question> {
        let features = asked.map(|(features, _)| features.and(self.features));
        let response = match (question::hear(request, features), asked) {
            (Verdict::Answer(response), _) => *response,
            // Without a call there are no features, and nothing is asked.
            (Verdict::Ask(..), None) => return None,
            (Verdict::Ask(kind, params), Some((_, room))) => {
                match room.take(request).and_then(|ours| Ok((ours, self.asking.take(request)?))) {
                    Ok(taken) => return Some(self.question(session, request.id.clone(), (kind, params), taken)),
                    Err(full) => question::too_many(request, full),
                }
            }
        };
        match (Arc::clone(&self.answers).try_acquire_owned(), self.answer_room(&response.raw)) {
            (Ok(permit), Some(room)) => self.spawn_post("http answer", session, response.raw, (permit, room)),
            (Err(_), _) | (_, None) => {
                tracing::warn!(server = %self.target.name, "too many requests of the server at once; one is dropped");
            }
        }
        None
    }

    /// Takes a request that came beside the calls: it belongs to the only one in flight, or to none [R100].
    pub(super) fn serve_beside(self: &Arc<Self>, session: &Arc<Session>, request: &Request) {
        let call = self.questions.only_call();
        let question = self.serve(session, request, call.as_ref().map(|call| (call.features, &call.room)));
        if let (Some(question), Some(call)) = (question, call)
            && call.sender.try_send(question).is_err()
        {
            tracing::debug!(server = %self.target.name, "a question came too late, or one too many; it is refused");
        }
    }

    /// The server takes a question back.
    pub(super) fn withdraw(&self, notification: &Notification) {
        if let Some(id) = question::taken_back(notification) {
            self.questions.withdraw(&id);
        }
    }

    fn question(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: RequestId,
        (kind, params): (InputKind, Bytes),
        taken: (Taken, Taken),
    ) -> Question {
        let (link, session, asked) = (Arc::clone(self), Arc::clone(session), id.clone());
        let responder = Responder::new(move |settled| {
            link.questions.over(&asked);
            let told = question::told(&asked, &settled).raw;
            // What stands for an answer without room is small, and its question has its place.
            let room = link.answer_room(&told);
            let told = if room.is_some() { told } else { question::no_room(&asked).raw };
            link.spawn_post("http answer", &session, told, (taken, room));
        });
        self.questions.opened(id, responder.asked());
        Question { kind, params, responder }
    }

    /// Opens the stream beside the calls, and waits until it is there or known not to be: what a server asks there before
    /// would be lost.
    pub(super) async fn listen_beside(self: &Arc<Self>) {
        Arc::clone(self).watch(Kinds::NONE);
        if tokio::time::timeout(LISTEN_TIMEOUT, self.listening.cancelled()).await.is_err() {
            tracing::debug!(server = %self.target.name, "the session's stream is not answered yet");
        }
    }

    /// Makes room for an answer among those on their way; one that is larger than all of it has to be alone.
    fn answer_room(&self, body: &Bytes) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(body.len().min(ANSWERS_BYTES_MAX)).ok()?;
        Arc::clone(&self.answers_bytes).try_acquire_many_owned(bytes).ok()
    }

    fn spawn_post(&self, task: &'static str, session: &Arc<Session>, body: Bytes, held: impl Send + 'static) {
        let (session, target) = (Arc::clone(session), Arc::clone(&self.target));
        self.tasks.spawn(task, async move {
            match tokio::time::timeout(ASIDE_TIMEOUT, target.send(session.posting(), &body)).await {
                Ok(Ok(_)) => {}
                Ok(Err(reject)) => tracing::debug!(server = %target.name, task, "{}", reject.detail),
                Err(_) => tracing::debug!(server = %target.name, task, "not acknowledged in time"),
            }
            drop(held);
        });
    }

    async fn run(self: Arc<Self>, outgoing: Outgoing) -> Reply {
        let session = self.current();
        let failed = self.failed.load(Ordering::Acquire);
        let (answered, call) = match self.send(Arc::clone(&session), outgoing).await {
            Sent::Reply(reply) => return reply,
            Sent::Lost(answered, call) => (answered, call),
        };
        // Boxed, so that other calls do not carry its room.
        Box::pin(self.again(session.generation, failed, answered, call)).await
    }

    /// Sends a request whose session was lost on a new one.
    async fn again(self: Arc<Self>, lost: u64, failed: u64, answered: Answered, call: Box<Call>) -> Reply {
        let Some(renewed) = self.renew(lost, failed).await else {
            return call.reply(answered).known().await;
        };
        match self.send(renewed, call.take_back()).await {
            Sent::Reply(reply) => reply,
            Sent::Lost(answered, call) => call.reply(answered).known().await,
        }
    }

    async fn send(self: &Arc<Self>, session: Arc<Session>, outgoing: Outgoing) -> Sent {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let body = outgoing.render(id, Era::Legacy);
        let guard = CancelGuard { link: Arc::clone(self), session: Arc::clone(&session), id, armed: true };
        let unseen = unseen(&outgoing, &self.target, Era::Legacy).then_some(id);
        let head = self.head(&session, &outgoing);
        let mut call = Call::new(Peer::Session(Arc::clone(self), Arc::clone(&session), guard), outgoing, id);
        match self.target.ask(&head, &body, unseen).await {
            Ok(answered) if session.id.is_some() && is_session_loss(&answered) => {
                call.finish();
                Sent::Lost(answered, Box::new(call))
            }
            Ok(answered) => match call.reply(answered) {
                Replied::Now(reply) => Sent::Reply(reply),
                Replied::Later(reply) => Sent::Reply(reply.await),
            },
            Err(reject) => Sent::Reply(call.refuse(reject)),
        }
    }

    /// The head of a POST, with the headers of a trace where there is one.
    fn head<'a>(&self, session: &'a Session, outgoing: &Outgoing) -> Cow<'a, [u8]> {
        match outgoing {
            Outgoing::Call(call) if call.trace.is_some() => {
                let mut head = session.posting().to_vec();
                self.target.add_trace(&mut head, call);
                Cow::Owned(head)
            }
            Outgoing::Call(_) | Outgoing::Own { .. } => Cow::Borrowed(session.posting()),
        }
    }

    /// Opens another session in place of one that the server does not know any more, if nobody else has [R58].
    pub(super) async fn renew_lost(&self, session: &Session) {
        if session.id.is_some() {
            let failed = self.failed.load(Ordering::Acquire);
            drop(self.renew(session.generation, failed).await);
        }
    }

    /// Returns a session newer than `lost`: made here, or by another call meanwhile (FC-SES-01).
    async fn renew(&self, lost: u64, failed_before: u64) -> Option<Arc<Session>> {
        let _one_at_a_time = self.renewal.lock().await;
        let current = self.current();
        if current.generation != lost {
            return Some(current);
        }
        if self.failed.load(Ordering::Acquire) != failed_before || self.state.closed.is_cancelled() {
            return None;
        }
        tracing::info!(server = %self.target.name, "the server has lost the session; opening another");
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let opened = tokio::time::timeout(
            RENEW_TIMEOUT,
            probe::initialize(&self.target, &self.tasks, (id, lost + 1), self.features),
        )
        .await;
        let late = |_| Err(StartError::Failed("initialize was not answered in time".to_owned()).into());
        match opened.unwrap_or_else(late).map_err(|refusal| refusal.err) {
            Ok((session, _)) => {
                self.session.store(Arc::new(session));
                self.state.loudness.forget();
                self.state.heard.lost();
                if self.state.closed.is_cancelled() {
                    drop(self.current().spawn_delete(&self.target, &self.tasks));
                }
                self.state.missed();
                Some(self.current())
            }
            Err(err) => {
                self.failed.fetch_add(1, Ordering::AcqRel);
                let words = format!("the session was lost and could not be opened again: {err}");
                self.state.ended(words);
                self.state.closed.cancel();
                None
            }
        }
    }
}

/// Says whether an answer to a request with a session id means that the server does not know the session. A 404 of an
/// unknown method does not.
fn is_session_loss(answered: &Answered) -> bool {
    const REFUSALS: [ErrorCode; 3] = [ErrorCode(-32000), ErrorCode(-32001), code::INVALID_REQUEST];
    let found = match &answered.content {
        Content::Foreign(_) => None,
        Content::Messages(all) => all.iter().find_map(|message| match message {
            Message::Response(response) => response.error().map(|error| ErrorObject::read(&error).code),
            Message::Request(_) | Message::Notification(_) => None,
        }),
        Content::Stream(_) | Content::Unseen(_) => return false,
    };
    match answered.status {
        StatusCode::NOT_FOUND => found != Some(code::METHOD_NOT_FOUND),
        StatusCode::BAD_REQUEST => found.is_none_or(|code| REFUSALS.contains(&code)),
        _ => false,
    }
}

impl Link for SessionLink {
    fn era(&self) -> Era {
        Era::Legacy
    }

    fn state(&self) -> &LinkState {
        &self.state
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        match &outgoing {
            Outgoing::Call(call) if self.features.may_be_asked() => {
                let asking = self.questions.enter(call.owner.key.clone(), call.client.features);
                Box::pin(asking.join(Box::pin(self.run(outgoing))))
            }
            Outgoing::Call(_) | Outgoing::Own { .. } => Box::pin(self.run(outgoing)),
        }
    }

    fn watch(self: Arc<Self>, _: Kinds) {
        if !self.streams.swap(true, Ordering::AcqRel) {
            self.tasks.clone().spawn("http session stream", listen::session(self));
        }
    }

    fn left_behind(&self, owner: &OwnerKey) -> Left {
        self.questions.left_behind(owner)
    }

    fn roots_changed(self: Arc<Self>) {
        if self.features.contains(Feature::RootsChanged) {
            self.spawn_post("http roots", &self.current(), ROOTS_CHANGED, ());
        }
    }

    fn close(&self) {
        if !self.state.closed.is_cancelled() {
            let done = self.current().spawn_delete(&self.target, &self.tasks);
            self.deleted.get_or_init(|| done);
            self.state.closed.cancel();
        }
    }

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            self.state.closed.cancelled().await;
            if let Some(deleted) = self.deleted.get() {
                deleted.cancelled().await;
            }
        })
    }
}

// === impl CancelGuard ===

impl CancelGuard {
    pub(super) const fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if self.armed {
            let body = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
                self.id
            );
            self.link.spawn_post("http cancel", &self.session, Bytes::from(body), ());
        }
    }
}
