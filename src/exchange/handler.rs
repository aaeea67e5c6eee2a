//! The contract between doors and hall.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::id::PrincipalId;
use crate::identity::Credential;
use crate::limit::Permit;
use crate::wire::mcp::{Capabilities, Kind};

use super::{Endpoint, Exchange, Reject, Reply, Seen};

/// Who stands behind a request, as the hall found out. Holds the one snapshot of this exchange.
pub trait Caller: Clone + Send + Sync + 'static {
    /// Returns the principal.
    fn principal(&self) -> &PrincipalId;

    /// Says whether other principals may call too: then none has more than its share of what all have together [LIM-6].
    fn is_one_of_many(&self) -> bool;

    /// Says whether this principal is connected to what the path names [NAM-5].
    fn serves(&self, endpoint: &Endpoint) -> bool;

    /// Returns what the gateway can do for this principal there.
    fn capabilities(&self, endpoint: &Endpoint) -> Capabilities;

    /// Says whether this principal may make a call now, by the name that a client uses on this path: what a server has said
    /// in answer to it is kept for those alone [CFG-4].
    fn may_call(&self, endpoint: &Endpoint, kind: Kind, name: &str) -> bool;

    /// Returns the fingerprints of what this principal sees there now, for the [`super::Told`] of a new listen.
    fn seen(&self, endpoint: &Endpoint) -> Seen;
}

/// An exchange in the hall's hands.
pub type Handling = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The hall as a door sees it.
pub trait Handler: Send + Sync + 'static {
    /// What [`Handler::identify`] found.
    type Caller: Caller;

    /// Finds out who presents a credential. A step of its own, because a legacy session is bound to its principal
    /// before there is a call.
    ///
    /// # Errors
    /// A [`Reject`] of kind `Unauthenticated` or `NotMapped`.
    fn identify(&self, credential: &Credential<'_>) -> Result<Self::Caller, Reject>;

    /// Returns the same caller in the state of this moment: what a reload has taken away, it has no longer.
    fn renewed(&self, caller: Self::Caller) -> Self::Caller;

    /// Judges an exchange as [`Handler::call`] would, and sends nothing: the gate of a call that goes on [POL-12, R95].
    /// Returns its place among the calls under way.
    fn check(
        self: &Arc<Self>,
        caller: Self::Caller,
        exchange: Exchange,
    ) -> impl Future<Output = Result<Option<Permit>, Reject>> + Send + 'static;

    /// Counts a request, before its body is read or its text is looked at [LIM-5].
    ///
    /// # Errors
    /// A [`Reject`] of kind `Busy`: this principal has asked too often.
    fn admit(&self, caller: &Self::Caller) -> Result<(), Reject>;

    /// Counts a message of a principal that has asked too often, if it ends something: a cancel, the answer to a question.
    /// What is held for that principal does not wait for its rate [LIM-5].
    ///
    /// # Errors
    /// A [`Reject`] of kind `Busy`: too many of these, too.
    fn admit_end(&self, caller: &Self::Caller) -> Result<(), Reject>;

    /// Handles one exchange: what needs no waiting at once, the rest in a future that resolves when the first thing for the
    /// client is known.
    ///
    /// # Cancel safety
    /// Dropping the future, or the reply's stream, cancels the call at the server on its hop's own way.
    fn call(self: &Arc<Self>, caller: Self::Caller, exchange: Exchange) -> Handling;
}
