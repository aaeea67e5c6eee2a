//! One message of the client: told apart by era, begun or refused (protocol §2.8, "gateway over stdio").
//!
//! Invariants: an answer of a client is never answered; what is heard is begun in the order it came.

use std::sync::Arc;

use crate::downstream::answer::{Asker, Rendered};
use crate::downstream::batch::together;
use crate::downstream::legacy::{Begun, Form, cancelled_id, note};
use crate::downstream::post::{Visit, label};
use crate::downstream::respond::{Fault, Refusal};
use crate::downstream::stateless::{Mirror, Opened};
use crate::exchange::Handler;
use crate::runtime::Stop;
use crate::wire::jsonrpc::{DecodeError, Decoded, Message, Notification, Request, Response};
use crate::wire::mcp::{LEGACY_LATEST, Method, ProtocolVersion, RequestMeta, STATELESS_LATEST};

use super::call::{Call, too_many};
use super::talk::{Carrier, Open, Talk};

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
    /// Takes one message, or a batch; returns what is said to it at once.
    ///
    /// # Cancel safety
    /// A session is opened after the last await, or not at all.
    pub(in crate::downstream) async fn hear(
        &mut self,
        visit: &mut Visit<H::Caller>,
        heard: Decoded,
    ) -> Option<Rendered> {
        match heard {
            Decoded::One(Message::Request(request)) => self.request(visit, request).await,
            Decoded::One(Message::Notification(notification)) => {
                self.notification(visit, &notification);
                None
            }
            Decoded::One(Message::Response(response)) => {
                self.answered(&response);
                None
            }
            Decoded::Batch(batch) => self.batch(visit, batch),
        }
    }

    fn answered(&self, response: &Response) {
        if !self.session.as_ref().is_some_and(|open| open.session.answer(response)) {
            tracing::debug!("an answer to nothing that was asked");
        }
    }

    async fn request(&mut self, visit: &mut Visit<H::Caller>, request: Request) -> Option<Rendered> {
        visit.method = label(&request.method);
        let visit = &*visit;
        let id = request.id.clone();
        let meta = RequestMeta::read(request.params.as_deref());
        if self.carrier == Carrier::Pipe
            && let Err(reject) = self.door.handler.admit(&visit.caller)
        {
            let stateless = meta.is_ok_and(|meta| self.is_stateless(&request, &meta));
            let version = if stateless { STATELESS_LATEST } else { LEGACY_LATEST };
            let asker = Asker { version, ..visit.legacy_asker(Some(id)) };
            return Some(asker.refuse(Refusal::of_reject(reject, version.era())));
        }
        let next = match meta {
            Err(err) => Err(Fault::Meta(err.to_string()).into()),
            Ok(meta) if self.is_stateless(&request, &meta) => self.stateless(visit, request, meta),
            Ok(_) if request.method == Method::Initialize.spec().name => self.initialize(visit, &request).await,
            Ok(meta) => self.legacy(visit, request, meta),
        };
        match next {
            Ok(Next::Call(call)) => {
                self.start(*call);
                None
            }
            Ok(Next::Answer(rendered)) => Some(rendered),
            Err(refusal) => Some(visit.legacy_asker(Some(id)).refuse(refusal)),
        }
    }

    /// Both eras may share the stream: a request is of the newer one by its own word, or by a method only that has.
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
        Ok(Next::Call(Box::new(Call { running: running.holding(entry), asker, first, stop, cut: None })))
    }

    /// Waits for what ends a stream of changes: its client's word, the end of what is heard, or a drain.
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
        let place = match &self.place {
            Some(place) => Arc::clone(place),
            None => Arc::new(self.door.place(&visit.caller)?),
        };
        let (session, answer) = self.door.open(visit, request, Arc::clone(&place)).await?;
        self.place = Some(place);
        // Held until the client listens: a client on a stream is never idle.
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
                Next::Call(Box::new(Call { running: running.holding(entry), asker, first: None, stop, cut: None }))
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
                let cut = Some(self.cut.clone());
                self.start(Call { running, asker, first: None, stop: Stop::default(), cut });
            }
        }
        if notification.method == "notifications/cancelled"
            && let Some(id) = cancelled_id(notification.params.as_deref())
        {
            self.in_flight.cancel(&id);
        }
    }

    /// Begins a batch, which sessions of 2025-03-26 alone have; its answer is one array [R41].
    fn batch(&self, visit: &Visit<H::Caller>, batch: Vec<Result<Message, DecodeError>>) -> Option<Rendered> {
        let Some(open) =
            self.session.as_ref().filter(|open| open.session.client.version == ProtocolVersion::V2025_03_26)
        else {
            return Some(visit.legacy_asker(None).refuse(Fault::Batch.into()));
        };
        let Ok(place) = Arc::clone(&self.batches).try_acquire_owned() else {
            return Some(visit.legacy_asker(None).refuse(too_many()));
        };
        let begun = self.door.begin_batch(visit, &open.session, batch);
        let lines = self.lines.clone();
        self.spawn(async move {
            let _place = place;
            if let Some(rendered) = together(begun).await {
                lines.say(rendered.parts, Vec::new()).await;
            }
        });
        None
    }
}
