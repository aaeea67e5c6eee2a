//! One parked call: it goes on whoever listens, asks in rounds, and ends by its outcome, its time, or its abandonment.
//!
//! Invariants: exactly one outcome per listener; one handle is used once, and whoever brings it again hears the same;
//! when it ends, its server is told first, then each question that is still out is refused.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join_all, select_all};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::exchange::{
    Answer, Asked, Event, EventStream, InputRequired, Outcome, Question, ReasonCode, Reject, RejectKind, Responder,
};
use crate::wire::bridge::{self, InputRequest, Wanted};
use crate::wire::json;
use crate::wire::mcp::InputKind;

use super::parked::{Live, Place, Retry, Standing, lost};

/// How long a round waits for further questions that come at once.
const GATHER: Duration = Duration::from_millis(20);
/// How many events wait for one listener; progress beyond it is dropped, an outcome always has its place.
const EVENTS_MAX: usize = 33;
/// How many listeners one call may have.
const JOINERS_MAX: usize = 8;
/// Up to here what a server tells on the way is passed on, or kept while nobody listens.
const NOTE_BYTES_MAX: usize = 256 << 10;
/// Up to here a finished answer is kept for who has lost it.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The way to one listener.
#[derive(Debug)]
pub(super) struct Joiner(mpsc::Sender<Event>);

/// A call while it is parked.
pub(super) struct ParkedCall {
    // Dropped in this order: the server hears of the end of the call before its questions are refused.
    live: Option<Live>,
    open: Vec<Open>,
    joiners: Vec<Joiner>,
    retries: mpsc::Receiver<Retry>,
    phase: Phase,
    /// When the phase ends by itself; in `Running` there is one only while nobody listens.
    deadline: Option<Instant>,
    round: u64,
    keys: u64,
    /// What came while nobody listened: the newest progress.
    progress: Option<Bytes>,
    place: Place,
}

/// A question that is out.
struct Open {
    request: InputRequest,
    responder: Responder,
    asked: Asked,
}

enum Phase {
    /// Questions are collected for the listeners that there are.
    Gathering,
    /// Somebody listens, or has just gone.
    Running,
    /// The client has been asked; who comes back with the handle answers.
    Waiting(Wanted),
    /// There is an outcome.
    Over(Option<Outcome>),
}

enum Step {
    Drain,
    /// Another call has taken its place.
    Forgotten,
    Event(Option<Event>),
    Left,
    Retry(Retry),
    Time,
    Withdrawn,
}

// === impl Joiner ===

impl Joiner {
    /// Makes a listener.
    pub(super) fn new() -> (Self, EventStream) {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let events = futures_util::stream::unfold(Some(receiver), |receiver| async move {
            let mut receiver: mpsc::Receiver<Event> = receiver?;
            let event = receiver.recv().await.unwrap_or_else(lost);
            let rest = (!matches!(event, Event::Done(_))).then_some(receiver);
            Some((event, rest))
        });
        (Self(sender), Box::pin(events))
    }

    fn tell(&self, event: Event) {
        if self.0.capacity() > 1 && self.0.try_send(event).is_err() {
            tracing::trace!("a listener of a parked call has gone");
        }
    }

    /// Tells the outcome, for which there is always room.
    fn end(self, outcome: Outcome) {
        if self.0.try_send(Event::Done(outcome)).is_err() {
            tracing::debug!("the listener of a parked call has gone before its outcome");
        }
    }
}

// === impl ParkedCall ===

impl ParkedCall {
    pub(super) fn new(
        place: Place,
        live: Live,
        first: Question,
        joiner: Joiner,
        retries: mpsc::Receiver<Retry>,
    ) -> Self {
        let mut call = Self {
            live: Some(live),
            open: Vec::new(),
            joiners: vec![joiner],
            retries,
            phase: Phase::Running,
            deadline: None,
            round: 0,
            keys: 0,
            progress: None,
            place,
        };
        call.ask(first);
        call
    }

    /// Runs to the end.
    pub(super) async fn run(mut self) {
        loop {
            let step = self.step().await;
            if !self.take(step) {
                return;
            }
        }
    }

