//! A session's client is asked on the way: a legacy server's question goes down as it comes, a stateless server's
//! `input_required` is fulfilled here, round after round (protocol §5.2).
//!
//! Not for: stateless clients (`park`). Invariants: each question goes on the stream of the call that caused it, under an id
//! of our own, to the session that made the call [R97]; a call of a client that cannot be asked passes through untouched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use futures_util::{StreamExt as _, stream};
use tokio::sync::oneshot;

use crate::exchange::{
    Answer, Asked, Call, Endpoint, Event, EventStream, Exchange, Handler, InputRequired, Outcome, Question, Reject,
    RejectKind, Reply, ReplyBody, Responder, ServerCall, Settled,
};
use crate::runtime::Tasks;
use crate::session::Session;
use crate::wire::bridge::{self, Wanted};
use crate::wire::json;
use crate::wire::jsonrpc::{Decoded, ErrorObject, Limits, Message, decode};
use crate::wire::mcp::{Features, InputKind, is_url};

use super::answer::notification;
use super::legacy::Form;
use super::post::Visit;
use super::running::Running;
use super::server::Door;
use super::stateless::call_params;

/// How often a stateless server may ask before it answers.
const ROUNDS_MAX: u32 = 10;
/// The pause before a round that the client adds nothing to; doubled each time.
const PACE: Duration = Duration::from_millis(250);
/// How long all rounds of one call may take: as long as a server's state is good for.
const ROUNDS_TIME: Duration = Duration::from_secs(3_600);

/// What is needed to ask a session's client, and to call again with its answers.
struct Asker<H: Handler> {
    handler: Arc<H>,
    tasks: Tasks,
    session: Arc<Session>,
    caller: H::Caller,
    endpoint: Endpoint,
    call: Arc<ServerCall>,
    time: Duration,
}

/// The events of one call, with what its client is asked.
struct Asking<H: Handler> {
    asker: Asker<H>,
    state: State,
    guards: Vec<Box<dyn Send>>,
    queue: VecDeque<Event>,
    /// What the client has been asked and has not answered.
    open: Vec<(u64, Asked)>,
    rounds: u32,
    /// The progress told last: it grows over all rounds [R109].
    progress: Option<f64>,
    until: tokio::time::Instant,
}

enum State {
    /// A server's answer is on its way.
    Events(EventStream),
    /// The answers of the client are.
    Gathering {
        wanted: Wanted,
        answers: Vec<(InputKind, oneshot::Receiver<Settled>)>,
    },
    Over,
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Hands a session's request to the hall; a call of a client that can be asked is one that may ask.
    pub(super) fn call_of_session(
        &self,
        visit: &Visit<H::Caller>,
        session: &Arc<Session>,
        mut exchange: Exchange,
        form: Form,
    ) -> Running {
        let call = match &exchange.call {
            Call::ToServer(call) if exchange.client.features.may_be_asked() && call.params.method.asks_back() => {
                Arc::clone(call)
            }
            Call::Discover | Call::List { .. } | Call::Listen(_) | Call::ToServer(_) | Call::Watch { .. } => {
                return Running::new(self.handler.call(visit.caller.clone(), exchange));
            }
        };
        if !visit.take.events() || form == Form::Batch {
            // A question needs a stream of its own.
            exchange.client.features = Features::NONE;
            return Running::new(self.handler.call(visit.caller.clone(), exchange));
        }
        let asker = Asker {
            handler: Arc::clone(&self.handler),
            tasks: self.tasks.clone(),
            session: Arc::clone(session),
            caller: visit.caller.clone(),
            endpoint: visit.endpoint.clone(),
            call,
            time: self.settings.question,
        };
        let reply = self.handler.call(visit.caller.clone(), exchange);
        Running::new(Box::pin(async move { asker.asking(reply.await) }))
    }
}

// === impl Asker ===

impl<H: Handler> Asker<H> {
    fn asking(self, reply: Reply) -> Reply {
        let (body, guards) = reply.into_parts();
        let events: EventStream = match body {
            ReplyBody::Done(outcome) if !matches!(*outcome, Ok(Answer::InputRequired(_))) => {
                return Reply::done(outcome).with_guards(guards);
            }
            ReplyBody::Done(outcome) => Box::pin(stream::iter([Event::Done(*outcome)])),
            ReplyBody::Events(events) => events,
        };
        let asking = Asking {
            asker: self,
            state: State::Events(events),
            guards,
            queue: VecDeque::new(),
            open: Vec::new(),
            rounds: 0,
            progress: None,
            until: deadline(ROUNDS_TIME),
        };
        Reply::events(Box::pin(stream::unfold(asking, Asking::next)))
    }

