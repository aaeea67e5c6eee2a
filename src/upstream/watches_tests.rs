//! Watched resources against a scripted server, under virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::Value;

use super::{Hears, WATCHED_MAX, Watch, WatchError, Watches, covers};
use crate::exchange::{Answer, Reply};
use crate::id::PrincipalId;
use crate::runtime::Tasks;
use crate::upstream::fake::FakeLink;
use crate::upstream::heard::Heard;
use crate::upstream::link::{Link, Outgoing};
use crate::wire::jsonrpc::{Decoded, Limits, Message, RequestId, Response, decode};
use crate::wire::mcp::{Capabilities, Era};

/// What the server knows; it outlives its connections.
#[derive(Debug, Default)]
struct Side {
    /// How often each resource is subscribed (the older era).
    subscribed: BTreeMap<String, usize>,
    /// The listens that are open (the newer one), and whether they are acknowledged.
    listens: BTreeMap<u64, (BTreeSet<String>, bool)>,
    /// What has happened, in order.
    log: Vec<String>,
    /// Resources whose subscription is refused.
    refuses: BTreeSet<String>,
    /// Nothing is acknowledged.
    mute: bool,
    next: u64,
}

/// What it does on one connection.
struct Scripted {
    era: Era,
    side: Arc<Mutex<Side>>,
    heard: Arc<Heard>,
}

/// A listen, until it is dropped.
struct Listening(Arc<Mutex<Side>>, u64);

impl Drop for Listening {
    fn drop(&mut self) {
        let mut side = self.0.lock().unwrap();
        side.listens.remove(&self.1);
        side.log.push(format!("end {}", self.1));
    }
}

impl Side {
    /// What the server would tell of.
    fn tells(&self) -> BTreeSet<String> {
        let listened = self.listens.values().flat_map(|(uris, _)| uris.clone());
        self.subscribed.keys().cloned().chain(listened).filter(|uri| !self.refuses.contains(uri)).collect()
    }
}

impl Side {
    /// What is subscribed; `None` if something is so twice, or a listen is left over or was never acknowledged.
    fn at_rest(&self) -> Option<BTreeSet<String>> {
        let once = self.subscribed.values().all(|count| *count == 1);
        let one = self.listens.len() <= 1 && self.listens.values().all(|(_, acknowledged)| *acknowledged);
        (once && one).then(|| self.tells())
    }
}

/// Says something of resources on a connection.
fn say(heard: &Heard, method: &str, params: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#);
    let Ok(Decoded::One(Message::Notification(note))) = decode(&Bytes::from(text), &Limits::DOWNSTREAM) else {
        panic!()
    };
    assert!(heard.hear(&note));
}

impl Scripted {
    /// Connects to the server.
    fn link(era: Era, side: &Arc<Mutex<Side>>) -> Arc<FakeLink> {
        let side = Arc::clone(side);
        FakeLink::new(era, move |state, outgoing| {
            let (side, heard) = (Arc::clone(&side), Arc::clone(&state.heard));
            Box::pin(Self { era, side, heard }.answer(outgoing))
        })
    }

    async fn answer(self, outgoing: Outgoing) -> Reply {
        let Outgoing::Own { method, members } = outgoing else { panic!() };
        let params: Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
        match method {
            "subscriptions/listen" => {
                let uris = params["notifications"]["resourceSubscriptions"].as_array().unwrap();
                self.listen(uris.iter().map(|uri| uri.as_str().unwrap().to_owned()).collect()).await
            }
            _ => self.subscribe(method, params["uri"].as_str().unwrap().to_owned()).await,
        }
    }

