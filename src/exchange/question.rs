//! A question of a server on its way to the client whose call caused it, and the way back of its answer.
//!
//! Not for: who may be asked (`wire::mcp::InputKind`), or how it is spelled. Invariant: a question is answered exactly
//! once; one that is dropped is refused at its server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::wire::bridge::Wanted;
use crate::wire::mcp::InputKind;

/// How many questions a server may have out at once: on one connection, or in one answer.
pub const QUESTIONS_MAX: usize = 64;
/// How many bytes the questions of one call that are out may take together, as messages; or those of one answer.
pub const QUESTIONS_BYTES_MAX: usize = 4 << 20;

/// What a server of the era of sessions asks while it works on a call.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub kind: InputKind,
    /// The params, a JSON object.
    pub params: Bytes,
    /// The way back.
    pub responder: Responder,
}

/// What a stateless server wants before it answers: the end of a call, for now.
#[derive(Debug)]
pub struct InputRequired {
    /// The questions, and the `requestState`, sealed.
    pub wanted: Wanted,
    /// The result they stood in; empty if a gateway's room has made them.
    pub result: Bytes,
}

/// An answer, a result object, or a refusal, an error object; JSON texts.
pub type Settled = Result<Bytes, Bytes>;

/// The way back of an answer. Dropping it refuses the question.
pub struct Responder {
    back: Option<Box<dyn FnOnce(Settled) + Send>>,
    asked: Asked,
}

/// A view of a question that is out. Clones share it.
#[derive(Clone, Debug)]
pub struct Asked(Arc<State>);

#[derive(Debug, Default)]
struct State {
    over: CancellationToken,
    how: AtomicU8,
}

const OPEN: u8 = 0;
const ANSWERED: u8 = 1;
const GONE: u8 = 2;

/// What a server reads where nobody answers.
const REFUSED: Bytes = Bytes::from_static(br#"{"code":-32603,"message":"The client did not answer"}"#);

// === impl Responder ===

impl Responder {
    /// Makes the way back: `back` is called exactly once, or not at all if the server takes the question back.
    #[must_use]
    pub fn new(back: impl FnOnce(Settled) + Send + 'static) -> Self {
        Self { back: Some(Box::new(back)), asked: Asked(Arc::default()) }
    }

    /// Answers, or refuses with the client's own error.
    pub fn settle(mut self, settled: Settled) {
        self.end(settled, ANSWERED);
    }

    /// Returns a view of the question.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.asked.clone()
    }

    fn end(&mut self, settled: Settled, how: u8) {
        let Some(back) = self.back.take() else { return };
        // One that was taken back wants no answer.
        if self.asked.close(how) {
            back(settled);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.end(Err(REFUSED), GONE);
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("asked", &self.asked).finish_non_exhaustive()
    }
}

// === impl Asked ===

impl Asked {
    /// Takes the question back: its server wants no answer any more.
    pub fn withdraw(&self) {
        self.close(GONE);
    }

    /// Waits until the question is answered, refused or taken back.
    pub async fn over(&self) {
        self.0.over.cancelled().await;
    }

    /// Says whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// Says whether it is over and nobody has answered it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.how.load(Ordering::Acquire) == GONE
    }

    /// Ends it; says whether this was the first word, which counts.
    fn close(&self, how: u8) -> bool {
        let first = self.0.how.compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if first {
            self.0.over.cancel();
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;

    use super::{REFUSED, Responder, Settled};

    fn responder() -> (Responder, Arc<Mutex<Vec<Settled>>>) {
        let got: Arc<Mutex<Vec<Settled>>> = Arc::default();
        let told = Arc::clone(&got);
        (Responder::new(move |settled| told.lock().unwrap().push(settled)), got)
    }

    #[test]
    fn a_question_is_settled_exactly_once() {
        let answer = Bytes::from_static(b"{}");
        let (one, got) = responder();
        let asked = one.asked();
        assert!(!asked.is_over());
        one.settle(Ok(answer.clone()));
        assert!(asked.is_over() && !asked.is_gone());
        asked.withdraw();
        assert!(!asked.is_gone());
        assert_eq!(*got.lock().unwrap(), [Ok(answer)]);

        let (dropped, got) = responder();
        let asked = dropped.asked();
        drop(dropped);
        assert!(asked.is_gone());
        assert_eq!(*got.lock().unwrap(), [Err(REFUSED)]);
    }
}
