//! A call's events as the messages that its client reads.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use smallvec::SmallVec;

use crate::exchange::Event;
use crate::session::Said;
use crate::wire::jsonrpc::one_line;

use super::answer::{Asker, Rendered};
use super::running::Running;

/// A call in its client's words.
pub(super) struct Spoken {
    /// What was said already, when it was not known yet that there would be a stream.
    first: Option<Bytes>,
    /// The call, and who has asked for it; nothing once it is over.
    call: Option<(Running, Asker)>,
}

// === impl Spoken ===

impl Spoken {
    pub(super) const fn new(running: Running, asker: Asker, first: Option<Bytes>) -> Self {
        Self { first, call: Some((running, asker)) }
    }

    /// Says whether all has been said.
    pub(super) const fn is_over(&self) -> bool {
        self.call.is_none()
    }

    /// Polls for the next message.
    pub(super) fn poll_said(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        if let Some(message) = self.first.take() {
            return Poll::Ready(Some(Said::note(message)));
        }
        loop {
            let Some((running, asker)) = &mut self.call else { return Poll::Ready(None) };
            let said = match ready!(running.poll_event(cx)) {
                Some(Event::Done(outcome)) => {
                    // A stream that no request has asked for ends without a word.
                    let rendered = asker.id.is_some().then(|| asker.render(outcome));
                    let guards = running.take_guards();
                    self.call = None;
                    rendered.map(|rendered| answer(rendered, guards))
                }
                Some(event) => match asker.message(event) {
                    Some(message) => Some(Said::note(message)),
                    None => continue,
                },
                None => {
                    let farewell = asker.farewell();
                    self.call = None;
                    farewell.map(|farewell| Said { last: true, ..Said::note(farewell) })
                }
            };
            return Poll::Ready(said);
        }
    }
}

impl Stream for Spoken {
    type Item = Said;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        self.poll_said(cx)
    }
}

fn answer(rendered: Rendered, guards: Vec<Box<dyn Send>>) -> Said {
    match rendered {
        Rendered { parts, rest: Some(rest), .. } => {
            let parts = parts.into_iter().map(one_line).collect();
            Said { parts, rest: Some(rest.pieces), last: true, guards }
        }
        Rendered { parts, rest: None, .. } => Said { parts: SmallVec::from_vec(parts), rest: None, last: true, guards },
    }
}
