//! All servers by name, started and stopped together.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::{Ready, State, Tasks};

use super::link::Connector;
use super::means::Means;
use super::place::Census;
use super::server::Server;
use super::stdio::{BaseEnv, StdioConnector};
use super::{Grants, ServerSettings, Transport};

/// How often a server that was replaced is asked whether its calls are over.
const PARTING_LOOK: Duration = Duration::from_millis(100);

/// A server's settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("server '{0}': {1}")]
pub struct SetError(UpstreamName, String);

/// The servers, in the order of the configuration.
#[derive(Debug)]
pub struct TargetSet {
    servers: Vec<Arc<Server>>,
    yard: Arc<Yard>,
}

/// What a set and those that follow it share.
#[derive(Debug)]
struct Yard {
    means: Means,
    base_env: BaseEnv,
    /// Servers of earlier sets that are not needed any more and have calls to finish.
    parting: Mutex<Vec<Weak<Server>>>,
}

// === impl TargetSet ===

impl TargetSet {
    /// Builds every server; nothing is started. `base_env` is the gateway's own environment, as `config` has read it.
    ///
    /// # Errors
    /// [`SetError`] for settings that no connection can be made with.
    pub fn new(
        settings: &[ServerSettings],
        tasks: &Tasks,
        clock: &Clock,
        base_env: &Arc<[(OsString, OsString)]>,
    ) -> Result<Self, SetError> {
        let yard = Yard::new(Means::new(tasks.clone(), clock.clone()), Arc::clone(base_env));
        let servers = settings.iter().map(|settings| yard.build(settings)).collect::<Result<_, _>>()?;
        Ok(Self { servers, yard: Arc::new(yard) })
    }

    /// Makes a set of servers that are built already.
    #[cfg(test)]
    pub(super) fn of(servers: Vec<Arc<Server>>, means: Means) -> Self {
        Self { servers, yard: Arc::new(Yard::new(means, Arc::from([]))) }
    }

    /// The default of `[limits] processes_per_principal`.
    pub const PROCESSES_PER_PRINCIPAL: usize = Census::MAX;

    /// Changes how many processes one principal may have over all servers [TRN-4].
    pub fn bound_processes(&self, per_principal: usize) {
        self.yard.means.census.bound(per_principal);
    }

    /// Has programs looked up in the PATH of the user's login shell, which is asked when the first one starts [TRN-3].
    pub fn use_login_path(&self) {
        self.yard.base_env.want_login_path();
    }

    /// Keeps the servers' lists in the state folder from here on, and shows what is kept there until fresh ones arrive
    /// [TRN-8]. To be called before [`TargetSet::start`].
    pub fn keep_lists(&self, state: State) {
        self.yard.means.kept.settle(state);
    }

