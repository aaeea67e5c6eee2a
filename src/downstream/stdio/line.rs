//! One line of the client: decoded, told apart by era, begun or refused (protocol §2.8, "gateway over stdio").
//!
//! Invariants: an answer of a client is never answered; what is read is begun in the order it came.

use std::sync::Arc;

use bytes::Bytes;

use crate::downstream::accept::Take;
use crate::downstream::answer::{Asker, Rendered};
use crate::downstream::batch::together;
use crate::downstream::headers::Headers;
use crate::downstream::legacy::{Begun, Form, cancelled_id, note};
use crate::downstream::post::{Visit, label};
use crate::downstream::respond::{Fault, Refusal};
use crate::downstream::stateless::{Mirror, Opened};
use crate::exchange::{Caller as _, Handler};
use crate::net::Ends;
use crate::runtime::Stop;
use crate::wire::jsonrpc::{
    DecodeError, DecodeErrorKind, Decoded, HeadMembers, Limits, Message, Notification, Request, RequestId, Response,
    decode, id_at, id_in_tail,
};
use crate::wire::mcp::{Era, Method, ProtocolVersion, RequestMeta};

use super::call::{Call, too_many};
use super::door::{Open, Talk};

/// What a request becomes.
enum Next {
    /// It is answered.
    Answer(Rendered),
    /// The hall has it.
    Call(Box<Call>),
}

/// What a client that has not said what it speaks can do.
const FIRST: &str = "'initialize' comes first; a request of 2026-07-28 names its version in '_meta'";

// === impl Talk ===

impl<H: Handler> Talk<H> {
    /// Takes one line.
    pub(super) async fn hear(&mut self, line: Bytes) {
        if line.is_empty() {
            return;
        }
        let visit = match self.visit() {
            Ok(visit) => visit,
            Err(refusal) => return self.refuse_unknown(&line, refusal).await,
        };
        match decode(&line, &Limits::DOWNSTREAM) {
            Ok(Decoded::One(Message::Request(request))) => self.request(visit, request).await,
            Ok(Decoded::One(Message::Notification(notification))) => self.notification(&visit, &notification),
            Ok(Decoded::One(Message::Response(response))) => self.answered(&response),
            Ok(Decoded::Batch(batch)) => self.batch(&visit, batch).await,
            Err(DecodeError { .. }) if is_answer(&line) => tracing::debug!("an answer that cannot be read"),
            Err(DecodeError { kind, id }) => {
                let id = id.or_else(|| matches!(kind, DecodeErrorKind::Depth(_)).then(|| id_in_head(&line)).flatten());
                self.say(&visit, visit.legacy_asker(id).refuse(Fault::from(kind).into())).await;
            }
        }
    }

    fn answered(&self, response: &Response) {
        if !self.session.as_ref().is_some_and(|open| open.session.answer(response)) {
            tracing::debug!("an answer to nothing that was asked");
        }
    }

    /// Answers a line over the cap, of which the ends are known.
    pub(super) async fn too_long(&self, ends: &Ends) {
        if is_answer(&ends.head) {
            return tracing::debug!("an answer over the cap");
        }
        let id = id_in_head(&ends.head).or_else(|| id_in_tail(&ends.tail));
        let words =
            format!("The message is over limits.request_body_bytes ({} bytes)", self.door.settings.body_bytes_max);
        let refusal = Refusal { message: words.into(), ..Fault::BodyTooLarge.into() };
        match self.visit() {
            Ok(visit) => self.say(&visit, visit.legacy_asker(id).refuse(refusal)).await,
            Err(refusal) => self.lines.say(vec![refusal.spell(id.as_ref())], Vec::new()).await,
        }
    }

    /// Finds out who calls, in the state of this moment.
    fn visit(&self) -> Result<Visit<H::Caller>, Refusal> {
        let endpoint = self.client.endpoint.clone();
        let caller = self
            .door
            .handler
            .identify(&self.client.credential)
            .map_err(|reject| Refusal::of_reject(reject, Era::Stateless))?;
        if !caller.serves(&endpoint) {
            return Err(Fault::NotFound.into());
        }
        let principal = caller.principal().clone();
        Ok(Visit { caller, principal, endpoint, headers: Headers::default(), take: Take::Any, method: "line" })
    }

    /// Refuses a line of a client that is not, or no longer, known here.
    async fn refuse_unknown(&self, line: &Bytes, refusal: Refusal) {
        crate::downstream::answer::log_refusal(&refusal, None, "line");
        if let Ok(Decoded::One(Message::Request(request))) = decode(line, &Limits::DOWNSTREAM) {
            self.lines.say(vec![refusal.spell(Some(&request.id))], Vec::new()).await;
        }
    }

    async fn request(&mut self, mut visit: Visit<H::Caller>, request: Request) {
        visit.method = label(&request.method);
        let id = request.id.clone();
        let meta = RequestMeta::read(request.params.as_deref());
        if let Err(reject) = self.door.handler.admit(&visit.caller) {
            let stateless = meta.is_ok_and(|meta| self.is_stateless(&request, &meta));
            let era = if stateless { Era::Stateless } else { Era::Legacy };
            let asker = Asker { era, ..visit.legacy_asker(Some(id)) };
            return self.say(&visit, asker.refuse(Refusal::of_reject(reject, era))).await;
        }
        let next = match meta {
            Err(err) => Err(Fault::Meta(err.to_string()).into()),
            Ok(meta) if self.is_stateless(&request, &meta) => self.stateless(&visit, request, meta),
            Ok(_) if request.method == Method::Initialize.spec().name => self.initialize(&visit, &request).await,
            Ok(meta) => self.legacy(&visit, request, meta),
        };
        match next {
            Ok(Next::Call(call)) => self.start(*call),
            Ok(Next::Answer(rendered)) => self.say(&visit, rendered).await,
            Err(refusal) => self.say(&visit, visit.legacy_asker(Some(id)).refuse(refusal)).await,
        }
    }

