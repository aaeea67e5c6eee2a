//! Runs a bound application to its end, in order [OPS-5].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;

use crate::codes::Code;
use crate::downstream::HttpSse;
use crate::gateway::Gateway;
use crate::id::UpstreamName;
use crate::runtime::{self, Tasks};
use crate::upstream::Phase;
use crate::wire::mcp::Kind;

use super::Bound;

/// How long running calls may go on after a stop is asked for (product §9).
const DRAIN_GRACE: Duration = Duration::from_secs(20);
/// How long servers have to end in order: stdin, TERM, KILL.
const CLOSE_GRACE: Duration = Duration::from_secs(8);
/// How long the start block waits for servers.
const BLOCK_WAIT: Duration = Duration::from_secs(5);

impl Bound {
    /// Returns the addresses where clients connect; local sockets have none.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(crate::net::Listener::address).collect()
    }

    /// Returns where clients connect, as a person types it.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.spelled("/mcp")
    }

    /// Returns where clients of the transport of 2024-11-05 connect; nowhere unless that is on.
    #[must_use]
    pub fn older_endpoints(&self) -> Vec<String> {
        match self.kept.http_sse() {
            HttpSse::On => self.spelled("/sse"),
            HttpSse::Off => Vec::new(),
        }
    }

    fn spelled(&self, path: &str) -> Vec<String> {
        let spelled = |listener: &crate::net::Listener| {
            let path = if listener.address().is_some() { path } else { "" };
            format!("{listener}{path}")
        };
        self.listeners.iter().map(spelled).collect()
    }

    /// Returns where probes are answered.
    #[must_use]
    pub fn admin_addresses(&self) -> Vec<SocketAddr> {
        self.admin_listeners.iter().filter_map(crate::net::Listener::address).collect()
    }

    /// Returns the hall, for tests and local commands.
    #[must_use]
    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Returns the tasks, for tests.
    #[must_use]
    pub const fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Starts servers and listeners.
    pub fn start(&mut self) {
        runtime::keep_guardian(&self.tasks);
        runtime::reap_orphans(&self.tasks);
        self.gateway.targets().start(|name| self.granted.get(name).cloned().unwrap_or_default(), &self.ready);
        if let Some((reloader, hangup)) = self.reloader.take().map(|reloader| *reloader) {
            self.tasks.spawn("reload the configuration", reloader.run(Some(hangup)));
        }
        for listener in self.listeners.drain(..) {
            let downstream = self.downstream.clone();
            self.tasks.spawn("accept clients", async move { downstream.serve(listener).await });
        }
        for listener in self.admin_listeners.drain(..) {
            self.tasks.spawn("accept probes", self.admin.clone().serve(listener));
        }
    }

    /// Waits a while for the servers and describes the state of each.
    pub async fn describe(&self) -> Vec<(UpstreamName, String)> {
        let targets = self.gateway.targets();
        let granted = || targets.iter().filter(|server| self.granted.contains_key(server.name()));
        let settled = futures_util::future::join_all(granted().map(|server| server.settled()));
        // What is not settled then is shown as starting.
        let _in_time = tokio::time::timeout(BLOCK_WAIT, settled).await.is_ok();
        granted()
            .map(|server| {
                let status = server.status();
                let tools = status.lists.map_or(0, |lists| lists.of(Kind::Tools).len());
                let state = match status.phase {
                    Phase::Down(cause) => format!("down [{}]: {cause}", Code::ServerDown.id()),
                    Phase::Ready => format!("ready, {tools} tools"),
                    Phase::Starting => "starting".to_owned(),
                };
                (server.name().clone(), state)
            })
            .collect()
    }

    /// Runs until SIGTERM or SIGINT, then stops in order. A second signal cuts the grace short.
    ///
    /// Returns `false` if the end of the grace cut something off.
    pub async fn wait(mut self) -> bool {
        either(&mut self.signals).await;
        tracing::info!("stopping: running calls may finish");
        self.stop(None).await
    }

    /// Stops in order within `grace`, or the default one; a signal cuts it short.
    pub async fn stop(mut self, grace: Option<Duration>) -> bool {
        self.drain.start();
        let finished = tokio::select! {
            finished = self.drain.finished(grace.unwrap_or(DRAIN_GRACE)) => finished,
            () = either(&mut self.signals) => false,
        };
        // Not before: the end of a session cancels its calls.
        self.downstream.close_sessions();
        let closed = tokio::time::timeout(CLOSE_GRACE, self.gateway.targets().close()).await.is_ok();
        self.tasks.cancel();
        self.tasks.wait().await;
        tracing::info!(finished, closed, "stopped");
        finished
    }
}

async fn either(signals: &mut (Signal, Signal)) {
    tokio::select! {
        _ = signals.0.recv() => {}
        _ = signals.1.recv() => {}
    }
}
