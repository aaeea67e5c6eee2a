//! One server: started, listed, watched, restarted; and its connections, each with one owner.
//!
//! Not for: transports (`stdio`, `http`) or policy. Invariants: one principal's state is never in another's hands (stdio
//! per principal, legacy HTTP per client session); a start in progress is shared by all who wait for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::catalog::Lists;
use crate::exchange::{OwnerKey, Reject, RejectKind, Reply, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::policy::Permitted;
use crate::runtime::Tasks;
use crate::wire::mcp::{Capabilities, Era};

use super::again;
use super::kept::Kept;
use super::lease::Lease;
use super::link::{Connector, Link, Outgoing, StartError, Want};
use super::means::Means;
use super::watches::Watches;
use super::{ServerSettings, Transport};

/// Where a server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It failed to start, with the cause; it is tried again.
    Down(String),
    /// It has answered a list and its connection lives.
    Ready,
    /// It is being started.
    Starting,
}

/// What is known of a server now.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    /// Where it stands.
    pub phase: Phase,
    /// Its last good lists; `None` until it has answered one.
    pub lists: Option<Lists>,
    /// What it says it can do.
    pub can: Capabilities,
}

/// One server behind the gateway.
pub struct Server {
    pub(super) settings: Arc<ServerSettings>,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) lease: Arc<Lease>,
    pub(super) tasks: Tasks,
    pub(super) starts: Arc<Semaphore>,
    /// The resources of it that are watched.
    pub(super) watches: Arc<Watches>,
    pub(super) status: watch::Sender<TargetStatus>,
    news: watch::Sender<u64>,
    pub(super) kept: Kept,
    pub(super) hidden: AtomicBool,
    pub(super) started: AtomicBool,
    /// One principal alone is granted it.
    pub(super) sole: AtomicBool,
    /// The list must be read over another connection than the one that has become a principal's own.
    pub(super) apart: Notify,
    /// The whole set is being closed: nothing is started again.
    pub(super) stopping: CancellationToken,
    eras: Mutex<Eras>,
    /// The connection the list is read over.
    pub(super) catalog: Mutex<Option<Arc<dyn Link>>>,
    /// The same, until a caller takes it for its own.
    pub(super) unowned: Mutex<Option<Arc<dyn Link>>>,
    pub(super) slots: Mutex<HashMap<SlotKey, Slot>>,
}

/// What is known of the eras a server speaks: a set, filled as it is found out (protocol §2.8).
#[derive(Clone, Copy, Debug, Default)]
struct Eras {
    legacy: Option<bool>,
    stateless: Option<bool>,
}

/// Forgets a slot that was made for a connection which never came to be, also when its caller has gone.
struct Tidy<'a> {
    server: &'a Server,
    key: &'a SlotKey,
}

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        self.server.forget(self.key, None);
    }
}

/// Whose connection, in which era.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SlotKey {
    Owner(OwnerKey, Era),
    Principal(PrincipalId, Era),
    Shared,
}

pub(super) type Slot = Arc<tokio::sync::Mutex<Option<Arc<dyn Link>>>>;

// === impl Server ===

impl Server {
    pub(super) fn new(settings: Arc<ServerSettings>, connector: Arc<dyn Connector>, means: &Means) -> Arc<Self> {
        let status =
            watch::Sender::new(TargetStatus { phase: Phase::Starting, lists: None, can: Capabilities::default() });
        Arc::new(Self {
            lease: Lease::new(settings.name.clone()),
            settings,
            connector,
            tasks: means.tasks.clone(),
            starts: Arc::clone(&means.starts),
            watches: Arc::default(),
            status,
            news: means.news.clone(),
            kept: means.kept.clone(),
            hidden: AtomicBool::new(false),
            started: AtomicBool::new(false),
            sole: AtomicBool::new(false),
            apart: Notify::new(),
            stopping: CancellationToken::new(),
            eras: Mutex::default(),
            catalog: Mutex::default(),
            unowned: Mutex::default(),
            slots: Mutex::default(),
        })
    }

    /// Returns the server's settings.
    #[must_use]
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the server's name.
    #[must_use]
    pub fn name(&self) -> &UpstreamName {
        &self.settings.name
    }

