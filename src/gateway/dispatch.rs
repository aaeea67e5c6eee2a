//! Sends a permitted call to its server, within its time; a dropped reply cancels it there.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};

use crate::exchange::{Answer, Event, EventStream, Reject, RejectKind, Reply, ReplyBody, Unseen};
use crate::upstream::Lease;

use super::Gateway;
use super::authorize::Authorized;
use super::standing::Standing;

/// How often a call that waits is asked whether a reload has taken away what it lives by. Longer than the two seconds
/// between two looks at the files: a timer that is the next to fire has to wake the event loop, one system call each.
pub(super) const LOOK: Duration = Duration::from_secs(3);

/// Sends the call; the reply is known with the first event or the answer.
pub(super) async fn dispatch(gateway: &Arc<Gateway>, authorized: Authorized) -> Reply {
    let Authorized { server, call, mut standing, .. } = authorized;
    let settings = server.settings();
    let max = settings.tool_max.max(settings.tool_timeout);
    let limits = Limits { idle: settings.tool_timeout, max, lease: server.lease() };
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    let end = Instant::now() + limits.max;
    let mut sent = pin!(server.send(call));
    let mut waited = Duration::ZERO;
    let reply = loop {
        let look = LOOK.min(limits.idle.saturating_sub(waited));
        if let Ok(reply) = tokio::time::timeout(look, sent.as_mut()).await {
            break reply;
        }
        waited += look;
        if let Some(reject) = standing.lost(gateway) {
            return Reply::once(Err(reject));
        }
        if waited >= limits.idle {
            return Reply::once(Err(limits.exceeded()));
        }
    };
    if let Some(reject) = standing.lost(gateway) {
        return Reply::once(Err(reject));
    }
    match reply.into_parts() {
        (ReplyBody::Done(outcome), guards) => match *outcome {
            Ok(Answer::Unseen(unseen)) => Reply::once(Ok(Answer::Unseen(Box::new(timed(
                *unseen,
                Whole { limits, standing, gateway: Arc::clone(gateway) },
                end,
            ))))),
            _ => Reply::done(outcome),
        }
        .with_guards(guards),
        (ReplyBody::Events(events), guards) => {
            let timer = Timer::start(&limits, end);
            let watched = Watched { events: Some(events), timer, limits, standing, gateway: Arc::clone(gateway) };
            Reply::events(Box::pin(stream::unfold(watched, Watched::next))).with_guards(guards)
        }
    }
}

/// Gives each piece of an answer the time of an event.
fn timed(unseen: Unseen, whole: Whole, end: Instant) -> Unseen {
    let rest = stream::unfold(Some((unseen.rest, whole)), move |state| async move {
        let (mut rest, mut whole) = state?;
        let mut timer = Timer::start(&whole.limits, end);
        loop {
            let piece = tokio::select! {
                biased;
                piece = rest.next() => Some(piece?),
                over = timer.rings() => over.then(|| Err(whole.limits.exceeded())),
            };
            if let Some(reject) = whole.standing.lost(&whole.gateway) {
                return Some((Err(reject), None));
            }
            if let Some(piece) = piece {
                let more = piece.is_ok().then_some((rest, whole));
                return Some((piece, more));
            }
        }
    });
    Unseen { rest: Box::pin(rest), ..unseen }
}

/// What an answer that is passed on as it comes is bound by.
struct Whole {
    limits: Limits,
    standing: Standing,
    gateway: Arc<Gateway>,
}

#[derive(Debug)]
struct Limits {
    idle: Duration,
    max: Duration,
    /// Keeps a server that a reload replaces until the call is over.
    lease: Arc<Lease>,
}

impl Limits {
    fn exceeded(&self) -> Reject {
        let words = format!(
            "server '{}' did not answer within {} s (tool_timeout_secs); the call was cancelled",
            self.lease.server(),
            self.idle.as_secs()
        );
        Reject::upstream(RejectKind::UpstreamTimeout, words, "")
    }
}

/// The time of one call: each event extends it, up to the maximum [LIM-4].
#[derive(Debug)]
struct Timer {
    /// Rings at the deadline, and before that to look around.
    bell: Pin<Box<Sleep>>,
    deadline: Instant,
    end: Instant,
}

impl Timer {
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn start(limits: &Limits, end: Instant) -> Self {
        let now = Instant::now();
        let deadline = (now + limits.idle).min(end);
        Self { bell: Box::pin(tokio::time::sleep_until(deadline.min(now + LOOK))), deadline, end }
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn extend(&mut self, limits: &Limits) {
        let now = Instant::now();
        self.deadline = (now + limits.idle).min(self.end);
        self.bell.as_mut().reset(self.deadline.min(now + LOOK));
    }

    /// Waits until it rings; says whether the time is over.
    async fn rings(&mut self) -> bool {
        self.bell.as_mut().await;
        let rang = self.bell.deadline();
        self.bell.as_mut().reset(self.deadline.min(rang + LOOK));
        rang >= self.deadline
    }
}

/// The events of a call under its timer.
struct Watched {
    events: Option<EventStream>,
    timer: Timer,
    limits: Limits,
    standing: Standing,
    gateway: Arc<Gateway>,
}

impl Watched {
    async fn next(mut self) -> Option<(Event, Self)> {
        let events = self.events.as_mut()?;
        let event = loop {
            let event = tokio::select! {
                biased;
                // Before the timer: an answer that has arrived counts, however late it is asked for.
                event = events.next() => Some(event.unwrap_or_else(|| {
                    let words = format!("server '{}' ended its answer too early", self.limits.lease.server());
                    Event::Done(Err(Reject::upstream(RejectKind::Upstream, words, "")))
                })),
                over = self.timer.rings() => over.then(|| Event::Done(Err(self.limits.exceeded()))),
            };
            if let Some(reject) = self.standing.lost(&self.gateway) {
                break Event::Done(Err(reject));
            }
            if let Some(event) = event {
                break event;
            }
        };
        match event {
            Event::Done(_) => self.events = None,
            Event::Changed(_) | Event::Log(_) | Event::Progress(_) | Event::Watch(_) => self.timer.extend(&self.limits),
        }
        Some((event, self))
    }
}
