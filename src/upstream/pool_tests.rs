//! The pool without processes: who gets which connection, and what is started and stopped [TRN-3, TRN-4].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::DOUBT_MAX;
use crate::clock::Clock;
use crate::exchange::{ClientFacts, Owner, OwnerKey, Reject, RejectKind, Reply, ServerCall, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::{Ready, Tasks};
use crate::upstream::fake::result;
use crate::upstream::link::{
    BoxFuture, Changes, Connector, Left, Link, LinkState, Outgoing, StartError, Started, Want,
};
use crate::upstream::means::Means;
use crate::upstream::member::Held;
use crate::upstream::place::Place;
use crate::upstream::server::{Phase, Server};
use crate::upstream::set::TargetSet;
use crate::upstream::{Grants, Isolation, ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::{CallParams, Capabilities, Era, Features, Kind, Method, ProtocolVersion, RequestMeta};

#[cfg(test)]
#[path = "pool_channel_tests.rs"]
mod channels;
#[cfg(test)]
#[path = "pool_list_tests.rs"]
mod lists;
#[cfg(test)]
#[path = "pool_room_tests.rs"]
mod room;
#[cfg(test)]
#[path = "pool_sole_tests.rs"]
mod sole;

const ELICITS: &str = r#"{"elicitation":{}}"#;
/// Everything that a list is read with.
const ASKABLE: &str = r#"{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"tools":{}}}"#;

/// A factory of connections that are no processes.
#[derive(Debug)]
struct Plant {
    opened: AtomicUsize,
    /// One permit per start that may go on.
    gate: Semaphore,
    failing: Mutex<Option<String>>,
    wires: Mutex<Vec<Arc<Wire>>>,
    /// New connections refuse to list.
    mute: AtomicBool,
    lists: AtomicUsize,
    /// Processes take their time to end, until they are reaped.
    slow: AtomicBool,
    /// Lists are not answered until this is sent again.
    hushed: watch::Sender<bool>,
    /// What is done when a connection is watched for changes the next time.
    meanwhile: Mutex<Option<Meanwhile>>,
}

struct Meanwhile(Box<dyn FnOnce() + Send>);

#[derive(Debug)]
struct Wire {
    plant: Arc<Plant>,
    features: Features,
    place: Mutex<Option<Arc<Place>>>,
    /// Whose calls it has not answered that were given up.
    given_up: Mutex<Vec<OwnerKey>>,
    state: LinkState,
    /// The one tool that it lists; it refuses to list where there is none.
    tool: Mutex<&'static str>,
}

/// A server of a plant, and all around it.
struct Yard {
    server: Arc<Server>,
    plant: Arc<Plant>,
    set: TargetSet,
    clock: Clock,
    tasks: Tasks,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Connector for Plant {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(async move {
            self.opened.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            if let Some(why) = self.failing.lock().unwrap().clone() {
                return Err(StartError::Failed(why));
            }
            if want.era == Some(Era::Stateless) {
                return Err(StartError::Era(Era::Stateless, "it is old".to_owned()));
            }
            let wire = Arc::new(Wire {
                plant: Arc::clone(&self),
                features: want.features,
                place: Mutex::new(want.place),
                given_up: Mutex::default(),
                state: LinkState::default(),
                tool: Mutex::new(if self.mute.load(Ordering::SeqCst) { "" } else { "t" }),
            });
            wire.state.ended("it died".to_owned());
            self.wires.lock().unwrap().push(Arc::clone(&wire));
            Ok(Started { link: wire, can: Capabilities::ASSUMED })
        })
    }
}

impl Plant {
    /// How often a list was asked for.
    fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }
}

impl Wire {
    /// Changes its list, and says so.
    fn turns(&self, tool: &'static str) {
        *self.tool.lock().unwrap() = tool;
        self.relist();
    }

    fn die(&self) {
        self.place.lock().unwrap().take();
        self.state.closed.cancel();
    }
}

impl Link for Wire {
    fn era(&self) -> Era {
        Era::Legacy
    }

    fn state(&self) -> &LinkState {
        &self.state
    }

    fn is_channel(&self) -> bool {
        true
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        assert!(matches!(outgoing, Outgoing::Own { .. }), "only lists are read here");
        self.plant.lists.fetch_add(1, Ordering::SeqCst);
        let tool = *self.tool.lock().unwrap();
        if tool.is_empty() {
            let refused = Reject::upstream(RejectKind::Upstream, "server 'up' refuses", "");
            return Box::pin(std::future::ready(Reply::once(Err(refused))));
        }
        let list = format!(r#"{{"tools":[{{"name":"{tool}","inputSchema":{{"type":"object"}}}}]}}"#);
        let mut hushed = self.plant.hushed.subscribe();
        Box::pin(async move {
            let _spoken = hushed.wait_for(|hushed| !hushed).await.is_ok();
            Reply::once(Ok(result(Era::Legacy, &list)))
        })
    }

    fn changes(&self) -> watch::Receiver<Changes> {
        let meanwhile = self.plant.meanwhile.lock().unwrap().take();
        if let Some(Meanwhile(work)) = meanwhile {
            work();
        }
        self.state.changes.subscribe()
    }

    fn left_behind(&self, owner: &OwnerKey) -> Left {
        let given_up = self.given_up.lock().unwrap();
        if given_up.iter().any(|theirs| theirs != owner) {
            return Left::Others;
        }
        if given_up.is_empty() { Left::Nothing } else { Left::Own }
    }

    fn close(&self) {
        if !self.plant.slow.load(Ordering::SeqCst) {
            return self.die();
        }
        self.state.closed.cancel();
        if let Some(place) = &*self.place.lock().unwrap() {
            place.leave();
        }
    }
}

impl Yard {
    /// A server that so many principals are granted; its starts wait at the gate.
    fn new(grants: usize, adjust: impl FnOnce(&mut ServerSettings)) -> Self {
        let means = Means::new(Tasks::new(), Clock::manual());
        Self::of(&means, grants, adjust)
    }

    /// The same, of means that other servers share.
    fn of(means: &Means, grants: usize, adjust: impl FnOnce(&mut ServerSettings)) -> Self {
        let transport = Transport::Stdio {
            command: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            cwd: None,
        };
        let mut settings = ServerSettings::new(UpstreamName::new("up").unwrap(), transport);
        adjust(&mut settings);
        let plant = Arc::new(Plant {
            opened: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            failing: Mutex::default(),
            wires: Mutex::default(),
            mute: AtomicBool::new(false),
            lists: AtomicUsize::new(0),
            slow: AtomicBool::new(false),
            hushed: watch::Sender::new(false),
            meanwhile: Mutex::default(),
        });
        let server = Server::new(Arc::new(settings), Arc::clone(&plant) as Arc<dyn Connector>, means);
        let set = TargetSet::of(vec![Arc::clone(&server)], means.clone());
        let yard = Self { server, plant, set, clock: means.clock.clone(), tasks: means.tasks.clone() };
        yard.grant(&granted(grants));
        yard
    }

    /// A server that so many principals are granted, with its list read and its gate open.
    async fn ready(grants: usize, adjust: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::new(grants, adjust).opened_up().await
    }

    async fn opened_up(self) -> Self {
        self.plant.gate.add_permits(1_000_000);
        self.server.settled().await;
        assert_eq!(self.server.status().phase, Phase::Ready);
        self
    }

    /// A reload changes who is granted it.
    fn grant(&self, grants: &Grants) {
        self.set.start(|_| grants.clone(), &Ready::new());
    }

    /// Whether its list holds this tool.
    fn lists(&self, tool: &str) -> bool {
        let status = self.server.status();
        status.lists.is_some_and(|lists| lists.of(Kind::Tools).iter().any(|item| &*item.name == tool))
    }

    fn opened(&self) -> usize {
        self.plant.opened.load(Ordering::SeqCst)
    }

    /// The connections that are open.
    fn open(&self) -> Vec<Arc<Wire>> {
        let wires = self.plant.wires.lock().unwrap();
        wires.iter().filter(|wire| !wire.state.closed.is_cancelled()).cloned().collect()
    }

    /// The connection that a call holds.
    fn wire(&self, held: &Held) -> Arc<Wire> {
        let wires = self.plant.wires.lock().unwrap();
        let same = |wire: &&Arc<Wire>| std::ptr::addr_eq(Arc::as_ptr(wire), Arc::as_ptr(held.link()));
        Arc::clone(wires.iter().find(same).unwrap())
    }

    async fn held(&self, call: &UpstreamCall) -> Result<Held, Reject> {
        within(self.server.held_for(call)).await
    }

    fn sweep_after(&self, time: Duration) {
        self.clock.advance(time);
        self.server.sweep(self.clock.now());
    }

    async fn end(self) {
        within(self.set.close()).await;
        assert!(self.open().is_empty(), "a connection has outlived the set");
        assert_eq!(self.server.pool.places.count(), 0, "a place was not given back");
        self.tasks.cancel();
        within(self.tasks.wait()).await;
    }
}

/// To ann alone, or to so many.
fn granted(count: usize) -> Grants {
    if count == 1 { Grants::One(PrincipalId::new("ann")) } else { Grants::Several }
}

/// Fails what hangs.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

/// Lets the others run until it is so.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), polling).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A call of a principal, of one of its sessions where it has any, whose client declares something.
fn call_of(principal: &str, session: Option<u64>, capabilities: &'static str) -> UpstreamCall {
    let raw = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#);
    let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else { panic!("{raw:?}") };
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::read(request.params.as_deref()).unwrap();
    let principal = PrincipalId::new(principal);
    let key = session.map_or_else(|| OwnerKey::Principal(principal.clone()), OwnerKey::Session);
    UpstreamCall {
        call: Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }),
        original: Arc::from("t"),
        original_spelled: Bytes::from_static(b"\"t\""),
        header_params: Arc::from([]),
        client: ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(capabilities.as_bytes())),
        owner: Owner { key, ended: session.map(|_| CancellationToken::new()), aside: session.map(|_| Arc::default()) },
        principal,
        request_state: None,
        trace: None,
    }
}

