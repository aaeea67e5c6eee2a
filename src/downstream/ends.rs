//! What a principal that has asked too often may still say: that something is over [LIM-5].
//!
//! A cancel, and the answer to a question, free what is held for it; refused, they would hold it until its time is over. Not
//! for: pipes, where nothing but requests is counted. Invariants: only within a session of that principal, by a rate of its
//! own, and only a small body is read for it.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

use crate::exchange::Handler;
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};

use super::accept;
use super::body::{self, Body};
use super::post::Visit;
use super::router::Transport;
use super::server::Door;

/// The largest body that is read of a principal over its rate: a person's answer, or a model's with a picture.
const BODY_MAX: usize = 1 << 20;

impl<H: Handler> Door<H> {
    /// Takes the message of a POST that is over the rate, if it ends something; `None`: it is refused.
    pub(super) async fn over_rate<B>(
        &self,
        transport: Transport,
        visit: &mut Visit<H::Caller>,
        query: Option<&str>,
        body: B,
    ) -> Option<Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let known = match transport {
            Transport::HttpSse => self.knows_stream(visit, query),
            Transport::Streamable => self.session(visit).is_ok(),
        };
        if !known || !accept::is_json(&visit.headers) || self.handler.admit_end(&visit.caller).is_err() {
            return None;
        }
        let most = self.settings.body_bytes_max.min(BODY_MAX);
        let body = body::read(body, most, (&self.bodies, &visit.caller)).await.ok()?;
        let all_end = match decode(&body, &Limits::DOWNSTREAM).ok()? {
            Decoded::One(message) => ends(&message),
            Decoded::Batch(batch) => batch.iter().all(|message| message.as_ref().is_ok_and(ends)),
        };
        let body = Full::new(body);
        match transport {
            _ if !all_end => None,
            Transport::HttpSse => Some(self.post_to_stream(visit, query, body).await),
            Transport::Streamable => Some(self.post(visit, body).await),
        }
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
