//! Calls of stateless clients that may be asked: a server's question parks the call, and a retry joins it (protocol §5.3).
//!
//! Not for: sessions (`ask`), or a stateless server's own `requestState`, which the hall opens. Invariants: a retry is judged
//! like any call before it joins [R95]; a call of a client that cannot be asked passes through untouched.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use crate::exchange::{Call, Endpoint, Event, EventStream, Exchange, Handler, Reject, Reply, ReplyBody, ServerCall};
use crate::id::PrincipalId;
use crate::session::{Joining, Live, ParkedCalls};
use crate::wire::bridge;
use crate::wire::json;
use crate::wire::jsonrpc::Edits;

use super::answer::invalid;
use super::post::Visit;
use super::running::Running;
use super::server::Door;

/// What is needed to park a call.
struct Parker {
    parked: Arc<ParkedCalls>,
    principal: PrincipalId,
    binding: [u8; 32],
}

/// The events of a call that may be parked.
enum Parking {
    Live(Live, Parker),
    Parked(EventStream),
    Over,
}

// === impl Door ===

impl<H: Handler> Door<H> {
    /// Hands a stateless request to the hall; a retry of a parked call joins that.
    pub(super) fn call_of_stateless(&self, visit: &Visit<H::Caller>, exchange: Exchange) -> Running {
        let call = match &exchange.call {
            Call::ToServer(call)
                if call.params.method.asks_back()
                    && (exchange.client.features.may_be_asked() || call.params.request_state_at.is_some()) =>
            {
                Arc::clone(call)
            }
            Call::Discover | Call::List { .. } | Call::Listen(_) | Call::ToServer(_) | Call::Watch { .. } => {
                return Running::new(self.handler.call(visit.caller.clone(), exchange));
            }
        };
        let parker = Parker {
            parked: Arc::clone(&self.parked),
            principal: visit.principal.clone(),
            binding: binding(&visit.endpoint, &call),
        };
        if let Some(joining) = state_of(&call).and_then(|state| self.parked.open(&visit.principal, &state)) {
            let (handler, caller) = (Arc::clone(&self.handler), visit.caller.clone());
            return Running::new(Box::pin(async move {
                let mut plain = ServerCall::clone(&call);
                plain.params.request_state_at = None;
                let exchange = Exchange { call: Call::ToServer(Arc::new(plain)), ..exchange };
                let joined = handler.check(caller, exchange).await.and_then(|place| {
                    let reply = parker.join(&call, joining)?;
                    Ok(match place {
                        Some(place) => reply.with_permit(place),
                        None => reply,
                    })
                });
                joined.unwrap_or_else(|reject| Reply::once(Err(reject)))
            }));
        }
        let reply = self.handler.call(visit.caller.clone(), exchange);
        Running::new(Box::pin(async move { parker.parking(reply.await) }))
    }
}

// === impl Parker ===

impl Parker {
    fn parking(self, mut reply: Reply) -> Reply {
        // Given back while the call is parked; a retry takes one anew [LIM-5].
        let place = reply.take_permit();
        let (body, guards) = reply.into_parts();
        let reply = match body {
            ReplyBody::Done(outcome) => Reply::done(outcome).with_guards(guards),
            ReplyBody::Events(events) => {
                let parking = Parking::Live(Live { events, guards }, self);
                Reply::events(Box::pin(stream::unfold(parking, Parking::next)))
            }
        };
        match place {
            Some(place) => reply.with_permit(place),
            None => reply,
        }
    }

    fn join(self, call: &ServerCall, joining: Joining) -> Result<Reply, Reject> {
        let params = call.request.params.as_deref().map(|params| params.text()).unwrap_or_default();
        let answers = bridge::answers(&params).map_err(|err| invalid(err.to_string()))?;
        let events = self.parked.join(&self.principal, self.binding, joining, answers)?;
        // What the server says of its progress carries the token of the first try.
        let token = call.meta.progress_token.clone();
        let events = events.filter_map(move |event| {
            std::future::ready(match event {
                Event::Progress(raw) => with_token(raw, token.as_ref()).map(Event::Progress),
                other @ (Event::Ask(_)
                | Event::Done(_)
                | Event::Log(_)
                | Event::Paused
                | Event::Said(_)
                | Event::Changed(_)
                | Event::Watch(_)) => Some(other),
            })
        });
        Ok(Reply::events(Box::pin(events)))
    }
}

// === impl Parking ===

impl Parking {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            match self {
                Self::Over => return None,
                Self::Parked(mut events) => {
                    let event = events.next().await?;
                    return Some((event, Self::Parked(events)));
                }
                Self::Live(mut live, parker) => match live.events.next().await? {
                    Event::Ask(question) => {
                        match parker.parked.park(&parker.principal, parker.binding, live, question) {
                            Ok(events) => self = Self::Parked(events),
                            Err(reject) => return Some((Event::Done(Err(reject)), Self::Over)),
                        }
                    }
                    event @ (Event::Done(_)
                    | Event::Log(_)
                    | Event::Paused
                    | Event::Progress(_)
                    | Event::Said(_)
                    | Event::Watch(_)
                    | Event::Changed(_)) => {
                        return Some((event, Self::Live(live, parker)));
                    }
                },
            }
        }
    }
}

fn state_of(call: &ServerCall) -> Option<String> {
    let at = call.params.request_state_at.clone()?;
    serde_json::from_slice(call.request.raw.get(at)?).ok()
}

/// A digest of what a retry must repeat: where it was asked, what, of whom, with which arguments.
fn binding(endpoint: &Endpoint, call: &ServerCall) -> [u8; 32] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let path = match endpoint {
        Endpoint::All => "",
        Endpoint::Server(server) => server.as_str(),
    };
    for part in [path, &call.request.method, &call.params.name] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    context.update(call.params.arguments.as_deref().unwrap_or_default());
    let digest = context.finish();
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    bytes
}

/// Writes the retry's own token into a progress notification; `None` if it wants none.
fn with_token(raw: Bytes, token: Option<&Bytes>) -> Option<Bytes> {
    let token = token?;
    let place = {
        let params = json::members(&raw).ok()?.at("params").ok()??;
        let inner = json::members(raw.get(params.clone())?).ok()?.at("progressToken").ok()??;
        params.start + inner.start..params.start + inner.end
    };
    let mut edits = Edits::new(raw);
    edits.replace(place, token.clone());
    Some(edits.apply())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::with_token;

    /// [R109]: a listener hears of progress under its own token.
    #[test]
    fn progress_carries_the_token_of_the_retry() {
        let raw =
            Bytes::from_static(br#"{"method":"notifications/progress","params":{"progressToken":"a","progress":1}}"#);
        let token = Bytes::from_static(b"7");
        let told = with_token(raw.clone(), Some(&token)).unwrap();
        assert_eq!(told, r#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#);
        assert_eq!(with_token(raw, None), None);
    }
}
