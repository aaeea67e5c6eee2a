//! One session: its event stream is read, messages are posted, and its end is told to all who wait.
//!
//! Not for: the handshake (`open`). Invariants: a message is posted once; what a POST is refused with concerns its own
//! request alone, unless the server no longer knows the session.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use smallvec::SmallVec;
use tokio_util::sync::CancellationToken;

use crate::exchange::{Answer, Outcome, Reject, RejectKind, Reply};
use crate::net::Ends;
use crate::upstream::channel::Conversation;
use crate::upstream::link::Outgoing;
use crate::wire::jsonrpc::{Message, Response};
use crate::wire::mcp::Era;
use crate::wire::sse;

use super::super::reader::{EventReader, ReadError};
use super::super::target::{Answered, Content, Target};

/// How long what nobody waits for may take: a cancel, or an answer to a question.
const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is read of what such a POST is answered with, so that its connection can be used again.
const BODY_MAX: usize = 16 << 10;

/// One session, shared by its tasks and its callers.
pub(super) struct Session {
    pub(super) conversation: Arc<Conversation>,
    /// Where messages are posted to.
    pub(super) endpoint: Target,
    /// The head of a POST.
    posting: Vec<u8>,
    /// Asks for the end.
    pub(super) stop: CancellationToken,
    /// The event stream is closed.
    pub(super) over: CancellationToken,
}

impl Session {
    pub(super) fn new(conversation: Arc<Conversation>, endpoint: Target, posting: Vec<u8>) -> Self {
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        Self { conversation, endpoint, posting, stop, over }
    }

    // --- reading ---

