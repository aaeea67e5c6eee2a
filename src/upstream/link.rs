//! One live connection to a server, and what is sent on it: the contract between transports and `server`.
//!
//! Not for: choosing or owning connections. A transport implements [`Connector`] and [`Link`] and nothing else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exchange::{OwnerKey, Reply, UpstreamCall};
use crate::wire::bridge::{self, Hop};
use crate::wire::json;
use crate::wire::jsonrpc::Notification;
use crate::wire::mcp::{Capabilities, Era, Features, Kind, Kinds, Level, STATELESS_LATEST};

use super::channel::Conversation;
use super::heard::Heard;
use super::loudness::Loudness;
use super::place::{Full, Place};

/// A boxed future; the trait objects here need one.
pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Opens connections to one server.
pub(super) trait Connector: Send + Sync + fmt::Debug {
    /// Opens a connection and makes the handshake.
    ///
    /// # Cancel safety
    /// Dropping the future ends what it started, a child process included.
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>>;

    /// Waits until nothing lives on of what was opened and closed, or was given up in its handshake.
    fn ended(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// What connection is wanted.
#[derive(Clone, Debug)]
pub(super) struct Want {
    /// The era, and no other will do; `None`: whatever a probe finds (protocol §2.8).
    pub(super) era: Option<Era>,
    /// What the server may ask there, as it is declared to a legacy one.
    pub(super) features: Features,
    /// The right to a process, kept until that is reaped; connections that are no process need none.
    pub(super) place: Option<Arc<Place>>,
}

#[cfg(test)]
impl Want {
    /// Whatever a probe finds.
    pub(super) const fn any() -> Self {
        Self { era: None, features: Features::NONE, place: None }
    }

    /// This era.
    pub(super) const fn of(era: Era) -> Self {
        Self { era: Some(era), features: Features::NONE, place: None }
    }
}

/// A connection after its handshake.
#[derive(Clone, Debug)]
pub(super) struct Started {
    /// The connection.
    pub(super) link: Arc<dyn Link>,
    /// What the server says it can do.
    pub(super) can: Capabilities,
}

/// Why there is no connection. The words are for the operator; no secret is in them.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The server does not speak the era that was wanted.
    #[error("does not speak MCP {era}: {1}", era = words(*.0))]
    Era(Era, String),
    /// It could not be reached, ended, or did not answer in time. The text names the cause.
    #[error("{0}")]
    Failed(String),
    /// There are as many processes as there may be.
    #[error("{0}")]
    Full(Full),
}

/// An era as an operator knows it.
const fn words(era: Era) -> &'static str {
    match era {
        Era::Legacy => "of 2024-11-05 to 2025-11-25",
        Era::Stateless => "of 2026-07-28",
    }
}

/// One live connection.
pub(super) trait Link: Send + Sync + fmt::Debug {
    /// Returns the era spoken on it.
    fn era(&self) -> Era;

    /// Returns what every connection keeps.
    fn state(&self) -> &LinkState;

    /// Returns what is said on it, where it is a channel.
    fn conversation(&self) -> Option<&Arc<Conversation>> {
        None
    }

    /// Says whether it is one channel for all requests, held open while nobody calls: then nothing says which request a
    /// question of the server belongs to, and its end is the end of all of them.
    fn is_channel(&self) -> bool {
        self.conversation().is_some()
    }

    /// Sends a request. The reply is known when the first event or the answer has arrived; dropping it, or the future,
    /// cancels the request on this hop's own way: stdio and legacy HTTP by `notifications/cancelled`, stateless HTTP by
    /// closing the response. Exactly one answer, also when the connection dies. A [`Reply`] of this layer carries
    /// `Answer::Upstream`, or a `Reject` of kind `Upstream` or `Limit` that names the server. `Retry::Safe` on it means
    /// that the server has not acted on the request.
    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply>;

    /// Starts listening for changes of the lists of these kinds, where the era needs an own stream for it; an older server
    /// also tells of resources there. At most once per connection.
    fn watch(self: Arc<Self>, _kinds: Kinds) {}

    /// Counts the changes of lists that the server has told of.
    fn changes(&self) -> watch::Receiver<Changes> {
        self.state().changes.subscribe()
    }

    /// Says whose calls were given up that the server has not answered: what it asks beside the calls may be of them
    /// [TRN-10].
    fn left_behind(&self, owner: &OwnerKey) -> Left {
        self.conversation().map_or(Left::Nothing, |conversation| conversation.table.left_behind(owner))
    }

