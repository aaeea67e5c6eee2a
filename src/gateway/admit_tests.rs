//! Rates and places, driven at `Handler::call`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use proptest::prelude::*;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{Endpoint, Handler as _, ReasonCode, Reject, RejectKind, Reply, ReplyBody, Retry};
use crate::gateway::tests::{call_of, clients, exchange, outcome, settings, tool_call};
use crate::gateway::{Gateway, GatewaySettings};
use crate::id::UpstreamName;
use crate::identity::Credential;
use crate::limit::LimitSettings;
use crate::runtime::Tasks;
use crate::secret::Lent;
use crate::upstream::{TargetSet, fake};
use crate::wire::mcp::Method;

/// A hall of two principals and one server with a quick tool and two that hang.
struct Hall {
    gateway: Arc<Gateway>,
    targets: Arc<TargetSet>,
    settings: GatewaySettings,
    calls: fake::Calls,
    clock: Clock,
    tasks: Tasks,
}

impl Hall {
    fn with(limits: LimitSettings) -> Self {
        let (tasks, clock) = (Tasks::new(), Clock::manual());
        let name = UpstreamName::new("one").unwrap();
        let tools = ["quick", "hang", "hang_progress"].map(|tool| format!(r#"{{"name":"{tool}"}}"#)).to_vec();
        let (targets, calls) = fake::targets(&[(name.clone(), tools)], &tasks);
        let rules = [(vec![0], None, Vec::new(), false), (vec![0], None, vec!["one__quick".to_owned()], false)];
        let settings = GatewaySettings { limits, ..settings(&[name], &rules) };
        let gateway =
            Gateway::new(settings.clone(), Arc::clone(&targets), Blobs::new(None, None, &clock), &tasks, clock.clone())
                .unwrap();
        Self { gateway, targets, settings, calls, clock, tasks }
    }

    fn call(&self, key: &str, tool: &str) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        let [client, _] = clients();
        let caller = self.gateway.identify(&Credential::ApiKey(Lent::new(key))).unwrap();
        Box::pin(self.gateway.call(caller, exchange(Endpoint::All, &client, tool_call(tool))))
    }

    async fn refused(&self, key: &str, tool: &str) -> Reject {
        let [client, _] = clients();
        outcome(&self.gateway, key, exchange(Endpoint::All, &client, tool_call(tool))).await.unwrap_err()
    }

    fn load(&self) -> (usize, usize) {
        let (_, running, waiting) = self.gateway.snapshot().limits().load();
        (running, waiting)
    }

    fn reached(&self) -> usize {
        self.calls.lock().unwrap().iter().filter(|(server, _)| server == "one").count()
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

fn one_at_a_time(queued: usize) -> LimitSettings {
    let mut limits = LimitSettings::default();
    limits.concurrency.server = Some(1);
    limits.concurrency.queued = queued;
    limits
}

fn done(reply: Reply) -> (Result<(), Reject>, Vec<Box<dyn Send>>) {
    let (body, guards) = reply.into_parts();
    let ReplyBody::Done(outcome) = body else { panic!("events") };
    (outcome.map(|_| ()), guards)
}

/// [LIM-5]: over a rate a call is refused before it reaches the server, with the time after which it is not; what is hidden
/// stays unknown.
#[tokio::test]
async fn a_call_over_its_rate_is_refused_until_the_time_it_says() {
    let mut limits = LimitSettings::default();
    limits.rates.tool = "2/min".parse().ok();
    limits.rates.principal = "5/min".parse().ok();
    let hall = Hall::with(limits);
    for _ in 0..2 {
        assert!(done(hall.call("key0", "one__quick").await).0.is_ok());
    }
    let refusal = hall.refused("key0", "one__quick").await;
    assert_eq!((refusal.kind, refusal.reason), (RejectKind::Busy, ReasonCode::RateLimited));
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(30)));
    assert_eq!(refusal.public, "Too many calls of 'one__quick': at most 2/min. Try again in 30 s");
    assert_eq!(hall.refused("key1", "one__quick").await.kind, RejectKind::Unknown);
    assert_eq!(hall.refused("key0", "one__none").await.kind, RejectKind::Unknown);
    assert_eq!(hall.reached(), 2);
    hall.clock.advance(Duration::from_secs(30));
    assert!(done(hall.call("key0", "one__quick").await).0.is_ok());

    let caller = hall.gateway.identify(&Credential::ApiKey(Lent::new("key0"))).unwrap();
    assert_eq!((0..9).filter(|_| hall.gateway.admit(&caller).is_ok()).count(), 5);
    let refusal = hall.gateway.admit(&caller).unwrap_err();
    assert_eq!((refusal.kind, refusal.retry), (RejectKind::Busy, Retry::After(Duration::from_secs(12))));
}

/// [LIM-5]: a place is held until the reply is over or dropped: while its call runs, while its events come, and until its
/// answer is handed over.
#[tokio::test]
async fn a_place_travels_with_the_reply() {
    let hall = Hall::with(one_at_a_time(0));
    let (answer, guards) = done(hall.call("key0", "one__quick").await);
    assert!(answer.is_ok());
    assert_eq!(hall.load(), (1, 0), "the answer is not handed over yet");
    let busy = hall.refused("key0", "one__quick").await;
    assert_eq!((busy.kind, busy.reason), (RejectKind::Busy, ReasonCode::TooManyCalls));
    drop(guards);
    assert_eq!(hall.load(), (0, 0));
    {
        let mut silent = pin!(hall.call("key0", "one__hang"));
        assert!(poll!(silent.as_mut()).is_pending());
        assert_eq!(hall.load(), (1, 0));
    }
    assert_eq!(hall.load(), (0, 0), "the call was dropped");
    let (body, guards) = hall.call("key0", "one__hang_progress").await.into_parts();
    assert_eq!(hall.load(), (1, 0));
    drop((body, guards));
    assert_eq!(hall.load(), (0, 0), "its events were dropped");
}

/// [LIM-5]: calls wait for their turn, in order and each principal in its turn; one more than may wait is refused.
#[tokio::test]
async fn calls_wait_for_their_turn() {
    let hall = Hall::with(one_at_a_time(1));
    let first = hall.call("key0", "one__hang_progress").await;
    let mut second = pin!(hall.call("key0", "one__quick"));
    let mut other = pin!(hall.call("key1", "one__hang_progress"));
    assert!(poll!(second.as_mut()).is_pending() && poll!(other.as_mut()).is_pending());
    assert_eq!(hall.load(), (1, 2));
    let refusal = hall.refused("key0", "one__quick").await;
    assert!(refusal.public.contains("1 wait already"), "{}", refusal.public);
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(1)));
    assert_eq!(hall.reached(), 0);
    drop(first);
    assert!(poll!(other.as_mut()).is_pending(), "the turn is the one's who came first");
    assert!(done(second.await).0.is_ok());
    drop(other.await);
    assert_eq!(hall.load(), (0, 0));
}

