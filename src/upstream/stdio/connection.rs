//! One child's conversation: requests out, answers in, each to its caller.
//!
//! Not for: starting and ending the child (`child`) or the handshake (`handshake`). Invariants: one task writes, whole
//! lines only; nothing is answered that is no request of a legacy server [R68]; memory is bounded by the caps.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::exchange::{Answer, Asked, Event, Outcome, Question, Reject, RejectKind, Reply, Responder};
use crate::net::{Ends, Frame, LineReader};
use crate::upstream::heard::Heard;
use crate::upstream::link::{Changes, Outgoing};
use crate::upstream::loudness::Loudness;
use crate::upstream::place::Place;
use crate::upstream::question::{self, Verdict};
use crate::upstream::{Isolation, ServerSettings};
use crate::wire::jsonrpc::{
    DecodeError, DecodeErrorKind, Decoded, Limits, Message, Notification, Request, RequestId, decode, one_line, trimmed,
};
use crate::wire::mcp::{Era, Features, InputKind};

use super::child::Ending;
use super::framing::{Whose, in_head, whose};
use super::output::Output;
use super::pending::{Abandoned, Slot, Table};

/// How many requests wait to be written; when full, the next waits.
pub(super) const LINES_MAX: usize = 16;
/// How many cancellations and answers wait to be written; when full, the next is dropped and counted.
const CONTROL_MAX: usize = 1024;
/// How many questions of the server may be out at clients.
const QUESTIONS_MAX: usize = 64;

/// A line to write.
#[derive(Debug)]
pub(super) struct Line {
    /// The request's id; it is not written once nobody waits for it.
    id: Option<u64>,
    text: Bytes,
}

/// What was dropped.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Lines that are no JSON-RPC message.
    pub(super) noise: AtomicU64,
    /// Answers to nothing that waits: late, or made up.
    pub(super) answers: AtomicU64,
    /// Progress for nobody, or out of order.
    pub(super) progress: AtomicU64,
    /// Requests of a stateless server, which may send none.
    pub(super) violations: AtomicU64,
    /// Other notifications, and answers of ours that found no room.
    pub(super) others: AtomicU64,
}

/// The state of one connection, shared by its tasks and its callers.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) settings: Arc<ServerSettings>,
    pub(super) output: Arc<Output>,
    pub(super) counts: Counts,
    pub(super) table: Table,
    /// What was declared at the handshake: what the client can be asked.
    features: Features,
    /// Questions that are out.
    questions: Mutex<HashMap<RequestId, Asked>>,
    pub(super) changes: watch::Sender<Changes>,
    pub(super) loudness: Loudness,
    pub(super) heard: Arc<Heard>,
    /// Asks for an orderly end.
    pub(super) stop: CancellationToken,
    /// Asks for the end at once.
    pub(super) kill: CancellationToken,
    /// The child's stdout has ended.
    pub(super) read_end: CancellationToken,
    /// The child is dead.
    pub(super) dead: CancellationToken,
    /// The right to the child's process, while it lives.
    place: OnceLock<Weak<Place>>,
    /// No new request is taken.
    pub(super) closed: CancellationToken,
    era: OnceLock<Era>,
    /// `initialize` has been sent: the server may ping from here on.
    initializing: AtomicBool,
    lines: mpsc::Sender<Line>,
    control: Mutex<VecDeque<Bytes>>,
    control_ready: Notify,
    reason: OnceLock<String>,
    ending: OnceLock<String>,
}

/// A request that waits; dropping it before its end cancels it at the server [R107].
#[derive(Debug)]
struct Waiting {
    connection: Arc<Connection>,
    id: u64,
    slot: Arc<Slot>,
    ended: bool,
}

// === impl Connection ===

