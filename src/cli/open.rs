//! From arguments to a loaded configuration, a principal, and a hall without doors that serves it.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;

use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::Local;
use crate::codes::Code;
use crate::config::{self, Loaded, PrincipalPlace, ServerPlace, ServerUse};
use crate::gateway::Identified;
use crate::id::UpstreamName;
use crate::runtime;
use crate::upstream::Phase;

use super::args::Source;
use super::output::sentence;
use super::serve::start_demo;
use super::spinner::Label;
use super::trouble::{Exit, Trouble};

/// Who a command speaks for if nobody is named and there are several.
const LOCAL: &str = "local";

/// A configuration that a command works on.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) loaded: Loaded,
    path: PathBuf,
    /// The demo's own HTTP server; it ends with this process.
    _demo: Option<Child>,
}

/// Runs a command's work.
pub(super) fn block_on(work: impl Future<Output = Result<Exit, Trouble>>) -> Result<Exit, Trouble> {
    let runtime =
        runtime::build().map_err(|err| Trouble::new(Exit::Failure, Code::Machine, format!("no runtime: {err}")))?;
    runtime.block_on(work)
}

/// Loads what the arguments name.
pub(super) async fn open(source: &Source) -> Result<Opened, Trouble> {
    if source.demo {
        let (loaded, child) = start_demo().await?;
        return Ok(Opened { loaded, path: PathBuf::from("the built-in demo"), _demo: Some(child) });
    }
    let loaded = config::load(&source.config, &config::process_env)?;
    Ok(Opened { loaded, path: source.config.clone(), _demo: None })
}

/// Ends when a signal asks for it.
pub(super) async fn interrupted() {
    let ended = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = ended(SignalKind::interrupt()) => {}
        () = ended(SignalKind::terminate()) => {}
    }
}

/// What a command answers when a signal ends it.
pub(super) fn interruption() -> Trouble {
    Trouble::new(Exit::Failure, Code::Interrupted, "interrupted before the answer")
}

// === impl Opened ===

impl Opened {
    /// Finds a principal: the one named, else the only one, else `local`.
    pub(super) fn principal(&self, name: Option<&str>) -> Result<&PrincipalPlace, Trouble> {
        if let (None, [sole]) = (name, self.loaded.places.principals.as_slice()) {
            return Ok(sole);
        }
        let wanted = name.unwrap_or(LOCAL);
        if let Some(found) = self.loaded.places.principal(wanted) {
            return Ok(found);
        }
        let names: Vec<_> = self.loaded.places.principals.iter().map(|one| one.id.as_str()).collect();
        let words = format!("there is no principal '{}' in {}", wanted.escape_debug(), self.path.display());
        let trouble = Trouble::new(Exit::Usage, Code::UnknownPrincipal, words);
        Err(match config::nearest(wanted, &names) {
            Some(near) if name.is_some() => trouble.fix(format!("did you mean --as {near}?")),
            _ if names.is_empty() => trouble.fix(format!("add [principals.{LOCAL}] with mcp_bundles = [\"…\"]")),
            _ => trouble.fix(format!("name one with --as: {}", names.join(", "))),
        })
    }

    /// The servers that a principal is connected to.
    pub(super) fn granted(principal: &PrincipalPlace) -> BTreeSet<UpstreamName> {
        let granted = principal.connections.iter().filter(|(_, connection)| connection.is_granted());
        granted.map(|(server, _)| server.clone()).collect()
    }

    /// The servers that can be connected to.
    pub(super) fn usable(&self) -> BTreeSet<UpstreamName> {
        let servers = self.loaded.places.servers.iter().filter(|server| server.usage == ServerUse::Usable);
        servers.map(|server| server.name.clone()).collect()
    }

    /// The servers that a call of a tool needs: its own one, if the principal is connected to it.
    pub(super) fn needed_for(&self, principal: &PrincipalPlace, tool: &str) -> BTreeSet<UpstreamName> {
        let server = self.loaded.places.server_of(tool).map(|server| server.name.clone());
        server.into_iter().filter(|server| Self::granted(principal).contains(server)).collect()
    }

    /// Starts a hall with the servers that are needed, for a principal that may call them, waits for them, does the work, and
    /// ends them, also when a signal comes first.
    pub(super) async fn with_local(
        &self,
        needed: &BTreeSet<UpstreamName>,
        principal: Option<&PrincipalPlace>,
        work: impl AsyncFnOnce(&Local) -> Result<Exit, Trouble>,
    ) -> Result<Exit, Trouble> {
        let principal = principal.map(|place| &place.id);
        let local = Local::start(self.loaded.settings.gateway.clone(), &config::base_env(), needed, principal)?;
        let names: Vec<_> = needed.iter().map(UpstreamName::as_str).collect();
        let label = Label::new(&format!("waiting for {}", names.join(", ")));
        let done = tokio::select! {
            biased;
            () = interrupted() => Err(interruption()),
            done = async {
                label.spin(local.settled()).await;
                work(&local).await
            } => done,
        };
        local.close().await;
        done
    }

    /// Says which of the servers are down; a command that could not ask them all is not wholly done.
    pub(super) fn report_down(&self, local: &Local, servers: &BTreeSet<UpstreamName>) -> Exit {
        let mut exit = Exit::Ok;
        let places = self.loaded.places.servers.iter().filter(|place| servers.contains(&place.name));
        for trouble in places.filter_map(|place| down(local, place)) {
            exit = trouble.told();
        }
        exit
    }
}

/// Speaks for a principal of the file.
pub(super) fn speak_for(local: &Local, principal: &PrincipalPlace) -> Result<Identified, Trouble> {
    let words = format!("there is no principal '{}'", principal.id);
    local.gateway().speak_for(&principal.id).ok_or_else(|| Trouble::new(Exit::Usage, Code::UnknownPrincipal, words))
}

/// What is to be said of a server that is down; `None` if it is up.
pub(super) fn down(local: &Local, place: &ServerPlace) -> Option<Trouble> {
    let (code, words) = match local.status(&place.name)?.phase {
        Phase::Down(cause) => {
            (Code::ServerDown, format!("server '{}' is down: {}", place.name, sentence(strip(place, &cause))))
        }
        Phase::Starting => (Code::Starting, format!("server '{}' has ended and is being started again", place.name)),
        Phase::Ready => return None,
    };
    Some(Trouble::new(Exit::NotReady, code, words).at([place.at.clone()]))
}

/// A cause without the name that stands before it anyway.
pub(super) fn strip<'c>(place: &ServerPlace, cause: &'c str) -> &'c str {
    cause.strip_prefix(&format!("server '{}' ", place.name)).unwrap_or(cause)
}
