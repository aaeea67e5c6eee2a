//! Starts children of one server, and the link to one child.
//!
//! Not for: the steps of the handshake (`handshake`) or the conversation (`connection`).

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::exchange::Reply;
use crate::runtime::Tasks;
use crate::wire::mcp::{Capabilities, Era, Features, Kinds};

use crate::upstream::ServerSettings;
use crate::upstream::channel::Conversation;
use crate::upstream::link::{BoxFuture, Connector, Link, LinkState, Outgoing, StartError, Started, Want, subscription};
use crate::upstream::place::Place;

use super::child::Supervisor;
use super::connection::Connection;
use super::handshake::{Opened, Plan};
use super::login::BaseEnv;
use super::output::Output;

/// Starts children of one server.
#[derive(Debug)]
pub(in crate::upstream) struct StdioConnector {
    settings: Arc<ServerSettings>,
    tasks: Tasks,
    clock: Clock,
    base_env: BaseEnv,
    /// Every child that is not dead yet.
    children: TaskTracker,
}

/// A running child after its handshake.
#[derive(Debug)]
pub(in crate::upstream) struct StdioLink {
    connection: Arc<Connection>,
    era: Era,
    tasks: Tasks,
}

/// Ends a child whose handshake is not finished, unless it is disarmed.
struct Unfinished(Option<Arc<Connection>>);

// === impl StdioConnector ===

impl StdioConnector {
    /// Makes a connector for a server with a command. `base_env` is the gateway's own environment, as `config` has read
    /// it.
    pub(in crate::upstream) fn new(
        settings: Arc<ServerSettings>,
        tasks: Tasks,
        clock: Clock,
        base_env: BaseEnv,
    ) -> Self {
        Self { settings, tasks, clock, base_env, children: TaskTracker::new() }
    }

    async fn start(&self, want: Want) -> Result<Started, StartError> {
        let plan = Plan::new(self.settings.era, want.era)?;
        let mut unfinished = Unfinished(None);
        let limit = self.settings.start_timeout;
        let attempts = self.attempts(plan, (want.place.clone(), want.features), &mut unfinished);
        let Ok(opened) = tokio::time::timeout(limit, attempts).await else {
            let tail = unfinished.0.as_ref().map(|connection| connection.output.tail()).unwrap_or_default();
            let last = if tail.is_empty() { String::new() } else { format!("; last output: {tail}") };
            let name = &self.settings.name;
            let secs = limit.as_secs_f64();
            return Err(StartError::Failed(format!("server '{name}' did not start within {secs} s{last}")));
        };
        let (connection, can) = opened?;
        unfinished.0 = None;
        if let Some(place) = &want.place {
            connection.holds(place);
        }
        let era = connection.era().unwrap_or(Era::Legacy);
        let link = Arc::new(StdioLink { connection, era, tasks: self.tasks.clone() });
        Ok(Started { link, can })
    }

    async fn attempts(
        &self,
        plan: Plan,
        (place, features): (Option<Arc<Place>>, Features),
        unfinished: &mut Unfinished,
    ) -> Result<(Arc<Connection>, Capabilities), StartError> {
        let connection = self.launch(place.clone(), features, unfinished).await?;
        match super::handshake::open(&connection, plan).await? {
            Opened::Done(can) => return Ok((connection, can)),
            Opened::EndedAtProbe => tracing::debug!(server = %self.settings.name, "ended at the probe; started again"),
        }
        let connection = self.launch(place, features, unfinished).await?;
        match super::handshake::open(&connection, Plan::Legacy).await? {
            Opened::Done(can) => Ok((connection, can)),
            Opened::EndedAtProbe => Err(StartError::Failed(format!("server '{}' ended", self.settings.name))),
        }
    }

    /// Starts a child and its four tasks.
    async fn launch(
        &self,
        place: Option<Arc<Place>>,
        features: Features,
        unfinished: &mut Unfinished,
    ) -> Result<Arc<Connection>, StartError> {
        let (running, pipes) = super::child::spawn(&self.settings, &self.base_env.get().await).await?;
        let output = Arc::new(Output::new(&self.settings, self.clock.clone()));
        let (connection, queue) = Connection::new(Arc::clone(&self.settings), Arc::clone(&output), features);
        let stderr_end = CancellationToken::new();
        let read = [connection.read_end.clone(), stderr_end.clone()];
        let (tasks, grace) = (self.tasks.clone(), self.settings.end_grace);
        let supervisor = Supervisor::new(running, Arc::clone(&connection), tasks, grace, read);
        unfinished.set(Arc::clone(&connection));
        let life = async move {
            supervisor.run().await;
            drop(place);
        };
        self.tasks.spawn("stdio child", self.children.track_future(life));
        self.tasks.spawn("stdio write", Arc::clone(&connection).write_loop(pipes.stdin, queue));
        self.tasks.spawn("stdio read", Arc::clone(&connection).read_loop(pipes.stdout));
        let dead = connection.dead.clone();
        self.tasks.spawn("stdio stderr", async move {
            let _end = stderr_end.drop_guard();
            output.drain(pipes.stderr, dead).await;
        });
        Ok(connection)
    }
}

impl Connector for StdioConnector {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(async move { self.start(want).await })
    }

    fn ended(&self) -> BoxFuture<()> {
        let children = self.children.clone();
        children.close();
        Box::pin(async move { children.wait().await })
    }
}

// === impl StdioLink ===

impl Link for StdioLink {
    fn era(&self) -> Era {
        self.era
    }

    fn state(&self) -> &LinkState {
        &self.connection.state
    }

    fn conversation(&self) -> Option<&Arc<Conversation>> {
        Some(self.connection.conversation())
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        let era = self.era;
        Box::pin(Arc::clone(&self.connection).request(outgoing, era))
    }

    fn watch(self: Arc<Self>, kinds: Kinds) {
        if self.era == Era::Legacy || kinds.is_empty() {
            return;
        }
        let listen = Outgoing::Own { method: "subscriptions/listen", members: subscription(kinds) };
        let connection = Arc::clone(&self.connection);
        // The task does not hold the link: the last owner's drop ends the child, and that ends the task.
        self.tasks.spawn("stdio listen", async move {
            drop(Arc::clone(&connection).request(listen, Era::Stateless).await);
            tracing::debug!(server = %connection.settings.name, "a listen has ended");
        });
    }

    fn close(&self) {
        self.connection.stop();
    }

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.connection.dead.cancelled().await })
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.connection.stop();
    }
}

// === impl Unfinished ===

impl Unfinished {
    /// Takes over the next child; the one before is ended.
    fn set(&mut self, connection: Arc<Connection>) {
        if let Some(before) = self.0.replace(connection) {
            before.stop();
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.stop();
        }
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
