//! The narrow waist: what the doors hand to the hall, and what comes back.
//!
//! Not for: HTTP, policy, or any server's transport. Invariant: a door can reach a server only through a [`Handler`].

mod aside;
mod handler;
mod question;
mod reject;
mod reply;
mod request;
mod watching;

pub use aside::Aside;
pub use handler::{Caller, Handler, Handling};
pub use question::{Asked, InputRequired, QUESTIONS_BYTES_MAX, QUESTIONS_MAX, Question, Responder, Settled};
pub use reject::{ReasonCode, Reject, RejectKind, Retry, Source};
pub use reply::{
    Answer, ByteStream, Discovery, Event, EventStream, ListPage, Outcome, Reply, ReplyBody, Unseen, WatchEvent,
};
pub use request::{
    Call, ClientFacts, Endpoint, Exchange, Listen, Owner, OwnerKey, Seen, ServerCall, Told, UpstreamCall,
};
pub use watching::{Asking, Hold, TooManyWatched, WATCHED_MAX, Watching, WeakWatching};
