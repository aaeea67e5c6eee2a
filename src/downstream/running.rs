//! A call in the hall's hands, as one row of events, whoever holds it.
//!
//! Invariants: after `Done` nothing follows; a legacy call outlives its holder (design §10 rule 23), any other ends with
//! it; ids in flight are given back with the outcome, a reply's guards with the body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::Semaphore;

use crate::exchange::{Event, EventStream, Handling, Reject, RejectKind, ReplyBody, ServerCall};
use crate::runtime::{DrainGuard, Stop, Tasks};
use crate::session::CallGuard;

/// A call that runs.
pub(super) struct Running {
    inner: Option<Inner>,
    survive: Option<(Survive, Arc<ServerCall>)>,
}

/// Where an unfinished call goes when its holder is gone.
#[derive(Clone, Debug)]
pub(super) struct Survive {
    /// Starts the task.
    pub(super) tasks: Tasks,
    /// Bounds their number; over it the call is cancelled.
    pub(super) slots: Arc<Semaphore>,
}

struct Inner {
    state: State,
    stop: Stopper,
    /// Given back with the outcome: a session's id in flight, and a place in the drain.
    session: Option<(CallGuard, DrainGuard)>,
    /// The same of other calls.
    holds: Option<Box<dyn Send>>,
    /// Given back with the body.
    guards: Vec<Box<dyn Send>>,
}

/// What ends a call without an outcome.
enum Stopper {
    Nothing,
    Signal(Stop),
    Future(Pin<Box<dyn Future<Output = ()> + Send>>),
}

enum State {
    Calling(Handling),
    Over,
    Streaming(EventStream),
}

// === impl Running ===

impl Running {
    /// Takes a call that ends when its holder drops it.
    pub(super) fn new(call: Handling) -> Self {
        let state = State::Calling(call);
        let inner = Inner { state, stop: Stopper::Nothing, session: None, holds: None, guards: Vec::new() };
        Self { inner: Some(inner), survive: None }
    }

    /// Ends the call without an outcome once the signal is given.
    pub(super) fn stopped_by(mut self, stop: Stop) -> Self {
        if let Some(inner) = &mut self.inner {
            inner.stop = Stopper::Signal(stop);
        }
        self
    }

    /// Ends the call without an outcome once `stop` resolves.
    pub(super) fn stopped_when(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        if let Some(inner) = &mut self.inner {
            inner.stop = Stopper::Future(Box::pin(stop));
        }
        self
    }

    /// Keeps something until the outcome is known.
    pub(super) fn holding(mut self, hold: impl Send + 'static) -> Self {
        if let Some(inner) = &mut self.inner {
            let before = inner.holds.take();
            inner.holds = Some(match before {
                Some(before) => Box::new((before, hold)),
                None => Box::new(hold),
            });
        }
        self
    }

    /// Keeps what a session's call has taken until the outcome is known; its id stops the call.
    pub(super) fn in_session(mut self, call: CallGuard, drain: DrainGuard) -> Self {
        if let Some(inner) = &mut self.inner {
            inner.stop = Stopper::Signal(call.stop().clone());
            inner.session = Some((call, drain));
        }
        self
    }

    /// Lets the call go on without its holder.
    pub(super) fn surviving(mut self, survive: Survive, call: Arc<ServerCall>) -> Self {
        self.survive = Some((survive, call));
        self
    }

    /// Says whether the call goes on without its holder.
    pub(super) const fn survives(&self) -> bool {
        self.survive.is_some()
    }

    /// Takes back that the call goes on without its holder: what it needs for that, and what is called.
    pub(super) const fn take_survive(&mut self) -> Option<(Survive, Arc<ServerCall>)> {
        self.survive.take()
    }

    /// Waits for the next event; `None` if the call was stopped.
    ///
    /// # Cancel safety
    /// Safe: all progress lives in `self`.
    pub(super) async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Polls for the next event.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.inner.as_mut().map_or(Poll::Ready(None), |inner| inner.poll_event(cx))
    }

    /// Takes the reply's guards, for the body that carries the outcome.
    pub(super) fn take_guards(&mut self) -> Vec<Box<dyn Send>> {
        self.inner.as_mut().map(|inner| std::mem::take(&mut inner.guards)).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.inner.as_ref().is_none_or(|inner| matches!(inner.state, State::Over)) {
            return;
        }
        let (Some(mut inner), Some((survive, _))) = (self.inner.take(), self.survive.take()) else { return };
        if survive.tasks.cancelled().is_cancelled() {
            return;
        }
        let Ok(slot) = Arc::clone(&survive.slots).try_acquire_owned() else {
            tracing::warn!("too many calls without a client; one is cancelled");
            return;
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        survive.tasks.spawn("call without client", async move {
            while let Some(event) = std::future::poll_fn(|cx| inner.poll_event(cx)).await {
                if matches!(event, Event::Done(_)) {
                    break;
                }
            }
            drop(slot);
        });
    }
}

// === impl Inner ===

impl Inner {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if matches!(self.state, State::Over) {
            return Poll::Ready(None);
        }
        let stopped = match &mut self.stop {
            Stopper::Nothing => Poll::Pending,
            Stopper::Signal(stop) => stop.poll_stopped(cx),
            Stopper::Future(stop) => stop.as_mut().poll(cx),
        };
        if stopped.is_ready() {
            self.finish();
            return Poll::Ready(None);
        }
        loop {
            let event = match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Calling(call) => {
                    let (body, guards) = ready!(call.as_mut().poll(cx)).into_parts();
                    self.guards = guards;
                    match body {
                        ReplyBody::Done(outcome) => Event::Done(*outcome),
                        ReplyBody::Events(events) => {
                            self.state = State::Streaming(events);
                            continue;
                        }
                    }
                }
                State::Streaming(events) => ready!(events.as_mut().poll_next(cx)).unwrap_or_else(|| {
                    let lost = "the reply's stream ended without an outcome";
                    Event::Done(Err(Reject::upstream(RejectKind::Upstream, "The call was lost", lost)))
                }),
            };
            if matches!(event, Event::Done(_)) {
                self.finish();
            }
            return Poll::Ready(Some(event));
        }
    }

    fn finish(&mut self) {
        self.state = State::Over;
        self.stop = Stopper::Nothing;
        self.session = None;
        self.holds = None;
    }
}