    /// Returns what the server was told of its logs.
    fn loudness(&self) -> &Loudness {
        &self.state().loudness
    }

    /// Takes note that any list may have changed, so that all are read again.
    fn relist(&self) {
        Changes::all(&self.state().changes);
    }

    /// Tells the server that its client's roots have changed, where it was told that it would be.
    fn roots_changed(self: Arc<Self>) {
        if let Some(conversation) = self.conversation() {
            conversation.roots_changed();
        }
    }

    /// Is cancelled once the server has asked for roots before the first call; `None` where such a question is refused.
    fn early(&self) -> Option<&CancellationToken> {
        Some(self.conversation()?.early())
    }

    /// Says whether the server has asked for roots before the first call.
    fn has_asked_early(&self) -> bool {
        self.early().is_some_and(CancellationToken::is_cancelled)
    }

    /// Refuses what the server asks while no call is under way: nobody is about to call. The first call ends that.
    fn refuse_early(&self) {
        if let Some(conversation) = self.conversation() {
            conversation.refuse_early();
        }
    }

    /// Returns what the server has said of watched resources and of visits.
    fn heard(&self) -> &Arc<Heard> {
        &self.state().heard
    }

    /// Is cancelled when the connection is of no more use.
    fn closed(&self) -> &CancellationToken {
        &self.state().closed
    }

    /// Ends the connection in order: a child by stdin, TERM, KILL; an HTTP session by DELETE. Returns at once.
    fn close(&self) {
        self.closed().cancel();
    }

    /// Waits until what [`Link::close`] began has ended: the child is gone, or the DELETE is answered or given up.
    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(self.closed().clone().cancelled_owned())
    }

    /// Says why the connection is of no more use, for status and log: exit code, last stderr lines.
    fn last_words(&self) -> Option<String> {
        self.state().last_words()
    }
}

/// What every connection keeps, however its server is reached.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// Counts the changes of lists that the server has told of.
    pub(super) changes: watch::Sender<Changes>,
    /// What the server was told of its logs.
    pub(super) loudness: Loudness,
    /// What it has said of watched resources and of visits.
    pub(super) heard: Arc<Heard>,
    /// No new request is taken.
    pub(super) closed: CancellationToken,
    last_words: OnceLock<String>,
}

/// Whose calls a server may still work on though nobody waits for their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There are none.
    Nothing,
    /// They are all of the owner who asks.
    Own,
    /// Some are others'.
    Others,
}

/// How often a server has told that a list has changed, for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes([u64; Kind::ALL.len()]);

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Outgoing {
    /// A client's call.
    Call(Arc<UpstreamCall>),
    /// A request of the gateway's own; `members` are the params' members without braces.
    Own {
        /// The method.
        method: &'static str,
        /// The params' members without braces.
        members: String,
    },
}

// === impl LinkState ===

impl LinkState {
    /// Takes note of a notification; `false` if it tells of no change and of no visit.
    pub(super) fn hear(&self, notification: &Notification) -> bool {
        Changes::hear(&self.changes, &notification.method) || self.heard.hear(notification)
    }

    /// Takes note that any change may have been missed.
    pub(super) fn missed(&self) {
        Changes::all(&self.changes);
        self.heard.missed();
    }

    /// Takes note of why the connection is of no more use; `false` if that is known already.
    pub(super) fn ended(&self, words: String) -> bool {
        self.last_words.set(words).is_ok()
    }

    /// Says why the connection is of no more use.
    pub(super) fn last_words(&self) -> Option<String> {
        self.last_words.get().cloned()
    }
}

// === impl Changes ===

impl Changes {
    /// Takes note of a notification; `false` if it tells of no list.
    pub(super) fn hear(changes: &watch::Sender<Self>, method: &str) -> bool {
        let Some(told) = Kind::of_change(method) else { return false };
        changes.send_modify(|counts| counts.add(|kind| kind.told_as() == told));
        true
    }

    /// Takes note that any list may have changed: something may have been missed.
    pub(super) fn all(changes: &watch::Sender<Self>) {
        changes.send_modify(|counts| counts.add(|_| true));
    }

    /// Takes note that lists of these kinds have changed.
    pub(super) fn some(changes: &watch::Sender<Self>, kinds: Kinds) {
        changes.send_modify(|counts| counts.add(|kind| kinds.contains(kind)));
    }

    fn add(&mut self, of: impl Fn(Kind) -> bool) {
        for (kind, count) in Kind::ALL.into_iter().zip(&mut self.0) {
            *count += u64::from(of(kind));
        }
    }