    /// Says whether the transport is HTTP, where annotated arguments travel as headers [R52].
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.settings.transport, Transport::Http { .. })
    }

    /// Returns what is known of it now.
    #[must_use]
    pub fn status(&self) -> TargetStatus {
        self.status.borrow().clone()
    }

    /// Says whether its tools are hidden because it is down [TRN-7].
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.hidden.load(Ordering::Acquire)
    }

    /// Shows the lists that were kept, until the fresh ones arrive [TRN-8]. Blocks.
    pub(super) fn recall(&self) {
        if self.status.borrow().lists.is_none()
            && let Some((lists, can)) = self.kept.read(&self.settings)
        {
            self.change(|status| (status.lists, status.can) = (Some(lists), can));
        }
    }

    /// Waits until it is no longer starting.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn settled(&self) {
        let mut status = self.status.subscribe();
        // The sender lives as long as `self`.
        let _settled = status.wait_for(|status| status.phase != Phase::Starting).await.is_ok();
    }

    /// Sends a permitted call over the connection of its owner.
    ///
    /// # Cancel safety
    /// Dropping the future or the reply cancels the call at the server.
    pub async fn send(self: Arc<Self>, permitted: Permitted<UpstreamCall>) -> Reply {
        let outgoing = Outgoing::Call(Arc::new(permitted.into_inner()));
        let mut again = true;
        loop {
            let Outgoing::Call(call) = &outgoing else { return Reply::once(Err(self.down("not a call"))) };
            let link = match self.link_for(call).await {
                Ok(link) => link,
                Err(reject) => return Reply::once(Err(reject)),
            };
            self.tell_loudness(&link, call).await;
            let reply = Arc::clone(&link).request(outgoing.clone()).await;
            if again::is_mismatch(&reply, call) {
                return self.again(&link, call).await.unwrap_or(reply);
            }
            // A connection that was ending when it was chosen has not passed the call on: once more, on a new one.
            if !(again && link.closed().is_cancelled() && reply.is_safe_to_retry()) {
                return reply;
            }
            again = false;
        }
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.change(|status| status.phase = phase);
    }

    /// Changes the status under the lock of the news: who sees the one and then asks for the other sees both.
    pub(super) fn change(&self, change: impl FnOnce(&mut TargetStatus)) {
        self.news.send_modify(|count| {
            self.status.send_modify(change);
            *count += 1;
        });
    }

    pub(super) fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    pub(super) fn found(&self, era: Era) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Era::Legacy => *eras = Eras { legacy: Some(true), stateless: eras.stateless.or(Some(false)) },
            Era::Stateless => eras.stateless = Some(true),
        }
    }

    fn lacks(&self, era: Era) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Era::Legacy => eras.legacy = Some(false),
            Era::Stateless => eras.stateless = Some(false),
        }
    }

    /// Gives a connection that was opened for the list to its first fitting caller, or to all where it has no state.
    pub(super) fn offer(&self, link: &Arc<dyn Link>) {
        *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(link));
        if !self.is_http() {
            // With more principals than one, the list must not depend on what one of them does to a child of its own.
            if !self.sole.load(Ordering::Acquire) {
                return;
            }
            *self.unowned.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(link));
        } else if link.era() == Era::Stateless {
            let slot = Arc::new(tokio::sync::Mutex::new(Some(Arc::clone(link))));
            self.slots.lock().unwrap_or_else(PoisonError::into_inner).insert(SlotKey::Shared, slot);
        }
    }

    async fn link_for(self: &Arc<Self>, call: &UpstreamCall) -> Result<Arc<dyn Link>, Reject> {
        // A connection that lives serves its owner, whatever has happened to the one the list is read over.
        if let Some(link) = self.open_already(call) {
            return Ok(link);
        }
        self.settled().await;
        if let Phase::Down(cause) = self.status().phase {
            return Err(self.down(&cause));
        }
        let native = call.client.version.era();
        let eras = *self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        let speaks = match native {
            Era::Legacy => eras.legacy,
            Era::Stateless => eras.stateless,
        };
        let other = if native == Era::Legacy { Era::Stateless } else { Era::Legacy };
        if speaks == Some(false) {
            return self.link_in(other, call).await.map_err(|err| self.down(&err.to_string()));
        }
        let bridgeable = match other {
            Era::Legacy => eras.legacy,
            Era::Stateless => eras.stateless,
        };
        match self.link_in(native, call).await {
            Ok(link) => Ok(link),
            // A server that is known to live in the other era, and does not start in this one, does not speak it.
            Err(err @ (StartError::Era(..) | StartError::Failed(_)))
                if speaks.is_none() && (matches!(err, StartError::Era(..)) || bridgeable == Some(true)) =>
            {
                tracing::info!(server = %self.name(), era = ?native, why = %err, "the server is bridged to from this era");
                let link = self.link_in(other, call).await.map_err(|err| self.down(&err.to_string()))?;
                self.lacks(native);
                Ok(link)
            }
            Err(err) => Err(self.down(&err.to_string())),
        }
    }

    fn open_already(&self, call: &UpstreamCall) -> Option<Arc<dyn Link>> {
        let native = call.client.version.era();
        let other = if native == Era::Legacy { Era::Stateless } else { Era::Legacy };
        let eras = *self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        let speaks = if native == Era::Legacy { eras.legacy } else { eras.stateless };
        let wanted = if speaks == Some(false) { other } else { native };
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get(&self.key(wanted, call))?;
        let held = slot.try_lock().ok()?;
        held.as_ref().filter(|link| !link.closed().is_cancelled()).cloned()
    }

    async fn link_in(self: &Arc<Self>, era: Era, call: &UpstreamCall) -> Result<Arc<dyn Link>, StartError> {
        let key = self.key(era, call);
        let _tidy = Tidy { server: self, key: &key };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(StartError::Failed("is being stopped".to_owned())),
            opened = self.open_in(era, &key, call) => opened,
        }
    }

    async fn open_in(
        self: &Arc<Self>,
        era: Era,
        key: &SlotKey,
        call: &UpstreamCall,
    ) -> Result<Arc<dyn Link>, StartError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(key.clone()).or_default())
        };
        let mut held = slot.lock().await;
        if let Some(link) = held.as_ref().filter(|link| !link.closed().is_cancelled()) {
            return Ok(Arc::clone(link));
        }
        let adopted = self.adopt(era);
        let link = match adopted {
            Some(link) => link,
            None => {
                let open = Arc::clone(&self.connector).open(Want::Era(era));
                match tokio::time::timeout(self.settings.start_timeout, open).await {
                    Ok(started) => started?.link,
                    Err(_) => return Err(StartError::Failed("did not finish its start in time".to_owned())),
                }
            }
        };
        self.found(era);
        self.end_with_owner(key, call, &link);
        *held = Some(Arc::clone(&link));
        Ok(link)
    }

    fn adopt(&self, era: Era) -> Option<Arc<dyn Link>> {
        let mut unowned = self.unowned.lock().unwrap_or_else(PoisonError::into_inner);
        unowned.take_if(|link| link.era() == era && !link.closed().is_cancelled())
    }

    fn key(&self, era: Era, call: &UpstreamCall) -> SlotKey {
        match (self.is_http(), era) {
            (false, _) => SlotKey::Principal(call.principal.clone(), era),
            (true, Era::Stateless) => SlotKey::Shared,
            (true, Era::Legacy) => SlotKey::Owner(call.owner.key.clone(), era),
        }
    }

    /// Closes a connection when its owner ends, and forgets it when it closes.
    fn end_with_owner(self: &Arc<Self>, key: &SlotKey, call: &UpstreamCall, link: &Arc<dyn Link>) {
        if !matches!(key, SlotKey::Owner(OwnerKey::Session(_), _)) {
            return;
        }
        let Some(ended) = call.owner.ended.clone() else { return };
        let (server, key, link) = (Arc::clone(self), key.clone(), Arc::clone(link));
        self.tasks.spawn("end a server session with its owner", async move {
            tokio::select! {
                () = ended.cancelled() => link.close(),
                () = link.closed().cancelled() => {}
            }
            server.forget(&key, Some(&link));
        });
    }

    /// Drops the slot of a connection that has ended, or of one that never was; not one that somebody has filled anew.
    fn forget(&self, key: &SlotKey, ended: Option<&Arc<dyn Link>>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = slots.get(key).is_some_and(|slot| match (slot.try_lock().as_deref(), ended) {
            (Ok(Some(held)), Some(ended)) => Arc::ptr_eq(held, ended),
            (Ok(None), _) => true,
            (Ok(Some(_)), None) | (Err(_), _) => false,
        });
        if stale {
            slots.remove(key);
        }
    }

    fn down(&self, cause: &str) -> Reject {
        Reject::upstream(RejectKind::Upstream, format!("server '{}' is down", self.name()), cause).safe_to_retry()
    }

    /// Ends every connection in order; the server is not started again.
    pub(super) async fn close(&self) {
        self.stopping.cancel();
        let links: Vec<Arc<dyn Link>> =
            self.catalog.lock().unwrap_or_else(PoisonError::into_inner).take().into_iter().collect();
        let slots: Vec<Slot> = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.drain().map(|(_, slot)| slot).collect()
        };
        for link in &links {
            link.close();
        }
        let owned = slots.into_iter().map(|slot| async move {
            let link = slot.lock().await.take();
            if let Some(link) = link {
                link.close();
                link.ended().await;
            }
        });
        let lists = futures_util::future::join_all(links.into_iter().map(Link::ended));
        futures_util::future::join(futures_util::future::join_all(owned), lists).await;
        self.connector.ended().await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Phase, Server, ServerSettings, Transport};
    use crate::clock::Clock;
    use crate::id::UpstreamName;
    use crate::runtime::Tasks;
    use crate::secret::Secret;
    use crate::upstream::http;
    use crate::upstream::means::Means;

    /// A list asks first where servers stand, then whether the snapshot has seen their news: one that came in between would
    /// be missing from it, as if it were old [TRN-8].
    #[test]
    fn who_sees_a_new_status_sees_its_news() {
        const CHANGES: u64 = 50_000;
        let url = "http://127.0.0.1:1/".to_owned();
        let transport = Transport::Http { uri: url.parse().unwrap(), url: Secret::new(url), headers: Vec::new() };
        let settings = Arc::new(ServerSettings::new(UpstreamName::new("up").unwrap(), transport));
        let connector = http::connector(Arc::clone(&settings), Tasks::new());
        let server = Server::new(settings, connector, &Means::new(Tasks::new(), Clock::manual()));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=CHANGES).for_each(|count| server.set_phase(Phase::Down(count.to_string()))));
            let mut count = 0;
            while count < CHANGES {
                count = match server.status().phase {
                    Phase::Down(count) => count.parse().unwrap(),
                    Phase::Ready | Phase::Starting => 0,
                };
                let news = *server.news.borrow();
                assert!(news >= count, "change {count} is seen, and the news of {news} alone");
            }
        });
    }
}