/// [LIM-5, LIM-4]: nobody waits for ever; [CFG-4] nor for what a reload has taken away.
#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end() {
    let hall = Hall::with(one_at_a_time(5));
    // Its client never takes the answer.
    let (_, guards) = done(hall.call("key0", "one__quick").await);
    let refused = tokio::time::timeout(Duration::from_millis(59_999), hall.refused("key0", "one__quick"));
    assert!(refused.await.is_err(), "it waits as long as a call may take");
    assert_eq!(hall.load(), (1, 0));
    let refusal = hall.refused("key0", "one__quick").await;
    assert_eq!((refusal.kind, refusal.reason), (RejectKind::Busy, ReasonCode::TooManyCalls));
    assert!(refusal.public.contains("waited 60 s"), "{}", refusal.public);
    assert_eq!(hall.load(), (1, 0));

    let mut waiting = pin!(hall.call("key0", "one__quick"));
    assert!(poll!(waiting.as_mut()).is_pending());
    let mut hidden = hall.settings.clone();
    hidden.principals.clear();
    hall.gateway.replace(Arc::new(hidden), Arc::clone(&hall.targets));
    let (answer, _guards) = done(waiting.await);
    assert_eq!(answer.unwrap_err().kind, RejectKind::Unknown);
    drop(guards);
    assert_eq!(hall.load(), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// [LIM-5, LIM-6]: whatever is polled and dropped in whatever order, in the end every place has come back.
    #[test]
    fn every_place_comes_back(steps in prop::collection::vec((0_usize..5, any::<usize>()), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut limits = one_at_a_time(3);
            limits.concurrency.server = Some(2);
            limits.concurrency.principal = Some(2);
            let hall = Hall::with(limits);
            let mut calls: Vec<Pin<Box<dyn Future<Output = Reply> + Send>>> = Vec::new();
            let mut replies = Vec::new();
            for (step, at) in steps {
                match step {
                    0 => calls.push(hall.call(["key0", "key1"][at % 2], "one__hang_progress")),
                    1 => calls.push(hall.call("key0", "one__quick")),
                    2 if !calls.is_empty() => {
                        let at = at % calls.len();
                        if let std::task::Poll::Ready(reply) = poll!(calls[at].as_mut()) {
                            drop(calls.swap_remove(at));
                            replies.push(reply);
                        }
                    }
                    3 if !calls.is_empty() => drop(calls.swap_remove(at % calls.len())),
                    4 if !replies.is_empty() => drop(replies.swap_remove(at % replies.len())),
                    _ => tokio::time::advance(Duration::from_millis(700)).await,
                }
                assert!(hall.load().0 <= 2);
            }
            drop((calls, replies));
            assert_eq!(hall.load(), (0, 0));
        });
    }
}