    /// Returns how often the list of a kind has changed.
    #[cfg(test)]
    pub(super) fn of(&self, kind: Kind) -> u64 {
        self.0.get(kind.index()).copied().unwrap_or_default()
    }

    /// Returns which kinds have changed since `before`.
    pub(super) fn since(&self, before: &Self) -> Kinds {
        let counts = self.0.iter().zip(&before.0);
        Kind::ALL.into_iter().zip(counts).filter(|(_, (now, then))| now != then).map(|(kind, _)| kind).collect()
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// Spells the request for a hop; `id` is the progress token too.
    pub(super) fn render(&self, id: u64, era: Era) -> Bytes {
        match self {
            Self::Own { method, members } => bridge::own_request(id, method, era, &bridge::server_info(), members),
            Self::Call(call) => bridge::lower_call(
                &call.call.request,
                &call.call.params,
                &call.call.meta,
                &Hop {
                    era,
                    id,
                    name: &call.original_spelled,
                    capabilities: capabilities(call),
                    client_info: call.client.info.clone().unwrap_or_else(bridge::server_info),
                    request_state: call.request_state.as_ref(),
                    log: log_of(call),
                    trace: call.trace.as_deref(),
                },
            ),
        }
    }

    /// Returns the method's name.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Call(call) => call.call.params.method.spec().name,
            Self::Own { method, .. } => method,
        }
    }

    /// Returns the client's own progress token, where it wants progress.
    pub(super) fn progress_token(&self) -> Option<&Bytes> {
        match self {
            Self::Call(call) => call.call.meta.progress_token.as_ref(),
            Self::Own { .. } => None,
        }
    }

    /// Spells a progress notification of the server for the client: its own token in place of ours, all else as it
    /// came. `None` if the client wants none, or the notification is malformed.
    pub(super) fn progress_for_client(&self, notification: &Notification) -> Option<Bytes> {
        let token = self.progress_token()?;
        let at = notification.params.as_deref()?.at("progressToken").ok()??;
        let mut edits = crate::wire::jsonrpc::Edits::new(notification.raw.clone());
        edits.replace(at, token.clone());
        Some(edits.apply())
    }
}

/// What a stateless server is told the client can do: what a stateless client declared of the three kinds of input, as it
/// spelled it; what a session's client declared, in the words of this era.
pub(super) fn capabilities(call: &UpstreamCall) -> Bytes {
    const NONE: Bytes = Bytes::from_static(b"{}");
    if call.client.capabilities == NONE {
        return NONE;
    }
    if call.client.version < STATELESS_LATEST {
        let features = call.client.features;
        return if features.may_be_asked() { Bytes::from(features.spelled(Era::Stateless)) } else { NONE };
    }
    let Ok(members) = json::members(&call.client.capabilities) else { return NONE };
    let carried = |key: &[u8]| matches!(key, b"elicitation" | b"roots" | b"sampling");
    if members.iter().all(|(key, _)| carried(&key)) {
        return call.client.capabilities.clone();
    }
    let mut kept = Vec::from(*b"{");
    for (key, value) in members.iter().filter(|(key, _)| carried(key)) {
        if kept.len() > 1 {
            kept.push(b',');
        }
        kept.extend_from_slice(&[b"\"", &*key, b"\":", value.get()].concat());
    }
    kept.push(b'}');
    Bytes::from(kept)
}

/// What a server is told when its client's roots have changed.
pub(super) const ROOTS_CHANGED: Bytes =
    Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);

/// Spells the params of a `subscriptions/listen` for the changes of these kinds, without braces.
pub(super) fn subscription(kinds: Kinds) -> String {
    let kinds = Kind::TOLD.into_iter().filter(|kind| kinds.contains(*kind));
    let filter: Vec<_> = kinds.map(|kind| format!("\"{}\":true", kind.filter())).collect();
    format!("\"notifications\":{{{}}}", filter.join(","))
}

/// From which severity on a stateless server shall log for a client that cannot say so with each request: what its session
/// wants, and as long as it has not said, what a server of its own era would most likely tell it.
fn log_of(call: &UpstreamCall) -> Option<Level> {
    (call.client.version < STATELESS_LATEST).then(|| call.client.log.unwrap_or(Level::Info))
}

/// Reads the value of `progress` in a progress notification, for the rule that it must grow [R109].
pub(super) fn progress_value(notification: &Notification) -> Option<f64> {
    notification.params.as_deref()?.get("progress").ok()??.parse()
}
