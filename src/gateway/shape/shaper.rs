//! Which answers are looked at, and where: off the reactor if there is much to read or anything to write.

use std::sync::Arc;

use bytes::Bytes;

use crate::blob::{BlobSettings, Blobs, Origin};
use crate::catalog::Entry;
use crate::exchange::{Answer, Outcome, Reject, RejectKind};
use crate::gateway::resolve::Resolved;
use crate::gateway::{Gateway, GatewaySettings};
use crate::id::PrincipalId;
use crate::policy::{BlobMode, Caps, PathsFor};
use crate::wire::json;
use crate::wire::jsonrpc::{Payload, Response};
use crate::wire::mcp::Content;

use super::notice::can_be_over;
use super::{attach, cut};

/// An answer up to this size is worked on where it is, if nothing is written.
const HERE_BYTES_MAX: usize = 64 << 10;

/// What must be known of a call when its answer comes. Small, because every call has one.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Shaper {
    caps: Caps,
    kind: Content,
    /// The client knows links to resources.
    links: bool,
    /// The client may be given paths.
    paths: bool,
}

/// What an answer that may have to be changed is changed by.
pub(super) struct Work {
    pub(super) blobs: Arc<Blobs>,
    pub(super) settings: Arc<GatewaySettings>,
    pub(super) principal: PrincipalId,
    /// What was called.
    pub(super) origin: Origin,
    /// The definition of what was called, as its server wrote it.
    pub(super) definition: Bytes,
    pub(super) caps: Caps,
    /// What becomes of base64, as far as this client can have it.
    pub(super) mode: BlobMode,
    pub(super) kind: Content,
    pub(super) links: bool,
}

// === impl Shaper ===

impl Shaper {
    /// Takes note of a call; `None` if its server's answers are passed on as they are.
    pub(in crate::gateway) fn of(resolved: &Resolved) -> Option<Self> {
        let caps = resolved.caller.caps(&resolved.entry.server)?;
        Some(Self {
            caps,
            kind: resolved.call.params.method.content()?,
            links: resolved.client.knows_links(),
            paths: caps.blob_paths == PathsFor::All || resolved.caller.is_local(),
        })
    }

    /// Says whether an outcome may have to be changed: by its size, and by whether a key that can hold base64 was seen.
    pub(in crate::gateway) fn concerns(&self, gateway: &Gateway, outcome: &Outcome) -> bool {
        let Ok(Answer::Upstream { response, .. }) = outcome else { return false };
        let (Payload::Result(at) | Payload::Error(at)) = &response.payload;
        self.caps.max_result_chars.is_some_and(|cap| at.len() > cap)
            || self.may_hold_base64(gateway, response, at.len())
    }

    fn may_hold_base64(&self, gateway: &Gateway, response: &Response, bytes: usize) -> bool {
        // What asks for input is no result yet.
        let marked = matches!(response.payload, Payload::Result(_))
            && response.outline().is_ok_and(|outline| outline.is_marked());
        marked && (self.mode() != BlobMode::Pass || can_be_over(bytes, &gateway.snapshot.load().settings().blob))
    }

    fn mode(&self) -> BlobMode {
        let mode = if self.caps.blobs == BlobMode::File && !self.paths { BlobMode::Link } else { self.caps.blobs };
        attach::mode_for(self.kind, mode)
    }

    /// Makes an outcome as large as its reader may have it.
    pub(in crate::gateway) async fn shape(
        self,
        gateway: &Gateway,
        principal: &PrincipalId,
        entry: &Entry,
        outcome: Outcome,
    ) -> Outcome {
        let Answer::Upstream { response, era } = outcome? else {
            return Err(lost());
        };
        let work = self.work(gateway, principal.clone(), entry);
        let here = response.raw.len() <= HERE_BYTES_MAX && work.mode == BlobMode::Pass;
        let response = if here {
            Ok(Box::new(work.apply(*response)))
        } else {
            gateway.tasks.blocking(move || Box::new(work.apply(*response))).await
        };
        response.map(|response| Answer::Upstream { response, era }).map_err(|_| lost())
    }

    fn work(self, gateway: &Gateway, principal: PrincipalId, entry: &Entry) -> Work {
        let mode = self.mode();
        let Self { caps, kind, links, .. } = self;
        let (blobs, settings) = (Arc::clone(&gateway.blobs), Arc::clone(gateway.snapshot.load().settings()));
        let (origin, definition) = (Origin::of(entry), entry.definition.raw.clone());
        Work { blobs, settings, principal, origin, definition, caps, mode, kind, links }
    }

    /// Cuts what a notification tells; `None` if it is short enough.
    pub(in crate::gateway) fn cut(&self, raw: &Bytes) -> Option<Bytes> {
        self.caps.max_result_chars.and_then(|cap| cut::notification(raw, cap))
    }
}

/// The work on an answer panicked, or the program ends.
fn lost() -> Reject {
    Reject::upstream(RejectKind::Upstream, "the gateway could not work on the answer", "")
}

// === impl Work ===

impl Work {
    pub(super) fn settings(&self) -> &BlobSettings {
        &self.settings.blob
    }

    pub(super) fn apply(&self, response: Response) -> Response {
        let response = match response.payload {
            Payload::Result(_) => attach::attach(self, response),
            Payload::Error(_) => response,
        };
        match self.caps.max_result_chars {
            Some(cap) => cut::cut(self, cap, response),
            None => response,
        }
    }

    /// Says whether the tool has declared what its structured content looks like.
    pub(super) fn promises_schema(&self) -> bool {
        let definition = json::members(&self.definition);
        definition.is_ok_and(|members| members.iter().any(|(key, _)| *key == *b"outputSchema"))
    }
}
