//! Runs a bound application to its end, in order [OPS-5].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::gateway::Gateway;
use crate::runtime::Tasks;
use crate::upstream::Phase;

use super::Bound;

/// How long running calls may go on after a stop is asked for (product §9).
const DRAIN_GRACE: Duration = Duration::from_secs(20);
/// How long servers have to end in order: stdin, TERM, KILL.
const CLOSE_GRACE: Duration = Duration::from_secs(8);
/// How long the start block waits for servers.
const BLOCK_WAIT: Duration = Duration::from_secs(5);

impl Bound {
    /// Returns where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(crate::net::Listener::address).collect()
    }

    /// Returns where probes are answered.
    #[must_use]
    pub fn admin_addresses(&self) -> Vec<SocketAddr> {
        self.admin_listeners.iter().map(crate::net::Listener::address).collect()
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
        self.targets.start(|name| self.granted.contains(name), &self.ready);
        for listener in self.listeners.drain(..) {
            let downstream = self.downstream.clone();
            self.tasks.spawn("accept clients", async move { downstream.serve(listener).await });
        }
        for listener in self.admin_listeners.drain(..) {
            self.tasks.spawn("accept probes", self.admin.clone().serve(listener));
        }
    }

    /// Waits a while for the servers and describes them, a line each.
    pub async fn describe(&self) -> Vec<String> {
        let granted = || self.targets.iter().filter(|server| self.granted.contains(server.name()));
        let settled = futures_util::future::join_all(granted().map(|server| server.settled()));
        // What is not settled then is shown as starting.
        let _in_time = tokio::time::timeout(BLOCK_WAIT, settled).await.is_ok();
        granted()
            .map(|server| {
                let status = server.status();
                let tools = status.tools.map_or(0, |tools| tools.len());
                let state = match status.phase {
                    Phase::Down(cause) => format!("down: {cause}"),
                    Phase::Ready => format!("ready, {tools} tools"),
                    Phase::Starting => "starting".to_owned(),
                };
                format!("{:<20} {state}", server.name().as_str())
            })
            .collect()
    }

    /// Runs until SIGTERM or SIGINT, then stops in order. A second signal cuts the grace short.
    ///
    /// Returns `false` if the end of the grace cut something off.
    ///
    /// # Errors
    /// Signals cannot be listened to.
    pub async fn wait(self) -> std::io::Result<bool> {
        let mut signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        either(&mut signals).await;
        tracing::info!("stopping: running calls may finish");
        Ok(self.stop(either(&mut signals)).await)
    }

    /// Stops in order; `hurry` cuts the grace short.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> bool {
        self.drain.start();
        let finished = tokio::select! {
            finished = self.drain.finished(DRAIN_GRACE) => finished,
            () = hurry => false,
        };
        // Not before: the end of a session cancels its calls.
        self.downstream.close_sessions();
        let closed = tokio::time::timeout(CLOSE_GRACE, self.targets.close()).await.is_ok();
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
