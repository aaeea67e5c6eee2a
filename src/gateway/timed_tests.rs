//! The time of a call, by tokio's own paused clock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, poll};
use tokio::time::advance;

use super::note;
use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{Endpoint, Event, EventStream, Handler as _, Reject, RejectKind, ReplyBody, Responder};
use crate::gateway::tests::{clients, exchange, settings, tool_call};
use crate::gateway::{Gateway, GatewaySettings};
use crate::id::UpstreamName;
use crate::identity::Credential;
use crate::runtime::Tasks;
use crate::secret::Lent;
use crate::upstream::{TargetSet, fake};

struct Hall {
    gateway: Arc<Gateway>,
    targets: Arc<TargetSet>,
    settings: GatewaySettings,
    calls: fake::Calls,
    tasks: Tasks,
}

impl Hall {
    fn open() -> Self {
        let (tasks, name) = (Tasks::new(), UpstreamName::new("one").unwrap());
        let tools = ["hang_progress", "hang_logs", "hang_briefly"].map(|tool| format!(r#"{{"name":"{tool}"}}"#));
        let (targets, calls) = fake::targets(&[(name.clone(), tools.to_vec())], &tasks);
        let settings = settings(&[name], &[(vec![0], None, Vec::new(), false)]);
        let gateway = Gateway::new(
            settings.clone(),
            Arc::clone(&targets),
            Blobs::new(None, None, &Clock::manual()),
            &tasks,
            Clock::manual(),
        )
        .unwrap();
        Self { gateway, targets, settings, calls, tasks }
    }

    /// Begins a call, and returns what comes of it.
    async fn begin(&self, tool: &str) -> EventStream {
        let [client, _] = clients();
        let caller = self.gateway.identify(&Credential::ApiKey(Lent::new("key0"))).unwrap();
        let reply = self.gateway.call(caller, exchange(Endpoint::All, &client, tool_call(tool))).await;
        let (ReplyBody::Events(events), _) = reply.into_parts() else { panic!("no events") };
        events
    }

    fn cancelled(&self) -> usize {
        self.calls.lock().unwrap().iter().filter(|(what, _)| what == "cancelled").count()
    }

    /// Lets time go by while nobody asks for anything.
    async fn passes(&self, seconds: u64) {
        for _ in 0..seconds {
            advance(Duration::from_secs(1)).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// Reads to the end.
async fn end(events: &mut EventStream) -> (usize, Result<(), Reject>) {
    let mut before = 0;
    loop {
        match events.next().await.expect("a last event") {
            Event::Done(outcome) => {
                assert!(events.next().await.is_none(), "nothing follows the last");
                return (before, outcome.map(|_| ()));
            }
            Event::Ask(_)
            | Event::Changed(_)
            | Event::Log(_)
            | Event::Paused
            | Event::Progress(_)
            | Event::Said(_)
            | Event::Watch(_) => before += 1,
        }
    }
}

/// [LIM-4]: progress extends the time, other talk does not; the refusal names the key that would help.
#[tokio::test(start_paused = true)]
async fn progress_alone_extends_the_time() {
    let hall = Hall::open();
    let (talk, outcome) = end(&mut hall.begin("one__hang_logs").await).await;
    let refusal = outcome.unwrap_err();
    assert!((58..=60).contains(&talk), "{talk} seconds of talk");
    assert_eq!(refusal.kind, RejectKind::UpstreamTimeout);
    assert_eq!(refusal.public, "server 'one' did not answer within 60 s (tool_timeout_secs); the call was cancelled");
    let (progress, outcome) = end(&mut hall.begin("one__hang_progress").await).await;
    assert!((598..=600).contains(&progress), "{progress} seconds of progress");
    let refusal = outcome.unwrap_err();
    assert_eq!(
        refusal.public,
        "server 'one' did not end its answer within 600 s (tool_max_secs); the call was cancelled"
    );
    assert_eq!(hall.cancelled(), 2);
}

/// [LIM-4]: the time runs also while the client takes nothing: the call is cancelled at its server, and the client told when
/// it comes back.
#[tokio::test(start_paused = true)]
async fn the_time_runs_while_nobody_asks() {
    let hall = Hall::open();
    let mut never = hall.begin("one__hang_progress").await;
    let mut once = hall.begin("one__hang_progress").await;
    assert!(matches!(once.next().await, Some(Event::Progress(_))));
    let mut asked = hall.begin("one__hang_logs").await;
    assert!(poll!(asked.next()).is_pending(), "it has asked, and then something else holds it up");
    hall.passes(58).await;
    assert_eq!(hall.cancelled(), 0);
    hall.passes(8).await;
    assert_eq!(hall.cancelled(), 3);
    // What the server had said by then is not lost.
    for (events, said) in [(&mut never, 0), (&mut once, 0), (&mut asked, 1)] {
        let (before, outcome) = end(events).await;
        assert_eq!((before, outcome.unwrap_err().kind), (said, RejectKind::UpstreamTimeout));
    }
}

/// [LIM-4]: an answer that has come in time counts, however late it is asked for.
#[tokio::test(start_paused = true)]
async fn an_answer_that_has_come_counts() {
    let hall = Hall::open();
    let mut events = hall.begin("one__hang_briefly").await;
    assert!(matches!(events.next().await, Some(Event::Progress(_))));
    hall.passes(100).await;
    assert_eq!(hall.cancelled(), 0);
    let (before, outcome) = end(&mut events).await;
    assert!(before == 0 && outcome.is_ok(), "{outcome:?}");
    assert_eq!(hall.cancelled(), 0);
}

/// [CFG-4]: what a reload has taken away ends also where nobody asks for the next piece.
#[tokio::test(start_paused = true)]
async fn a_reload_ends_what_nobody_takes() {
    let hall = Hall::open();
    let mut events = hall.begin("one__hang_progress").await;
    let mut without = hall.settings.clone();
    without.principals.clear();
    hall.gateway.replace(Arc::new(without), Arc::clone(&hall.targets));
    hall.passes(3).await;
    assert_eq!(hall.cancelled(), 1);
    assert_eq!(end(&mut events).await.1.unwrap_err().kind, RejectKind::Unknown);
}

/// [LIM-6]: calls that are over are not looked at any more.
#[tokio::test(start_paused = true)]
async fn what_is_over_is_forgotten() {
    let hall = Hall::open();
    let mut all = Vec::new();
    for _ in 0..50 {
        all.push(hall.begin("one__hang_progress").await);
    }
    assert_eq!(hall.gateway.timed.len(), 50);
    drop(all);
    hall.passes(2).await;
    assert_eq!(hall.gateway.timed.len(), 0);
    assert_eq!(hall.cancelled(), 50);
}

/// [LIM-6]: of a server that asks and takes back without an end, what is still out is remembered alone.
#[test]
fn questions_that_are_over_are_not_remembered() {
    let mut questions = Vec::new();
    let still_out = Responder::new(|_| {});
    note(&mut questions, still_out.asked());
    for _ in 0..1_000 {
        let asked = Responder::new(|_| {}).asked();
        assert!(asked.is_over());
        note(&mut questions, asked);
    }
    assert_eq!(questions.len(), 2);
    assert!(!questions[0].is_over());
}