impl Connection {
    /// Makes a connection, and the queue its writer empties.
    pub(super) fn new(
        settings: Arc<ServerSettings>,
        output: Arc<Output>,
        features: Features,
    ) -> (Arc<Self>, mpsc::Receiver<Line>) {
        let (lines, queue) = mpsc::channel(LINES_MAX);
        let connection = Self {
            table: Table::new(settings.isolation() == Isolation::Shared),
            settings,
            output,
            counts: Counts::default(),
            features,
            questions: Mutex::default(),
            changes: watch::Sender::new(Changes::default()),
            loudness: Loudness::default(),
            heard: Arc::default(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            read_end: CancellationToken::new(),
            dead: CancellationToken::new(),
            place: OnceLock::new(),
            closed: CancellationToken::new(),
            era: OnceLock::new(),
            initializing: AtomicBool::new(false),
            lines,
            control: Mutex::default(),
            control_ready: Notify::new(),
            reason: OnceLock::new(),
            ending: OnceLock::new(),
        };
        (Arc::new(connection), queue)
    }

    /// Returns the era, once it is settled.
    pub(super) fn era(&self) -> Option<Era> {
        self.era.get().copied()
    }

    /// Returns what is declared at the handshake.
    pub(super) const fn features(&self) -> Features {
        self.features
    }

    /// Settles the era; the first word counts.
    pub(super) fn settle(&self, era: Era) {
        self.era.get_or_init(|| era);
    }

    /// Takes note of the child's place.
    pub(super) fn holds(&self, place: &Arc<Place>) {
        self.place.get_or_init(|| Arc::downgrade(place));
        if self.closed.is_cancelled() {
            place.leave();
        }
    }

    /// Takes no more requests; the child's place will be free.
    fn close(&self) {
        self.closed.cancel();
        if let Some(place) = self.place.get().and_then(Weak::upgrade) {
            place.leave();
        }
    }

    /// Notes that `initialize` is about to be sent.
    pub(super) fn initializing(&self) {
        self.initializing.store(true, Ordering::Release);
    }

    fn may_ask(&self) -> bool {
        self.era().map_or_else(|| self.initializing.load(Ordering::Acquire), |era| era == Era::Legacy)
    }

    /// Sends a request and waits for what arrives first.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request at the server if it was sent.
    pub(super) async fn request(self: Arc<Self>, outgoing: Outgoing, era: Era) -> Reply {
        let (id, slot) = match self.table.enter(outgoing.clone()) {
            Ok(entered) => entered,
            Err(reject) => return Reply::once(Err(reject)),
        };
        let text = one_line(outgoing.render(id, era));
        drop(outgoing);
        let mut waiting = Waiting { connection: Arc::clone(&self), id, slot, ended: false };
        // A closed queue means that the table is shut: the outcome is there, or about to be.
        if self.lines.send(Line { id: Some(id), text }).await.is_err() {
            self.table.finish(id, Err(self.reject(RejectKind::Upstream, "is not running").safe_to_retry()));
        }
        match std::future::poll_fn(|context| waiting.poll_event(context)).await {
            Event::Done(outcome) => Reply::once(self.with_era(outcome, era)),
            first @ (Event::Ask(_)
            | Event::Changed(_)
            | Event::Log(_)
            | Event::Progress(_)
            | Event::Said(_)
            | Event::Watch(_)) => {
                let rest = EventsOf { first: Some(first), waiting, era };
                Reply::events(Box::pin(rest))
            }
        }
    }

    /// Writes a notification of the gateway's own.
    pub(super) async fn notify(&self, text: &'static str) {
        if self.lines.send(Line { id: None, text: Bytes::from_static(text.as_bytes()) }).await.is_err() {
            tracing::debug!(server = %self.settings.name, "the child takes no more lines");
        }
    }

    fn with_era(&self, outcome: Outcome, era: Era) -> Outcome {
        let era = self.era().unwrap_or(era);
        outcome.map(|answer| match answer {
            Answer::Upstream { response, .. } => Answer::Upstream { response, era },
            other @ (Answer::Discovery(_)
            | Answer::Ended
            | Answer::InputRequired(_)
            | Answer::Page(_)
            | Answer::Unseen(_)) => other,
        })
    }

    /// Makes a refusal that names the server.
    pub(super) fn reject(&self, kind: RejectKind, what: &str) -> Reject {
        let public = format!("server '{}' {what}", self.settings.name);
        let detail = self.last_words().unwrap_or_else(|| public.clone());
        let public = if self.settings.show_stderr { detail.clone() } else { public };
        Reject::upstream(kind, public, detail)
    }

    /// Says how the child ended, with its last output.
    pub(super) fn last_words(&self) -> Option<String> {
        self.ending.get().cloned()
    }

    /// Says why the connection is ended from here, where it is.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Begins the orderly end: what runs may finish, nothing new is taken.
    pub(super) fn stop(&self) {
        self.table.shut(&self.reject(RejectKind::Upstream, "is being stopped"));
        self.close();
        self.stop.cancel();
    }

    /// Fails what waits and begins the orderly end.
    pub(super) fn fail(&self, why: &str) {
        self.reason.get_or_init(|| why.to_owned());
        let reject = self.reject(RejectKind::Upstream, why);
        self.table.shut(&reject);
        self.table.fail_all(&reject);
        self.stop();
    }

    /// Takes note of the child's death. Only the first word counts.
    pub(super) fn died(&self, ending: Ending) {
        let mut words = format!("server '{}' {ending}", self.settings.name);
        if let Some(reason) = self.reason.get() {
            words = format!("{words} after it {reason}");
        }
        let tail = self.output.tail();
        if !tail.is_empty() {
            words = format!("{words}; last output: {tail}");
        }
        if self.ending.set(words.clone()).is_err() {
            return;
        }
        tracing::info!(server = %self.settings.name, words, "child ended");
        let reject = self.reject(RejectKind::Upstream, &ending.to_string());
        self.table.shut(&reject);
        self.table.fail_all(&reject);
        self.stop();
        self.dead.cancel();
    }

    // --- writing ---

    /// Writes lines until the connection stops.
    pub(super) async fn write_loop(
        self: Arc<Self>,
        mut stdin: impl AsyncWrite + Unpin,
        mut queue: mpsc::Receiver<Line>,
    ) {
        loop {
            let line = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.control_ready.notified() => None,
                line = queue.recv() => line,
            };
            let written = match line {
                Some(Line { id: Some(id), .. }) if !self.table.begin(id) => Ok(()),
                Some(line) => self.write(&mut stdin, line.text).await.inspect_err(|_| {
                    let reject = self.reject(RejectKind::Upstream, "closed its input");
                    line.id.map(|id| self.table.finish(id, Err(reject)));
                }),
                None => Ok(()),
            };
            let written = match written {
                Ok(()) => self.write_control(&mut stdin).await,
                failed @ Err(_) => failed,
            };
            if let Err(err) = written {
                tracing::debug!(server = %self.settings.name, %err, "cannot write to the child");
                self.reason.get_or_init(|| "closed its input".to_owned());
                break;
            }
        }
        // What was written may still be answered.
        self.stop();
        self.table.fail_unwritten(&self.reject(RejectKind::Upstream, self.reason().unwrap_or("is being stopped")));
    }

