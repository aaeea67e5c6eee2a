//! Visits to URLs that one server's connection has asked for, until the server says that they are over (protocol §3, §4.2).
//!
//! Not for: the question itself, which is one like others. Invariants: a client knows a visit by an id of the gateway's own,
//! so that two servers' never meet; who is told that it is over is the session whose call it belongs to, and nobody else.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::exchange::{Answer, Aside, Event, Outcome, Question, Reply, ReplyBody, UpstreamCall};
use crate::seal;
use crate::wire::bridge;
use crate::wire::json;
use crate::wire::jsonrpc::Notification;
use crate::wire::mcp::{Era, Feature, InputKind, is_url};

use super::link::Link;

/// How many visits of one connection are remembered; over it the oldest is not told of.
const VISITS_MAX: usize = 64;

const ID: &str = "elicitationId";

/// The visits of one connection.
#[derive(Debug, Default)]
pub(super) struct Visits(Mutex<VecDeque<Visit>>);

#[derive(Debug)]
struct Visit {
    /// The server's own id.
    theirs: String,
    /// The id that the client knows.
    ours: String,
    client: Arc<Aside>,
}

// === impl Visits ===

impl Visits {
    /// Takes note of a visit; returns the id for the client. `None` without randomness.
    fn enter(&self, theirs: String, client: &Arc<Aside>) -> Option<String> {
        let id = seal::random::<16>().ok()?;
        let ours: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut visits = self.visits();
        if visits.len() >= VISITS_MAX {
            visits.pop_front();
        }
        visits.push_back(Visit { theirs, ours: ours.clone(), client: Arc::clone(client) });
        Some(ours)
    }

    /// The server says that a visit is over: so its client is told.
    pub(super) fn hear(&self, notification: &Notification) {
        let params = notification.params.as_deref();
        let id = params.and_then(|params| json::text(params.get(ID).ok()??)).unwrap_or_default();
        let mut visits = self.visits();
        let Some(at) = visits.iter().position(|visit| visit.theirs == *id) else {
            drop(visits);
            // A stateless client knows no such message, and a server may say it of what it has not asked for.
            return tracing::debug!("a visit that no session knows is over");
        };
        let visit = visits.remove(at);
        drop(visits);
        if let Some(Visit { ours, client, .. }) = visit {
            client.say(Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{{"{ID}":"{ours}"}}}}"#
            )));
        }
    }

    /// Puts the id for the client in the place of the server's.
    fn renamed(&self, params: &Bytes, client: &Arc<Aside>) -> Option<Bytes> {
        let theirs = json::text(json::members(params).ok()?.get(ID).ok()??)?.into_owned();
        let ours = self.enter(theirs, client)?;
        Some(bridge::with_member(params, ID, Some(&json::quoted(&ours))))
    }

    fn question(&self, question: Question, client: &Arc<Aside>) -> Question {
        if question.kind != InputKind::Elicitation || !is_url(&question.params) {
            return question;
        }
        let params = self.renamed(&question.params, client).unwrap_or_else(|| question.params.clone());
        Question { params, ..question }
    }

    /// What an outcome asks for is renamed too, where it is the error that asks for visits.
    fn outcome(&self, outcome: Outcome, client: &Arc<Aside>) -> Outcome {
        outcome.map(|answer| match answer {
            Answer::Upstream { mut response, era } if bridge::asks_by_error(&response) => {
                bridge::edit_visits(&mut response, |params| self.renamed(params, client));
                Answer::Upstream { response: Box::new(response.settled()), era }
            }
            other @ (Answer::Discovery(_)
            | Answer::Ended
            | Answer::InputRequired(_)
            | Answer::Page(_)
            | Answer::Unseen(_)
            | Answer::Upstream { .. }) => other,
        })
    }

    fn visits(&self) -> MutexGuard<'_, VecDeque<Visit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes note of the visits that a reply asks a session's client for.
pub(super) fn noted(link: &Arc<dyn Link>, call: &UpstreamCall, reply: Reply) -> Reply {
    let client = call.owner.aside.as_ref().filter(|_| call.client.features.contains(Feature::ElicitationUrl));
    let Some(client) = client.filter(|_| link.era() == Era::Legacy) else { return reply };
    let (client, heard) = (Arc::clone(client), Arc::clone(link.heard()));
    let (body, guards) = reply.into_parts();
    let reply = match body {
        ReplyBody::Done(outcome) => match *outcome {
            Ok(Answer::Upstream { ref response, .. }) if bridge::asks_by_error(response) => {
                Reply::once(heard.visits.outcome(*outcome, &client))
            }
            _ => Reply::done(outcome),
        },
        ReplyBody::Events(events) => Reply::events(Box::pin(events.map(move |event| match event {
            Event::Ask(question) => Event::Ask(heard.visits.question(question, &client)),
            Event::Done(outcome) => Event::Done(heard.visits.outcome(outcome, &client)),
            other @ (Event::Changed(_)
            | Event::Log(_)
            | Event::Paused
            | Event::Progress(_)
            | Event::Said(_)
            | Event::Watch(_)) => other,
        }))),
    };
    if guards.is_empty() { reply } else { reply.with_guard(guards) }
}

#[cfg(test)]
#[path = "visits_tests.rs"]
mod tests;
