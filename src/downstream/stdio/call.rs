//! Requests in flight on one pipe: their ids, and what becomes of each.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::exchange::{Event, ReasonCode, Reject, RejectKind};
use crate::id::PrincipalId;
use crate::wire::jsonrpc::RequestId;
use crate::wire::mcp::Era;

use super::writer::Lines;
use crate::downstream::AccessLog;
use crate::downstream::answer::{Asker, Rendered};
use crate::downstream::respond::{Fault, Refusal};
use crate::downstream::running::Running;

/// How many requests may be in flight; over it they are refused, so that a cancellation is always read.
pub(super) const IN_FLIGHT_MAX: usize = 1024;

/// The ids in flight. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<RequestId, CancellationToken>>>);

/// An id in flight; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    table: InFlight,
    id: RequestId,
    /// Cancelled by the client.
    pub(super) cancelled: CancellationToken,
}

/// A request in the hall's hands, with its way back.
pub(super) struct Call {
    /// The call.
    pub(super) running: Running,
    /// Who asked.
    pub(super) asker: Asker,
    /// What a listen begins with.
    pub(super) first: Option<Bytes>,
    /// Cancelled by the client: then nothing more is said of it.
    pub(super) cancelled: CancellationToken,
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
        let cancelled = CancellationToken::new();
        table.insert(id.clone(), cancelled.clone());
        Ok(Entry { table: self.clone(), id: id.clone(), cancelled })
    }

    /// Cancels the request of that id, type and spelling exact [IDS]; one that is not known is ignored.
    pub(super) fn cancel(&self, id: &RequestId) {
        let token = self.table().get(id).cloned();
        token.inspect(CancellationToken::cancel);
    }

    /// Cancels all.
    pub(super) fn cancel_all(&self) {
        let all: Vec<_> = self.table().values().cloned().collect();
        all.iter().for_each(CancellationToken::cancel);
    }

    fn table(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
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
        let Self { mut running, asker, first, cancelled } = self;
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
                    if let Some(farewell) = asker.farewell().filter(|_| !cancelled.is_cancelled()) {
                        lines.say(vec![farewell], Vec::new()).await;
                    }
                    return;
                }
                Some(Event::Done(outcome)) => {
                    // A session's stream of changes has no id that an end could be said of.
                    if asker.id.is_some() {
                        let rendered = asker.render(outcome);
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
pub(super) fn log_access(access: AccessLog, principal: &PrincipalId, method: &str, rendered: &Rendered) {
    if access == AccessLog::On {
        tracing::info!(principal = principal.as_str(), method, status = rendered.status.as_u16(), "request");
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
