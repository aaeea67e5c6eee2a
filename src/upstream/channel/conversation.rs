//! What is said on one channel, sorted: answers to their requests, questions to the one call they can be of, the rest heard.
//!
//! Not for: reading and writing, or how a channel begins and ends. Invariants: nothing is answered that is no request of a
//! legacy server [R68]; memory is bounded by the caps.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::exchange::{Answer, Asked, Outcome, Question, Reject, RejectKind, Responder, Settled};
use crate::net::Ends;
use crate::upstream::link::{LinkState, Outgoing, ROOTS_CHANGED};
use crate::upstream::question::{self, ANSWERS_BYTES_MAX, Full, Room, Verdict};
use crate::upstream::{Isolation, ServerSettings};
use crate::wire::jsonrpc::{
    DecodeError, DecodeErrorKind, Decoded, Limits, Message, Notification, Request, RequestId, decode, one_line,
};
use crate::wire::mcp::{Era, Feature, Features, InputKind};

use super::early::Early;
use super::framing::{Whose, in_head, whose};
use super::pending::{Owners, Slot, Table};
use super::waiting::Waiting;

/// How many cancellations and answers wait to be written, of [`ANSWERS_BYTES_MAX`] or one larger; what finds no room is
/// dropped and counted.
const CONTROL_MAX: usize = 1024;

/// What was dropped.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Counts {
    /// What is no JSON-RPC message.
    pub(in crate::upstream) noise: AtomicU64,
    /// Answers to nothing that waits: late, or made up.
    pub(in crate::upstream) answers: AtomicU64,
    /// Progress for nobody, or out of order.
    pub(in crate::upstream) progress: AtomicU64,
    /// Requests of a stateless server, which may send none.
    pub(in crate::upstream) violations: AtomicU64,
    /// Other notifications, and answers of ours that found no room.
    pub(in crate::upstream) others: AtomicU64,
}

/// The state of one channel, shared by who reads, who writes and who calls.
#[derive(Debug)]
pub(in crate::upstream) struct Conversation {
    pub(in crate::upstream) settings: Arc<ServerSettings>,
    pub(in crate::upstream) counts: Counts,
    pub(in crate::upstream) table: Table,
    /// What was declared at the handshake: what the client can be asked.
    features: Features,
    /// Questions that are out.
    questions: Mutex<HashMap<RequestId, Asked>>,
    /// Those that came while no call was under way.
    early: Early,
    /// Bounds them; one call alone is asked at a time.
    asking: Arc<Room>,
    pub(in crate::upstream) state: LinkState,
    era: OnceLock<Era>,
    /// `initialize` has been sent: the server may ping from here on.
    initializing: AtomicBool,
    control: Mutex<Control>,
    control_ready: Notify,
}

/// What waits to be written beside requests.
#[derive(Debug, Default)]
struct Control {
    waiting: VecDeque<Bytes>,
    bytes: usize,
}

// === impl Conversation ===

impl Conversation {
    pub(in crate::upstream) fn new(settings: Arc<ServerSettings>, features: Features) -> Self {
        Self {
            table: Table::new(settings.isolation() == Isolation::Shared),
            settings,
            counts: Counts::default(),
            features,
            questions: Mutex::default(),
            early: Early::default(),
            asking: Room::of_call(),
            state: LinkState::default(),
            era: OnceLock::new(),
            initializing: AtomicBool::new(false),
            control: Mutex::default(),
            control_ready: Notify::new(),
        }
    }

    /// Returns the era, once it is settled.
    pub(in crate::upstream) fn era(&self) -> Option<Era> {
        self.era.get().copied()
    }

    /// Returns what is declared at the handshake.
    pub(in crate::upstream) const fn features(&self) -> Features {
        self.features
    }

    /// Settles the era; the first word counts.
    pub(in crate::upstream) fn settle(&self, era: Era) {
        self.era.get_or_init(|| era);
    }

    /// Notes that `initialize` is about to be sent.
    pub(in crate::upstream) fn initializing(&self) {
        self.initializing.store(true, Ordering::Release);
    }

    fn may_ask(&self) -> bool {
        self.era().map_or_else(|| self.initializing.load(Ordering::Acquire), |era| era == Era::Legacy)
    }

    /// Enters a request; it is yet to be sent. A client's call takes what was kept for it, and is sent when that is answered.
    pub(in crate::upstream) fn enter(self: &Arc<Self>, outgoing: Outgoing) -> Result<Waiting, Reject> {
        let (id, slot) = self.table.enter(outgoing)?;
        let first = if self.early.is_empty() { Vec::new() } else { self.ask_kept(&slot) };
        Ok(Waiting::new(Arc::clone(self), (id, slot), first))
    }