    /// Both eras may share the pipe: a request is of the newer one by its own word, or by a method only that has.
    fn is_stateless(&self, request: &Request, meta: &RequestMeta) -> bool {
        let newer = || Method::from_name(&request.method).is_some_and(|method| !method.spec().legacy);
        meta.is_stateless() || (self.session.is_none() && newer())
    }

    fn stateless(&self, visit: &Visit<H::Caller>, request: Request, meta: RequestMeta) -> Result<Next, Refusal> {
        let entry = self.in_flight.enter(&request.id)?;
        let Opened { running, asker, first, listens } =
            self.door.open_stateless(visit, request, meta, Mirror::Nothing)?;
        let stop = entry.stop.clone();
        let running = if listens {
            let stop = stop.clone();
            running.stopped_when(self.ended(std::future::poll_fn(move |cx| stop.poll_stopped(cx))))
        } else {
            running.stopped_by(stop.clone())
        };
        Ok(Next::Call(Box::new(Call { running: running.holding(entry), asker, first, stop })))
    }

    /// Waits for what ends a stream of changes: its client's word, the end of the input, or a drain.
    fn ended<F>(&self, told: F) -> impl Future<Output = ()> + Send + use<H, F>
    where
        F: Future<Output = ()> + Send,
    {
        let (over, drain) = (self.over.clone(), self.door.drain.clone());
        async move {
            tokio::select! {
                () = told => {}
                () = over.cancelled() => {}
                () = drain.started() => {}
            }
        }
    }

    /// Opens the session; one that is open ends, for its client has begun anew.
    async fn initialize(&mut self, visit: &Visit<H::Caller>, request: &Request) -> Result<Next, Refusal> {
        let (session, answer) = self.door.open(visit, request).await?;
        // Held until the client listens: a client on a pipe is never idle.
        let awake = session.open_stream();
        if let Some(before) = self.session.replace(Open { session, awake: Some(awake) }) {
            self.door.sessions.remove(&before.session);
        }
        Ok(Next::Answer(answer))
    }

    fn legacy(&self, visit: &Visit<H::Caller>, request: Request, meta: RequestMeta) -> Result<Next, Refusal> {
        let Some(open) = &self.session else {
            if request.method == Method::Ping.spec().name {
                return Ok(Next::Answer(Rendered::result(&request.id, "{}")));
            }
            return Err(Fault::NotMessage(FIRST.to_owned()).into());
        };
        let entry = self.in_flight.enter(&request.id)?;
        Ok(match self.door.begin(visit, &open.session, (request, meta), Form::Alone) {
            Begun::Answered(rendered) => Next::Answer(rendered),
            Begun::Calling(running, asker) => {
                let stop = entry.stop.clone();
                Next::Call(Box::new(Call { running: running.holding(entry), asker, first: None, stop }))
            }
        })
    }

    fn notification(&mut self, visit: &Visit<H::Caller>, notification: &Notification) {
        if let Some(open) = &mut self.session {
            note(&open.session, notification);
            if notification.method == "notifications/initialized" && open.awake.is_some() {
                open.awake = None;
                let ended = open.session.ended.clone().cancelled_owned();
                let running = self.door.hear_changes(visit, &open.session).stopped_when(self.ended(ended));
                let asker = visit.legacy_asker(None);
                self.start(Call { running, asker, first: None, stop: Stop::default() });
            }
        }
        if notification.method == "notifications/cancelled"
            && let Some(id) = cancelled_id(notification.params.as_deref())
        {
            self.in_flight.cancel(&id);
        }
    }

    /// Begins a batch, which sessions of 2025-03-26 alone have; its answer is one array [R41].
    async fn batch(&self, visit: &Visit<H::Caller>, batch: Vec<Result<Message, DecodeError>>) {
        let Some(open) =
            self.session.as_ref().filter(|open| open.session.client.version == ProtocolVersion::V2025_03_26)
        else {
            return self.say(visit, visit.legacy_asker(None).refuse(Fault::Batch.into())).await;
        };
        let Ok(place) = Arc::clone(&self.batches).try_acquire_owned() else {
            return self.say(visit, visit.legacy_asker(None).refuse(too_many())).await;
        };
        let begun = self.door.begin_batch(visit, &open.session, batch);
        let lines = self.lines.clone();
        self.spawn(async move {
            let _place = place;
            if let Some(rendered) = together(begun).await {
                lines.say(rendered.parts, Vec::new()).await;
            }
        });
    }
}

/// Says whether the begin of a line is that of an answer.
fn is_answer(head: &[u8]) -> bool {
    let mut keys =
        HeadMembers::of(head).map(|(key, _)| key).filter(|key| matches!(*key, b"method" | b"result" | b"error"));
    keys.next().is_some_and(|key| key != b"method")
}

fn id_in_head(head: &[u8]) -> Option<RequestId> {
    HeadMembers::of(head).find(|(key, _)| *key == b"id").and_then(|(_, value)| id_at(value))
}