    /// Calls again, through the whole hall, in the state of this moment [POL-12, R95].
    async fn again(&mut self, wanted: &Wanted, answers: &[(String, Bytes)]) -> Result<Reply, Reject> {
        let raw = bridge::retry(&self.call.request, answers, wanted.state.as_ref());
        let unreadable =
            || Reject::upstream(RejectKind::Upstream, "The answers cannot be sent on", "a retry is no request");
        let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::UPSTREAM) else {
            return Err(unreadable());
        };
        let params = call_params(self.call.params.method, &request).map_err(|_| unreadable())?;
        let (meta, trace) = (self.call.meta.clone(), self.call.trace.clone());
        let call = ServerCall { request, params, meta, param_headers: None, trace };
        self.caller = self.handler.renewed(self.caller.clone());
        let exchange = Exchange {
            endpoint: self.endpoint.clone(),
            client: self.session.facts(),
            owner: self.session.owner(),
            call: Call::ToServer(Arc::new(call)),
        };
        Ok(self.handler.call(self.caller.clone(), exchange).await)
    }
}

// === impl Asking ===

impl<H: Handler> Asking<H> {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some((event, self));
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return None,
                State::Events(mut events) => {
                    let event = tokio::select! {
                        biased;
                        event = events.next() => event,
                        () = withdrawn(&self.open) => {
                            self.state = State::Events(events);
                            self.take_back();
                            continue;
                        }
                    };
                    match event {
                        Some(Event::Done(outcome)) => self.done(outcome),
                        Some(event) => {
                            self.state = State::Events(events);
                            self.on_the_way(event);
                        }
                        None => return None,
                    }
                }
                State::Gathering { wanted, answers } => match self.gathered(wanted, answers).await {
                    Ok(events) => self.state = State::Events(events),
                    Err(reject) => self.finish(Err(reject)),
                },
            }
        }
    }

    fn on_the_way(&mut self, event: Event) {
        match event {
            Event::Ask(question) => self.ask(question),
            Event::Progress(raw) => {
                let value = progress_of(&raw);
                if self.progress.is_none_or(|last| value.is_some_and(|value| value > last)) {
                    self.progress = value.or(self.progress);
                    self.queue.push_back(Event::Progress(raw));
                }
            }
            other @ (Event::Done(_)
            | Event::Log(_)
            | Event::Paused
            | Event::Said(_)
            | Event::Changed(_)
            | Event::Watch(_)) => self.queue.push_back(other),
        }
    }

    fn done(&mut self, outcome: Outcome) {
        match outcome {
            Ok(Answer::InputRequired(input)) => {
                if let Err(reject) = self.round(*input) {
                    self.finish(Err(reject));
                }
            }
            outcome => self.finish(outcome),
        }
    }

    fn finish(&mut self, outcome: Outcome) {
        for (id, asked) in self.open.drain(..) {
            if !asked.is_over() || asked.is_gone() {
                self.asker.session.forget(id);
                self.queue.push_back(Event::Said(cancelled(id)));
            }
        }
        self.queue.push_back(Event::Done(outcome));
        self.state = State::Over;
        self.guards.clear();
    }

    /// Asks the client; the answer finds its way back through the session.
    fn ask(&mut self, question: Question) {
        let Question { kind, params, responder } = question;
        let params = match bridge::for_revision(kind, &params, self.asker.session.facts().version) {
            Ok(params) => params,
            // Its server hears why, and the call goes on.
            Err(unasked) => return responder.settle(Err(unasked.error())),
        };
        let asked = responder.asked();
        let Some(id) = self.asker.session.ask(responder) else { return };
        let mut request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":"#, kind.method()).into_bytes();
        request.extend_from_slice(&params);
        request.push(b'}');
        self.queue.push_back(Event::Said(Bytes::from(request)));
        self.take_back();
        self.open.push((id, asked.clone()));
        let (session, time) = (Arc::clone(&self.asker.session), self.asker.time);
        self.asker.tasks.spawn("question", async move {
            if tokio::time::timeout(time, asked.over()).await.is_err() {
                session.forget(id);
            }
        });
    }

    /// Tells the client which questions nobody waits for any more.
    fn take_back(&mut self) {
        for (id, asked) in self.open.extract_if(.., |(_, asked)| asked.is_over()) {
            if asked.is_gone() {
                self.asker.session.forget(id);
                self.queue.push_back(Event::Said(cancelled(id)));
            }
        }
    }

    /// Begins a round: every question of a stateless server goes to the client.
    fn round(&mut self, input: InputRequired) -> Result<(), Reject> {
        let wanted = input.wanted;
        // The call before is over, and the next takes its own place.
        self.guards.clear();
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(unanswered("The server asked too often", "over the rounds of one call"));
        }
        let mut answers = Vec::new();
        for request in &wanted.requests {
            let (sender, answer) = oneshot::channel();
            let responder = Responder::new(move |settled| {
                // Whoever waited for it may have gone.
                let _heard = sender.send(settled).is_ok();
            });
            answers.push((request.kind, answer));
            let params = for_session(request.kind, &request.params)?;
            self.ask(Question { kind: request.kind, params, responder });
        }
        self.state = State::Gathering { wanted, answers };
        Ok(())
    }

    /// Waits for the answers and calls again.
    async fn gathered(
        &mut self,
        wanted: Wanted,
        answers: Vec<(InputKind, oneshot::Receiver<Settled>)>,
    ) -> Result<EventStream, Reject> {
        let late = || unanswered("The client did not answer in time", "over the time of all rounds");
        let mut given = Vec::new();
        for (request, (kind, answer)) in wanted.requests.iter().zip(answers) {
            let settled = tokio::time::timeout_at(self.until, answer).await.map_err(|_| late())?;
            given.push((request.key.clone(), answer_of(kind, settled.unwrap_or_else(|_| Err(Bytes::new())))?));
        }
        self.take_back();
        // Nothing new, or a visit that may last: the server needs a while.
        if wanted.requests.iter().all(|request| request.kind == InputKind::Elicitation && is_url(&request.params)) {
            let pause = PACE.saturating_mul(1 << self.rounds.saturating_sub(1).min(8));
            tokio::time::sleep(pause).await;
        }
        let again = tokio::time::timeout_at(self.until, self.asker.again(&wanted, &given));
        let (body, guards) = again.await.map_err(|_| late())??.into_parts();
        self.guards = guards;
        Ok(match body {
            ReplyBody::Done(outcome) => Box::pin(stream::iter([Event::Done(*outcome)])),
            ReplyBody::Events(events) => events,
        })
    }
}