fn call(principal: &str) -> UpstreamCall {
    call_of(principal, None, "{}")
}

fn same(one: &Held, two: &Held) -> bool {
    Arc::ptr_eq(one.link(), two.link())
}

/// [TRN-4], FC-CON-03: a hundred calls to a cold server start one process beside the one that the list is read over, however
/// many principals there are.
#[tokio::test]
async fn a_hundred_calls_start_one_process() {
    for grants in [1, 2] {
        let yard = Yard::new(grants, |_| {});
        let one = call("ann");
        let calls = futures_util::future::join_all((0..100).map(|_| yard.held(&one)));
        let (held, ()) = futures_util::future::join(calls, async {
            until("the start", || yard.opened() == 1).await;
            yard.plant.gate.add_permits(1);
            until("the start of ann's own", || yard.opened() == 2).await;
            yard.plant.gate.add_permits(1);
        })
        .await;
        let held: Vec<Held> = held.into_iter().map(Result::unwrap).collect();
        assert!(held.iter().all(|other| same(other, &held[0])));
        // The list's own gives way to that of the only principal.
        assert_eq!((yard.opened(), yard.open().len()), (2, grants), "{grants} principals");
        drop(held);
        yard.end().await;
    }
}

/// [TRN-4]: lists are read as a client that can be asked everything. Where one principal alone has the server, its client
/// takes that connection if it declared as much; if it did not, its own takes the place of it.
#[tokio::test]
async fn the_connection_of_the_list_is_for_who_declared_as_much() {
    for (grants, capabilities, adopts) in
        [(1, ASKABLE, true), (1, ELICITS, false), (1, "{}", false), (2, ASKABLE, false), (2, "{}", false)]
    {
        let yard = Yard::ready(grants, |_| {}).await;
        let list = Arc::clone(&yard.open()[0]);
        assert_eq!(list.features, Features::ASKABLE);
        let caller = call_of("ann", None, capabilities);
        let held = yard.held(&caller).await.unwrap();
        let own = yard.open().into_iter().find(|wire| std::ptr::addr_eq(Arc::as_ptr(wire), Arc::as_ptr(held.link())));
        assert_eq!(Arc::ptr_eq(&own.unwrap(), &list), adopts, "{grants} {capabilities}");
        assert_eq!(yard.opened(), if adopts { 1 } else { 2 }, "{grants} {capabilities}");
        until("the list's own process gives way to the only principal's", || yard.open().len() == grants).await;
        // Whoever may be asked has it alone.
        assert_eq!(held.is_alone(), capabilities != "{}", "{grants} {capabilities}");
        drop(held);
        yard.end().await;
    }
    // On a pipe that is everybody's nobody is asked: one process is all there is.
    let yard = Yard::ready(2, |settings| settings.isolation = Some(Isolation::Shared)).await;
    let plain = [yard.held(&call("ann")).await.unwrap(), yard.held(&call("bob")).await.unwrap()];
    assert!(same(&plain[0], &plain[1]) && yard.open().iter().all(|wire| wire.features == Features::NONE));
    assert_eq!(yard.opened(), 1);
    drop(plain);
    yard.end().await;
}

