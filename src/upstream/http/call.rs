//! One request on its way: its response sorted into events for the client and the one answer.
//!
//! Not for: era-specific headers and session loss. Invariants: the answer is chosen by id; no task per call; a stream
//! that ends without an answer is resumed where the server gave an id, and never sent again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;

use crate::exchange::{Answer, ClientFacts, Event, Outcome, Question, Reject, Reply};
use crate::net::ResponseBody;
use crate::upstream::link::{BoxFuture, Link as _, LinkState, Outgoing, progress_value};
use crate::upstream::question::Room;
use crate::wire::jsonrpc::{Message, Notification, Request, Response};
use crate::wire::mcp::{Era, Features, LogMessage};

use super::reader::{EventReader, ReadError};
use super::session::{CancelGuard, Session, SessionLink};
use super::stateless::StatelessLink;
use super::target::{Answered, Content, Target, Unseen, is_event_stream, messages};

const RESUMES_MAX: u32 = 3;
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Whom a request was sent to.
#[derive(Debug)]
pub(super) enum Peer {
    /// A legacy session, with the guard that cancels the request.
    Session(Arc<SessionLink>, Arc<Session>, CancelGuard),
    /// A stateless server.
    Stateless(Arc<StatelessLink>),
}

/// One request that is waiting for its answer.
#[derive(Debug)]
pub(super) struct Call {
    peer: Peer,
    outgoing: Outgoing,
    id: u64,
    progress: Option<f64>,
    /// Bounds its questions that are out; made with the first.
    room: Option<Arc<Room>>,
    /// An answer to another request was seen.
    foreign: bool,
    /// The beginning of something that was no message.
    garbled: Option<String>,
}

/// A call whose answer comes as a stream.
struct Flow {
    call: Call,
    reader: Box<EventReader>,
    /// What was read to know that there is a stream.
    first: Option<Event>,
    /// What came in one event of the stream: a batch.
    queue: VecDeque<Event>,
    /// Why the stream ended, and the way to its continuation.
    resuming: Option<(String, Resuming)>,
    /// How often it was tried since the last event.
    tries: u32,
    /// The last event was handed on.
    over: bool,
}

/// What is known of a reply once its response has been read.
pub(super) enum Replied {
    /// It.
    Now(Reply),
    /// A stream whose first event is to come. Boxed, so that other calls do not carry its room.
    Later(BoxFuture<Reply>),
}

/// Another body of the same stream, if there is one, after so many tries.
type Resuming = Pin<Box<dyn Future<Output = (u32, Option<ResponseBody>)> + Send>>;

/// Says whether a large answer may be passed on without being looked at: the server is configured so, and nothing in the
/// answer has to be rewritten for this client.
pub(super) fn unseen(outgoing: &Outgoing, target: &Target, era: Era) -> bool {
    let reads = |client: &ClientFacts| client.version.era() == era && client.knows_links();
    !target.inspect && matches!(outgoing, Outgoing::Call(call) if reads(&call.client))
}

// === impl Peer ===

impl Peer {
    fn target(&self) -> &Target {
        match self {
            Self::Session(link, ..) => link.target(),
            Self::Stateless(link) => link.target(),
        }
    }

    const fn era(&self) -> Era {
        match self {
            Self::Session(..) => Era::Legacy,
            Self::Stateless(_) => Era::Stateless,
        }
    }

    fn state(&self) -> &LinkState {
        match self {
            Self::Session(link, ..) => link.state(),
            Self::Stateless(link) => link.state(),
        }
    }

    fn serve(&self, request: &Request, asked: Option<(Features, &Arc<Room>)>) -> Option<Question> {
        match self {
            Self::Session(link, session, _) => link.serve(session, request, asked),
            Self::Stateless(link) => {
                tracing::debug!(server = %link.target().name, "a request on a stateless stream is ignored");
                None
            }
        }
    }

    fn withdraw(&self, notification: &Notification) {
        if let Self::Session(link, ..) = self {
            link.withdraw(notification);
        }
    }
}

// === impl Call ===

impl Call {
    pub(super) fn new(peer: Peer, outgoing: Outgoing, id: u64) -> Self {
        Self { peer, outgoing, id, progress: None, room: None, foreign: false, garbled: None }
    }

    /// Takes the request back, for another try on another session.
    pub(super) fn take_back(self) -> Outgoing {
        self.outgoing
    }

    /// Nothing is left to cancel.
    pub(super) fn finish(&mut self) {
        if let Peer::Session(_, _, guard) = &mut self.peer {
            guard.disarm();
        }
    }

