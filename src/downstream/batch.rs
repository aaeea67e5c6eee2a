//! Batches: sessions of 2025-03-26 alone, each element checked like a message of its own [R41, FC-SEC-04].

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Response, StatusCode};

use crate::exchange::{Event, Handler};
use crate::session::Session;
use crate::wire::jsonrpc::{DecodeError, Message};
use crate::wire::mcp::{Era, Method, ProtocolVersion, RequestMeta};

use super::answer::Rendered;
use super::body::Body;
use super::legacy::{Begun, Form, note};
use super::post::{Visit, label};
use super::respond::{Fault, Refusal, bare};
use super::server::Door;

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Answers a batch with one array, or with 202 if nothing in it wants an answer.
    pub(super) async fn batch(
        &self,
        visit: &Visit<H::Caller>,
        batch: Vec<Result<Message, DecodeError>>,
    ) -> Response<Body> {
        let session = match self.session(visit) {
            Ok(session) if session.client.version == ProtocolVersion::V2025_03_26 => session,
            Ok(_) | Err(Fault::SessionMissing) => return visit.refuse(Fault::Batch, None),
            Err(fault) => return visit.refuse(fault, None),
        };
        match together(self.begin_batch(visit, &session, batch)).await {
            Some(rendered) => rendered.respond(visit.take, Vec::new()),
            None => bare(StatusCode::ACCEPTED),
        }
    }

    /// Begins what a batch asks.
    pub(super) fn begin_batch(
        &self,
        visit: &Visit<H::Caller>,
        session: &Arc<Session>,
        batch: Vec<Result<Message, DecodeError>>,
    ) -> Vec<Begun> {
        batch
            .into_iter()
            .filter_map(|element| match element {
                Ok(Message::Request(request)) => {
                    let asker = || {
                        let id = Some(request.id.clone());
                        super::answer::Asker { method: label(&request.method), ..visit.legacy_asker(id) }
                    };
                    if request.method == Method::Initialize.spec().name {
                        let why = "'initialize' cannot stand in a batch".to_owned();
                        return Some(Begun::Answered(asker().refuse(Fault::NotMessage(why).into())));
                    }
                    // Each counts like a message of its own, or a batch would be a way around the rate.
                    if let Err(reject) = self.handler.admit(&visit.caller) {
                        return Some(Begun::Answered(asker().refuse(Refusal::of_reject(reject, Era::Legacy))));
                    }
                    match RequestMeta::read(request.params.as_deref()) {
                        Ok(meta) if !meta.is_stateless() => {
                            Some(self.begin(visit, session, (request, meta), Form::Batch))
                        }
                        Ok(_) => Some(Begun::Answered(asker().refuse(Fault::Batch.into()))),
                        Err(err) => Some(Begun::Answered(asker().refuse(Fault::Meta(err.to_string()).into()))),
                    }
                }
                Ok(Message::Notification(notification)) => {
                    note(session, &notification);
                    None
                }
                Ok(Message::Response(response)) => {
                    session.answer(&response);
                    None
                }
                Err(DecodeError { kind, id }) => {
                    Some(Begun::Answered(visit.legacy_asker(id).refuse(Refusal::from(Fault::from(kind)))))
                }
            })
            .collect()
    }
}

/// Waits for all answers and spells them as one array; `None` if there is none.
pub(super) async fn together(begun: Vec<Begun>) -> Option<Rendered> {
    let answers = join_all(begun.into_iter().map(finish)).await;
    let mut parts = Vec::new();
    for answer in answers.into_iter().flatten() {
        parts.push(Bytes::from_static(if parts.is_empty() { b"[" } else { b"," }));
        parts.extend(answer.parts);
    }
    if parts.is_empty() {
        return None;
    }
    parts.push(Bytes::from_static(b"]"));
    Some(Rendered { status: StatusCode::OK, parts, rest: None, header: None })
}

/// Waits for one answer; `None` if the request was cancelled.
async fn finish(begun: Begun) -> Option<Rendered> {
    let (mut running, asker) = match begun {
        Begun::Answered(rendered) => return Some(rendered),
        Begun::Calling(running, asker) => (running, asker),
    };
    loop {
        if let Event::Done(outcome) = running.next().await? {
            return Some(asker.whole(asker.render(outcome)).await);
        }
    }
}
