//! Requests in flight in one conversation: their ids, and what becomes of each.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::exchange::{Event, ReasonCode, Reject, RejectKind};
use crate::id::PrincipalId;
use crate::runtime::Stop;
use crate::telemetry::access_line;
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::Era;

use super::lines::Lines;
use crate::downstream::AccessLog;
use crate::downstream::answer::{Asker, Rendered};
use crate::downstream::respond::{Fault, Refusal};
use crate::downstream::running::Running;

/// How many requests may be in flight; over it they are refused, so that a cancellation is always read.
pub(super) const IN_FLIGHT_MAX: usize = 1024;

/// The ids in flight. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<RequestId, Stop>>>);

/// An id in flight; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    table: InFlight,
    id: RequestId,
    /// Given by the client, or with the end of the conversation.
    pub(super) stop: Stop,
}

/// A request in the hall's hands, with its way back.
pub(super) struct Call {
    /// The call.
    pub(super) running: Running,
    /// Who asked.
    pub(super) asker: Asker,
    /// What a listen begins with.
    pub(super) first: Option<Bytes>,
    /// Given by the client: then nothing more is said of it.
    pub(super) stop: Stop,
    /// Ends the conversation when the hall ends this: a session's stream of changes, without which nobody would notice that
    /// what the session lived by is gone [CFG-4].
    pub(super) cut: Option<CancellationToken>,
}

// === impl InFlight ===

impl InFlight {
    /// Takes an id.
    ///
    /// # Errors
    /// [`Refusal`]: it is in flight already, or too many are.
    pub(super) fn enter(&self, id: &RequestId) -> Result<Entry, Refusal> {
        let mut table = self.table();
        if table.contains_key(id) {
            return Err(Fault::DuplicateId.into());
        }
        if table.len() >= IN_FLIGHT_MAX {
            return Err(too_many());
        }
        let stop = Stop::default();
        table.insert(id.clone(), stop.clone());
        Ok(Entry { table: self.clone(), id: id.clone(), stop })
    }

    /// Cancels the request of that id, type and spelling exact [IDS]; one that is not known is ignored.
    pub(super) fn cancel(&self, id: &RequestId) {
        let stop = self.table().get(id).cloned();
        stop.inspect(Stop::stop);
    }

    /// Cancels all.
    pub(super) fn cancel_all(&self) {
        let all: Vec<_> = self.table().values().cloned().collect();
        all.iter().for_each(Stop::stop);
    }

    fn table(&self) -> MutexGuard<'_, HashMap<RequestId, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.table().remove(&self.id);
    }
}

// === impl Call ===

impl Call {
    /// Says what there is to say, to the end. A panic below costs this call alone, and its client hears of it.
    pub(super) async fn run(self, lines: Lines, access: AccessLog) {
        let asker = self.asker.clone();
        if let Err(panic) = AssertUnwindSafe(self.tell(&lines, access)).catch_unwind().await {
            if asker.id.is_some() {
                lines.say(asker.refuse(Refusal::internal("The call was lost")).parts, Vec::new()).await;
            }
            std::panic::resume_unwind(panic);
        }
    }

    async fn tell(self, lines: &Lines, access: AccessLog) {
        let Self { mut running, asker, first, stop, cut } = self;
        let mut early = tokio::select! {
            biased;
            event = running.next() => Some(event),
            () = std::future::ready(()) => None,
        };
        // One that is refused at once has not begun.
        if let Some(first) = first.filter(|_| !matches!(early, Some(Some(Event::Done(Err(_)))))) {
            lines.say(vec![first], Vec::new()).await;
        }
        loop {
            let event = match early.take() {
                Some(event) => event,
                None => running.next().await,
            };
            match event {
                None => {
                    if let Some(farewell) = asker.farewell().filter(|_| !stop.is_stopped()) {
                        lines.say(vec![farewell], Vec::new()).await;
                    }
                    return;
                }
                Some(Event::Done(outcome)) => {
                    if let Some(cut) = cut {
                        cut.cancel();
                    }
                    // A session's stream of changes has no id that an end could be said of.
                    if asker.id.is_some() {
                        // A line is written whole; its client may still take back what is being read.
                        let rendered = tokio::select! {
                            biased;
                            rendered = asker.whole(asker.render(outcome)) => rendered,
                            () = std::future::poll_fn(|cx| stop.poll_stopped(cx)) => return,
                        };
                        log_access(access, &asker.principal, asker.method, &rendered);
                        lines.say(rendered.parts, running.take_guards()).await;
                    }
                    return;
                }
                Some(event) => {
                    if let Some(message) = asker.message(event) {
                        lines.say(vec![message], Vec::new()).await;
                    }
                }
            }
        }
    }
}

/// The refusal over [`IN_FLIGHT_MAX`].
pub(super) fn too_many() -> Refusal {
    let reject = Reject::client(RejectKind::TooMany, "Too many requests in flight", ReasonCode::OverLimit);
    Refusal::of_reject(reject, Era::Legacy)
}

/// Writes the access line of an answer.
pub(in crate::downstream) fn log_access(access: AccessLog, principal: &PrincipalId, method: &str, rendered: &Rendered) {
    if access == AccessLog::On {
        access_line(principal.as_str(), method, rendered.status.as_u16());
    }
}

#[cfg(test)]
mod tests {
    use super::{IN_FLIGHT_MAX, InFlight};
    use crate::wire::jsonrpc::{RequestId, code};

    /// Over the bound a request is refused; a place comes back with its request.
    #[test]
    fn requests_in_flight_are_bounded() {
        let table = InFlight::default();
        let enter = |number: usize| table.enter(&RequestId::number(number as u64));
        let entries: Vec<_> = (0..IN_FLIGHT_MAX).map(|number| enter(number).unwrap()).collect();
        assert_eq!(enter(0).unwrap_err().code, code::INVALID_REQUEST);
        assert_eq!(enter(IN_FLIGHT_MAX).unwrap_err().code, code::TOO_MANY_SESSIONS);
        drop(entries);
        assert!(enter(0).is_ok());
    }
}
