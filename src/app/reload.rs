//! A changed configuration is put in force while everything runs [CFG-4].
//!
//! Not for: what a configuration means (`config`), or what a reload takes away (`gateway`, `upstream`, `session`).
//! Invariants: a new whole is built beside the old one and is good before anything of the old one is touched; the log
//! names what has changed and never a value.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::codes::Code;
use crate::config::{self, Diagnostic, Inputs, Loaded, Settings};
use crate::downstream::{Downstream, DownstreamSettings, HttpSse};
use crate::gateway::{Auth, Changes, Gateway, GatewaySettings};
use crate::id::UpstreamName;
use crate::runtime::{Ready, Tasks};
use crate::telemetry::LogSettings;
use crate::upstream::Grants;

use super::stdio::{Guest, GuestError};

/// The pause between two looks at the files.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// How long files must stay as they are before they are read: some editors write a file in pieces.
const STILL: Duration = Duration::from_millis(250);
/// How often they may change within that time, until they are read as they are.
const RESTLESS_MAX: usize = 4;
/// What is said of a problem with which a configuration can be used.
const DOUBTFUL: &str = "the new configuration is doubtful";

/// What of a configuration is taken at the start alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    downstream: DownstreamSettings,
    admin: Vec<SocketAddr>,
    log: LogSettings,
    state_dir: Option<PathBuf>,
    login_path: bool,
}

/// Whom this process serves: so much of a configuration is in force here.
#[derive(Debug)]
pub(super) enum Serving {
    /// Whoever connects to its listeners.
    Everybody,
    /// The client on its pipes; who takes care of it is told when a reload leaves it nothing to be.
    One(Guest, watch::Sender<Option<GuestError>>),
}

/// Looks at the files of the configuration, and puts what is new in force.
#[derive(Debug)]
pub(super) struct Reloader {
    pub(super) serving: Serving,
    pub(super) inputs: Inputs,
    pub(super) kept: Kept,
    pub(super) gateway: Arc<Gateway>,
    pub(super) downstream: Downstream<Gateway>,
    pub(super) tasks: Tasks,
    /// What was said last of files that can be used.
    doubtful: Vec<Diagnostic>,
    /// What was said last of files that cannot be used.
    refused: Vec<Diagnostic>,
    /// What was said last of what is taken at the start alone.
    waiting: Vec<&'static str>,
}

/// Says to whom each server is granted.
pub(super) fn grants(settings: &GatewaySettings) -> BTreeMap<UpstreamName, Grants> {
    let mut granted: BTreeMap<_, Grants> = BTreeMap::new();
    for (principal, server) in settings.principals.iter().flat_map(|one| one.granted.iter().map(|it| (&one.id, it))) {
        granted.entry(server.clone()).or_default().add(principal);
    }
    granted
}

// === impl Kept ===

impl Kept {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            downstream: settings.downstream.clone(),
            admin: settings.admin.clone(),
            log: settings.log.clone(),
            state_dir: settings.state_dir.clone(),
            login_path: settings.login_path,
        }
    }

    /// Says whether the transport of 2024-11-05 is there.
    pub(super) const fn http_sse(&self) -> HttpSse {
        self.downstream.http_sse
    }

    /// Names what is otherwise in new settings, as the file spells it.
    fn differences(&self, new: &Self) -> Vec<&'static str> {
        let (one, two) = (&self.downstream, &new.downstream);
        let limits = |of: &DownstreamSettings| {
            let sizes = [of.body_bytes_max, of.header_bytes_max, of.headers_max, of.connections_max];
            (
                sizes,
                of.sessions_max,
                of.sessions_per_principal_max,
                (of.parked_max, of.parked_per_principal_max, of.question),
                (of.session_idle, of.keep_alive, of.write_timeout),
                of.replay,
            )
        };
        let different = [
            (one.addresses != two.addresses || one.sockets != two.sockets, "listen.http"),
            (one.http_sse != two.http_sse, "listen.http_sse"),
            (one.public_path != two.public_path, "listen.public_url"),
            (one.tls != two.tls, "listen.tls_cert and tls_key"),
            (one.allowed_hosts != two.allowed_hosts, "listen.allowed_hosts"),
            (one.allowed_origins != two.allowed_origins, "listen.allowed_origins"),
            (self.admin != new.admin, "listen.admin and health"),
            (limits(one) != limits(two), "limits"),
            (self.log != new.log || one.access != two.access, "log"),
            (self.state_dir != new.state_dir, "state.dir"),
            (self.login_path != new.login_path, "mcp.login_path"),
        ];
        different.into_iter().filter_map(|(different, key)| different.then_some(key)).collect()
    }
}

