//! A whole gateway for one client on stdin and stdout: no listener, one principal, gone with its client [OPS-11].
//!
//! Not for: joining a gateway that runs already.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::codes::Code;
use crate::config::{Inputs, Settings};
use crate::downstream::{Downstream, Parted, PipeClient, Terms};
use crate::exchange::Endpoint;
use crate::gateway::{Gateway, GatewaySettings};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::Credential;
use crate::runtime::{self, Drain, Ready, State, Tasks, orphaned};
use crate::upstream::{Grants, TargetSet};

use super::build::heard;
use super::desktop::started_from_desktop;
use super::reload::{Kept, Reloader, Serving};
use super::{App, AppError};

/// Who a caller is where several are configured and nobody says.
const LOCAL: &str = "local";
/// How long calls may go on after the client has closed its output (product §9). Clients are less patient: their signal
/// cuts it short.
const INPUT_GRACE: Duration = Duration::from_secs(20);
/// How long each step of a child's end may take.
const CHILD_GRACE: Duration = Duration::from_millis(600);
/// How long servers have to end in order. Clients wait 2 s after they have closed our input, then send a signal.
const CLOSE_GRACE: Duration = Duration::from_millis(1900);
/// The same after a signal. Some clients wait 1 s, then they kill us, and what still ran would be orphaned.
const HURRIED_GRACE: Duration = Duration::from_millis(900);

/// Whom the client is, and what it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The principal.
    pub principal: PrincipalId,
    /// All its servers, or one under its own names.
    pub endpoint: Endpoint,
}

/// Why it is not clear who the client is, or what it is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// Several principals, and none is called `local`.
    #[error("several principals are configured ({0}); say which one with --as NAME")]
    Ambiguous(String),
    /// No principal at all.
    #[error("no principal is configured; add [principals.local] with mcp_bundles = [\"…\"]")]
    Nobody,
    /// The principal is not granted the server.
    #[error("server '{0}' is granted to principal '{1}' by none of its bundles; it is granted: {2}")]
    NotGranted(String, PrincipalId, String),
    /// The server is disabled.
    #[error("server '{0}' is disabled: {1}")]
    ServerDisabled(UpstreamName, String),
    /// No principal of that name.
    #[error("there is no principal '{0}'; configured are: {1}")]
    UnknownPrincipal(String, String),
    /// No server of that name.
    #[error("there is no server '{0}'; configured are: {1}")]
    UnknownServer(String, String),
}

/// A gateway for one client; nothing runs yet.
#[derive(Debug)]
pub struct Piped {
    downstream: Downstream<Gateway>,
    guest: Guest,
    gateway: Arc<Gateway>,
    /// Looks at the files of the configuration, if it stands in any.
    reloader: Option<Box<Reloader>>,
    /// Why a reload has left the client nothing to be.
    lost: watch::Receiver<Option<GuestError>>,
    hangup: Signal,
    signals: [Signal; 2],
    tasks: Tasks,
    drain: Drain,
}

// === impl Guest ===

impl Guest {
    /// Finds out who the client is: the one named, else the sole one, else `local`; and what it is shown.
    ///
    /// # Errors
    /// [`GuestError`]: nothing is guessed.
    pub fn choose(settings: &Settings, name: Option<&str>, server: Option<&str>) -> Result<Self, GuestError> {
        let principals = &settings.gateway.principals;
        let all = || list(principals.iter().map(|principal| principal.id.as_str()));
        let find = |name: &str| principals.iter().find(|principal| principal.id.as_str() == name);
        let principal = match (name, principals.as_slice()) {
            (_, []) => return Err(GuestError::Nobody),
            (Some(name), _) => find(name).ok_or_else(|| GuestError::UnknownPrincipal(plain(name), all()))?,
            (None, [sole]) => sole,
            (None, _) => find(LOCAL).ok_or_else(|| GuestError::Ambiguous(all()))?,
        };
        let Some(server) = server else { return Ok(Self { principal: principal.id.clone(), endpoint: Endpoint::All }) };
        if let Some(name) = principal.granted.iter().find(|name| name.as_str() == server) {
            return Ok(Self { principal: principal.id.clone(), endpoint: Endpoint::Server(name.clone()) });
        }
        if let Some((name, why)) = settings.disabled.iter().find(|(name, _)| name.as_str() == server) {
            return Err(GuestError::ServerDisabled(name.clone(), why.clone()));
        }
        let mut servers = settings.gateway.servers.iter().map(|one| one.name.as_str());
        if servers.clone().any(|name| name == server) {
            let granted = list(principal.granted.iter().map(UpstreamName::as_str));
            return Err(GuestError::NotGranted(plain(server), principal.id.clone(), granted));
        }
        Err(GuestError::UnknownServer(plain(server), list(&mut servers)))
    }

