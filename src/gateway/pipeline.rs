//! The gateway: the rooms in order, one line each.
//!
//! Not for: logic; each room has its own file. Invariant: a request reaches a server only as the `Permitted` value that
//! `authorize` made, on this round, from the state at that moment [POL-12].

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{Answer, Call, Caller as _, Discovery, Exchange, Handler, Handling, Reject, Reply};
use crate::identity::Credential;
use crate::limit::{Limits, Permit};
use crate::runtime::Tasks;
use crate::seal::{Seal, SealError};
use crate::upstream::TargetSet;

use super::admit::Admitted;
use super::authorize::Authorized;
use super::identify::Identified;
use super::inspect::Inspection;
use super::resolve::Resolved;
use super::timed::AllTimed;
use super::watch::Watcher;
use super::{GatewaySettings, Snapshot, admit, authorize, dispatch, list, listen, resolve, shape};

/// How often what was kept of answers is looked through.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);

/// The hall. It is a [`Handler`].
pub struct Gateway {
    /// Settings, servers and lists: one whole, and the only thing that is replaced.
    pub(super) snapshot: ArcSwap<Snapshot>,
    /// Counts the reloads: what runs notices by it that it must be judged anew.
    pub(super) reloads: AtomicU64,
    /// Held while a snapshot is built from the one before and put in its place.
    pub(super) publishing: Mutex<()>,
    pub(super) published: watch::Sender<u64>,
    pub(super) timed: Arc<AllTimed>,
    /// Who watches resources.
    pub(super) watchers: Mutex<Vec<Arc<Watcher>>>,
    pub(super) seal: Seal,
    pub(super) clock: Clock,
    /// What of answers is kept.
    pub(super) blobs: Arc<Blobs>,
    pub(super) tasks: Tasks,
}

impl Gateway {
    /// Builds the hall with an empty catalog and starts its refresh; servers are started by the caller.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn new(
        settings: GatewaySettings,
        targets: Arc<TargetSet>,
        blobs: Blobs,
        tasks: &Tasks,
        clock: Clock,
    ) -> Result<Arc<Self>, SealError> {
        targets.bound_processes(settings.processes_per_principal);
        let news = targets.news();
        let limits = Arc::new(Limits::new(&settings.limits, clock.clone()));
        let snapshot = ArcSwap::from_pointee(Snapshot::build(Arc::new(settings), targets, limits, (0, 0)));
        let seal = Seal::new()?;
        let published = watch::Sender::new(0);
        let (reloads, publishing) = (AtomicU64::new(0), Mutex::new(()));
        let (watchers, timed) = (Mutex::default(), Arc::default());
        let gateway = Arc::new(Self {
            snapshot,
            reloads,
            publishing,
            published,
            timed,
            watchers,
            seal,
            clock,
            blobs: Arc::new(blobs),
            tasks: tasks.clone(),
        });
        let snapshots = gateway.published.subscribe();
        tasks.spawn("keep watched resources", Arc::clone(&gateway).keep_watches(tasks.clone(), snapshots));
        tasks.spawn("refresh the snapshot", Arc::clone(&gateway).refresh(news));
        tasks.spawn("sweep what is kept", Arc::clone(&gateway).sweep());
        tasks.spawn("end calls that nobody takes", Arc::clone(&gateway.timed).run());
        tasks.spawn("forget rates", admit::forget(Arc::downgrade(&gateway)));
        Ok(gateway)
    }

    /// Returns the servers in force.
    #[must_use]
    pub fn targets(&self) -> Arc<TargetSet> {
        Arc::clone(self.snapshot.load().targets())
    }

    /// Returns the snapshot in force, for status.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Waits until the snapshot in force has seen so many news of servers.
    pub async fn caught_up(&self, news: u64) {
        // The sender lives as long as `self`.
        let _published = self.published.subscribe().wait_for(|seen| *seen >= news).await.is_ok();
    }

    /// Lets go of what was kept of answers and is too old.
    async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP_PAUSE);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (blobs, snapshot) = (Arc::clone(&self.blobs), self.snapshot.load_full());
            if let Err(err) = self.tasks.blocking(move || blobs.sweep(&snapshot.settings().blob)).await {
                tracing::error!(%err, "what was kept of answers could not be swept");
            }
        }
    }

    /// One request for one server: resolve → authorize → admit → dispatch → inspect. The first two need no waiting, as a
    /// rule, and are done before there is a future: what a future takes in is copied into it, and again into each within.
    fn permit(&self, resolved: Resolved) -> Result<Permitted, Reject> {
        let inspection = Inspection::of(&resolved);
        Ok((inspection, authorize::authorize(self, resolved)?))
    }

    async fn ask_server(self: Arc<Self>, (inspection, authorized): Permitted) -> Reply {
        let Admitted { authorized, place } = match admit::admit(&self, authorized).await {
            Ok(admitted) => admitted,
            Err(reject) => return Reply::once(Err(reject)),
        };
        let reply = inspection.inspect(&self, dispatch::dispatch(&self, authorized).await).await;
        match place {
            Some(place) => reply.with_permit(place),
            None => reply,
        }
    }

    /// Answers what is for no server, or names what is not known yet.
    async fn wait(self: Arc<Self>, caller: Identified, exchange: Exchange) -> Reply {
        match exchange.call {
            Call::Discover => {
                let capabilities = caller.capabilities(&exchange.endpoint);
                Reply::once(Ok(Answer::Discovery(Discovery { instructions: None, capabilities })))
            }
            Call::Listen(wanted) => listen::listen(self, &caller, exchange.endpoint, wanted),
            Call::List { kind, cursor, told } => {
                let what = (kind, exchange.client.version.into());
                Reply::once(list::list(&self, caller, &exchange.endpoint, what, cursor, &told).await)
            }
            Call::Watch { uri, watching } => {
                let watched = self.watch(caller, &exchange.endpoint, &uri, &watching).await;
                Reply::once(watched.map(|()| Answer::Ended))
            }
            Call::ToServer(_) => {
                if let Some(own) = shape::asks_for_own(&exchange) {
                    let read = Box::pin(shape::read_own(&self, &caller, &exchange, own)).await;
                    return read.unwrap_or_else(|reject| Reply::once(Err(reject)));
                }
                let resolved = resolve::resolve(&self, caller, exchange).await;
                match resolved.and_then(|resolved| self.permit(resolved)) {
                    Ok(permitted) => Box::pin(self.ask_server(permitted)).await,
                    Err(reject) => Reply::once(Err(reject)),
                }
            }
        }
    }
}