/// [TRN-4]: a start belongs to the pool. The first caller goes away; the second one waits for the same start.
#[tokio::test]
async fn a_caller_that_goes_away_ends_no_start() {
    let yard = Yard::new(2, |_| {});
    yard.plant.gate.add_permits(1);
    yard.server.settled().await;
    let one = call("ann");
    let mut first = Box::pin(yard.server.held_for(&one));
    until("its start", || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        yard.opened() == 2
    })
    .await;
    drop(first);
    let (held, ()) = futures_util::future::join(yard.held(&one), async { yard.plant.gate.add_permits(1) }).await;
    held.unwrap();
    assert_eq!(yard.opened(), 2);
    yard.end().await;
}

/// [TRN-4]: a start that fails is told to all who wait, and to those who come within the pause, at once; after it the next
/// call tries again.
#[tokio::test]
async fn a_failed_start_is_told_at_once_and_tried_again_later() {
    let yard = Yard::ready(2, |settings| settings.show_stderr = true).await;
    *yard.plant.failing.lock().unwrap() = Some("no such command".to_owned());
    let one = call("ann");
    let refused = within(futures_util::future::join_all((0..20).map(|_| yard.server.held_for(&one)))).await;
    assert_eq!(yard.opened(), 2, "one start for all of them");
    for reject in refused.into_iter().map(Result::unwrap_err) {
        assert_eq!((reject.kind, &*reject.public), (RejectKind::Upstream, "server 'up' is down: no such command"));
        assert_eq!(reject.code(), crate::codes::Code::ServerDown);
    }
    yard.held(&one).await.unwrap_err();
    yard.held(&call("bob")).await.unwrap_err();
    assert_eq!(yard.opened(), 2, "nothing is started within the pause");
    *yard.plant.failing.lock().unwrap() = None;
    yard.clock.advance(Duration::from_secs(1));
    yard.held(&one).await.unwrap();
    assert_eq!(yard.opened(), 3);
    yard.end().await;
}

