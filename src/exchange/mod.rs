//! The narrow waist: what the doors hand to the hall, and what comes back.
//!
//! Not for: HTTP, policy, or any server's transport. Invariant: a door can reach a server only through a [`Handler`].

mod handler;
mod reject;
mod reply;
mod request;

pub use handler::{Caller, Handler};
pub use reject::{ReasonCode, Reject, RejectKind, Retry, Source};
pub use reply::{Answer, ByteStream, Discovery, Event, EventStream, ListPage, Outcome, Reply, ReplyBody, Unseen};
pub use request::{
    Call, ClientFacts, Endpoint, Exchange, Listen, Owner, OwnerKey, Seen, ServerCall, Told, UpstreamCall,
};