/// A call that may happen, and what must be known of it when its answer comes.
type Permitted = (Inspection, Authorized);

impl Handler for Gateway {
    type Caller = Identified;

    fn identify(&self, credential: &Credential<'_>) -> Result<Identified, Reject> {
        Identified::of(self, credential)
    }

    fn renewed(&self, caller: Identified) -> Identified {
        caller.renewed(self)
    }

    fn check(
        self: &Arc<Self>,
        caller: Identified,
        exchange: Exchange,
    ) -> impl Future<Output = Result<Option<Permit>, Reject>> + Send + 'static {
        let gateway = Arc::clone(self);
        async move {
            let resolved = resolve::resolve(&gateway, caller, exchange).await?;
            let authorized = authorize::authorize(&gateway, resolved)?;
            Ok(admit::admit(&gateway, authorized).await?.place)
        }
    }

    fn admit(&self, caller: &Identified) -> Result<(), Reject> {
        admit::request(caller)
    }

    fn admit_end(&self, caller: &Identified) -> Result<(), Reject> {
        admit::end(caller)
    }

    fn call(self: &Arc<Self>, caller: Identified, exchange: Exchange) -> Handling {
        let gateway = Arc::clone(self);
        if shape::asks_for_own(&exchange).is_none()
            && let Some(entry) = resolve::at_once(&caller, &exchange)
        {
            let permitted = resolve::resolved(caller, exchange, entry).and_then(|resolved| self.permit(resolved));
            return match permitted {
                Ok(permitted) => Box::pin(gateway.ask_server(permitted)),
                Err(reject) => Box::pin(std::future::ready(Reply::once(Err(reject)))),
            };
        }
        Box::pin(gateway.wait(caller, exchange))
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("targets", &self.targets()).finish_non_exhaustive()
    }
}