    /// Builds the set that follows this one. A server whose settings are the same is the same, with its connections and
    /// children; one whose settings have changed is a new one that shows the old one's list until it has its own. Nothing
    /// is started or ended.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn follow(
        &self,
        settings: &[ServerSettings],
        is_granted: impl Fn(&UpstreamName) -> bool,
    ) -> Result<Self, SetError> {
        let next = |settings: &ServerSettings| {
            let granted = is_granted(&settings.name);
            match self.get(&settings.name) {
                Some(old) if old.settings() == settings && (granted || !old.is_started()) => Ok(Arc::clone(old)),
                Some(old) if granted => {
                    let new = self.yard.build(settings)?;
                    new.inherit(old);
                    Ok(new)
                }
                Some(_) | None => self.yard.build(settings),
            }
        };
        let servers = settings.iter().map(next).collect::<Result<_, _>>()?;
        Ok(Self { servers, yard: Arc::clone(&self.yard) })
    }

    /// Ends the servers that `next` does not have: at once where the server is gone, or granted to nobody; when its last
    /// call is over where it is another one now.
    pub fn retire(self: Arc<Self>, next: &Self) {
        let whole = Arc::downgrade(&self);
        for old in self.servers.iter().filter(|old| old.is_started()) {
            let now = next.get(old.name());
            if now.is_some_and(|now| Arc::ptr_eq(now, old)) {
                continue;
            }
            let replaced = now.is_some_and(|now| now.is_started());
            let mut parting = self.yard.parting.lock().unwrap_or_else(PoisonError::into_inner);
            parting.retain(|one| one.strong_count() > 0);
            parting.push(Arc::downgrade(old));
            drop(parting);
            let (old, whole) = (Arc::clone(old), Weak::clone(&whole));
            self.yard.means.tasks.spawn("end a server that is not needed any more", async move {
                if replaced {
                    finished(&old, &whole).await;
                }
                old.close().await;
                tracing::info!(server = %old.name(), replaced, "the server of before the reload has ended");
            });
        }
    }

    /// Closes the connections of principals to whom their server is not granted any more.
    pub fn revoke(&self, granted: impl Fn(&PrincipalId, &UpstreamName) -> bool) {
        for server in self.servers.iter().filter(|server| server.is_started()) {
            server.keep_connections(|principal| granted(principal, server.name()));
        }
    }

    /// Starts the servers that somebody is granted and that do not run yet; a required one holds readiness back until it has
    /// answered a list [OPS-4]. Those that run are told who is granted them from here on.
    pub fn start(&self, grants: impl Fn(&UpstreamName) -> Grants, ready: &Ready) {
        for server in &self.servers {
            let grants = grants(server.name());
            if grants == Grants::Nobody {
                continue;
            }
            server.grant(grants.sole());
            if !server.begin() {
                continue;
            }
            server.recall();
            let latch = server.settings().required.then(|| ready.latch(server.name().as_str()));
            self.yard.means.tasks.spawn("supervise a server", Arc::clone(server).supervise(latch));
        }
    }

    /// Finds a server.
    #[must_use]
    pub fn get(&self, name: &UpstreamName) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name() == name)
    }

    /// Walks the servers in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter()
    }

    /// Counts what has happened to any server: a new list, a start, a loss.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.yard.means.news.subscribe()
    }

    /// Ends every connection and child in order.
    pub async fn close(&self) {
        let parting: Vec<Arc<Server>> = {
            let parting = self.yard.parting.lock().unwrap_or_else(PoisonError::into_inner);
            parting.iter().filter_map(Weak::upgrade).collect()
        };
        futures_util::future::join_all(self.servers.iter().chain(&parting).map(|server| server.close())).await;
    }
}

// === impl Yard ===

impl Yard {
    fn new(means: Means, base_env: Arc<[(OsString, OsString)]>) -> Self {
        let base_env = BaseEnv::new(base_env);
        Self { means, base_env, parting: Mutex::default() }
    }

    fn build(&self, settings: &ServerSettings) -> Result<Arc<Server>, SetError> {
        let (settings, means) = (Arc::new(settings.clone()), &self.means);
        let connector: Arc<dyn Connector> = match settings.transport {
            Transport::Http { .. } => super::http::connector(Arc::clone(&settings), means.tasks.clone()),
            Transport::Stdio { .. } => Arc::new(StdioConnector::new(
                Arc::clone(&settings),
                means.tasks.clone(),
                means.clock.clone(),
                self.base_env.clone(),
            )),
        };
        Ok(Server::new(settings, connector, means))
    }
}

/// Waits until nobody can call the server any more and nobody's call is under way; a call has an end [LIM-4].
async fn finished(server: &Server, whole: &Weak<TargetSet>) {
    let limit = server.settings().tool_max.max(server.settings().tool_timeout);
    let calls = async {
        while whole.strong_count() > 0 || server.is_leased() {
            tokio::time::sleep(PARTING_LOOK).await;
        }
    };
    if tokio::time::timeout(limit, calls).await.is_err() {
        tracing::warn!(server = %server.name(), "a call is cut off: it has outlived the longest time of one");
    }
}
