//! Sends a permitted call to its server, within its time; a dropped reply cancels it there.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};

use crate::exchange::{Answer, Event, EventStream, ReasonCode, Reject, RejectKind, Reply, ReplyBody, Unseen};
use crate::id::UpstreamName;

use super::Gateway;
use super::authorize::Authorized;

/// Sends the call; the reply is known with the first event or the answer.
pub(super) async fn dispatch(gateway: &Gateway, authorized: Authorized) -> Reply {
    let Authorized { server, call } = authorized;
    let Some(target) = gateway.targets.get(&server) else {
        return Reply::once(Err(Reject::unknown_tool(ReasonCode::Unknown)));
    };
    let settings = target.settings();
    let limits = Limits { server, idle: settings.tool_timeout, max: settings.tool_max.max(settings.tool_timeout) };
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    let end = Instant::now() + limits.max;
    let sent = Arc::clone(target).send(call);
    let Ok(reply) = tokio::time::timeout(limits.idle, sent).await else {
        return Reply::once(Err(limits.exceeded()));
    };
    match reply.into_parts() {
        (ReplyBody::Done(outcome), _guards) => match *outcome {
            Ok(Answer::Unseen(unseen)) => Reply::once(Ok(Answer::Unseen(Box::new(timed(*unseen, limits, end))))),
            _ => Reply::done(outcome),
        },
        (ReplyBody::Events(events), guards) => {
            let watched = Watched { events: Some(events), timer: Timer::start(&limits, end), limits };
            Reply::events(Box::pin(stream::unfold(watched, Watched::next))).with_guard(guards)
        }
    }
}

/// Gives each piece of an answer the time of an event.
fn timed(unseen: Unseen, limits: Limits, end: Instant) -> Unseen {
    let rest = stream::unfold(Some((unseen.rest, limits)), move |state| async move {
        let (mut rest, limits) = state?;
        let mut timer = Timer::start(&limits, end);
        tokio::select! {
            biased;
            piece = rest.next() => piece.map(|piece| (piece, Some((rest, limits)))),
            () = &mut timer.idle => Some((Err(limits.exceeded()), None)),
        }
    });
    Unseen { rest: Box::pin(rest), ..unseen }
}

#[derive(Debug)]
struct Limits {
    server: UpstreamName,
    idle: Duration,
    max: Duration,
}

impl Limits {
    fn exceeded(&self) -> Reject {
        let words = format!(
            "server '{}' did not answer within {} s (tool_timeout_secs); the call was cancelled",
            self.server,
            self.idle.as_secs()
        );
        Reject::upstream(RejectKind::UpstreamTimeout, words, "")
    }
}

/// The time of one call: each event extends it, up to the maximum [LIM-4].
#[derive(Debug)]
struct Timer {
    idle: Pin<Box<Sleep>>,
    end: Instant,
}

impl Timer {
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn start(limits: &Limits, end: Instant) -> Self {
        let deadline = (Instant::now() + limits.idle).min(end);
        Self { idle: Box::pin(tokio::time::sleep_until(deadline)), end }
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn extend(&mut self, limits: &Limits) {
        self.idle.as_mut().reset((Instant::now() + limits.idle).min(self.end));
    }
}

/// The events of a call under its timer.
struct Watched {
    events: Option<EventStream>,
    timer: Timer,
    limits: Limits,
}

impl Watched {
    async fn next(mut self) -> Option<(Event, Self)> {
        let events = self.events.as_mut()?;
        let event = tokio::select! {
            biased;
            // Before the timer: an answer that has arrived counts, however late it is asked for.
            event = events.next() => event.unwrap_or_else(|| {
                let words = format!("server '{}' ended its answer too early", self.limits.server);
                Event::Done(Err(Reject::upstream(RejectKind::Upstream, words, "")))
            }),
            () = &mut self.timer.idle => Event::Done(Err(self.limits.exceeded())),
        };
        match event {
            Event::Done(_) => self.events = None,
            Event::Log(_) | Event::Progress(_) | Event::ToolsChanged => self.timer.extend(&self.limits),
        }
        Some((event, self))
    }
}
