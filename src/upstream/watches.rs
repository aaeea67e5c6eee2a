//! Which resources of a server are watched, by how many, and what the server says of them.
//!
//! Not for: who may watch (`gateway` asks policy). Invariants: one subscription at the server per resource, however many
//! watch it: made with the first, ended with the last, made again on each new connection; a listen is replaced only once
//! the one that follows it is acknowledged (protocol §4.6); an update reaches exactly those who watch the resource or one
//! above it. While one listen follows another, a server may tell both of one change: nothing says that it is the same, so it is
//! told twice rather than lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use crate::exchange::Reply;
use crate::id::PrincipalId;
use crate::limit::share;
use crate::policy::Permitted;
use crate::wire::json;
use crate::wire::mcp::{Capabilities, Era};

use super::heard::{Heard, Said};
use super::link::{BoxFuture, Link, Outgoing};
use super::list::ask;
use super::server::Server;

/// The most resources of one server that are watched at once.
const WATCHED_MAX: usize = 4_096;
/// How many subscriptions are asked for at once.
const ASKS_MAX: usize = 16;
/// How long a server may take to accept a subscription.
const ACCEPT_MAX: Duration = Duration::from_secs(10);
/// Changes of what is watched that come together are one listen.
const COALESCE: Duration = Duration::from_millis(50);
/// The pause after a listen that has ended; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Hears of an updated resource, by the server's own URI.
pub type Hears = Arc<dyn Fn(&str) + Send + Sync>;

/// The watched resources of one server.
#[derive(Debug)]
pub(super) struct Watches {
    state: Mutex<State>,
    /// Counts the changes of what is watched.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    wanted: BTreeMap<Arc<str>, Wanted>,
    /// How many of them each principal accounts for: those that it was the first to watch, of all who do now.
    of: HashMap<PrincipalId, usize>,
    numbers: u64,
}

struct Wanted {
    /// In the order they came.
    hears: Vec<(u64, PrincipalId, Hears)>,
    standing: watch::Sender<Standing>,
    /// It was watched over a connection that has gone: a change may have been missed.
    lapsed: bool,
}

/// What the server says to a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Asked,
    Refused(Arc<str>),
    Watched,
}

/// How far the one subscription of a resource is, on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Asking,
    Held,
    Leaving,
    Refused,
}

/// A watched resource, until it is dropped.
pub struct Watch {
    watches: Arc<Watches>,
    uri: Arc<str>,
    number: u64,
    standing: watch::Receiver<Standing>,
}

/// A listen that is open.
struct Open {
    uris: BTreeSet<Arc<str>>,
    listening: BoxFuture<Reply>,
    /// Rings when it should have been acknowledged.
    patience: Pin<Box<Sleep>>,
}

/// Why a resource is not watched; for the client, without names of the server's side.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// Nothing was said in time, most likely because the server is down.
    #[error("the server did not accept the subscription in time")]
    Late,
    /// The server does not want to.
    #[error("the server refuses the subscription: {0}")]
    Refused(Arc<str>),
    /// Too many resources of it are watched.
    #[error("too many resources of the server are watched ({WATCHED_MAX})")]
    TooMany,
}

// === impl Server ===

impl Server {
    /// Watches a resource for a principal; whether the server accepts is another question ([`Watch::accepted`]).
    ///
    /// # Errors
    /// [`WatchError::TooMany`].
    pub fn watch(&self, principal: &PrincipalId, uri: Permitted<Arc<str>>, hears: Hears) -> Result<Watch, WatchError> {
        let watch = Watches::add(&self.watches, principal, uri.into_inner(), hears)?;
        // The subscription stands on the connection of the list, which may have been stopped for being idle.
        self.pool.wake();
        Ok(watch)
    }

    /// Says whether a watch is one of this server, and not of one that it has replaced.
    #[must_use]
    pub fn holds(&self, watch: &Watch) -> bool {
        Arc::ptr_eq(&self.watches, &watch.watches)
    }
}