    /// Is cancelled once the server has asked for roots before the first call.
    pub(in crate::upstream) const fn early(&self) -> &CancellationToken {
        &self.early.asked
    }

    /// Refuses what the server asks while no call is under way, until there was a first one.
    pub(in crate::upstream) fn refuse_early(self: &Arc<Self>) {
        for request in self.early.refuse() {
            self.put(None, &request);
        }
    }

    pub(super) fn with_era(&self, outcome: Outcome, era: Era) -> Outcome {
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
    pub(in crate::upstream) fn reject(&self, kind: RejectKind, what: &str) -> Reject {
        let public = format!("server '{}' {what}", self.settings.name);
        let detail = self.state.last_words().unwrap_or_else(|| public.clone());
        let public = if self.settings.show_stderr { detail.clone() } else { public };
        Reject::upstream(kind, public, detail)
    }

    // --- what is written beside requests ---

    /// Tells the server that its client's roots have changed, where it was told that it would be.
    pub(in crate::upstream) fn roots_changed(&self) {
        if self.era() == Some(Era::Legacy) && self.features.contains(Feature::RootsChanged) {
            self.send_control(ROOTS_CHANGED);
        }
    }

    /// Lets a cancellation or an answer wait to be written; says whether there was room.
    pub(super) fn send_control(&self, text: Bytes) -> bool {
        let room = self.control().push(text);
        if room {
            self.control_ready.notify_one();
        } else {
            count(&self.counts.others);
        }
        room
    }

    /// Tells the server what its question has come to; an answer without room is an error, which is small.
    fn send_answer(&self, asked: &RequestId, settled: &Settled) {
        if !self.send_control(one_line(question::told(asked, settled).raw)) {
            self.send_control(question::no_room(asked).raw);
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be a cancellation or an answer to write. For one listener.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(in crate::upstream) async fn control_ready(&self) {
        self.control_ready.notified().await;
    }

    /// Takes the next cancellation or answer to write.
    pub(in crate::upstream) fn next_control(&self) -> Option<Bytes> {
        self.control().pop()
    }

    // --- what is read ---

    /// What is over the cap fails the request it answers, or all of them if that cannot be seen [LIM-1].
    pub(in crate::upstream) fn too_long(&self, ends: &Ends) {
        let cap = self.settings.max_response_bytes;
        let reject = self.reject(RejectKind::Limit, &format!("sent a response over max_response_bytes ({cap} bytes)"));
        tracing::warn!(server = %self.settings.name, cap, "a message over max_response_bytes was dropped");
        match whose(ends) {
            Whose::Ours(id) => self.answer(id, Err(reject)),
            Whose::Server => count(&self.counts.others),
            Whose::Unknown => self.table.fail_all(&reject),
        }
    }

    /// Takes a message, or a batch of them; `false` if some of it is none.
    pub(in crate::upstream) fn receive(self: &Arc<Self>, text: &Bytes) -> bool {
        match decode(text, &Limits::UPSTREAM) {
            Ok(Decoded::One(message)) => {
                self.dispatch(message);
                true
            }
            Ok(Decoded::Batch(messages)) => {
                let mut whole = true;
                for message in messages {
                    match message {
                        Ok(message) => self.dispatch(message),
                        Err(err) => {
                            self.refuse(text, &err);
                            whole = false;
                        }
                    }
                }
                whole
            }
            Err(err) => {
                self.refuse(text, &err);
                false
            }
        }
    }

    /// Drops what is no message; a call that it seems to answer is not left to wait for its timeout.
    fn refuse(&self, text: &[u8], err: &DecodeError) {
        count(&self.counts.noise);
        let id = match &err.kind {
            DecodeErrorKind::NotMessage(_) => err.id.as_ref().and_then(|id| id.as_u64()),
            DecodeErrorKind::Depth(_) => match in_head(text) {
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

    /// Takes a message.
    pub(in crate::upstream) fn dispatch(self: &Arc<Self>, message: Message) {
        match message {
            Message::Notification(notification) => self.hear(&notification),
            Message::Request(request) => self.asked(&request),
            Message::Response(response) => match response.id.as_ref().and_then(|id| id.as_u64()) {
                Some(id) => {
                    let era = self.era().unwrap_or(Era::Legacy);
                    self.answer(id, Ok(Answer::Upstream { response, era }));
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
                if !self.table.log(notification) {
                    count(&self.counts.others);
                }
            }
            "notifications/cancelled" => {
                if let Some(id) = question::taken_back(notification) {
                    let asked = self.open_questions().remove(&id);
                    asked.inspect(Asked::withdraw);
                    self.early.forget(&id);
                }
            }
            _ => {
                if !self.state.hear(notification) {
                    count(&self.counts.others);
                }
            }
        }
    }

    fn asked(self: &Arc<Self>, request: &Request) {
        if !self.may_ask() {
            count(&self.counts.violations);
            tracing::debug!(server = %self.settings.name, "a request of a server that may send none");
            return;
        }
        // The pool gives a channel that may ask to one call at a time, so the one in flight is the one that asks.
        let call = || self.table.only_call().filter(|_| self.features.may_be_asked());
        if let Some(slot) = call() {
            self.put(Some(&slot), request);
            return;
        }
        // One may begin at any moment.
        let kept = self.keeps(request);
        match call() {
            Some(slot) if kept => drop(self.ask_kept(&slot)),
            None if kept => {}
            call => drop(self.put(call.as_ref(), request)),
        }
    }

    /// Keeps a question for roots for the next call, where that can be of one client alone: roots are of a client, and not of
    /// a call.
    fn keeps(&self, request: &Request) -> bool {
        if request.method != InputKind::Roots.method() || !self.features.contains(Feature::Roots) {
            return false;
        }
        let keeps = match self.table.resting() {
            Owners::Nobody => {
                self.early.asked.cancel();
                !self.early.refuses()
            }
            Owners::One => true,
            Owners::Several => false,
        };
        keeps && self.early.keep(request)
    }

    /// Asks what was kept of a client's call, as long as the channel has been nobody else's; returns what is asked.
    fn ask_kept(self: &Arc<Self>, slot: &Arc<Slot>) -> Vec<Asked> {
        if slot.features().is_none() {
            return Vec::new();
        }
        let call = self.table.has_one_owner().then_some(slot);
        self.early.take().iter().filter_map(|request| self.put(call, request)).collect()
    }

    /// Asks a call's client, or answers here; returns what is asked.
    fn put(self: &Arc<Self>, call: Option<&Arc<Slot>>, request: &Request) -> Option<Asked> {
        let features = call.and_then(|slot| slot.features()).map(|theirs| theirs.and(self.features));
        let answer = match (question::hear(request, features), call) {
            (Verdict::Answer(response), _) => *response,
            (Verdict::Ask(kind, params), Some(slot)) => match self.question(slot, request, (kind, params)) {
                Ok(question) => {
                    let asked = question.responder.asked();
                    slot.ask(question);
                    return Some(asked);
                }
                Err(full) => question::too_many(request, full),
            },
            // Without a call there are no features, and nothing is asked.
            (Verdict::Ask(..), None) => return None,
        };
        self.send_control(answer.raw);
        None
    }

    fn question(
        self: &Arc<Self>,
        slot: &Slot,
        request: &Request,
        (kind, params): (InputKind, Bytes),
    ) -> Result<Question, Full> {
        let mut open = self.open_questions();
        // A second question of one id would take the place of the first.
        if open.contains_key(&request.id) {
            return Err(Full::Twice);
        }
        let taken = self.asking.take(request).or_else(|_| {
            slot.drop_taken_back();
            self.asking.take(request)
        })?;
        let (conversation, asked) = (Arc::clone(self), request.id.clone());
        let responder = Responder::new(move |settled| {
            conversation.open_questions().remove(&asked);
            conversation.send_answer(&asked, &settled);
            drop(taken);
        });
        open.insert(request.id.clone(), responder.asked());
        Ok(Question { kind, params, responder })
    }

    fn open_questions(&self) -> MutexGuard<'_, HashMap<RequestId, Asked>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Control ===

impl Control {
    fn push(&mut self, text: Bytes) -> bool {
        let bytes = self.bytes.saturating_add(text.len());
        if self.waiting.len() >= CONTROL_MAX || (bytes > ANSWERS_BYTES_MAX && !self.waiting.is_empty()) {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push_back(text);
        true
    }

    fn pop(&mut self) -> Option<Bytes> {
        let text = self.waiting.pop_front()?;
        self.bytes -= text.len();
        Some(text)
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
#[path = "conversation_tests.rs"]
pub(super) mod tests;
