//! The questions of one session: which call each belongs to, and which are out.
//!
//! Not for: judging them (`upstream::question`). Invariants: a question on a call's own stream is that call's; one beside
//! it, on the session's stream, belongs to the only call in flight, or to none [R100].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::exchange::{Asked, Event, EventStream, Question, Reply, ReplyBody};
use crate::upstream::link::BoxFuture;
use crate::upstream::question::Room;
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::Features;

/// How many questions wait for a call that is busy; over it they are refused.
const WAITING_MAX: usize = 16;

/// The questions of one session.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Questions that are out.
    open: HashMap<RequestId, Asked>,
    /// Calls that may be asked.
    calls: Vec<(u64, Asker)>,
    entered: u64,
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
    /// Enters a call that may be asked.
    pub(super) fn enter(self: &Arc<Self>, features: Features) -> Asking {
        let (sender, heard) = mpsc::channel(WAITING_MAX);
        let mut table = self.table();
        table.entered += 1;
        let number = table.entered;
        table.calls.push((number, Asker { features, room: Room::of_call(), sender }));
        drop(table);
        Asking { questions: Arc::clone(self), number, heard }
    }

    /// Returns the only call in flight that may be asked.
    pub(super) fn only_call(&self) -> Option<Asker> {
        match self.table().calls.as_slice() {
            [(_, asker)] => Some(asker.clone()),
            _ => None,
        }
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Asking ===

impl Asking {
    /// Lets the questions join the events of the reply.
    pub(super) async fn join(mut self, mut reply: BoxFuture<Reply>) -> Reply {
        tokio::select! {
            biased;
            reply = &mut reply => match reply.into_parts() {
                (ReplyBody::Done(outcome), guards) => Reply::done(outcome).with_guards(guards),
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
        self.questions.table().calls.retain(|(number, ..)| *number != self.number);
    }
}

// === impl Beside ===

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
                    this.asking = None;
                    return Poll::Ready(Some(Event::Done(*outcome)));
                }
                ReplyBody::Events(events) => this.events = Some(events),
            }
        }
        let Some(events) = &mut this.events else { return Poll::Ready(None) };
        let event = events.as_mut().poll_next(cx);
        if matches!(event, Poll::Ready(Some(Event::Done(_)) | None)) {
            (this.events, this.asking) = (None, None);
        }
        event
    }
}