    /// Says whether other settings still have what it is and what it is shown.
    pub(super) fn is_welcome(&self, settings: &Settings) -> Result<(), GuestError> {
        let server = match &self.endpoint {
            Endpoint::All => None,
            Endpoint::Server(server) => Some(server.as_str()),
        };
        Self::choose(settings, Some(self.principal.as_str()), server).map(|_| ())
    }

    /// The servers that it can reach.
    pub(super) fn granted<'s>(&self, settings: &'s GatewaySettings) -> impl Iterator<Item = &'s UpstreamName> {
        let mine = settings.principals.iter().filter(|one| one.id == self.principal);
        mine.flat_map(|one| one.granted.iter()).filter(|server| match &self.endpoint {
            Endpoint::All => true,
            Endpoint::Server(shown) => *server == shown,
        })
    }

    /// The same, and to whom: nobody else is served here.
    pub(super) fn grants(&self, settings: &GatewaySettings) -> BTreeMap<UpstreamName, Grants> {
        self.granted(settings).map(|server| (server.clone(), Grants::One(self.principal.clone()))).collect()
    }

    /// Gives servers no more time to end than its client gives us.
    pub(super) fn hurry(settings: &mut GatewaySettings) {
        for server in &mut settings.servers {
            server.end_grace = server.end_grace.min(CHILD_GRACE);
        }
    }
}

impl GuestError {
    /// Returns the code that a person can look up [OPS-2].
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Ambiguous(_) | Self::Nobody | Self::UnknownPrincipal(..) => Code::UnknownPrincipal,
            Self::NotGranted(..) => Code::NotGranted,
            Self::ServerDisabled(..) => Code::Secret,
            Self::UnknownServer(..) => Code::UnknownServer,
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Shows what was typed, without its control characters.
fn plain(text: &str) -> String {
    text.escape_debug().to_string()
}

impl App {
    /// Builds a gateway for one client; needs a runtime. No socket is bound. What changes in `inputs` is put in force
    /// while it runs, also at once on SIGHUP [CFG-4].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn build_stdio(
        settings: Settings,
        inputs: &Inputs,
        guest: Guest,
        base_env: &Arc<[(OsString, OsString)]>,
    ) -> Result<Piped, AppError> {
        let (tasks, drain, clock) = (Tasks::new(), Drain::new(), Clock::real());
        let signals = [heard(SignalKind::terminate())?, heard(SignalKind::interrupt())?];
        let (hangup, kept) = (heard(SignalKind::hangup())?, Kept::of(&settings));
        let mut hall = settings.gateway;
        Guest::hurry(&mut hall);
        let targets = Arc::new(TargetSet::new(&hall.servers, &tasks, &clock, base_env)?);
        if settings.login_path && started_from_desktop(base_env) {
            targets.use_login_path();
        }
        let state = State::open(settings.state_dir.as_deref());
        targets.keep_lists(state.clone());
        let blobs = Blobs::new(state.folder("uploads"), state.folder("overflow"), &clock);
        let gateway = Gateway::new(hall, targets, blobs, &tasks, clock.clone())?;
        let downstream =
            Downstream::new(settings.downstream, Arc::clone(&gateway), tasks.clone(), drain.clone(), clock);
        let (losing, lost) = watch::channel(None);
        let reloader = inputs.path().is_some().then(|| {
            let serving = Serving::One(guest.clone(), losing);
            let (gateway, downstream) = (Arc::clone(&gateway), downstream.clone());
            Box::new(Reloader::new(serving, inputs.clone(), kept, gateway, downstream, tasks.clone()))
        });
        Ok(Piped { downstream, guest, gateway, reloader, lost, hangup, signals, tasks, drain })
    }
}

