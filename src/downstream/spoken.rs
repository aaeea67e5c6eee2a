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

/// What a call begins with, that was known before there was a stream.
pub(super) enum First {
    /// The answer, with what is given back when it has been sent.
    Answer(Box<(Rendered, Vec<Box<dyn Send>>)>),
    /// A message.
    Message(Bytes),
    /// A pause of the server's.
    Pause,
}

/// A call in its client's words.
pub(super) struct Spoken {
    first: Option<First>,
    /// Whether the client knows pauses.
    pauses: bool,
    /// The call, and who has asked for it; nothing once it is over.
    call: Option<(Running, Asker)>,
}

// === impl Spoken ===

impl Spoken {
    pub(super) const fn new(running: Running, asker: Asker, first: Option<First>) -> Self {
        Self { first, pauses: false, call: Some((running, asker)) }
    }

    /// Says when the server pauses.
    pub(super) const fn with_pauses(mut self, pauses: bool) -> Self {
        self.pauses = pauses;
        self
    }

    /// Says whether all has been said.
    pub(super) const fn is_over(&self) -> bool {
        self.call.is_none()
    }

    /// Polls for the next message.
    pub(super) fn poll_said(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        match self.first.take() {
            Some(First::Answer(first)) => {
                let (rendered, guards) = *first;
                self.call = None;
                return Poll::Ready(Some(answer(rendered, guards)));
            }
            Some(First::Message(message)) => return Poll::Ready(Some(Said::note(message))),
            Some(First::Pause) if self.pauses => return Poll::Ready(Some(Said::pause())),
            Some(First::Pause) | None => {}
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
                Some(Event::Paused) if self.pauses => Some(Said::pause()),
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
