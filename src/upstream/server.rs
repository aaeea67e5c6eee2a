//! One server: started, listed, watched, restarted; and its connections, each with one owner.
//!
//! Not for: transports (`stdio`, `http`) or policy. Invariants: one principal's state is never in another's hands (stdio
//! per principal, legacy HTTP per client session); a start in progress is shared by all who wait for it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::catalog::Lists;
use crate::clock::Clock;
use crate::codes::Code;
use crate::exchange::{ReasonCode, Reject, RejectKind, Reply, Source, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::policy::Permitted;
use crate::runtime::Tasks;
use crate::wire::mcp::{Capabilities, Era};

use super::again;
use super::audience::Audience;
use super::elsewhere::Elsewhere;
use super::kept::Kept;
use super::lease::Lease;
use super::link::{Connector, Link, Outgoing, StartError};
use super::means::Means;
use super::place::Places;
use super::pool::Pool;
use super::secrets::Secrets;
use super::visits;
use super::watches::Watches;
use super::{HttpKind, ServerSettings, Transport};

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
    /// Whose own process or session the lists were read over; `None`: they are everybody's.
    pub(super) of: Option<PrincipalId>,
}

/// One server behind the gateway.
pub struct Server {
    pub(super) settings: Arc<ServerSettings>,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) lease: Arc<Lease>,
    pub(super) tasks: Tasks,
    pub(super) clock: Clock,
    /// Held by a start that no call waits for.
    pub(super) starts: Arc<Semaphore>,
    /// The resources of it that are watched.
    pub(super) watches: Arc<Watches>,
    pub(super) status: watch::Sender<TargetStatus>,
    news: watch::Sender<u64>,
    pub(super) kept: Kept,
    pub(super) hidden: AtomicBool,
    pub(super) started: AtomicBool,
    pub(super) audience: Mutex<Audience>,
    /// It has asked for roots before the first call of a connection.
    pub(super) early: AtomicBool,
    /// The list must be read over another connection than the one that has become a principal's own.
    pub(super) apart: Notify,
    /// The whole set is being closed: nothing is started again.
    pub(super) stopping: CancellationToken,
    /// Counts the calls that could not be delivered: a server that comes back without a word may have another list.
    pub(super) doubts: watch::Sender<u64>,
    /// What connections that no list is read over have told of changed lists.
    pub(super) elsewhere: Elsewhere,
    pub(super) pool: Pool,
    pub(super) headers: again::Headers,
    eras: Mutex<Eras>,
    /// The connection the list is read over.
    pub(super) catalog: Mutex<Option<Arc<dyn Link>>>,
}

/// What is known of the eras a server speaks: a set, filled as it is found out (protocol §2.8).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Eras {
    legacy: Option<bool>,
    stateless: Option<bool>,
}

// === impl Server ===

impl Server {
    /// Returns what puts `[secret:NAME]` in the place of the server's secrets; `None` of a text that holds none [CFG-3].
    pub fn conceals(&self) -> impl Fn(&str) -> Option<String> + use<> {
        let secrets = Secrets::of(&self.settings);
        move |text| Some(secrets.replaced(text)).filter(|replaced| replaced != text)
    }

