//! The streams on which a server says that its lists have changed: a session's GET, or `subscriptions/listen`.
//!
//! Not for: answers to requests. Invariants: a server that offers no stream is left alone after a few tries; every gap
//! in which a change may have been missed counts as one.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::net::ResponseBody;
use crate::upstream::link::{Link as _, subscription};
use crate::wire::bridge;
use crate::wire::jsonrpc::{ErrorObject, Message, code};
use crate::wire::mcp::{Era, Kinds};
use crate::wire::sse;

use super::reader::{EventReader, Place, ReadError};
use super::session::SessionLink;
use super::stateless::{self, StatelessLink};
use super::target::{Content, Target, is_event_stream, messages};

/// How often a stream that never worked is asked for.
const TRIES_MAX: u32 = 4;
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How one try went.
enum Try {
    /// The server says that there is no such stream.
    Never,
    /// No stream this time.
    NotNow,
    /// There was one, and it has ended.
    Lived,
}

/// Keeps a session's GET stream open until the link is closed or the server offers none (FC-HTP-08).
pub(super) async fn session(link: Arc<SessionLink>) {
    let closed = link.closed().clone();
    let work = async {
        let mut place = Place::default();
        let mut backoff = Backoff::default();
        loop {
            let (worked, generation) = (backoff.worked, link.current().generation);
            let went = session_once(&link, &mut place, worked).await;
            if !backoff.next(&went, link.target(), &place).await {
                return;
            }
            if link.current().generation != generation {
                place = Place::default();
            }
        }
    };
    tokio::select! { () = closed.cancelled() => {} () = work => {} }
    tracing::debug!(server = %link.target().name, "no stream for list changes any more");
}

async fn session_once(link: &Arc<SessionLink>, place: &mut Place, worked: bool) -> Try {
    let session = link.current();
    let response = link.get(&session, place.last_id.as_deref()).await;
    link.listening.cancel();
    let Ok(response) = response else { return Try::NotNow };
    if response.status == StatusCode::METHOD_NOT_ALLOWED {
        return Try::Never;
    }
    if worked && response.status == StatusCode::NOT_FOUND {
        link.renew_lost(&session).await;
        return Try::NotNow;
    }
    let stream = is_event_stream(&response.headers);
    if !response.status.is_success() || !stream {
        return Try::NotNow;
    }
    if worked && place.last_id.is_none() {
        link.state().missed();
    }
    let lived = read(link.target(), response.body, place, |message| match message {
        Message::Request(request) => link.serve_beside(&session, &request),
        Message::Notification(notification) if notification.method == "notifications/cancelled" => {
            link.withdraw(&notification);
        }
        Message::Notification(notification) => {
            link.state().hear(&notification);
        }
        Message::Response(_) => {}
    });
    if lived.await { Try::Lived } else { Try::NotNow }
}

/// Keeps a subscription open until the link is closed or the server refuses it.
pub(super) async fn stateless(link: Arc<StatelessLink>, kinds: Kinds) {
    let closed = link.closed().clone();
    let work = async {
        let mut backoff = Backoff::default();
        loop {
            let went = stateless_once(&link, kinds, backoff.worked).await;
            if !backoff.next(&went, link.target(), &Place::default()).await {
                return;
            }
        }
    };
    tokio::select! { () = closed.cancelled() => {} () = work => {} }
    tracing::debug!(server = %link.target().name, "no subscription to list changes any more");
}

async fn stateless_once(link: &Arc<StatelessLink>, kinds: Kinds, worked: bool) -> Try {
    const METHOD: &str = "subscriptions/listen";
    let members = subscription(kinds);
    let body = bridge::own_request(link.next_id(), METHOD, Era::Stateless, &bridge::server_info(), &members);
    let target = link.target();
    let Ok(response) = target.send(&stateless::head(target, METHOD), &body).await else {
        return Try::NotNow;
    };
    let stream = is_event_stream(&response.headers);
    if !response.status.is_success() || !stream {
        return match target.read(response, None).await.map(|answered| answered.content) {
            Ok(Content::Messages(all)) if all.iter().any(is_unknown_method) => Try::Never,
            Ok(_) | Err(_) => Try::NotNow,
        };
    }
    if worked {
        link.state().missed();
    }
    let mut refused = false;
    let lived = read(target, response.body, &mut Place::default(), |message| match message {
        Message::Notification(notification) => {
            link.state().hear(&notification);
        }
        Message::Response(_) => refused |= is_unknown_method(&message),
        Message::Request(_) => {}
    })
    .await;
    match (refused, lived) {
        (true, _) => Try::Never,
        (false, true) => Try::Lived,
        (false, false) => Try::NotNow,
    }
}

fn is_unknown_method(message: &Message) -> bool {
    match message {
        Message::Response(response) => {
            response.error().is_some_and(|error| ErrorObject::read(&error).code == code::METHOD_NOT_FOUND)
        }
        Message::Notification(_) | Message::Request(_) => false,
    }
}

/// Reads a stream to its end; says whether it was one: it had an event, or did not end at once.
async fn read(target: &Target, body: ResponseBody, place: &mut Place, mut take: impl FnMut(Message)) -> bool {
    let limits = sse::Limits { event_bytes_max: target.cap, stream_bytes_max: usize::MAX };
    let mut reader = EventReader::shared(body, limits);
    let mut lived = false;
    loop {
        // A chunk may hold thousands of events: without this their reader would keep its thread to itself.
        tokio::task::coop::consume_budget().await;
        let next = if lived {
            reader.next().await
        } else {
            match tokio::time::timeout(target.pauses.lived, reader.next()).await {
                Ok(next) => next,
                Err(_) => {
                    lived = true;
                    continue;
                }
            }
        };
        match next {
            Ok(Some(event)) => {
                lived = true;
                if event.too_large.is_some() {
                    tracing::warn!(
                        server = %target.name,
                        cap = target.cap,
                        "an event over max_response_bytes on the stream of list changes was skipped"
                    );
                }
                let all = event.data.as_ref().filter(|_| event.is_message()).and_then(messages);
                all.unwrap_or_default().into_iter().for_each(&mut take);
            }
            Ok(None) | Err(ReadError::Broken(_)) => break,
            Err(ReadError::Stream(err)) => {
                tracing::warn!(server = %target.name, "the stream for list changes is dropped: {err}");
                break;
            }
        }
    }
    let seen = reader.place();
    place.last_id = seen.last_id.clone().or_else(|| place.last_id.take());
    place.retry = seen.retry.or(place.retry);
    lived
}

/// When to try again.
#[derive(Default)]
struct Backoff {
    tries: u32,
    worked: bool,
}

impl Backoff {
    /// Waits before the next try; `false` if there shall be none.
    async fn next(&mut self, went: &Try, target: &Target, place: &Place) -> bool {
        match went {
            Try::Never => return false,
            Try::NotNow => self.tries += 1,
            Try::Lived => (self.tries, self.worked) = (1, true),
        }
        if !self.worked && self.tries >= TRIES_MAX {
            return false;
        }
        let wanted = place.retry.unwrap_or_default().min(RETRY_MAX);
        tokio::time::sleep(target.pauses.after(self.tries).max(wanted)).await;
        true
    }
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
