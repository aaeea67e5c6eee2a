//! The questions that a legacy session's client has been asked, by our own ids.
//!
//! Invariants: an answer finds its question by id and session, so nobody answers another's; their number is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exchange::Responder;
use crate::wire::jsonrpc::Response;

/// How many questions of one session may be out; over it they are refused.
const OPEN_MAX: usize = 64;

/// The questions that are out.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Responder>,
    last_id: u64,
    ended: bool,
}

// === impl Questions ===

impl Questions {
    /// Notes a question; returns its id on the client's hop. `None` refuses it: too many are out, or the session has ended.
    pub(super) fn ask(&self, responder: Responder) -> Option<u64> {
        let mut open = self.open();
        if open.ended || open.by_id.len() >= OPEN_MAX {
            drop(open);
            return None;
        }
        open.last_id += 1;
        let id = open.last_id;
        open.by_id.insert(id, responder);
        Some(id)
    }

    /// Hands an answer to its question; says whether there was one.
    pub(super) fn answer(&self, response: &Response) -> bool {
        let id = response.id.as_ref().and_then(|id| id.as_u64());
        let Some(responder) = id.and_then(|id| self.open().by_id.remove(&id)) else { return false };
        responder.settle(match (response.result(), response.error()) {
            (Some(result), _) if result.starts_with(b"{") => Ok(result),
            (_, Some(error)) if error.starts_with(b"{") => Err(error),
            _ => Err(bytes::Bytes::from_static(br#"{"code":-32603,"message":"The client's answer cannot be read"}"#)),
        });
        true
    }

    /// Refuses a question that is still out.
    pub(super) fn forget(&self, id: u64) {
        let responder = self.open().by_id.remove(&id);
        drop(responder);
    }

    /// Refuses all, now and later.
    pub(super) fn end(&self) {
        let mut open = self.open();
        open.ended = true;
        let all = std::mem::take(&mut open.by_id);
        drop(open);
        drop(all);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;

    use super::{OPEN_MAX, Questions};
    use crate::exchange::{Responder, Settled};
    use crate::wire::jsonrpc::{RequestId, Response};

    type Got = Arc<Mutex<Vec<Settled>>>;

    fn asked(questions: &Questions, got: &Got) -> Option<u64> {
        let got = Arc::clone(got);
        questions.ask(Responder::new(move |settled| got.lock().unwrap().push(settled)))
    }

    /// [TRN-10, R97]
    #[test]
    fn an_answer_finds_its_question_once() {
        let (questions, got) = (Questions::default(), Got::default());
        let id = asked(&questions, &got).unwrap();
        let answer = |id: &RequestId| Response::with_result(id, br#"{"action":"accept"}"#);
        let text = RequestId::from_raw(Bytes::from(format!("\"{id}\""))).unwrap();
        assert!(!questions.answer(&answer(&text)) && !questions.answer(&answer(&RequestId::number(id + 1))));
        assert!(questions.answer(&answer(&RequestId::number(id))));
        assert!(!questions.answer(&answer(&RequestId::number(id))));
        assert_eq!(*got.lock().unwrap(), [Ok(Bytes::from_static(br#"{"action":"accept"}"#))]);
    }

    #[test]
    fn they_are_bounded_and_end_with_their_session() {
        let (questions, got) = (Questions::default(), Got::default());
        for _ in 0..OPEN_MAX {
            asked(&questions, &got).unwrap();
        }
        assert_eq!(asked(&questions, &got), None);
        assert_eq!(got.lock().unwrap().len(), 1);
        questions.forget(1);
        questions.forget(1);
        assert_eq!(got.lock().unwrap().len(), 2);
        questions.end();
        assert_eq!(asked(&questions, &got), None);
        let got = got.lock().unwrap();
        assert!(got.len() == OPEN_MAX + 2 && got.iter().all(Result::is_err));
    }
}