// === impl Watch ===

impl Watch {
    /// Waits until the server has accepted.
    ///
    /// # Errors
    /// [`WatchError`]: it refuses, or says nothing in time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn accepted(&self) -> Result<(), WatchError> {
        let mut standing = self.standing.clone();
        let said = tokio::time::timeout(ACCEPT_MAX, standing.wait_for(|standing| *standing != Standing::Asked)).await;
        match said.as_ref().map(|said| said.as_deref()) {
            Ok(Ok(Standing::Watched)) => Ok(()),
            Ok(Ok(Standing::Refused(why))) => Err(WatchError::Refused(Arc::clone(why))),
            Ok(Ok(Standing::Asked) | Err(_)) | Err(_) => Err(WatchError::Late),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.watches.state();
        let gone = state.remove(&self.uri, self.number);
        drop(state);
        if gone.is_some() {
            self.watches.changed.send_modify(|count| *count += 1);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("by", &self.hears.len()).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Takes out who watches a resource; returns the resource where that was the last one. Its account goes over to whoever has
    /// watched it longest, also where that is more than its share.
    fn remove(&mut self, uri: &Arc<str>, number: u64) -> Option<Wanted> {
        let wanted = self.wanted.get_mut(uri)?;
        let (_, before, _) = wanted.hears.first()?;
        let before = before.clone();
        wanted.hears.retain(|(other, ..)| *other != number);
        let after = wanted.hears.first().map(|(_, principal, _)| principal.clone());
        if after.as_ref() != Some(&before)
            && let Some(count) = self.of.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&before);
            }
            if let Some(after) = &after {
                *self.of.entry(after.clone()).or_default() += 1;
            }
        }
        if after.is_none() { self.wanted.remove(uri) } else { None }
    }
}

// === impl Watches ===

impl Default for Watches {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Watches {
    /// Says whether nothing is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.state().wanted.is_empty()
    }

    pub(super) fn add(
        watches: &Arc<Self>,
        principal: &PrincipalId,
        uri: Arc<str>,
        hears: Hears,
    ) -> Result<Watch, WatchError> {
        let mut state = watches.state();
        if !state.wanted.contains_key(&uri) {
            let (all, own) = (state.wanted.len(), state.of.get(principal).copied().unwrap_or_default());
            if all >= WATCHED_MAX || own >= share(WATCHED_MAX, all - own) {
                return Err(WatchError::TooMany);
            }
            *state.of.entry(principal.clone()).or_default() += 1;
        }
        state.numbers += 1;
        let number = state.numbers;
        let new = || Wanted { hears: Vec::new(), standing: watch::Sender::new(Standing::Asked), lapsed: false };
        let wanted = state.wanted.entry(Arc::clone(&uri)).or_insert_with(new);
        wanted.hears.push((number, principal.clone(), hears));
        let standing = wanted.standing.subscribe();
        drop(state);
        watches.changed.send_modify(|count| *count += 1);
        Ok(Watch { watches: Arc::clone(watches), uri, number, standing })
    }

    /// Keeps the subscriptions of what is watched over one connection; never ends.
    ///
    /// # Cancel safety
    /// Dropping it ends the subscriptions' requests; with the next connection all are made anew.
    pub(super) async fn serve(&self, link: &Arc<dyn Link>, can: Capabilities) {
        self.lapse();
        match link.era() {
            _ if !can.subscribe => self.refuse_all("it does not offer subscriptions").await,
            Era::Legacy => self.serve_each(link).await,
            Era::Stateless => self.serve_listen(link).await,
        }
    }

