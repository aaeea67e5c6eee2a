//! What comes back: one outcome at once, or a stream of events that ends in one.
//!
//! Invariants: exactly one `Done`, and it is the last; whatever was taken on the way in lives in the reply's guards.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;

use crate::limit::Permit;
use crate::wire::jsonrpc::Response;
use crate::wire::mcp::{Capabilities, Era, Kind, Kinds, LogMessage};

use super::{InputRequired, Question, Reject, RejectKind, Retry};

/// An outcome: an answer, or a refusal.
pub type Outcome = Result<Answer, Reject>;

/// The bytes of an answer, as they come.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, Reject>> + Send>>;

/// The events of a reply. Dropping it cancels the call at the server.
pub type EventStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// What a call is answered with.
#[derive(Debug)]
pub enum Answer {
    /// Facts for `server/discover` and `initialize`.
    Discovery(Discovery),
    /// A listen has ended in order.
    Ended,
    /// A stateless server wants input before it answers.
    InputRequired(Box<InputRequired>),
    /// A page of a list.
    Page(ListPage),
    /// A server's own answer, which nobody looks at; it is a JSON text in the client's era.
    Unseen(Box<Unseen>),
    /// A server's own answer, raw, with the era it was spoken in.
    Upstream {
        /// The response as received.
        response: Box<Response>,
        /// The server's era on that connection.
        era: Era,
    },
}

/// A server's answer that is passed on without being looked at (`inspect = "off"`).
pub struct Unseen {
    /// Its beginning, with the client's own id in it.
    pub head: Vec<Bytes>,
    /// How long it is in all, if that is known.
    pub length: Option<u64>,
    /// What follows. Dropping it cancels the call at the server.
    pub rest: ByteStream,
}

impl fmt::Debug for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unseen").field("head", &self.head).field("length", &self.length).finish_non_exhaustive()
    }
}

/// What `server/discover` answers beyond the door's own facts.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// What the gateway can do for this client; the handlers serve exactly this [R32].
    pub capabilities: Capabilities,
    /// Instructions for the client's model, if any.
    pub instructions: Option<String>,
}

/// One page of a list, ready-encoded.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// What is listed.
    pub kind: Kind,
    /// The JSON array of definitions.
    pub items: Bytes,
    /// The sealed cursor of the next page.
    pub next_cursor: Option<String>,
    /// How long the page may be kept, in milliseconds.
    pub ttl_ms: u64,
    /// Whether only this principal may reuse it.
    pub private: bool,
}

/// Something on the way to the outcome.
#[derive(Debug)]
pub enum Event {
    /// A legacy server asks the client something; the reply goes on. Dropping the question refuses it.
    Ask(Question),
    /// What is visible of a kind has changed (listen only).
    Changed(Kind),
    /// The outcome; nothing follows.
    Done(Outcome),
    /// A server's log message.
    Log(LogMessage),
    /// The server has closed the call's stream and goes on with the call: a client that can come back may do the same.
    Paused,
    /// A whole `notifications/progress` with the client's own token.
    Progress(Bytes),
    /// A whole message that a door has spelled for its client.
    Said(Bytes),
    /// What is said of watched resources (listen only).
    Watch(WatchEvent),
}

/// What is said of watched resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// What is listened to, of all that was asked for: the first word of a listen for resources.
    Honoured {
        /// The lists.
        kinds: Kinds,
        /// The resources.
        resources: Vec<String>,
    },
    /// A resource has changed; by the client's URI.
    Updated(String),
}

/// What the hall returns.
pub struct Reply {
    /// The outcome, or events that end in it.
    pub body: ReplyBody,
    permit: Option<Permit>,
    guards: Vec<Box<dyn Send>>,
}

/// The two forms of a reply.
pub enum ReplyBody {
    /// The outcome was the first thing known.
    Done(Box<Outcome>),
    /// Something comes before the outcome.
    Events(EventStream),
}

// === impl Event ===

impl Event {
    /// Returns how many bytes a notification has; 0 for all else.
    #[must_use]
    pub const fn note_bytes(&self) -> usize {
        match self {
            Self::Log(message) => message.raw().len(),
            Self::Progress(raw) => raw.len(),
            Self::Ask(_) | Self::Changed(_) | Self::Done(_) | Self::Paused | Self::Said(_) | Self::Watch(_) => 0,
        }
    }
}

// === impl Reply ===

impl Reply {
    /// Makes a reply of one outcome.
    #[must_use]
    pub fn once(outcome: Outcome) -> Self {
        Self::done(Box::new(outcome))
    }

    /// Makes a reply of one outcome that is boxed already.
    #[must_use]
    pub fn done(outcome: Box<Outcome>) -> Self {
        Self { body: ReplyBody::Done(outcome), permit: None, guards: Vec::new() }
    }

    /// Makes a reply of events; the last must be `Done`.
    #[must_use]
    pub fn events(events: EventStream) -> Self {
        Self { body: ReplyBody::Events(events), permit: None, guards: Vec::new() }
    }

    /// Lets a guard travel with the reply until it ends or is dropped.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Send + 'static) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    /// Lets a place among the calls under way travel with the reply, as a guard does [LIM-5].
    #[must_use]
    pub fn with_permit(mut self, permit: Permit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Takes the place out: whoever keeps a reply that waits for its client gives it back for that time.
    pub const fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Lets the guards of another reply travel with this one.
    #[must_use]
    pub fn with_guards(mut self, guards: Vec<Box<dyn Send>>) -> Self {
        if self.guards.is_empty() {
            self.guards = guards;
        } else {
            self.guards.extend(guards);
        }
        self
    }

    /// Says whether this is a refusal of something that no server has acted on.
    #[must_use]
    pub fn is_safe_to_retry(&self) -> bool {
        match &self.body {
            ReplyBody::Done(outcome) => outcome.as_ref().as_ref().is_err_and(|reject| reject.retry == Retry::Safe),
            ReplyBody::Events(_) => false,
        }
    }

    /// Reads the reply to its outcome, and tells what comes before it; its guards live as long.
    pub async fn outcome(self, mut told: impl FnMut(&Event)) -> Outcome {
        let (body, _guards) = self.into_parts();
        let mut events = match body {
            ReplyBody::Done(outcome) => return *outcome,
            ReplyBody::Events(events) => events,
        };
        loop {
            match std::future::poll_fn(|cx| events.as_mut().poll_next(cx)).await {
                Some(Event::Done(outcome)) => return outcome,
                Some(event) => told(&event),
                None => {
                    let why = "a reply without an outcome";
                    return Err(Reject::upstream(RejectKind::Upstream, "The answer ended too early", why));
                }
            }
        }
    }

    /// Takes the reply apart; the caller keeps the guards until the client has the last byte.
    #[must_use]
    pub fn into_parts(self) -> (ReplyBody, Vec<Box<dyn Send>>) {
        let Self { body, permit, mut guards } = self;
        guards.extend(permit.map(|permit| -> Box<dyn Send> { Box::new(permit) }));
        (body, guards)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("body", &self.body).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(outcome) => f.debug_tuple("Done").field(outcome).finish(),
            Self::Events(_) => f.write_str("Events"),
        }
    }
}
