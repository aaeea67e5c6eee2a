//! Settings to a bound application: everything that can fail does so before the first accept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::Admin;
use crate::blob::Blobs;
use crate::clock::Clock;
use crate::codes::Code;
use crate::config::{Inputs, Settings};
use crate::downstream::{Downstream, DownstreamSettings};
use crate::gateway::Gateway;
use crate::id::UpstreamName;
use crate::net::{Listener, ServerTls, Slots, TlsFileError};
use crate::runtime::{Drain, Ready, State, Tasks};
use crate::seal::SealError;
use crate::upstream::{Grants, SetError, TargetSet};

use super::desktop::started_from_desktop;
use super::reload::{Kept, Reloader, Serving, grants};

/// Probes need few connections.
const ADMIN_CONNECTIONS: usize = 64;

/// Why the application cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, std::io::Error),
    /// A local socket cannot be listened on.
    #[error("cannot listen on unix:{path}: {1}", path = .0.display())]
    Socket(PathBuf, std::io::Error),
    /// The listener's certificate cannot be used.
    #[error("tls_cert and tls_key: {0}")]
    Tls(#[from] TlsFileError),
    /// The machine gives no randomness.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Signals cannot be listened to.
    #[error("cannot listen to signals: {0}")]
    Signal(std::io::Error),
    /// A server's settings cannot be used.
    #[error(transparent)]
    Server(#[from] SetError),
}

impl AppError {
    /// Returns the code that a person can look up [OPS-2].
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Bind(..) | Self::Socket(..) => Code::Bind,
            Self::Seal(_) | Self::Signal(_) => Code::Machine,
            Self::Server(_) => Code::ServerUnusable,
            Self::Tls(_) => Code::Unreadable,
        }
    }
}

/// The application before it runs.
#[derive(Debug)]
pub struct App;

/// The application with its sockets bound; nothing is accepted yet.
#[derive(Debug)]
pub struct Bound {
    pub(super) gateway: Arc<Gateway>,
    pub(super) downstream: Downstream<Gateway>,
    pub(super) admin: Admin,
    pub(super) listeners: Vec<Listener>,
    pub(super) admin_listeners: Vec<Listener>,
    /// To whom each server is granted.
    pub(super) granted: BTreeMap<UpstreamName, Grants>,
    /// Looks at the files of the configuration, if it stands in any, and the signal that makes it look.
    pub(super) reloader: Option<Box<(Reloader, Signal)>>,
    pub(super) kept: Box<Kept>,
    pub(super) signals: (Signal, Signal),
    pub(super) tasks: Tasks,
    pub(super) drain: Drain,
    pub(super) ready: Ready,
}

impl App {
    /// Builds and binds; needs a runtime.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn build(settings: Settings, base_env: &Arc<[(OsString, OsString)]>) -> Result<Bound, AppError> {
        let (tasks, drain, ready, clock) = (Tasks::new(), Drain::new(), Ready::new(), Clock::real());
        let slots = Slots::new(settings.downstream.connections_max);
        let listeners = listen(&settings.downstream, &slots, &tasks)?;
        let admin_listeners = bind(&settings.admin, &Slots::new(ADMIN_CONNECTIONS))?;
        let (granted, kept) = (grants(&settings.gateway), Box::new(Kept::of(&settings)));
        let signals = (heard(SignalKind::terminate())?, heard(SignalKind::interrupt())?);
        let targets = Arc::new(TargetSet::new(&settings.gateway.servers, &tasks, &clock, base_env)?);
        let state = State::open(settings.state_dir.as_deref());
        if settings.login_path && started_from_desktop(base_env) {
            targets.use_login_path();
        }
        targets.keep_lists(state.clone());
        let blobs = Blobs::new(state.folder("uploads"), state.folder("overflow"), &clock);
        let gateway = Gateway::new(settings.gateway, targets, blobs, &tasks, clock.clone())?;
        let downstream =
            Downstream::new(settings.downstream, Arc::clone(&gateway), tasks.clone(), drain.clone(), clock);
        let admin = Admin::new(ready.clone(), drain.clone(), tasks.clone());
        Ok(Bound {
            gateway,
            downstream,
            admin,
            listeners,
            admin_listeners,
            granted,
            reloader: None,
            kept,
            signals,
            tasks,
            drain,
            ready,
        })
    }
}

impl Bound {
    /// Puts changes of these files in force while it runs, also at once on SIGHUP [CFG-4].
    ///
    /// # Errors
    /// [`AppError::Signal`].
    pub fn follow(&mut self, inputs: Inputs) -> Result<(), AppError> {
        if inputs.path().is_some() {
            let (gateway, downstream) = (Arc::clone(&self.gateway), self.downstream.clone());
            let (kept, tasks) = (Kept::clone(&self.kept), self.tasks.clone());
            let reloader = Reloader::new(Serving::Everybody, inputs, kept, gateway, downstream, tasks);
            self.reloader = Some(Box::new((reloader, heard(SignalKind::hangup())?)));
        }
        Ok(())
    }
}

/// Listens to a signal from here on.
pub(super) fn heard(kind: SignalKind) -> Result<Signal, AppError> {
    signal(kind).map_err(AppError::Signal)
}

/// Binds where clients connect; starts the watch over the certificate.
fn listen(settings: &DownstreamSettings, slots: &Slots, tasks: &Tasks) -> Result<Vec<Listener>, AppError> {
    let tls = settings.tls.clone().map(ServerTls::load).transpose()?;
    if let Some(tls) = &tls {
        tls.watch(tasks);
    }
    let bound = bind(&settings.addresses, slots)?;
    let mut listeners: Vec<Listener> = bound.into_iter().map(|listener| listener.with_tls(tls.clone())).collect();
    for path in &settings.sockets {
        let listener = Listener::bind_local(path, slots.clone());
        listeners.push(listener.map_err(|err| AppError::Socket(path.clone(), err))?);
    }
    Ok(listeners)
}

fn bind(addresses: &[SocketAddr], slots: &Slots) -> Result<Vec<Listener>, AppError> {
    addresses
        .iter()
        .map(|address| Listener::bind(*address, slots.clone()).map_err(|err| AppError::Bind(*address, err)))
        .collect()
}
