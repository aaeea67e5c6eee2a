//! Sends a permitted call to its server, within its time; a dropped reply cancels it there.

use std::pin::pin;
use std::sync::Arc;

use crate::exchange::{Answer, Reply, ReplyBody, Unseen};
use crate::runtime::Bell;

use super::Gateway;
use super::authorize::Authorized;
use super::timed::{LOOK, Limits, Timed};

/// Sends the call; the reply is known with the first event or the answer.
pub(super) async fn dispatch(gateway: &Arc<Gateway>, authorized: Authorized) -> Reply {
    let Authorized { server, call, mut standing, .. } = authorized;
    let settings = server.settings();
    let max = settings.tool_max.max(settings.tool_timeout);
    let limits = Limits { idle: settings.tool_timeout, max, lease: server.lease() };
    let look = LOOK.min(limits.idle);
    let mut bell = Bell::after(look);
    let begun = bell.deadline() - look;
    let (deadline, end) = (begun + limits.idle, begun + limits.max);
    let mut sent = pin!(server.send(call));
    let reply = loop {
        tokio::select! {
            biased;
            reply = sent.as_mut() => break reply,
            () = &mut bell => {}
        }
        if let Some(reject) = standing.lost(gateway) {
            return Reply::once(Err(reject));
        }
        let rang = bell.deadline();
        if rang >= deadline {
            return Reply::once(Err(limits.idle_over()));
        }
        bell.reset(deadline.min(rang + LOOK));
    };
    if let Some(reject) = standing.lost(gateway) {
        return Reply::once(Err(reject));
    }
    let timed = (limits, end);
    match reply.into_parts() {
        (ReplyBody::Done(outcome), guards) => match *outcome {
            Ok(Answer::Unseen(unseen)) => {
                let rest = Box::pin(Timed::new(unseen.rest, timed, standing, Arc::clone(gateway)));
                Reply::once(Ok(Answer::Unseen(Box::new(Unseen { rest, ..*unseen }))))
            }
            _ => Reply::done(outcome),
        }
        .with_guards(guards),
        (ReplyBody::Events(events), guards) => {
            Reply::events(Box::pin(Timed::new(events, timed, standing, Arc::clone(gateway)))).with_guards(guards)
        }
    }
}