/// [TRN-3, TRN-4]: one principal whose process ends again and again is held back; another one is not.
#[tokio::test]
async fn a_process_that_ends_soon_again_and_again_is_held_back() {
    let yard = Yard::ready(2, |_| {}).await;
    let list = yard.open();
    let own = || yard.open().into_iter().find(|wire| !Arc::ptr_eq(wire, &list[0]));
    let noted = |times| yard.server.pool.stock().shelves.values().any(|shelf| shelf.early.failures() == times);
    for times in 1..=2 {
        let held = yard.held(&call("ann")).await.unwrap();
        own().unwrap().die();
        drop(held);
        until("it is noted", || noted(times)).await;
    }
    let reject = yard.held(&call("ann")).await.unwrap_err();
    assert!(reject.detail.contains("has ended soon after each start: it died"), "{reject:?}");
    drop(yard.held(&call("bob")).await.unwrap());
    yard.clock.advance(Duration::from_secs(1));
    drop(yard.held(&call("ann")).await.unwrap());
    yard.end().await;
}

/// [TRN-4], FC-STD-09: what is held is not stopped however long it takes; what nobody holds is, after the time and not
/// before. Then the server rests, until a call wakes it and its list is read again.
#[tokio::test]
async fn what_is_busy_is_never_stopped() {
    let idle = Duration::from_secs(100);
    let yard = Yard::ready(1, |settings| settings.idle_stop = Some(idle)).await;
    let one = call_of("ann", None, ASKABLE);
    let held = yard.held(&one).await.unwrap();
    for _ in 0..10 {
        yard.sweep_after(idle * 2);
    }
    assert_eq!(yard.open().len(), 1);
    drop(held);
    yard.sweep_after(idle * 2);
    yard.sweep_after(idle - Duration::from_secs(1));
    assert_eq!(yard.open().len(), 1, "the time counts from its last use");
    yard.sweep_after(Duration::from_secs(1));
    assert_eq!(yard.open().len(), 0);
    until("its place is free", || yard.server.pool.places.count() == 0).await;
    assert_eq!((yard.server.status().phase, yard.opened()), (Phase::Ready, 1), "a server that rests can be called");
    let lists = yard.plant.lists();
    let held = yard.held(&one).await.unwrap();
    until("the list is read again", || yard.plant.lists() > lists).await;
    assert_eq!(yard.opened(), 2, "over the connection of the call");
    drop(held);
    yard.end().await;
}

