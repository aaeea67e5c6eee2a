//! All servers by name, started and stopped together.

use std::ffi::OsString;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;
use crate::id::UpstreamName;
use crate::runtime::{Ready, Tasks};

use super::link::Connector;
use super::server::Server;
use super::stdio::{BaseEnv, StdioConnector};
use super::{ServerSettings, Transport};

/// How many servers start at once (product §9).
const STARTS_MAX: usize = 4;

/// A server's settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("server '{0}': {1}")]
pub struct SetError(UpstreamName, String);

/// The servers, in the order of the configuration.
#[derive(Debug)]
pub struct TargetSet {
    servers: Vec<Arc<Server>>,
    tasks: Tasks,
    news: watch::Sender<u64>,
}

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
        let news = watch::Sender::new(0);
        let starts = Arc::new(Semaphore::new(STARTS_MAX));
        let servers = settings
            .iter()
            .map(|settings| {
                let settings = Arc::new(settings.clone());
                let connector: Arc<dyn Connector> = match settings.transport {
                    Transport::Http { .. } => super::http::connector(Arc::clone(&settings), tasks.clone()),
                    Transport::Stdio { .. } => Arc::new(StdioConnector::new(
                        Arc::clone(&settings),
                        tasks.clone(),
                        clock.clone(),
                        BaseEnv(Arc::clone(base_env)),
                    )),
                };
                Ok(Server::new(settings, connector, tasks.clone(), Arc::clone(&starts), news.clone()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { servers, tasks: tasks.clone(), news })
    }

    /// Makes a set of servers that are built already.
    #[cfg(test)]
    pub(super) const fn of(servers: Vec<Arc<Server>>, tasks: Tasks, news: watch::Sender<u64>) -> Self {
        Self { servers, tasks, news }
    }

    /// Starts the servers that somebody is granted, by how many principals; a required one holds readiness back until it has answered a list [OPS-4].
    pub fn start(&self, grants: impl Fn(&UpstreamName) -> usize, ready: &Ready) {
        for server in self.servers.iter().filter(|server| grants(server.name()) > 0) {
            if grants(server.name()) == 1 {
                server.set_sole();
            }
            let latch = server.settings().required.then(|| ready.latch(server.name().as_str()));
            self.tasks.spawn("supervise a server", Arc::clone(server).supervise(latch));
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
        self.news.subscribe()
    }

    /// Ends every connection and child in order.
    pub async fn close(&self) {
        futures_util::future::join_all(self.servers.iter().map(|server| server.close())).await;
    }
}