/// Waits until one of the questions is over.
async fn withdrawn(open: &[(u64, Asked)]) {
    if open.is_empty() {
        return std::future::pending().await;
    }
    select_all(open.iter().map(|(_, asked)| Box::pin(asked.over()))).await;
}

/// A session's client tells visits to a URL apart by an id of theirs.
fn for_session(kind: InputKind, params: &Bytes) -> Result<Bytes, Reject> {
    if kind != InputKind::Elicitation || !is_url(params) {
        return Ok(params.clone());
    }
    let id = crate::seal::random::<16>()
        .map_err(|err| Reject::upstream(RejectKind::Upstream, "The gateway has no random bytes", err.to_string()))?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(bridge::with_member(params, "elicitationId", Some(&json::quoted(&id))))
}

/// Makes an answer of what the client said: a stateless server knows no error there (protocol §5.2).
fn answer_of(kind: InputKind, settled: Settled) -> Result<Bytes, Reject> {
    const REFUSED: i64 = -1;
    match (settled, kind) {
        (Ok(result), _) => Ok(result),
        (Err(error), InputKind::Elicitation) if ErrorObject::read(&error).code.0 == REFUSED => {
            Ok(Bytes::from_static(br#"{"action":"decline"}"#))
        }
        (Err(_), InputKind::Elicitation) => Ok(Bytes::from_static(br#"{"action":"cancel"}"#)),
        (Err(_), InputKind::Roots | InputKind::Sampling) => {
            Err(unanswered("The client did not answer what the server asked", kind.method()))
        }
    }
}

fn unanswered(words: &'static str, detail: &'static str) -> Reject {
    Reject::upstream(RejectKind::Upstream, words, detail)
}

fn cancelled(id: u64) -> Bytes {
    notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#))
}

fn progress_of(raw: &[u8]) -> Option<f64> {
    let params = json::members(raw).ok()?.get("params").ok()??;
    json::members(params.get()).ok()?.get("progress").ok()??.parse()
}

#[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
fn deadline(time: Duration) -> tokio::time::Instant {
    tokio::time::Instant::now() + time
}
