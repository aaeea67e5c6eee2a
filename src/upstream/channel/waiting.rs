//! One request on a channel, from its entry to its answer.
//!
//! Not for: how it is sent. Invariant: one that is given up before its answer is cancelled at the server [R107].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::join_all;

use crate::exchange::{Asked, Event, Reply};
use crate::upstream::link::BoxFuture;
use crate::wire::mcp::Era;

use super::conversation::Conversation;
use super::pending::{Abandoned, Slot};

/// How long a call waits for what its client is asked before it.
pub(super) const FIRST_MAX: Duration = Duration::from_secs(5);

/// How long a server has to take the answer in: what it does with that may take it a moment, while it reads on.
const TAKEN_IN: Duration = Duration::from_millis(250);

/// A request that waits; dropping it before its end cancels it at the server [R107].
pub(in crate::upstream) struct Waiting {
    conversation: Arc<Conversation>,
    id: u64,
    slot: Arc<Slot>,
    /// What is to be answered before it is sent.
    first: Vec<Asked>,
    /// What sends it, if that is not over when the first answer may come; its failure ends the request.
    sending: Option<BoxFuture<()>>,
    ended: bool,
}

/// The events of a call, the first of which is known.
struct EventsOf {
    first: Option<Event>,
    waiting: Waiting,
    era: Era,
}

// === impl Waiting ===

impl Waiting {
    pub(super) fn new(conversation: Arc<Conversation>, (id, slot): (u64, Arc<Slot>), first: Vec<Asked>) -> Self {
        Self { conversation, id, slot, first, sending: None, ended: false }
    }

    /// Says whether something is to be answered before the request is sent.
    pub(in crate::upstream) const fn asks_first(&self) -> bool {
        !self.first.is_empty()
    }

    /// Has the request sent while its answer is waited for.
    pub(in crate::upstream) fn sent_by(mut self, sending: BoxFuture<()>) -> Self {
        let first = std::mem::take(&mut self.first);
        self.sending = Some(if first.is_empty() {
            sending
        } else {
            Box::pin(async move {
                // Who does not answer has its call sent all the same.
                let answered = join_all(first.iter().map(|asked| asked.over()));
                if tokio::time::timeout(FIRST_MAX, answered).await.is_ok() {
                    tokio::time::sleep(TAKEN_IN).await;
                }
                sending.await;
            })
        });
        self
    }

    /// Returns the request's id on this channel.
    pub(in crate::upstream) const fn id(&self) -> u64 {
        self.id
    }

    /// Waits for what arrives first. `era` is that of the request, for an answer that comes before it is settled.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request at the server if it was sent.
    pub(in crate::upstream) async fn reply(mut self, era: Era) -> Reply {
        match std::future::poll_fn(|context| self.poll_event(context)).await {
            Event::Done(outcome) => Reply::once(self.conversation.with_era(outcome, era)),
            first @ (Event::Ask(_)
            | Event::Changed(_)
            | Event::Log(_)
            | Event::Paused
            | Event::Progress(_)
            | Event::Said(_)
            | Event::Watch(_)) => Reply::events(Box::pin(EventsOf { first: Some(first), waiting: self, era })),
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(sending) = &mut self.sending
            && sending.as_mut().poll(context).is_ready()
        {
            self.sending = None;
        }
        let event = self.slot.poll(context);
        self.ended |= matches!(event, Poll::Ready(Event::Done(_)));
        event
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.conversation.table.abandon(self.id) == Abandoned::Cancel {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
                self.id
            );
            self.conversation.send_control(Bytes::from(text));
        }
    }
}

// === impl EventsOf ===

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
                Event::Done(outcome) => Event::Done(self.waiting.conversation.with_era(outcome, self.era)),
                other @ (Event::Ask(_)
                | Event::Changed(_)
                | Event::Log(_)
                | Event::Paused
                | Event::Progress(_)
                | Event::Said(_)
                | Event::Watch(_)) => other,
            })
        })
    }
}