/// [LIM-5, LIM-6]: URIs that a client makes up are no keys of the rate of tools: they would take the room that all
/// principals share.
#[tokio::test]
async fn what_a_client_makes_up_is_no_key() {
    let (tasks, clock) = (Tasks::new(), Clock::manual());
    let name = UpstreamName::new(fake::LIBRARY).unwrap();
    let (targets, calls) = fake::targets(&[(name.clone(), vec![r#"{"name":"find"}"#.to_owned()])], &tasks);
    let mut limits = LimitSettings::default();
    limits.rates.tool = "1/min".parse().ok();
    let settings = GatewaySettings { limits, ..settings(&[name], &[(vec![0], None, Vec::new(), false)]) };
    let gateway = Gateway::new(settings, targets, Blobs::new(None, None, &clock), &tasks, clock).unwrap();
    let [client, _] = clients();
    for number in 0..10 {
        let call = call_of(Method::ResourcesRead, "uri", &format!("library+file:///{number}"));
        let answer = outcome(&gateway, "key0", exchange(Endpoint::All, &client, call)).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    assert_eq!((calls.lock().unwrap().len(), gateway.snapshot().limits().load().0), (10, 0));
    let long = call_of(Method::ResourcesRead, "uri", &format!("library+file:///{}", "u".repeat(8_000)));
    let answer = outcome(&gateway, "key0", exchange(Endpoint::All, &client, long)).await.unwrap_err();
    assert_eq!((answer.reason, calls.lock().unwrap().len()), (ReasonCode::Unknown, 10));
    let find = || exchange(Endpoint::All, &client, tool_call("library__find"));
    assert!(outcome(&gateway, "key0", find()).await.is_ok());
    assert_eq!(gateway.snapshot().limits().load().0, 1);
    assert_eq!(outcome(&gateway, "key0", find()).await.unwrap_err().reason, ReasonCode::RateLimited);
    tasks.cancel();
}