    /// Reads events until the stream ends or the session is stopped; then nobody is left waiting.
    pub(super) async fn read_loop(self: Arc<Self>, mut reader: EventReader) {
        let end = loop {
            // A chunk may hold thousands of events: without this their reader would keep its thread to itself.
            tokio::task::coop::consume_budget().await;
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => break self.refusal(RejectKind::Upstream, "is being stopped"),
                next = reader.next() => next,
            };
            match next {
                Ok(Some(event)) => self.take(event),
                Ok(None) => break self.lost("ended its event stream"),
                Err(ReadError::Broken(why)) => break self.lost("broke its event stream off").with_detail(why),
                Err(ReadError::Stream(sse::DecodeError::EventTooLarge { limit })) => {
                    let words = format!("sent an event over 4 × max_response_bytes ({limit} bytes) without an end");
                    break self.refusal(RejectKind::Limit, &words);
                }
                Err(ReadError::Stream(err)) => {
                    break self.lost("sent a malformed event stream").with_detail(err.to_string());
                }
            }
        };
        self.end(&end);
        // Its connection is closed before anybody hears that it is.
        drop(reader);
        self.over.cancel();
    }

    fn take(&self, event: sse::Event) {
        let name = &self.conversation.settings.name;
        if let Some(ends) = event.too_large {
            let sse::Ends { head, tail } = *ends;
            return self.conversation.too_long(&Ends { head, tail });
        }
        if !event.is_message() {
            // The first `endpoint` counts; a server that names another later must not move its session.
            tracing::trace!(server = %name, event = ?event.event, "an event that is no message is passed over");
            return;
        }
        if let Some(data) = &event.data
            && !self.conversation.receive(data)
        {
            tracing::debug!(server = %name, "an event that holds no message is dropped");
        }
    }

    /// Takes no more requests, and fails those that wait.
    fn end(&self, why: &Reject) {
        let conversation = &self.conversation;
        // Before their callers hear of it: nobody else may choose it.
        conversation.state.closed.cancel();
        if conversation.state.ended(why.public.clone().into_owned()) {
            tracing::debug!(server = %conversation.settings.name, detail = why.detail, "{}", why.public);
        }
        conversation.table.shut(why);
        conversation.table.fail_all(why);
        self.stop.cancel();
    }

    fn refusal(&self, kind: RejectKind, what: &str) -> Reject {
        self.conversation.reject(kind, what)
    }

    /// The session is lost, and with it every answer.
    fn lost(&self, what: &str) -> Reject {
        let what = format!("{what}; the outcome of what it had not answered is unknown, nothing was sent again");
        self.refusal(RejectKind::Upstream, &what)
    }

    // --- writing ---

    /// Sends a request and waits for what arrives first.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request at the server if it was sent.
    pub(super) async fn request(self: Arc<Self>, outgoing: Outgoing) -> Reply {
        let waiting = match self.conversation.enter(outgoing.clone()) {
            Ok(waiting) => waiting,
            Err(reject) => return Reply::once(Err(reject)),
        };
        let id = waiting.id();
        let body = outgoing.render(id, Era::Legacy);
        let head = self.head(&outgoing).into_owned();
        drop(outgoing);
        let sending = async move { self.post(id, &head, body).await };
        waiting.sent_by(Box::pin(sending)).reply(Era::Legacy).await
    }

    /// The head of a POST, with the headers of a trace where there is one.
    fn head(&self, outgoing: &Outgoing) -> Cow<'_, [u8]> {
        match outgoing {
            Outgoing::Call(call) if call.trace.is_some() => {
                let mut head = self.posting.clone();
                self.endpoint.add_trace(&mut head, call);
                Cow::Owned(head)
            }
            Outgoing::Call(_) | Outgoing::Own { .. } => Cow::Borrowed(&self.posting),
        }
    }

    /// Posts a request; a refusal ends it at once.
    async fn post(&self, id: u64, head: &[u8], body: Bytes) {
        let table = &self.conversation.table;
        if !table.begin(id) {
            return;
        }
        let answered = match self.endpoint.send(head, &body).await {
            Ok(response) => self.endpoint.read(response, None).await,
            Err(reject) => Err(reject),
        };
        match answered {
            Ok(answered) => self.answered(id, answered),
            Err(reject) => drop(table.finish(id, Err(reject))),
        }
    }

    /// Takes what a POST is answered with: mostly nothing, for the answer comes as an event; some servers answer here.
    fn answered(&self, id: u64, Answered { status, content }: Answered) {
        let refused = match content {
            Content::Messages(all) => {
                if let Some(outcome) = self.sort(id, all) {
                    self.conversation.table.finish(id, outcome);
                    return;
                }
                (!status.is_success()).then(|| self.endpoint.foreign(status, String::new()))
            }
            Content::Foreign(note) => (!status.is_success()).then(|| self.endpoint.foreign(status, note)),
            Content::Stream(_) | Content::Unseen(_) => {
                Some(self.endpoint.foreign(status, "an event stream of its own".to_owned()))
            }
        };
        let Some(reject) = refused else { return };
        if !matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            self.conversation.table.finish(id, Err(reject));
            return;
        }
        // Before the caller hears of it, so that it is sent again on another session.
        self.conversation.state.closed.cancel();
        self.conversation.table.finish(id, Err(reject.safe_to_retry()));
        self.end(&self.lost("does not know the session any more"));
    }

    /// Finds the answer to a request in the body of its POST; what else is there is heard.
    fn sort(&self, id: u64, all: SmallVec<[Message; 1]>) -> Option<Outcome> {
        let mut answer = None;
        for message in all {
            match message {
                Message::Response(response) if is_answer(&response, id) => {
                    answer = Some(Ok(Answer::Upstream { response, era: Era::Legacy }));
                }
                other @ (Message::Notification(_) | Message::Request(_) | Message::Response(_)) => {
                    self.conversation.dispatch(other);
                }
            }
        }
        answer
    }

    /// Posts a notification of the handshake; says how it was refused.
    pub(super) async fn notify(&self, text: &'static str) -> Result<(), Reject> {
        let response = self.endpoint.send(&self.posting, &Bytes::from_static(text.as_bytes())).await?;
        let Answered { status, .. } = self.endpoint.read(response, None).await?;
        if status.is_success() { Ok(()) } else { Err(self.endpoint.foreign(status, String::new())) }
    }

    /// Posts cancellations and answers to questions, one after the other, until the session ends.
    pub(super) async fn control_loop(self: Arc<Self>) {
        let work = async {
            loop {
                self.conversation.control_ready().await;
                while let Some(text) = self.conversation.next_control() {
                    if tokio::time::timeout(ASIDE_TIMEOUT, self.post_aside(text)).await.is_err() {
                        tracing::debug!(server = %self.conversation.settings.name, "not acknowledged in time");
                    }
                }
            }
        };
        tokio::select! { () = self.stop.cancelled() => {} () = work => {} }
    }

    async fn post_aside(&self, text: Bytes) {
        match self.endpoint.send(&self.posting, &text).await {
            Ok(response) => drop(response.body.collect(BODY_MAX).await),
            Err(reject) => tracing::debug!(server = %self.conversation.settings.name, "{}", reject.detail),
        }
    }
}

/// The endpoint holds the session's id: it is not shown.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("conversation", &self.conversation).finish_non_exhaustive()
    }
}

/// Whether a response in the body of a request's POST is its answer: by id, or an error of a server that could not read one.
fn is_answer(response: &Response, id: u64) -> bool {
    match &response.id {
        Some(theirs) => theirs.as_u64() == Some(id) || (response.error().is_some() && theirs.as_u64().is_none()),
        None => response.error().is_some(),
    }
}