    async fn write_control(&self, stdin: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        loop {
            let line = self.control.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(line) = line else { return Ok(()) };
            self.write(stdin, line).await?;
        }
    }

    async fn write(&self, stdin: &mut (impl AsyncWrite + Unpin), text: Bytes) -> std::io::Result<()> {
        let mut line = text.chain(&b"\n"[..]);
        tokio::select! {
            biased;
            // The child will see the end of its input in the middle of a line.
            () = self.stop.cancelled() => Ok(()),
            written = async { stdin.write_all_buf(&mut line).await?; stdin.flush().await } => written,
        }
    }

    fn send_control(&self, text: Bytes) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.len() >= CONTROL_MAX {
            self.counts.others.fetch_add(1, Ordering::Relaxed);
            return;
        }
        control.push_back(text);
        drop(control);
        self.control_ready.notify_one();
    }

    // --- reading ---

    /// Reads lines until stdout ends or the child is dead.
    pub(super) async fn read_loop(self: Arc<Self>, stdout: impl AsyncRead + Unpin) {
        let mut lines = LineReader::new(stdout, self.settings.max_response_bytes);
        loop {
            let frame = tokio::select! {
                biased;
                frame = lines.next() => frame,
                () = self.dead.cancelled() => break,
            };
            match frame {
                Ok(Frame::Line(line)) => self.receive(&trimmed(line)),
                Ok(Frame::TooLong(ends)) => self.too_long(&ends),
                Ok(Frame::Endless(ends)) => {
                    self.reason.get_or_init(|| "sent a line over 4 × max_response_bytes without an end".to_owned());
                    // Before its caller hears of it: nobody else may choose a child that is about to be killed.
                    self.close();
                    self.too_long(&ends);
                    self.kill.cancel();
                    break;
                }
                Ok(Frame::End) => break,
                Err(err) => {
                    tracing::debug!(server = %self.settings.name, %err, "cannot read from the child");
                    break;
                }
            }
        }
        self.read_end.cancel();
    }

    fn too_long(&self, ends: &Ends) {
        let cap = self.settings.max_response_bytes;
        let reject = self.reject(RejectKind::Limit, &format!("sent a response over max_response_bytes ({cap} bytes)"));
        tracing::warn!(server = %self.settings.name, cap, "a line over max_response_bytes was dropped");
        match whose(ends) {
            Whose::Ours(id) => self.answer(id, Err(reject)),
            Whose::Server => count(&self.counts.others),
            Whose::Unknown => self.table.fail_all(&reject),
        }
    }

    fn receive(self: &Arc<Self>, line: &Bytes) {
        if line.is_empty() {
            return;
        }
        match decode(line, &Limits::UPSTREAM) {
            Ok(Decoded::One(message)) => self.dispatch(message),
            Ok(Decoded::Batch(messages)) => {
                for message in messages {
                    match message {
                        Ok(message) => self.dispatch(message),
                        Err(err) => self.refuse(line, &err),
                    }
                }
            }
            Err(err) => self.refuse(line, &err),
        }
    }

    /// Drops what is no message; a call that it seems to answer is not left to wait for its timeout.
    fn refuse(&self, line: &Bytes, err: &DecodeError) {
        count(&self.counts.noise);
        self.output.stray(line);
        let id = match &err.kind {
            DecodeErrorKind::NotMessage(_) => err.id.as_ref().and_then(|id| id.as_u64()),
            DecodeErrorKind::Depth(_) => match in_head(line) {
                Whose::Ours(id) => Some(id),
                Whose::Server | Whose::Unknown => None,
            },
            DecodeErrorKind::BatchSize(_) | DecodeErrorKind::NotJson(_) => None,
        };
        if let Some(id) = id {
            let reject = self.reject(RejectKind::Upstream, "sent an answer that cannot be read");
            self.table.finish(id, Err(reject.with_detail(err.kind.to_string())));
        }
    }

    fn dispatch(self: &Arc<Self>, message: Message) {
        match message {
            Message::Notification(notification) => self.hear(&notification),
            Message::Request(request) => self.asked(&request),
            Message::Response(response) => match response.id.as_ref().and_then(|id| id.as_u64()) {
                Some(id) => {
                    let era = self.era().unwrap_or(Era::Legacy);
                    self.answer(id, Ok(Answer::Upstream { response: Box::new(response), era }));
                }
                None => count(&self.counts.answers),
            },
        }
    }

    fn answer(&self, id: u64, outcome: Outcome) {
        if !self.table.finish(id, outcome) {
            count(&self.counts.answers);
        }
    }

    fn hear(&self, notification: &Notification) {
        match &*notification.method {
            "notifications/progress" => {
                let known = token(notification).is_some_and(|id| self.table.progress(id, notification));
                if !known {
                    count(&self.counts.progress);
                }
            }
            "notifications/message" => {
                if !self.table.log(&notification.raw) {
                    count(&self.counts.others);
                }
            }
            "notifications/cancelled" => {
                if let Some(id) = question::taken_back(notification)
                    && let Some(asked) = self.open_questions().remove(&id)
                {
                    asked.withdraw();
                }
            }
            other => {
                if !Changes::hear(&self.changes, other) && !self.heard.hear(notification) {
                    count(&self.counts.others);
                }
            }
        }
    }

    fn asked(self: &Arc<Self>, request: &Request) {
        if !self.may_ask() {
            count(&self.counts.violations);
            let method = self.output.clean(request.method.as_bytes(), 100);
            tracing::debug!(server = %self.settings.name, method, "a request of a server that may send none");
            return;
        }
        // The pool gives a connection that may ask to one call at a time, so the one in flight is the one that asks.
        let call = self.table.only_call().filter(|_| self.features.may_be_asked());
        let features = call.as_ref().and_then(|slot| slot.features()).map(|theirs| theirs.and(self.features));
        let answer = match (question::hear(request, features), call) {
            (Verdict::Answer(response), _) => response,
            (Verdict::Ask(kind, params), Some(slot)) => match self.question(&request.id, kind, params) {
                Some(question) => return slot.ask(question),
                None => question::too_many(request),
            },
            // Without a call there are no features, and nothing is asked.
            (Verdict::Ask(..), None) => return,
        };
        self.send_control(answer.raw);
    }

    fn question(self: &Arc<Self>, id: &RequestId, kind: InputKind, params: Bytes) -> Option<Question> {
        let mut open = self.open_questions();
        // A second question of one id would take the place of the first, and nobody would count it.
        if open.len() >= QUESTIONS_MAX || open.contains_key(id) {
            return None;
        }
        let (connection, asked) = (Arc::clone(self), id.clone());
        let responder = Responder::new(move |settled| {
            connection.open_questions().remove(&asked);
            connection.send_control(one_line(question::told(&asked, &settled).raw));
        });
        open.insert(id.clone(), responder.asked());
        Some(Question { kind, params, responder })
    }

    fn open_questions(&self) -> MutexGuard<'_, HashMap<RequestId, Asked>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of a call, the first of which is known.
struct EventsOf {
    first: Option<Event>,
    waiting: Waiting,
    era: Era,
}

impl Stream for EventsOf {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.waiting.ended {
            return Poll::Ready(None);
        }
        self.waiting.poll_event(context).map(|event| {
            Some(match event {
                Event::Done(outcome) => Event::Done(self.waiting.connection.with_era(outcome, self.era)),
                other @ (Event::Ask(_)
                | Event::Changed(_)
                | Event::Log(_)
                | Event::Progress(_)
                | Event::Said(_)
                | Event::Watch(_)) => other,
            })
        })
    }
}

// === impl Waiting ===

impl Waiting {
    fn poll_event(&mut self, context: &Context<'_>) -> Poll<Event> {
        let event = self.slot.poll(context);
        self.ended |= matches!(event, Poll::Ready(Event::Done(_)));
        event
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.connection.table.abandon(self.id) == Abandoned::Cancel {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
                self.id
            );
            self.connection.send_control(Bytes::from(text));
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Reads the progress token, which is the number of a request of ours.
fn token(notification: &Notification) -> Option<u64> {
    notification.params.as_deref()?.get("progressToken").ok()??.parse()
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