/// [TRN-4]: with several principals the connection of the list stays while one of them has its own, and rests with the last.
#[tokio::test]
async fn the_list_rests_when_nobody_has_a_connection() {
    let idle = Duration::from_secs(100);
    let yard = Yard::ready(2, |settings| settings.idle_stop = Some(idle)).await;
    let held = yard.held(&call("ann")).await.unwrap();
    for _ in 0..5 {
        yard.sweep_after(idle * 2);
    }
    assert_eq!(yard.open().len(), 2);
    drop(held);
    until("both have ended", || {
        yard.sweep_after(idle);
        yard.open().is_empty()
    })
    .await;
    drop(yard.held(&call("bob")).await.unwrap());
    until("the list has its own again", || yard.open().len() == 2).await;
    yard.end().await;
}

/// [TRN-4]: who owns a connection, by `isolation`; a session's ends with it.
#[tokio::test]
async fn isolation_says_whose_a_connection_is() {
    for (isolation, sessions_share, principals_share) in
        [(Isolation::Session, false, false), (Isolation::Principal, true, false), (Isolation::Shared, true, true)]
    {
        let yard = Yard::ready(2, |settings| settings.isolation = Some(isolation)).await;
        let calls = [call_of("ann", Some(1), "{}"), call_of("ann", Some(2), "{}"), call_of("bob", Some(3), "{}")];
        let mut held = Vec::new();
        for one in &calls {
            held.push(yard.held(one).await.unwrap());
        }
        assert_eq!(same(&held[0], &held[1]), sessions_share, "{isolation:?}");
        assert_eq!(same(&held[0], &held[2]), principals_share, "{isolation:?}");
        // A client without sessions is its principal.
        let stateless = [yard.held(&call("ann")).await.unwrap(), yard.held(&call("ann")).await.unwrap()];
        assert!(same(&stateless[0], &stateless[1]), "{isolation:?}");
        let first = Arc::clone(held[0].link());
        drop((held, stateless));
        calls[0].owner.ended.as_ref().unwrap().cancel();
        if isolation == Isolation::Session {
            within(first.closed().cancelled()).await;
        } else {
            tokio::task::yield_now().await;
            assert!(!first.closed().is_cancelled(), "{isolation:?}: it is not the session's");
        }
        yard.end().await;
    }
}

/// Whose roots have changed is told to a server alone where the connection has been that owner's and nobody else's.
#[tokio::test]
async fn a_connection_knows_whether_it_was_one_owners_alone() {
    let yard = Yard::ready(2, |_| {}).await;
    let (one, two) = (call_of("ann", Some(1), "{}"), call_of("ann", Some(2), "{}"));
    let held = yard.held(&one).await.unwrap();
    drop(yard.held(&one).await.unwrap());
    assert!(held.is_only_of(&one.owner.key) && !held.is_only_of(&two.owner.key));
    assert!(same(&held, &yard.held(&two).await.unwrap()), "a principal's sessions share it");
    assert!(!held.is_only_of(&one.owner.key) && !held.is_only_of(&two.owner.key));
    drop(held);
    yard.end().await;
}

