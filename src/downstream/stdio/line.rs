//! One line of the client: told apart by who writes it, decoded, heard or refused.

use bytes::Bytes;

use crate::downstream::accept::Take;
use crate::downstream::answer::{Rendered, log_refusal};
use crate::downstream::body;
use crate::downstream::conversation::log_access;
use crate::downstream::headers::Headers;
use crate::downstream::post::Visit;
use crate::downstream::respond::{Fault, Refusal};
use crate::exchange::{Caller as _, Handler};
use crate::net::Ends;
use crate::wire::jsonrpc::{
    DecodeError, DecodeErrorKind, Decoded, HeadMembers, Limits, Message, RequestId, decode, id_at, id_in_tail,
};
use crate::wire::mcp::Era;

use super::door::Piped;

// === impl Piped ===

impl<H: Handler> Piped<H> {
    /// Takes one line.
    pub(super) async fn hear(&mut self, line: Bytes) {
        if line.is_empty() {
            return;
        }
        let mut visit = match self.visit() {
            Ok(visit) => visit,
            Err(refusal) => return self.refuse_unknown(&line, refusal).await,
        };
        let line = match body::seat_of(&self.talk.door.bodies, &visit.caller, line.len()) {
            Ok(seat) => body::with_seat(line, seat),
            Err(_) if is_answer(&line) => return tracing::debug!("an answer for which there is no room"),
            Err(full) => {
                let refused = visit.legacy_asker(id_in_head(&line)).refuse(Fault::BodiesFull(full).into());
                return self.say(&visit, refused).await;
            }
        };
        let said = match decode(&line, &Limits::DOWNSTREAM) {
            Ok(heard) => self.talk.hear(&mut visit, heard).await,
            Err(DecodeError { .. }) if is_answer(&line) => return tracing::debug!("an answer that cannot be read"),
            Err(DecodeError { kind, id }) => {
                let id = id.or_else(|| matches!(kind, DecodeErrorKind::Depth(_)).then(|| id_in_head(&line)).flatten());
                Some(visit.legacy_asker(id).refuse(Fault::from(kind).into()))
            }
        };
        if let Some(rendered) = said {
            self.say(&visit, rendered).await;
        }
    }

    /// Answers a line over the cap, of which the ends are known.
    pub(super) async fn too_long(&self, ends: &Ends) {
        if is_answer(&ends.head) {
            return tracing::debug!("an answer over the cap");
        }
        let id = id_in_head(&ends.head).or_else(|| id_in_tail(&ends.tail));
        let most = self.talk.door.settings.body_bytes_max;
        let words = format!("The message is over limits.request_body_bytes ({most} bytes)");
        let refusal = Refusal { message: words.into(), ..Fault::BodyTooLarge.into() };
        match self.visit() {
            Ok(visit) => self.say(&visit, visit.legacy_asker(id).refuse(refusal)).await,
            Err(refusal) => self.talk.lines.say(vec![refusal.spell(id.as_ref())], Vec::new()).await,
        }
    }

    /// Says an answer that is known at once.
    async fn say(&self, visit: &Visit<H::Caller>, rendered: Rendered) {
        log_access(self.talk.access(), &visit.principal, visit.method, &rendered);
        self.talk.lines.say(rendered.parts, Vec::new()).await;
    }

    /// Finds out who calls, in the state of this moment.
    fn visit(&self) -> Result<Visit<H::Caller>, Refusal> {
        let endpoint = self.client.endpoint.clone();
        let identified = self.talk.door.handler.identify(&self.client.credential);
        let caller = identified.map_err(|reject| Refusal::of_reject(reject, Era::Stateless))?;
        if !caller.serves(&endpoint) {
            return Err(Fault::NotFound.into());
        }
        let principal = caller.principal().clone();
        Ok(Visit { caller, principal, endpoint, headers: Headers::default(), take: Take::Any, method: "line" })
    }

    /// Refuses a line of a client that is not, or no longer, known here.
    async fn refuse_unknown(&self, line: &Bytes, refusal: Refusal) {
        log_refusal(&refusal, None, "line");
        if let Ok(Decoded::One(Message::Request(request))) = decode(line, &Limits::DOWNSTREAM) {
            self.talk.lines.say(vec![refusal.spell(Some(&request.id))], Vec::new()).await;
        }
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
