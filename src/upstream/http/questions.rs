//! The questions of one session: which call each belongs to, and which are out.
//!
//! Not for: judging them (`upstream::question`). Invariants: a question on a call's own stream is that call's; one beside
//! it, on the session's stream, belongs to the only call in flight, or to none [R100]: to none where several principals
//! share the session, and where another client has given up a call that the server may still work on [TRN-10].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::exchange::{Asked, Event, EventStream, Outcome, OwnerKey, Question, Reply, ReplyBody, Retry};
use crate::upstream::link::{BoxFuture, Left};
use crate::upstream::question::Room;
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::Features;

/// How many questions wait for a call that is busy; over it they are refused.
const WAITING_MAX: usize = 16;
/// How many owners of calls that were given up are remembered; over it the session is in doubt for everybody.
const GIVEN_UP_MAX: usize = 64;

/// The questions of one session.
#[derive(Debug)]
pub(super) struct Questions {
    /// Several principals have the session.
    shared: bool,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Questions that are out.
    open: HashMap<RequestId, Asked>,
    /// Calls that may be asked.
    calls: Vec<Call>,
    entered: u64,
    /// Who has given up a call: its answer goes where nobody reads it, so that its end is never known.
    given_up: Vec<OwnerKey>,
    /// There were more of them than are remembered.
    forgotten: bool,
}

/// A call that may be asked.
#[derive(Debug)]
struct Call {
    number: u64,
    owner: OwnerKey,
    asker: Asker,
}

/// What a call that may be asked is asked by.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) features: Features,
    /// Bounds its questions that are out.
    pub(super) room: Arc<Room>,
    pub(super) sender: mpsc::Sender<Question>,
}

/// A call that may be asked beside its own stream; it is not any more once this is dropped.
#[derive(Debug)]
pub(super) struct Asking {
    questions: Arc<Questions>,
    number: u64,
    /// The server does not work on it: it has answered, or was never reached.
    over: bool,
    heard: mpsc::Receiver<Question>,
}

/// A reply, and the questions that come beside it.
struct Beside {
    first: Option<Event>,
    reply: Option<BoxFuture<Reply>>,
    events: Option<EventStream>,
    guards: Vec<Box<dyn Send>>,
    asking: Option<Asking>,
}

// === impl Questions ===

impl Questions {
    /// Keeps the questions of a session that belongs to one holder, or is `shared` by all who are granted the server.
    pub(super) fn new(shared: bool) -> Arc<Self> {
        Arc::new(Self { shared, table: Mutex::default() })
    }

    /// Enters an owner's call that may be asked.
    pub(super) fn enter(self: &Arc<Self>, owner: OwnerKey, features: Features) -> Asking {
        let (sender, heard) = mpsc::channel(WAITING_MAX);
        let mut table = self.table();
        table.entered += 1;
        let number = table.entered;
        let asker = Asker { features, room: Room::of_call(), sender };
        table.calls.push(Call { number, owner, asker });
        drop(table);
        Asking { questions: Arc::clone(self), number, over: false, heard }
    }

    /// Returns the one call that a question beside the calls can belong to: the only one in flight that may be asked, while
    /// no other owner's may be worked on.
    pub(super) fn only_call(&self) -> Option<Asker> {
        let table = self.table();
        match table.calls.as_slice() {
            [call] if !self.shared && table.left_behind(&call.owner) != Left::Others => Some(call.asker.clone()),
            _ => None,
        }
    }

    /// Says whose calls were given up.
    pub(super) fn left_behind(&self, owner: &OwnerKey) -> Left {
        self.table().left_behind(owner)
    }

    /// Notes a question that is out.
    pub(super) fn opened(&self, id: RequestId, asked: Asked) {
        self.table().open.insert(id, asked);
    }

    /// Forgets a question that is over.
    pub(super) fn over(&self, id: &RequestId) {
        self.table().open.remove(id);
    }

    /// The server takes a question back.
    pub(super) fn withdraw(&self, id: &RequestId) {
        let asked = self.table().open.remove(id);
        if let Some(asked) = asked {
            asked.withdraw();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    fn left_behind(&self, owner: &OwnerKey) -> Left {
        if self.forgotten || self.given_up.iter().any(|theirs| theirs != owner) {
            return Left::Others;
        }
        if self.given_up.is_empty() { Left::Nothing } else { Left::Own }
    }

    fn give_up(&mut self, owner: OwnerKey) {
        if self.given_up.contains(&owner) {
            return;
        }
        if self.given_up.len() < GIVEN_UP_MAX {
            self.given_up.push(owner);
        } else {
            self.forgotten = true;
        }
    }
}

// === impl Asking ===

impl Asking {
    /// Lets the questions join the events of the reply.
    pub(super) async fn join(mut self, mut reply: BoxFuture<Reply>) -> Reply {
        tokio::select! {
            biased;
            reply = &mut reply => match reply.into_parts() {
                (ReplyBody::Done(outcome), guards) => {
                    self.over = is_over(&outcome);
                    Reply::done(outcome).with_guards(guards)
                }
                (ReplyBody::Events(events), guards) => {
                    let (first, reply, events) = (None, None, Some(events));
                    Reply::events(Box::pin(Beside { first, reply, events, guards, asking: Some(self) }))
                }
            },
            Some(question) = self.heard.recv() => {
                let (first, reply, events) = (Some(Event::Ask(question)), Some(reply), None);
                Reply::events(Box::pin(Beside { first, reply, events, guards: Vec::new(), asking: Some(self) }))
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut table = self.questions.table();
        let Some(at) = table.calls.iter().position(|call| call.number == self.number) else { return };
        let call = table.calls.remove(at);
        if !self.over {
            table.give_up(call.owner);
        }
    }
}

// === impl Beside ===

impl Beside {
    fn end(&mut self, outcome: &Outcome) {
        if let Some(mut asking) = self.asking.take() {
            asking.over = is_over(outcome);
        }
    }
}

/// Says whether a server cannot be working on a call any more that has ended so.
fn is_over(outcome: &Outcome) -> bool {
    outcome.as_ref().map_or_else(|reject| reject.retry == Retry::Safe, |_| true)
}

impl Stream for Beside {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(Poll::Ready(Some(question))) = this.asking.as_mut().map(|asking| asking.heard.poll_recv(cx)) {
            return Poll::Ready(Some(Event::Ask(question)));
        }
        if let Some(reply) = &mut this.reply {
            let Poll::Ready(reply) = reply.as_mut().poll(cx) else { return Poll::Pending };
            this.reply = None;
            let (body, guards) = reply.into_parts();
            this.guards = guards;
            match body {
                ReplyBody::Done(outcome) => {
                    this.end(&outcome);
                    return Poll::Ready(Some(Event::Done(*outcome)));
                }
                ReplyBody::Events(events) => this.events = Some(events),
            }
        }
        let Some(events) = &mut this.events else { return Poll::Ready(None) };
        let event = events.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Event::Done(outcome))) = &event {
            this.end(outcome);
        }
        if matches!(event, Poll::Ready(Some(Event::Done(_)) | None)) {
            (this.events, this.asking) = (None, None);
        }
        event
    }
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;