    async fn refuse_all(&self, why: &str) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            for uri in self.uris() {
                self.settle(&uri, Err(why));
            }
            if changed.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// One request per resource.
    async fn serve_each(&self, link: &Arc<dyn Link>) {
        let mut changed = self.changed.subscribe();
        let mut steps: BTreeMap<Arc<str>, Step> = BTreeMap::new();
        let mut asks = FuturesUnordered::new();
        loop {
            changed.mark_unchanged();
            while asks.len() < ASKS_MAX
                && let Some((uri, step)) = next_step(&self.uris(), &mut steps)
            {
                let method = if step == Step::Asking { "resources/subscribe" } else { "resources/unsubscribe" };
                let members = format!(r#""uri":{}"#, String::from_utf8_lossy(&json::quoted(&uri)));
                let asked = ask(link, method, members, ACCEPT_MAX);
                asks.push(async move { (uri, step, asked.await) });
            }
            tokio::select! {
                Some((uri, step, answer)) = asks.next(), if !asks.is_empty() => match (step, answer) {
                    (Step::Asking, Ok(_)) => {
                        steps.insert(Arc::clone(&uri), Step::Held);
                        self.settle(&uri, Ok(()));
                    }
                    (Step::Asking, Err(why)) => {
                        steps.insert(Arc::clone(&uri), Step::Refused);
                        self.settle(&uri, Err(&why));
                    }
                    (Step::Held | Step::Leaving | Step::Refused, _) => {
                        steps.remove(&uri);
                    }
                },
                () = link.heard().news() => {
                    let said = link.heard().take();
                    if said.lost {
                        steps.retain(|_, step| matches!(step, Step::Asking | Step::Leaving));
                        self.lapse();
                    }
                    self.hear(&said);
                }
                Ok(()) = changed.changed() => {}
            }
        }
    }

    /// One listen for all: what is watched is in its filter, which cannot be changed.
    async fn serve_listen(&self, link: &Arc<dyn Link>) {
        let heard: &Heard = link.heard();
        let mut changed = self.changed.subscribe();
        let (mut current, mut next): (Option<Open>, Option<Open>) = (None, None);
        let (mut rest, mut failures): (Option<Pin<Box<Sleep>>>, u32) = (None, 0);
        loop {
            changed.mark_unchanged();
            let wanted = self.uris();
            if wanted.is_empty() {
                (current, next) = (None, None);
            } else if rest.is_none() && next.is_none() && current.as_ref().is_none_or(|open| open.uris != wanted) {
                sleep(COALESCE).await;
                let open = Open::new(link, self.uris());
                // What is acknowledged from here on is this one.
                self.hear(&heard.take());
                next = open;
            }
            tokio::select! {
                why = refused(&mut next) => {
                    let refused = next.take().map(|open| open.uris).unwrap_or_default();
                    let held = current.as_ref().map(|open| &open.uris);
                    for uri in refused.iter().filter(|uri| held.is_none_or(|held| !held.contains(*uri))) {
                        self.settle(uri, Err(why));
                    }
                    rest = Some(pause(&mut failures));
                }
                () = ended(&mut current) => {
                    current = None;
                    self.lapse();
                    rest = Some(pause(&mut failures));
                }
                () = heard.news() => {
                    let said = heard.take();
                    if let (Some(honoured), true) = (&said.honoured, next.is_some()) {
                        // Only now the one before may go.
                        current = next.take();
                        failures = 0;
                        for uri in current.iter().flat_map(|open| &open.uris) {
                            let answer = if honoured.contains(&**uri) { Ok(()) } else { Err("it tells of no changes of it") };
                            self.settle(uri, answer);
                        }
                    }
                    self.hear(&said);
                }
                Ok(()) = changed.changed() => {}
                () = rings(rest.as_mut()) => rest = None,
            }
        }
    }

    fn hear(&self, said: &Said) {
        if said.all {
            for uri in self.uris() {
                self.tell(&uri);
            }
        }
        for uri in &said.updated {
            self.tell(uri);
        }
    }

    /// Tells who watches a resource, or one above it, that it has changed.
    fn tell(&self, updated: &str) {
        let hears: Vec<Hears> = {
            let state = self.state();
            let above = state.wanted.iter().filter(|(watched, _)| covers(watched, updated));
            above.flat_map(|(_, wanted)| wanted.hears.iter().map(|(.., hears)| Arc::clone(hears))).collect()
        };
        for hears in hears {
            hears(updated);
        }
    }

    /// Takes note of what the server says to a subscription.
    fn settle(&self, uri: &Arc<str>, answer: Result<(), &str>) {
        let mut state = self.state();
        let Some(wanted) = state.wanted.get_mut(uri) else { return };
        let missed = answer.is_ok() && std::mem::take(&mut wanted.lapsed);
        let standing = answer.map_or_else(|why| Standing::Refused(Arc::from(why)), |()| Standing::Watched);
        wanted.standing.send_if_modified(|now| {
            let changes = *now != standing;
            *now = standing;
            changes
        });
        drop(state);
        if missed {
            self.tell(uri);
        }
    }

    /// Takes note that nothing is subscribed any more.
    fn lapse(&self) {
        for wanted in self.state().wanted.values_mut() {
            wanted.lapsed |= *wanted.standing.borrow() == Standing::Watched;
            wanted.standing.send_replace(Standing::Asked);
        }
    }

    fn uris(&self) -> BTreeSet<Arc<str>> {
        self.state().wanted.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Open ===

impl Open {
    fn new(link: &Arc<dyn Link>, uris: BTreeSet<Arc<str>>) -> Option<Self> {
        if uris.is_empty() {
            return None;
        }
        let list: Vec<String> =
            uris.iter().map(|uri| String::from_utf8_lossy(&json::quoted(uri)).into_owned()).collect();
        let members = format!(r#""notifications":{{"resourceSubscriptions":[{}]}}"#, list.join(","));
        let listening = Arc::clone(link).request(Outgoing::Own { method: "subscriptions/listen", members });
        Some(Self { uris, listening, patience: Box::pin(sleep(ACCEPT_MAX)) })
    }
}

/// Waits until a listen has ended; for ever where there is none. Its stream is read here too.
async fn ended(open: &mut Option<Open>) {
    let Some(open) = open else { return pending().await };
    poll_fn(|cx| open.listening.as_mut().poll(cx).map(drop)).await;
}

/// Waits until a listen that is to be acknowledged has ended instead, or has not been in time.
async fn refused(open: &mut Option<Open>) -> &'static str {
    let Some(open) = open else { return pending().await };
    poll_fn(|cx| {
        if open.listening.as_mut().poll(cx).is_ready() {
            return Poll::Ready("it ended the listen");
        }
        open.patience.as_mut().poll(cx).map(|()| "it did not acknowledge the listen in time")
    })
    .await
}

/// Finds what is to be done next for one resource.
fn next_step(wanted: &BTreeSet<Arc<str>>, steps: &mut BTreeMap<Arc<str>, Step>) -> Option<(Arc<str>, Step)> {
    steps.retain(|uri, step| *step != Step::Refused || wanted.contains(uri));
    let new = wanted.iter().find(|uri| !steps.contains_key(*uri)).map(|uri| (Arc::clone(uri), Step::Asking));
    let old = || steps.iter().find(|(uri, step)| **step == Step::Held && !wanted.contains(*uri));
    let next = new.or_else(|| old().map(|(uri, _)| (Arc::clone(uri), Step::Leaving)));
    if let Some((uri, step)) = &next {
        steps.insert(Arc::clone(uri), *step);
    }
    next
}

/// Says whether `updated` is the watched resource or lies below it (protocol §2.11).
fn covers(watched: &str, updated: &str) -> bool {
    updated
        .strip_prefix(watched)
        .is_some_and(|rest| rest.is_empty() || watched.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

fn pause(failures: &mut u32) -> Pin<Box<Sleep>> {
    let pause = PAUSE.saturating_mul(1 << (*failures).min(6)).min(PAUSE_MAX);
    *failures = failures.saturating_add(1);
    Box::pin(sleep(pause))
}

/// Waits for a timer; for ever where there is none.
async fn rings(timer: Option<&mut Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => pending().await,
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