/// [TRN-4]: a call whose client may be asked back has its connection alone: a second one takes another, or waits for it.
#[tokio::test]
async fn a_call_that_may_be_asked_back_is_alone() {
    let yard = Yard::ready(1, |settings| settings.max_processes = 3).await;
    let asking = call_of("ann", None, ELICITS);
    let first = yard.held(&asking).await.unwrap();
    let second = yard.held(&asking).await.unwrap();
    assert!(!same(&first, &second));
    let asking_wires = || yard.open().into_iter().filter(|wire| wire.features == asking.client.features).count();
    assert_eq!(asking_wires(), 2);
    // Those that nobody can ask share one, and it is another one.
    let plain = [yard.held(&call("ann")).await.unwrap(), yard.held(&call("ann")).await.unwrap()];
    assert!(same(&plain[0], &plain[1]) && !same(&plain[0], &first));
    let mut third = Box::pin(yard.server.held_for(&asking));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        assert!(third.as_mut().poll(&mut context).is_pending(), "three processes are all there may be");
        tokio::task::yield_now().await;
    }
    let freed = Arc::clone(second.link());
    drop(second);
    assert!(Arc::ptr_eq(within(third).await.unwrap().link(), &freed));
    drop((first, plain));
    yard.end().await;
}

/// Whoever loses a grant loses its connections, one that is being started too.
#[tokio::test]
async fn a_revoked_principal_keeps_nothing() {
    let yard = Yard::new(2, |_| {});
    yard.plant.gate.add_permits(2);
    yard.server.settled().await;
    let (ann, bob) = (call("ann"), call("bob"));
    let link = Arc::clone(yard.held(&ann).await.unwrap().link());
    let mut waiting = Box::pin(yard.held(&bob));
    until("the start of bob's", || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut context).is_pending() && yard.opened() == 3
    })
    .await;
    yard.set.revoke(|_, _| false);
    yard.plant.gate.add_permits(1);
    waiting.await.unwrap_err();
    within(link.closed().cancelled()).await;
    until("the list's connection alone is left", || yard.open().len() == 1).await;
    yard.end().await;
}

/// [TRN-4, TRN-10]: what several principals share on a pipe is one process, and there nobody can be asked: whose a question
/// is would be a guess.
#[tokio::test]
async fn what_is_shared_on_a_pipe_is_one_process_that_may_ask_nobody() {
    let yard = Yard::ready(2, |settings| settings.isolation = Some(Isolation::Shared)).await;
    let ann = yard.held(&call_of("ann", Some(1), ELICITS)).await.unwrap();
    let bob = yard.held(&call_of("bob", Some(2), ELICITS)).await.unwrap();
    assert!(same(&ann, &bob) && !ann.is_alone());
    assert!(
        yard.open().iter().all(|wire| !wire.features.may_be_asked()),
        "nothing is declared that nobody would answer"
    );
    assert_eq!(yard.opened(), 1);
    drop((ann, bob));
    yard.end().await;
}

/// [TRN-10, LIM-6]: a call that was given up and is never answered puts its connection in doubt for other clients; that has
/// an end: once it has lasted, the connection is replaced when nobody holds it, and only for who would be refused there.
#[tokio::test]
async fn a_doubt_has_an_end() {
    let yard = Yard::ready(2, |settings| settings.max_processes = 2).await;
    let (one, two) = (call_of("ann", Some(1), ELICITS), call_of("ann", Some(2), ELICITS));
    let first = yard.held(&one).await.unwrap();
    let link = Arc::clone(first.link());
    yard.open().last().unwrap().given_up.lock().unwrap().push(one.owner.key.clone());
    drop(first);
    for _ in 0..3 {
        assert!(Arc::ptr_eq(yard.held(&two).await.unwrap().link(), &link), "a doubt alone costs nobody a process");
        yard.clock.advance(DOUBT_MAX / 4);
    }
    yard.clock.advance(DOUBT_MAX);
    let own = yard.held(&one).await.unwrap();
    assert!(Arc::ptr_eq(own.link(), &link), "it is no doubt for who gave the call up");
    drop(own);
    let other = yard.held(&two).await.unwrap();
    assert!(!Arc::ptr_eq(other.link(), &link) && link.closed().is_cancelled());
    // What is answered after all is no doubt any more, and a later one lasts from its own beginning.
    let link = Arc::clone(other.link());
    drop(other);
    let wire = yard.open().last().cloned().unwrap();
    for owner in [&one, &two, &one] {
        yard.clock.advance(DOUBT_MAX * 2);
        *wire.given_up.lock().unwrap() = vec![owner.owner.key.clone()];
        let foreign = if owner.owner.key == one.owner.key { &two } else { &one };
        assert!(Arc::ptr_eq(yard.held(foreign).await.unwrap().link(), &link));
        wire.given_up.lock().unwrap().clear();
        drop(yard.held(foreign).await.unwrap());
    }
    yard.end().await;
}