    /// Ends the call with a refusal.
    pub(super) fn refuse(mut self, reject: Reject) -> Reply {
        self.finish();
        Reply::once(Err(reject))
    }

    /// Makes the reply of a response, or says what it takes to know its first event.
    pub(super) fn reply(mut self, Answered { status, content }: Answered) -> Replied {
        match content {
            Content::Foreign(snippet) => {
                let reject = self.peer.target().foreign(status, snippet);
                Replied::Now(self.refuse(reject))
            }
            Content::Messages(all) => {
                let mut answer = None;
                for message in all {
                    if let Some(Event::Done(outcome)) = self.sort(message, !status.is_success()) {
                        answer.get_or_insert(outcome);
                    }
                }
                self.finish();
                Replied::Now(Reply::once(answer.unwrap_or_else(|| {
                    let target = self.peer.target();
                    Err(if self.foreign { target.foreign_id() } else { target.foreign(status, String::new()) })
                })))
            }
            Content::Unseen(answer) => Replied::Now(self.pass(*answer)),
            Content::Stream(reader) => Replied::Later(Box::pin(begin(Box::pin(Flow::new(self, reader))))),
        }
    }

    /// Passes a large answer on as it comes, with the client's id in place of ours.
    fn pass(self, answer: Unseen) -> Reply {
        let Unseen { head, id_at, length, rest } = answer;
        let id = match &self.outgoing {
            Outgoing::Call(call) => call.call.request.id.raw().clone(),
            Outgoing::Own { .. } => head.slice(id_at.clone()),
        };
        let length = length.map(|length| length - id_at.len() as u64 + id.len() as u64);
        let read = head.len();
        let mut head = vec![head.slice(..id_at.start), id, head.slice(id_at.end..)];
        head.retain(|piece| !piece.is_empty());
        let rest = stream::unfold(Some((self, rest, read)), |state| async move {
            let (mut call, mut rest, read) = state?;
            let target = call.peer.target();
            match rest.data().await {
                Ok(Some(data)) if read + data.len() > target.cap => Some((Err(target.over_cap()), None)),
                Ok(Some(data)) => {
                    let read = read + data.len();
                    Some((Ok(data), Some((call, rest, read))))
                }
                Ok(None) => {
                    call.finish();
                    None
                }
                Err(err) => {
                    let reject = target.unknown_outcome(err.to_string());
                    call.finish();
                    Some((Err(reject), None))
                }
            }
        });
        Reply::once(Ok(Answer::Unseen(Box::new(crate::exchange::Unseen { head, length, rest: Box::pin(rest) }))))
    }

    /// Sorts one message; returns what goes to the client.
    fn sort(&mut self, message: Message, on_error_status: bool) -> Option<Event> {
        match message {
            Message::Request(request) => {
                let asked = match &self.outgoing {
                    Outgoing::Call(call) => Some((call.client.features, &*self.room.get_or_insert_with(Room::of_call))),
                    Outgoing::Own { .. } => None,
                };
                self.peer.serve(&request, asked).map(Event::Ask)
            }
            Message::Notification(notification) => self.notified(notification),
            Message::Response(response) if self.is_answer(&response, on_error_status) => {
                let outcome: Outcome = Ok(Answer::Upstream { response, era: self.peer.era() });
                Some(Event::Done(outcome))
            }
            Message::Response(_) => {
                self.foreign = true;
                None
            }
        }
    }

    /// Whether a response is ours: by id, or an error of a server that could not read one (`"server-error"`: the Python
    /// SDK 1.x on its own refusals).
    fn is_answer(&self, response: &Response, on_error_status: bool) -> bool {
        match &response.id {
            Some(id) if id.as_u64() == Some(self.id) => true,
            Some(id) => on_error_status && response.error().is_some() && id.raw() == &b"\"server-error\""[..],
            None => response.error().is_some(),
        }
    }

    fn notified(&mut self, notification: Notification) -> Option<Event> {
        match &*notification.method {
            "notifications/progress" => self.progressed(&notification),
            "notifications/message" if matches!(self.outgoing, Outgoing::Call(_)) => {
                Some(Event::Log(LogMessage::of(notification)))
            }
            "notifications/cancelled" => {
                self.peer.withdraw(&notification);
                None
            }
            _ => {
                self.peer.state().hear(&notification);
                None
            }
        }
    }

    fn progressed(&mut self, notification: &Notification) -> Option<Event> {
        let token = notification.params.as_deref()?.get("progressToken").ok()??;
        let value = progress_value(notification)?;
        let grows = self.progress.is_none_or(|last| value > last);
        if token.parse() != Some(self.id) || !grows {
            tracing::debug!(server = %self.peer.target().name, "progress that is not ours or does not grow is dropped");
            return None;
        }
        let event = self.outgoing.progress_for_client(notification)?;
        self.progress = Some(value);
        Some(Event::Progress(event))
    }
}