    pub(super) fn new(settings: Arc<ServerSettings>, connector: Arc<dyn Connector>, means: &Means) -> Arc<Self> {
        let places = Places::new(settings.max_processes, Arc::clone(&means.census));
        let status = watch::Sender::new(TargetStatus {
            phase: Phase::Starting,
            lists: None,
            can: Capabilities::default(),
            of: None,
        });
        let server = Arc::new(Self {
            lease: Lease::new(settings.name.clone()),
            settings,
            connector,
            tasks: means.tasks.clone(),
            clock: means.clock.clone(),
            starts: Arc::clone(&means.starts),
            watches: Arc::default(),
            status,
            news: means.news.clone(),
            kept: means.kept.clone(),
            hidden: AtomicBool::new(false),
            started: AtomicBool::new(false),
            audience: Mutex::default(),
            early: AtomicBool::new(false),
            apart: Notify::new(),
            stopping: CancellationToken::new(),
            doubts: watch::Sender::new(0),
            elsewhere: Elsewhere::default(),
            pool: Pool::new(places),
            headers: again::Headers::default(),
            eras: Mutex::default(),
            catalog: Mutex::default(),
        });
        means.census.join(&server);
        server
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

    /// Names the transport: `stdio`, `http`, or `sse` where it is configured or was found out.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        let found = || {
            let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
            catalog.as_ref().is_some_and(|link| link.is_channel())
        };
        match self.settings.transport {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { .. } if self.settings.http == HttpKind::Sse || found() => "sse",
            Transport::Http { .. } => "http",
        }
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
        if self.status.borrow().lists.is_some() {
            return;
        }
        let own = self.sole();
        let own = own.and_then(|sole| Some((self.kept.read(&self.settings, Some(&sole))?, Some(sole))));
        let kept = own.or_else(|| Some((self.kept.read(&self.settings, None)?, None)));
        if let Some(((lists, can), of)) = kept {
            self.change(|status| (status.lists, status.can, status.of) = (Some(lists), can, of));
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

    /// Sends a permitted call over the connection of its owner, which the call holds until its end.
    ///
    /// # Cancel safety
    /// Dropping the future or the reply cancels the call at the server.
    pub async fn send(self: Arc<Self>, permitted: Permitted<Arc<UpstreamCall>>) -> Reply {
        let outgoing = Outgoing::Call(permitted.into_inner());
        let mut again = true;
        loop {
            let Outgoing::Call(call) = &outgoing else {
                return Reply::once(Err(self.down(&StartError::Failed("not a call".to_owned()))));
            };
            let held = match self.held_for(call).await {
                Ok(held) => held,
                Err(reject) => return Reply::once(Err(reject)),
            };
            if let Some(level) = self.loudness_for(held.link(), call) {
                Box::pin(self.tell_loudness(held.link(), level)).await;
            }
            let reply = Arc::clone(held.link()).request(outgoing.clone()).await;
            let reply = visits::noted(held.link(), call, reply);
            if again::is_mismatch(&reply, call) {
                // Boxed, so that other calls do not carry its room.
                let reply = Box::pin(self.again(held.link(), call)).await.unwrap_or(reply);
                return held.until_the_end_of(reply);
            }
            let undelivered = reply.is_safe_to_retry();
            if undelivered && self.is_http() {
                self.doubts.send_modify(|count| *count += 1);
            }
            // A connection that was ending when it was chosen has not passed the call on: once more, on a new one.
            if !(again && undelivered && held.link().closed().is_cancelled()) {
                return held.until_the_end_of(reply);
            }
            again = false;
        }
    }

    /// Takes note that the server is down, and why.
    pub(super) fn fell(self: &Arc<Self>, cause: String) {
        tracing::warn!(server = %self.name(), cause, code = Code::ServerDown.id(), "the server is down");
        self.set_phase(Phase::Down(cause));
        self.hide_later();
    }

    /// Takes note that the server is used, though its list cannot be read now.
    pub(super) fn is_used_without_list(&self) {
        let waited = {
            let status = self.status.borrow();
            status.lists.is_some() && status.phase == Phase::Starting
        };
        if waited {
            self.set_phase(Phase::Ready);
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

    pub(super) fn eras(&self) -> Eras {
        *self.eras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn found(&self, era: Era) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Era::Legacy => *eras = Eras { legacy: Some(true), stateless: eras.stateless.or(Some(false)) },
            Era::Stateless => eras.stateless = Some(true),
        }
    }

    pub(super) fn lacks(&self, era: Era) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Era::Legacy => eras.legacy = Some(false),
            Era::Stateless => eras.stateless = Some(false),
        }
    }

    /// Says for a client why there is no connection, at once.
    pub(super) fn down(&self, err: &StartError) -> Reject {
        let name = self.name();
        let reject = match err {
            StartError::Full(full) => {
                let words = format!("server '{name}': {full}");
                Reject { source: Source::Gateway, ..Reject::client(RejectKind::Busy, words, ReasonCode::TooManyCalls) }
            }
            StartError::Era(..) | StartError::Failed(_) => {
                let cause = err.to_string();
                let shown = cause.strip_prefix(&format!("server '{name}' ")).unwrap_or(&cause);
                let public = match self.settings.show_stderr {
                    true => format!("server '{name}' is down: {shown}"),
                    false => format!("server '{name}' is down"),
                };
                Reject::upstream(RejectKind::Upstream, public, cause)
            }
        };
        reject.safe_to_retry()
    }

    /// Ends every connection in order; the server is not started again.
    pub(super) async fn close(&self) {
        self.stopping.cancel();
        let mut links = self.pool.stock().drain();
        links.extend(self.catalog.lock().unwrap_or_else(PoisonError::into_inner).take());
        for link in &links {
            link.close();
        }
        futures_util::future::join_all(links.into_iter().map(Link::ended)).await;
        self.connector.ended().await;
    }
}

impl Eras {
    pub(super) const fn speaks(self, era: Era) -> Option<bool> {
        match era {
            Era::Legacy => self.legacy,
            Era::Stateless => self.stateless,
        }
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
