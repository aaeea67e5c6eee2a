//! Sends a permitted call to its server, within its time; a dropped reply cancels it there.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};

use crate::exchange::{Answer, Asked, Event, EventStream, Reject, RejectKind, Reply, ReplyBody, Unseen};
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
    let look = LOOK.min(limits.idle);
    let mut bell = pin!(tokio::time::sleep(look));
    let begun = bell.deadline() - look;
    let (deadline, end) = (begun + limits.idle, begun + limits.max);
    let mut sent = pin!(server.send(call));
    let reply = loop {
        tokio::select! {
            biased;
            reply = sent.as_mut() => break reply,
            () = bell.as_mut() => {}
        }
        if let Some(reject) = standing.lost(gateway) {
            return Reply::once(Err(reject));
        }
        let rang = bell.deadline();
        if rang >= deadline {
            return Reply::once(Err(limits.exceeded()));
        }
        bell.as_mut().reset(deadline.min(rang + LOOK));
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
            let open = Vec::new();
            let mut watched =
                Watched { events: Some(events), open, timer, limits, standing, gateway: Arc::clone(gateway) };
            Reply::events(Box::pin(stream::poll_fn(move |cx| watched.poll_next(cx)))).with_guards(guards)
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
    /// Rings at the deadline, and before that to look around. An event moves the deadline alone: the bell rings too early
    /// then, and is set anew.
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
        self.deadline = (Instant::now() + limits.idle).min(self.end);
    }

    /// Polls whether it rings; says whether the time is over.
    fn poll_rings(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        ready!(self.bell.as_mut().poll(cx));
        let rang = self.bell.deadline();
        self.bell.as_mut().reset(self.deadline.min(rang + LOOK));
        Poll::Ready(rang >= self.deadline)
    }

    /// Gives the whole time of an answer anew, also past the maximum: the server waits for us.
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn hold(&mut self, limits: &Limits) {
        self.end = self.end.max(Instant::now() + limits.idle);
        self.extend(limits);
    }

    /// Waits until it rings; says whether the time is over.
    async fn rings(&mut self) -> bool {
        poll_fn(|cx| self.poll_rings(cx)).await
    }
}

/// The events of a call under its timer.
struct Watched {
    events: Option<EventStream>,
    /// The server's questions that are out.
    open: Vec<Asked>,
    timer: Timer,
    limits: Limits,
    standing: Standing,
    gateway: Arc<Gateway>,
}

impl Watched {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let Some(events) = &mut self.events else { return Poll::Ready(None) };
            // Before the timer: an answer that has arrived counts, however late it is asked for.
            let event = match events.as_mut().poll_next(cx) {
                Poll::Ready(event) => Some(event.unwrap_or_else(|| {
                    let words = format!("server '{}' ended its answer too early", self.limits.lease.server());
                    Event::Done(Err(Reject::upstream(RejectKind::Upstream, words, "")))
                })),
                Poll::Pending => {
                    let over = ready!(self.timer.poll_rings(cx))
                        && !waits_for_answers(&mut self.open, &mut self.timer, &self.limits);
                    over.then(|| Event::Done(Err(self.limits.exceeded())))
                }
            };
            let lost = self.standing.lost(&self.gateway).map(|reject| Event::Done(Err(reject)));
            let Some(event) = lost.or(event) else { continue };
            match event {
                Event::Done(_) => self.events = None,
                Event::Ask(ref question) => {
                    self.open.push(question.responder.asked());
                    self.timer.extend(&self.limits);
                }
                Event::Changed(_) | Event::Log(_) | Event::Progress(_) | Event::Said(_) | Event::Watch(_) => {
                    self.timer.extend(&self.limits);
                }
            }
            return Poll::Ready(Some(event));
        }
    }
}

/// Says whether the server waits for a person: then its time does not run.
fn waits_for_answers(open: &mut Vec<Asked>, timer: &mut Timer, limits: &Limits) -> bool {
    open.retain(|asked| !asked.is_over());
    let waits = !open.is_empty();
    if waits {
        timer.hold(limits);
    }
    waits
}