    async fn step(&mut self) -> Step {
        let waiting = matches!(self.phase, Phase::Waiting(_));
        let listened = match self.phase {
            Phase::Gathering => true,
            Phase::Running => self.deadline.is_none(),
            Phase::Over(_) | Phase::Waiting(_) => false,
        };
        let out: Vec<Asked> = self.open.iter().map(|open| open.asked.clone()).collect();
        let Self { live, joiners, retries, deadline, place, .. } = self;
        let event = async {
            match live {
                Some(live) => live.events.next().await,
                None => std::future::pending().await,
            }
        };
        let withdrawn = async {
            if out.is_empty() {
                std::future::pending::<()>().await;
            }
            select_all(out.iter().map(|asked| Box::pin(asked.over()))).await;
        };
        let time = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(*deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            retry = retries.recv() => retry.map_or(Step::Forgotten, Step::Retry),
            event = event => Step::Event(event),
            () = withdrawn => Step::Withdrawn,
            _ = join_all(joiners.iter().map(|joiner| joiner.0.closed())), if listened => Step::Left,
            () = place.drain().started(), if waiting => Step::Drain,
            () = time => Step::Time,
        }
    }

    /// Takes a step; `false` ends the call.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Drain | Step::Forgotten => return false,
            Step::Event(Some(Event::Ask(question))) => self.ask(question),
            Step::Event(Some(Event::Done(outcome))) => self.finish(&outcome),
            Step::Event(Some(event)) if event.note_bytes() > NOTE_BYTES_MAX => {
                tracing::debug!(bytes = event.note_bytes(), "a notification is too large for a parked call");
            }
            Step::Event(Some(Event::Progress(raw))) if self.joiners.is_empty() => self.progress = Some(raw),
            Step::Event(Some(event)) => self.tell(&event),
            Step::Event(None) => {
                let Event::Done(outcome) = lost() else { return false };
                self.finish(&outcome);
            }
            Step::Left => {
                self.joiners.clear();
                self.phase = Phase::Running;
                self.deadline = Some(after(self.place.limits().abandoned));
            }
            Step::Retry(retry) => self.heard(retry),
            Step::Time if matches!(self.phase, Phase::Gathering) => return self.publish(),
            Step::Time => return false,
            Step::Withdrawn => self.open.retain(|open| !open.asked.is_over()),
        }
        true
    }

    fn ask(&mut self, question: Question) {
        let Question { kind, params, responder } = question;
        self.keys += 1;
        // Nothing that comes at once may be taken back unseen, however fast it comes.
        self.open.retain(|open| !open.asked.is_over());
        // A form is one in both eras; what a session's client tells apart visits by has no place here.
        let params = match kind {
            InputKind::Elicitation => bridge::with_member(&params, "elicitationId", None),
            InputKind::Roots | InputKind::Sampling => params,
        };
        let request = InputRequest { key: format!("q{}", self.keys), kind, params };
        self.open.push(Open { request, asked: responder.asked(), responder });
        if matches!(self.phase, Phase::Running) && !self.joiners.is_empty() {
            self.phase = Phase::Gathering;
            self.deadline = Some(after(GATHER));
        }
    }

    fn tell(&self, event: &Event) {
        for joiner in &self.joiners {
            match event {
                Event::Log(message) => joiner.tell(Event::Log(message.clone())),
                Event::Progress(raw) => joiner.tell(Event::Progress(raw.clone())),
                Event::Ask(_)
                | Event::Done(_)
                | Event::Paused
                | Event::Said(_)
                | Event::Changed(_)
                | Event::Watch(_) => {}
            }
        }
    }

    /// Asks the listeners all that is open; `false` ends the call.
    fn publish(&mut self) -> bool {
        self.open.retain(|open| !open.asked.is_over());
        self.deadline = None;
        if self.open.is_empty() {
            self.phase = Phase::Running;
            return true;
        }
        self.round += 1;
        let state = if self.round > self.place.limits().rounds_max {
            let words = "The server asked too often; the call was cancelled";
            Err(Reject::upstream(RejectKind::Upstream, words, "over the rounds of a parked call"))
        } else {
            self.place.seal(self.round)
        };
        let state = match state {
            Ok(state) => json::quoted(&state),
            Err(reject) => {
                self.end_all(&Err(reject));
                return false;
            }
        };
        let requests = self.open.iter().map(|open| open.request.clone()).collect();
        let wanted = Wanted { requests, state: Some(state) };
        for joiner in self.joiners.drain(..) {
            joiner.end(Ok(asked(&wanted)));
        }
        self.deadline = Some(after(self.place.limits().time));
        self.phase = Phase::Waiting(wanted);
        true
    }

    fn heard(&mut self, retry: Retry) {
        let Retry { round, answers, joiner } = retry;
        match &self.phase {
            Phase::Over(Some(outcome)) if round == self.round => {
                if let Some(outcome) = copy(outcome) {
                    joiner.end(outcome);
                }
                self.told();
            }
            Phase::Over(None) | Phase::Gathering | Phase::Running | Phase::Waiting(_)
                if self.joiners.len() >= JOINERS_MAX =>
            {
                let words = "Too many retries of one call";
                joiner.end(Err(Reject::client(RejectKind::TooMany, words, ReasonCode::OverLimit)));
            }
            Phase::Gathering | Phase::Running if round == self.round => self.joined(joiner),
            Phase::Waiting(_) if round == self.round => self.answered(&answers, joiner),
            // The answer to the round before was this question.
            Phase::Waiting(wanted) if round + 1 == self.round => joiner.end(Ok(asked(wanted))),
            Phase::Gathering | Phase::Over(_) | Phase::Running | Phase::Waiting(_) => {
                joiner.end(Err(Reject::bad_state()))
            }
        }
    }

    fn joined(&mut self, joiner: Joiner) {
        if let Some(progress) = self.progress.take() {
            joiner.tell(Event::Progress(progress));
        }
        self.joiners.push(joiner);
        if matches!(self.phase, Phase::Running) {
            // What was asked while nobody listened is asked now.
            let silent = self.open.is_empty();
            self.phase = if silent { Phase::Running } else { Phase::Gathering };
            self.deadline = if silent { None } else { Some(after(Duration::ZERO)) };
        }
    }

    /// Hands the answers to the server; what is missing is asked again [R94].
    fn answered(&mut self, answers: &[(String, Bytes)], joiner: Joiner) {
        let mut missing = Vec::new();
        for open in self.open.drain(..).filter(|open| !open.asked.is_over()) {
            let answer = answers.iter().find(|(key, _)| *key == open.request.key);
            match answer.filter(|(_, answer)| bridge::answers_kind(open.request.kind, answer)) {
                Some((_, answer)) => open.responder.settle(Ok(answer.clone())),
                None => missing.push(open),
            }
        }
        self.open = missing;
        self.phase = Phase::Running;
        self.joined(joiner);
    }

    fn finish(&mut self, outcome: &Outcome) {
        self.live = None;
        self.open.clear();
        let waiting = matches!(self.phase, Phase::Waiting(_));
        let kept = copy(outcome);
        self.end_all(outcome);
        // A client that has been asked has until its own deadline to come for this, as long as nothing needs the place.
        if waiting {
            self.place.over(Standing::Due);
        } else {
            self.told();
        }
        self.phase = Phase::Over(match kept {
            None if waiting => Some(Err(Reject::upstream(
                RejectKind::Limit,
                "The answer came before the client's own, and was too large to be kept",
                "",
            ))),
            kept => kept,
        });
    }

    /// Takes note that the outcome was told; who has lost it may come for it once more.
    fn told(&mut self) {
        self.place.over(Standing::Told);
        let keep = after(self.place.limits().keep);
        self.deadline =
            Some(self.deadline.filter(|_| matches!(self.phase, Phase::Over(_))).map_or(keep, |at| at.min(keep)));
    }

    fn end_all(&mut self, outcome: &Outcome) {
        let mut joiners = std::mem::take(&mut self.joiners);
        for joiner in joiners.drain(..) {
            joiner.end(copied(outcome));
        }
    }
}

fn asked(wanted: &Wanted) -> Answer {
    Answer::InputRequired(Box::new(InputRequired { wanted: wanted.clone(), result: Bytes::new() }))
}

/// Copies an outcome that may be kept; `None` for one that is too large.
fn copy(outcome: &Outcome) -> Option<Outcome> {
    match outcome {
        Ok(Answer::Upstream { response, .. }) if response.raw.len() > KEPT_BYTES_MAX => None,
        outcome => Some(copied(outcome)),
    }
}

/// Copies the outcome of a call that was answered in an old era: a server's own answer, or a refusal.
fn copied(outcome: &Outcome) -> Outcome {
    match outcome {
        Ok(Answer::Upstream { response, era }) => Ok(Answer::Upstream { response: response.clone(), era: *era }),
        Ok(Answer::InputRequired(input)) => Ok(asked(&input.wanted)),
        Ok(Answer::Discovery(_) | Answer::Ended | Answer::Page(_) | Answer::Unseen(_)) => {
            Err(Reject::upstream(RejectKind::Upstream, "The answer cannot be kept", "not an answer of a call"))
        }
        Err(reject) => Err(reject.clone()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline for tokio's own timer")]
fn after(pause: Duration) -> Instant {
    Instant::now() + pause
}