// === impl Piped ===

impl Piped {
    /// Serves the client until its output ends, it is gone, or a signal comes; then ends the servers in order. Another
    /// signal ends them at once.
    ///
    /// Returns how the conversation ended.
    ///
    /// # Errors
    /// [`GuestError`]: a reload has taken away who the client is, or what it is shown.
    pub async fn run<R, W>(mut self, input: R, output: W) -> Result<Parted, GuestError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        runtime::keep_guardian(&self.tasks);
        runtime::reap_orphans(&self.tasks);
        // Only what this client can reach is started; nobody waits for readiness here.
        let granted = self.guest.grants(self.gateway.snapshot().settings());
        self.gateway.targets().start(|name| granted.get(name).cloned().unwrap_or_default(), &Ready::new());
        if let Some(reloader) = self.reloader.take() {
            self.tasks.spawn("reload the configuration", reloader.run(Some(self.hangup)));
        }
        let client = PipeClient {
            credential: Credential::Local(self.guest.principal.clone()),
            endpoint: self.guest.endpoint.clone(),
        };
        let terms = Terms { cut: CancellationToken::new(), grace: INPUT_GRACE };
        let mut conversation = pin!(self.downstream.converse(client, input, output, terms.clone()));
        let (parted, signalled) = tokio::select! {
            biased;
            parted = conversation.as_mut() => (Ok(parted), false),
            () = any(&mut self.signals) => (Ok(cut(&terms, "a signal came", conversation).await), true),
            () = orphaned() => (Ok(cut(&terms, "the client is gone", conversation).await), false),
            err = taken_away(&mut self.lost) => {
                cut(&terms, "the configuration has nothing for this client any more", conversation).await;
                (Err(err), false)
            }
        };
        self.drain.start();
        self.downstream.close_sessions();
        let closed = close(&self.gateway.targets(), &mut self.signals, signalled).await;
        // What is left of the children is killed with its task.
        self.tasks.cancel();
        self.tasks.wait().await;
        tracing::info!(why = ending(&parted), closed, "stopped");
        parted
    }
}

/// Says how a conversation came to its end.
const fn ending(parted: &Result<Parted, GuestError>) -> &'static str {
    match parted {
        Ok(Parted::Broken) => "the client takes no more output",
        Ok(Parted::Cut) => "it was told to stop",
        Ok(Parted::Ended) => "the client has ended its input, and everything is answered",
        Ok(Parted::Late) => "the client has ended its input, and the time for answers is over",
        Err(_) => "the configuration has nothing for this client any more",
    }
}

async fn cut(terms: &Terms, why: &str, conversation: impl Future<Output = Parted>) -> Parted {
    tracing::info!(why, "stopping");
    terms.cut.cancel();
    conversation.await
}

/// Ends the servers in order; `false` if the time was over first, or a second signal came.
async fn close(targets: &TargetSet, signals: &mut [Signal; 2], mut signalled: bool) -> bool {
    let mut closing = pin!(targets.close());
    let mut limit = pin!(tokio::time::sleep(if signalled { HURRIED_GRACE } else { CLOSE_GRACE }));
    loop {
        tokio::select! {
            biased;
            () = closing.as_mut() => return true,
            () = limit.as_mut() => return false,
            () = any(signals) => {
                if signalled {
                    return false;
                }
                signalled = true;
                limit.set(tokio::time::sleep(HURRIED_GRACE));
            }
        }
    }
}

async fn any(signals: &mut [Signal; 2]) {
    let [one, two] = signals;
    tokio::select! {
        _ = one.recv() => {}
        _ = two.recv() => {}
    }
}

/// Waits until a reload leaves the client nothing to be.
async fn taken_away(lost: &mut watch::Receiver<Option<GuestError>>) -> GuestError {
    match lost.wait_for(Option::is_some).await.ok().and_then(|err| err.clone()) {
        Some(err) => err,
        // Nothing is reloaded.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