    async fn listen(self, uris: BTreeSet<String>) -> Reply {
        let id = {
            let mut side = self.side.lock().unwrap();
            side.next += 1;
            let id = side.next;
            side.log.push(format!("listen {id} {}", uris.iter().cloned().collect::<Vec<_>>().join(" ")));
            side.listens.insert(id, (uris.clone(), false));
            id
        };
        let _listening = Listening(Arc::clone(&self.side), id);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let honoured: Option<Vec<String>> = {
            let mut side = self.side.lock().unwrap();
            let honoured = uris.iter().filter(|uri| !side.refuses.contains(*uri)).cloned().collect();
            (!side.mute).then(|| {
                side.listens.get_mut(&id).unwrap().1 = true;
                side.log.push(format!("ack {id}"));
                honoured
            })
        };
        if let Some(honoured) = honoured {
            let honoured = serde_json::to_string(&honoured).unwrap();
            let params = format!(r#"{{"notifications":{{"resourceSubscriptions":{honoured}}}}}"#);
            say(&self.heard, "subscriptions/acknowledged", &params);
        }
        std::future::pending().await
    }

    async fn subscribe(self, method: &str, uri: String) -> Reply {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut side = self.side.lock().unwrap();
        let refused = side.refuses.contains(&uri);
        if method == "resources/subscribe" {
            side.log.push(format!("+{uri}"));
            *side.subscribed.entry(uri).or_default() += usize::from(!refused);
        } else {
            side.log.push(format!("-{uri}"));
            side.subscribed.remove(&uri);
        }
        side.subscribed.retain(|_, count| *count > 0);
        let response = match refused {
            true => Response::with_error(Some(&RequestId::number(1)), br#"{"code":-32602,"message":"no"}"#),
            false => Response::with_result(&RequestId::number(1), b"{}"),
        };
        Reply::once(Ok(Answer::Upstream { response: Box::new(response), era: self.era }))
    }
}

/// A server with its connection, and who watches.
struct World {
    side: Arc<Mutex<Side>>,
    watches: Arc<Watches>,
    era: Era,
    link: Arc<FakeLink>,
    tasks: Tasks,
    can: Capabilities,
}

/// Somebody who watches.
struct Somebody {
    uri: String,
    told: Arc<Mutex<Vec<String>>>,
    watch: Watch,
}

impl World {
    fn new(era: Era, can: Capabilities) -> Self {
        let side = Arc::default();
        let link = Scripted::link(era, &side);
        let world = Self { era, side, watches: Arc::default(), link, tasks: Tasks::new(), can };
        world.serve();
        world
    }

    fn serve(&self) {
        let (watches, link) = (Arc::clone(&self.watches), Arc::clone(&self.link));
        let can = self.can;
        self.tasks.spawn("serve", async move {
            let closed = link.closed().clone();
            let link: Arc<dyn Link> = link;
            tokio::select! { () = watches.serve(&link, can) => {} () = closed.cancelled() => {} }
        });
    }

    /// The connection ends, and with it what the server knew of it; another follows.
    async fn reconnect(&mut self) {
        self.link.close();
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.side.lock().unwrap().subscribed.clear();
        self.link = Scripted::link(self.era, &self.side);
        self.serve();
    }

    fn update(&self, uri: &str) {
        say(self.link.heard(), "resources/updated", &format!(r#"{{"uri":"{uri}"}}"#));
    }

    fn watch(&self, uri: &str) -> Somebody {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let hears: Hears = Arc::new(move |uri: &str| heard.lock().unwrap().push(uri.to_owned()));
        let watch = Watches::add(&self.watches, &PrincipalId::new("ann"), Arc::from(uri), hears).unwrap();
        Somebody { uri: uri.to_owned(), told, watch }
    }

    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.side.lock().unwrap().log)
    }
}

impl Somebody {
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// One subscription for many; ended with the last; made again on the next connection, which counts as an update.
#[tokio::test(start_paused = true)]
async fn the_older_era_is_asked_once_per_resource() {
    let mut world = World::new(Era::Legacy, Capabilities::ALL);
    let (one, two, other) = (world.watch("a"), world.watch("a"), world.watch("b"));
    for somebody in [&one, &two, &other] {
        somebody.watch.accepted().await.unwrap();
    }
    assert_eq!(world.log(), ["+a", "+b"]);
    world.update("a");
    world.update("a/b");
    world.update("ab");
    world.settle().await;
    assert_eq!(
        (one.told(), two.told(), other.told()),
        (vec!["a".into(), "a/b".into()], vec!["a".into(), "a/b".into()], vec![])
    );
    drop(one);
    world.settle().await;
    assert!(world.log().is_empty());
    world.reconnect().await;
    world.settle().await;
    assert_eq!(
        (world.log(), two.told(), other.told()),
        (vec!["+a".into(), "+b".into()], vec!["a".into()], vec!["b".into()])
    );
    drop(two);
    world.settle().await;
    assert_eq!(world.log(), ["-a"]);
    // Something may have been missed.
    world.link.heard().missed();
    world.settle().await;
    assert_eq!(other.told(), ["b"]);
}

/// Protocol §4.6: the listen that follows is acknowledged before the one before ends.
#[tokio::test(start_paused = true)]
async fn the_newer_era_makes_before_it_breaks() {
    let mut world = World::new(Era::Stateless, Capabilities::ALL);
    let one = world.watch("a");
    one.watch.accepted().await.unwrap();
    let two = world.watch("b");
    two.watch.accepted().await.unwrap();
    world.settle().await;
    assert_eq!(world.log(), ["listen 1 a", "ack 1", "listen 2 a b", "ack 2", "end 1"]);
    drop(one);
    world.settle().await;
    assert_eq!(world.log(), ["listen 3 b", "ack 3", "end 2"]);
    world.reconnect().await;
    world.settle().await;
    assert_eq!(
        (world.log(), two.told()),
        (vec!["end 3".into(), "listen 4 b".into(), "ack 4".into()], vec!["b".into()])
    );
    drop(two);
    world.settle().await;
    assert_eq!(world.log(), ["end 4"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_to_who_asked() {
    for era in [Era::Legacy, Era::Stateless] {
        let world = World::new(era, Capabilities::ALL);
        world.side.lock().unwrap().refuses.insert("no".to_owned());
        let (no, yes) = (world.watch("no"), world.watch("yes"));
        assert!(matches!(no.watch.accepted().await, Err(WatchError::Refused(_))), "{era:?}");
        yes.watch.accepted().await.unwrap();
        let world = World::new(era, Capabilities { subscribe: false, ..Capabilities::ALL });
        assert!(matches!(world.watch("a").watch.accepted().await, Err(WatchError::Refused(_))), "{era:?}");
        assert!(world.log().is_empty(), "a server that does not offer it is not asked");
        // No connection at all.
        let world = World::new(era, Capabilities::ALL);
        world.link.close();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(matches!(world.watch("a").watch.accepted().await, Err(WatchError::Late)), "{era:?}");
    }
    let world = World::new(Era::Stateless, Capabilities::ALL);
    world.side.lock().unwrap().mute = true;
    let waiting = world.watch("a");
    let refused = waiting.watch.accepted().await;
    assert!(matches!(refused, Err(WatchError::Late | WatchError::Refused(_))), "{refused:?}");
}

#[test]
fn what_lies_below_is_covered() {
    for (watched, updated, is) in [
        ("f:///a", "f:///a", true),
        ("f:///a", "f:///a/b", true),
        ("f:///a/", "f:///a/b", true),
        ("f:///a", "f:///a?q", true),
        ("f:///a", "f:///a#f", true),
        ("f:///a", "f:///ab", false),
        ("f:///a/b", "f:///a", false),
    ] {
        assert_eq!(covers(watched, updated), is, "{watched} {updated}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Drop(usize),
    Reconnect,
    Settle,
    Update(usize),
    Wait(u64),
    Watch(usize),
}

const URIS: [&str; 5] = ["a", "a/b", "b", "c", "no"];

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..URIS.len()).prop_map(Op::Watch),
        3 => (0_usize..8).prop_map(Op::Drop),
        3 => (0..URIS.len()).prop_map(Op::Update),
        2 => (0_u64..60).prop_map(Op::Wait),
        1 => Just(Op::Reconnect),
        1 => Just(Op::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// In whatever order clients come and go, servers are lost and come back: at rest the server holds one subscription for
    /// each resource that somebody watches and none else; an update reaches those who watch it or what is above it, and
    /// nobody else ever; and when all have gone, nothing is left.
    #[test]
    fn subscriptions_follow_who_watches(ops in prop::collection::vec(op(), 1..40), stateless in proptest::bool::ANY) {
        let era = if stateless { Era::Stateless } else { Era::Legacy };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(era, Capabilities::ALL);
            world.side.lock().unwrap().refuses.insert("no".to_owned());
            let mut all: Vec<Somebody> = Vec::new();
            for op in ops.into_iter().chain([Op::Settle]) {
                match op {
                    Op::Watch(uri) => all.push(world.watch(URIS[uri])),
                    Op::Drop(which) => { if which < all.len() { drop(all.swap_remove(which)); } }
                    Op::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    Op::Reconnect => world.reconnect().await,
                    Op::Update(uri) => {
                        // Also while nothing is at rest: nobody may hear of what they do not watch.
                        if world.side.lock().unwrap().tells().iter().any(|told| covers(told, URIS[uri])) {
                            world.update(URIS[uri]);
                        }
                    }
                    Op::Settle => {
                        world.settle().await;
                        let wanted: BTreeSet<String> = all.iter().map(|one| one.uri.clone()).collect();
                        let held = world.side.lock().unwrap().at_rest();
                        let Some(held) = held else { return Err(TestCaseError::fail("not one for each")) };
                        let possible: BTreeSet<String> = wanted.into_iter().filter(|uri| uri != "no").collect();
                        prop_assert_eq!(&held, &possible);
                        all.iter().for_each(|one| drop(one.told()));
                        for updated in ["a", "a/b", "b/x", "c", "d"] {
                            if held.iter().any(|uri| covers(uri, updated)) {
                                world.update(updated);
                                world.settle().await;
                            }
                            for one in &all {
                                let due = covers(&one.uri, updated) && held.iter().any(|uri| covers(uri, updated));
                                prop_assert_eq!(one.told().len(), usize::from(due), "{} {}", one.uri, updated);
                            }
                        }
                    }
                }
                for one in &all {
                    let told = one.told.lock().unwrap();
                    prop_assert!(told.iter().all(|uri| covers(&one.uri, uri)), "{} {:?}", one.uri, told);
                }
            }
            drop(all);
            world.settle().await;
            let side = world.side.lock().unwrap();
            prop_assert!(side.subscribed.is_empty() && side.listens.is_empty(), "{:?}", side);
            prop_assert!(world.watches.is_empty());
            Ok(())
        })?;
    }
}

/// [LIM-6]: one principal does not use up the watched resources of a server; what two watch counts for whoever came first, and
/// goes over to the other one.
#[test]
fn a_principal_leaves_something_to_watch_for_the_others() {
    let watches = Arc::new(Watches::default());
    let add = |who: &str, uri: &str| Watches::add(&watches, &PrincipalId::new(who), Arc::from(uri), Arc::new(|_| {}));
    let fill = |who: &str| {
        let uris = (0..).map(|number| format!("file:///{who}/{number}"));
        uris.map_while(|uri| add(who, &uri).ok()).collect::<Vec<Watch>>()
    };
    let ann = fill("ann");
    assert_eq!(ann.len(), WATCHED_MAX / 2);
    assert!(matches!(add("ann", "file:///more"), Err(WatchError::TooMany)));
    assert_eq!(fill("bob").len(), WATCHED_MAX / 4);
    // What is watched already costs nothing more, and outlives who accounts for it.
    let shared: Vec<_> = (0..3).map(|number| add("bob", &format!("file:///ann/{number}")).unwrap()).collect();
    let of = |who: &str| watches.state().of.get(&PrincipalId::new(who)).copied();
    assert_eq!((of("ann"), of("bob")), (Some(WATCHED_MAX / 2), None));
    drop(ann);
    assert_eq!((of("ann"), of("bob")), (None, Some(3)));
    drop(shared);
    assert!(watches.state().of.is_empty() && watches.is_empty());
}
