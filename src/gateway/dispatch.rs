//! Sends a permitted call to its server, within its time; a dropped reply cancels it there.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::exchange::{Event, EventStream, ReasonCode, Reject, RejectKind, Reply, ReplyBody};
use crate::id::UpstreamName;

use super::Gateway;
use super::authorize::Authorized;

/// Sends the call; the reply is known with the first event or the answer.
pub(super) async fn dispatch(gateway: &Gateway, authorized: Authorized) -> Reply {
    let Authorized { server, call, cancel } = authorized;
    let Some(target) = gateway.targets.get(&server) else {
        return Reply::once(Err(Reject::unknown_tool(ReasonCode::Unknown)));
    };
    let limits = Limits {
        server,
        idle: target.settings().tool_timeout,
        max: target.settings().tool_max.max(target.settings().tool_timeout),
        cancel,
    };
    let mut timer = Timer::start(&limits);
    let sent = Arc::clone(target).send(call);
    let reply = tokio::select! {
        biased;
        reject = timer.expired(&limits) => return Reply::once(Err(reject)),
        reply = sent => reply,
    };
    match reply.into_parts() {
        (ReplyBody::Done(outcome), _guards) => Reply::once(*outcome),
        (ReplyBody::Events(events), guards) => {
            let watched = Watched { events: Some(events), timer, limits };
            Reply::events(Box::pin(stream::unfold(watched, Watched::next))).with_guard(guards)
        }
    }
}

#[derive(Debug)]
struct Limits {
    server: UpstreamName,
    idle: Duration,
    max: Duration,
    cancel: CancellationToken,
}

/// The time of one call: each event extends it, up to the maximum [LIM-4].
#[derive(Debug)]
struct Timer {
    idle: Pin<Box<Sleep>>,
    end: Instant,
}

impl Timer {
    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn start(limits: &Limits) -> Self {
        let now = Instant::now();
        Self { idle: Box::pin(tokio::time::sleep(limits.idle)), end: now + limits.max }
    }

    #[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
    fn extend(&mut self, limits: &Limits) {
        self.idle.as_mut().reset((Instant::now() + limits.idle).min(self.end));
    }

    async fn expired(&mut self, limits: &Limits) -> Reject {
        tokio::select! {
            biased;
            () = limits.cancel.cancelled() => {
                Reject::client(RejectKind::Upstream, "the call was cancelled", ReasonCode::BadRequest)
            }
            () = &mut self.idle => {
                let words = format!(
                    "server '{}' did not answer within {} s (tool_timeout_secs); the call was cancelled",
                    limits.server,
                    limits.idle.as_secs()
                );
                Reject::upstream(RejectKind::UpstreamTimeout, words, "")
            }
        }
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
            () = self.limits.cancel.cancelled() => Event::Done(Err(self.timer.expired(&self.limits).await)),
            // Before the timer: an answer that has arrived counts, however late it is asked for.
            event = events.next() => event.unwrap_or_else(|| {
                let words = format!("server '{}' ended its answer too early", self.limits.server);
                Event::Done(Err(Reject::upstream(RejectKind::Upstream, words, "")))
            }),
            reject = self.timer.expired(&self.limits) => Event::Done(Err(reject)),
        };
        match event {
            Event::Done(_) => self.events = None,
            Event::Log(_) | Event::Progress(_) | Event::ToolsChanged => self.timer.extend(&self.limits),
        }
        Some((event, self))
    }
}
