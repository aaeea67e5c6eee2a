//! What a principal that has asked too often may still say: that something is over [LIM-5].
//!
//! A cancel, and the answer to a question, free what is held for it; refused, they would hold it until its time is over. Not
//! for: pipes, where nothing but requests is counted. Invariants: only within a session of that principal, by a rate of its
//! own, and only a small body is read for it.

use bytes::Bytes;
use http::Response;

use crate::exchange::Handler;
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::RequestMeta;

use super::accept;
use super::body::{self, Body};
use super::post::Visit;
use super::server::Door;

/// The largest body that is read of a principal over its rate: a person's answer, or a model's with a picture.
const BODY_MAX: usize = 1 << 20;

impl<H: Handler> Door<H> {
    /// Takes the message of a POST that is over the rate, if it ends something; `None`: it is refused.
    pub(super) async fn over_rate<B>(&self, visit: &mut Visit<H::Caller>, body: B) -> Option<Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let session = self.session(visit).ok()?;
        if !accept::is_json(&visit.headers) || self.handler.admit_end(&visit.caller).is_err() {
            return None;
        }
        let body = body::read(body, self.settings.body_bytes_max.min(BODY_MAX)).await.ok()?;
        let message = match decode(&body, &Limits::DOWNSTREAM).ok()? {
            Decoded::One(message) => message,
            Decoded::Batch(batch) => {
                let all: Option<Vec<Message>> = batch.into_iter().map(Result::ok).collect();
                let all = all.filter(|all| all.iter().all(ends))?;
                // As the batch of a session that may send one.
                return Some(self.batch(visit, all.into_iter().map(Ok).collect()).await);
            }
        };
        if !ends(&message) {
            return None;
        }
        drop(session);
        visit.method = if matches!(message, Message::Response(_)) { "response" } else { "notification" };
        Some(self.legacy(visit, message, RequestMeta::read(None).ok()?).await)
    }
}

/// Says whether a message ends something.
fn ends(message: &Message) -> bool {
    match message {
        Message::Notification(notification) => notification.method == "notifications/cancelled",
        Message::Request(_) => false,
        Message::Response(_) => true,
    }
}