// === impl Serving ===

impl Serving {
    /// Makes of new settings what is in force here; an error if a reload has taken away whom it serves.
    fn shape(&self, settings: &mut Settings) -> Result<(), GuestError> {
        let Self::One(guest, _) = self else { return Ok(()) };
        guest.is_welcome(settings)?;
        Guest::hurry(&mut settings.gateway);
        Ok(())
    }

    /// Says to whom of those it serves each server is granted.
    fn grants(&self, settings: &GatewaySettings) -> BTreeMap<UpstreamName, Grants> {
        match self {
            Self::Everybody => grants(settings),
            Self::One(guest, _) => guest.grants(settings),
        }
    }

    /// Says whether a key that is taken at the start alone means anything here.
    fn has(&self, key: &str) -> bool {
        matches!(self, Self::Everybody) || ["limits", "log"].contains(&key)
    }
}

// === impl Reloader ===

impl Reloader {
    pub(super) const fn new(
        serving: Serving,
        inputs: Inputs,
        kept: Kept,
        gateway: Arc<Gateway>,
        downstream: Downstream<Gateway>,
        tasks: Tasks,
    ) -> Self {
        Self {
            serving,
            inputs,
            kept,
            gateway,
            downstream,
            tasks,
            doubtful: Vec::new(),
            refused: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Looks every 2 s, and at once when SIGHUP comes; ends with the tasks.
    pub(super) async fn run(mut self, mut hangup: Option<Signal>) {
        let mut ticks = tokio::time::interval(LOOK_PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = ticks.tick() => false,
                () = heard(&mut hangup) => true,
            };
            // What cannot be used is read again each time: what is wrong with it may lie in a file that is not looked at.
            if asked || !self.refused.is_empty() || self.changed().await {
                let Some(read) = self.read().await else { return };
                self.take(read, asked);
            }
        }
    }

    /// Says whether a file holds something else, once they are still.
    async fn changed(&self) -> bool {
        let mut before = self.look(&self.inputs).await;
        if before == self.inputs {
            return false;
        }
        for _ in 0..RESTLESS_MAX {
            tokio::time::sleep(STILL).await;
            let now = self.look(&before).await;
            if now == before {
                break;
            }
            before = now;
        }
        true
    }

    async fn look(&self, inputs: &Inputs) -> Inputs {
        let seen = inputs.clone();
        self.tasks.blocking(move || seen.look()).await.unwrap_or_else(|_| inputs.clone())
    }

    /// Reads everything; once more if something has changed meanwhile, so that what is taken was there at one moment.
    /// `None` when the program ends.
    async fn read(&mut self) -> Option<Result<Loaded, Vec<Diagnostic>>> {
        let mut inputs = self.inputs.clone();
        let read = move || {
            for _ in 0..RESTLESS_MAX {
                let loaded = config::reload(&mut inputs, &config::process_env);
                if inputs.look() == inputs {
                    return (inputs, loaded);
                }
            }
            let loaded = config::reload(&mut inputs, &config::process_env);
            (inputs, loaded)
        };
        let (inputs, loaded) = self.tasks.blocking(read).await.ok()?;
        self.inputs = inputs;
        Some(loaded.map_err(|found| found.0).and_then(|loaded| {
            let failed = loaded.expectations.iter().filter(|expectation| !expectation.holds());
            let failed: Vec<Diagnostic> = failed.map(|expectation| expectation.diagnostic.clone()).collect();
            if failed.is_empty() { Ok(loaded) } else { Err(failed) }
        }))
    }

    /// Puts what was read in force, or says why not.
    fn take(&mut self, read: Result<Loaded, Vec<Diagnostic>>, asked: bool) {
        let mut loaded = match read {
            Ok(loaded) => loaded,
            Err(found) => return self.refuse(found, asked),
        };
        self.refused.clear();
        if let (Err(err), Serving::One(_, lost)) = (self.serving.shape(&mut loaded.settings), &self.serving) {
            tracing::error!(%err, code = err.code().id(), "the new configuration has nothing for this client");
            lost.send_replace(Some(err));
            return;
        }
        let new = Kept::of(&loaded.settings);
        let mut waiting = self.kept.differences(&new);
        waiting.retain(|key| self.serving.has(key));
        if waiting != self.waiting {
            match waiting.join(", ") {
                keys if keys.is_empty() => tracing::info!("nothing waits for the next start any more"),
                keys => {
                    tracing::warn!(
                        keys,
                        "what has changed here is taken at the next start; until then it stays as it was"
                    );
                }
            }
            self.waiting = waiting;
        }
        for warning in loaded.warnings.iter().filter(|warning| !self.doubtful.contains(warning)) {
            warning.log(DOUBTFUL);
        }
        self.doubtful = loaded.warnings;
        let old = Arc::clone(self.gateway.snapshot().settings());
        let settings = loaded.settings.gateway;
        if self.serving.has("listen.http")
            && settings.auth == Auth::None
            && old.auth != Auth::None
            && self.kept.downstream.addresses != new.downstream.addresses
        {
            tracing::error!(
                code = Code::OpenDoor.id(),
                "the new configuration is refused: auth = \"none\" is for its own addresses, and those are taken at the \
                 next start; the one before stays in force"
            );
            return;
        }
        let changes = Changes::between(&old, &settings);
        if changes.is_empty() {
            tracing::info!("the configuration was read again: nothing to change");
            return;
        }
        self.put(settings, &changes);
    }

    /// Puts new settings in force. From here on nothing fails but what is said to.
    fn put(&self, settings: GatewaySettings, changes: &Changes) {
        let granted = self.serving.grants(&settings);
        let old = self.gateway.targets();
        let next = match old.follow(&settings.servers, |name| granted.contains_key(name)) {
            Ok(next) => Arc::new(next),
            Err(err) => {
                tracing::error!(%err, code = Code::ServerUnusable.id(), "the new configuration is refused; the one before stays in force");
                return;
            }
        };
        next.bound_processes(settings.processes_per_principal);
        // Readiness is a gate of the start alone [OPS-4].
        next.start(|name| granted.get(name).cloned().unwrap_or_default(), &Ready::new());
        let settings = Arc::new(settings);
        self.gateway.replace(Arc::clone(&settings), Arc::clone(&next));
        let ended = self.downstream.retain_sessions(|principal, endpoint| self.gateway.serves(principal, endpoint));
        next.revoke(|principal, server| {
            settings.principals.iter().any(|one| one.id == *principal && one.granted.contains(server))
        });
        old.retire(&next);
        tracing::info!(
            servers = %changes.servers,
            principals = %changes.principals,
            keys = changes.keys.join(", "),
            sessions_ended = ended,
            "the new configuration is in force"
        );
    }

    /// Says what is wrong, once; the state before stays.
    fn refuse(&mut self, found: Vec<Diagnostic>, asked: bool) {
        if found == self.refused && !asked {
            return;
        }
        for diagnostic in &found {
            diagnostic.log(if diagnostic.fails { "the new configuration is refused" } else { DOUBTFUL });
        }
        let problems = found.iter().filter(|diagnostic| diagnostic.fails).count();
        tracing::error!(problems, "the configuration of before stays in force");
        self.refused = found;
    }
}

/// Waits for the signal, where there is one.
async fn heard(signal: &mut Option<Signal>) {
    let Some(listening) = signal else { return std::future::pending().await };
    if listening.recv().await.is_none() {
        *signal = None;
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