// === impl Replied ===

impl Replied {
    /// Waits for the reply, where it is not known yet.
    pub(super) async fn known(self) -> Reply {
        match self {
            Self::Now(reply) => reply,
            Self::Later(later) => later.await,
        }
    }
}

// === impl Flow ===

/// Waits for the first event of a stream.
async fn begin(mut flow: Pin<Box<Flow>>) -> Reply {
    let first = std::future::poll_fn(|cx| flow.poll_event(cx)).await;
    if let Event::Done(outcome) = first {
        return Reply::once(outcome);
    }
    flow.first = Some(first);
    Reply::events(flow)
}

impl Flow {
    const fn new(call: Call, reader: Box<EventReader>) -> Self {
        Self { call, reader, first: None, queue: VecDeque::new(), resuming: None, tries: 0, over: false }
    }

    /// Polls for the next event; the last is `Done`.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Poll::Ready(self.handed(event));
            }
            if let Some((why, resuming)) = &mut self.resuming {
                let (tries, body) = ready!(resuming.as_mut().poll(cx));
                let why = std::mem::take(why);
                self.resuming = None;
                self.tries = tries;
                match body {
                    Some(body) => self.reader.resume(body),
                    None => return Poll::Ready(self.handed(Event::Done(Err(self.lost(why))))),
                }
            }
            let (why, pauses) = match ready!(self.reader.poll_event(cx)) {
                Ok(Some(event)) => {
                    self.tries = 0;
                    let data = event.data.as_ref().filter(|_| event.is_message());
                    match data.and_then(|data| self.take(data)) {
                        Some(event) => return Poll::Ready(self.handed(event)),
                        None => continue,
                    }
                }
                Ok(None) => ("the event stream ended".to_owned(), true),
                Err(ReadError::Broken(why)) => (why, false),
                Err(err) => {
                    let reject = self.call.peer.target().unreadable(&err);
                    return Poll::Ready(self.handed(Event::Done(Err(reject))));
                }
            };
            match self.resume() {
                Some(resuming) => {
                    self.resuming = Some((why, resuming));
                    if pauses {
                        return Poll::Ready(Event::Paused);
                    }
                }
                None => return Poll::Ready(self.handed(Event::Done(Err(self.lost(why))))),
            }
        }
    }

    fn handed(&mut self, event: Event) -> Event {
        if matches!(event, Event::Done(_)) {
            self.over = true;
            self.call.finish();
            self.reader.finish();
        }
        event
    }

    /// Takes what one event of the stream carries; of a batch all but the first wait.
    fn take(&mut self, data: &Bytes) -> Option<Event> {
        let Some(all) = messages(data) else {
            self.call.garbled = Some(self.call.peer.target().snippet(data));
            return None;
        };
        let mut first = None;
        for message in all {
            match (self.call.sort(message, false), &first) {
                (Some(event), None) => first = Some(event),
                (event, _) => self.queue.extend(event),
            }
        }
        first
    }

    /// Connects again where the server said how.
    fn resume(&self) -> Option<Resuming> {
        let Peer::Session(link, session, _) = &self.call.peer else { return None };
        let place = self.reader.place();
        let last_id = place.last_id.clone()?;
        let (link, session) = (Arc::clone(link), Arc::clone(session));
        let wanted = place.retry.unwrap_or_default().min(RETRY_MAX);
        let mut tries = self.tries;
        Some(Box::pin(async move {
            while tries < RESUMES_MAX {
                tries += 1;
                tokio::time::sleep(wanted.max(link.target().pauses.after(tries))).await;
                let Ok(response) = link.get(&session, Some(&last_id)).await else { continue };
                if response.status.is_server_error() {
                    continue;
                }
                let goes_on = response.status.is_success() && is_event_stream(&response.headers);
                return (tries, goes_on.then_some(response.body));
            }
            (tries, None)
        }))
    }

    /// Says that the outcome is unknown.
    fn lost(&self, why: String) -> Reject {
        let target = self.call.peer.target();
        match &self.call.garbled {
            Some(garbled) => target.unknown_outcome(format!("{why}; among it: {garbled}")),
            None if self.call.foreign => target.foreign_id(),
            None => target.unknown_outcome(why),
        }
    }
}

impl Stream for Flow {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None if this.over => Poll::Ready(None),
            None => this.poll_event(cx).map(Some),
        }
    }
}
