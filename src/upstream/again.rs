//! A call that its server refuses because of its headers: the list is read again, the headers are made anew, and the call
//! is sent once more [R51].
//!
//! Invariants: -32020 says that the server has not acted on the call; nothing else is sent twice. However many calls a
//! server refuses so, its list is read by one of them, and not again before a while [LIM-6].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::clock::Moment;
use crate::exchange::{Answer, Reply, ReplyBody, UpstreamCall};
use crate::wire::jsonrpc::{ErrorObject, Payload, code};
use crate::wire::mcp::{Definition, Era, HeaderParam, Kind, Method};

use super::link::{Link, Outgoing};
use super::list;
use super::server::Server;

/// How long what a list says of headers is not read again.
const FRESH: Duration = Duration::from_secs(5);

/// What the tools of a server want in headers, as they were read for the last call that was refused. Held while they are
/// read; whoever comes meanwhile waits.
#[derive(Debug, Default)]
pub(super) struct Headers(Mutex<Option<Reading>>);

#[derive(Debug)]
struct Reading {
    at: Moment,
    /// Empty if the list could not be read.
    wanted: HashMap<Arc<str>, Arc<[HeaderParam]>>,
}

/// Says whether a server refuses a tool call for its headers. Costs a look at the kind of answer where it does not.
pub(super) fn is_mismatch(reply: &Reply, call: &UpstreamCall) -> bool {
    let ReplyBody::Done(outcome) = &reply.body else { return false };
    let Ok(Answer::Upstream { response, era: Era::Stateless }) = outcome.as_ref() else { return false };
    matches!(response.payload, Payload::Error(_))
        && call.call.params.method == Method::ToolsCall
        && response.error().is_some_and(|error| ErrorObject::read(&error).code == code::HEADER_MISMATCH)
}

impl Server {
    /// Sends a call once more with the headers that the tool wants now; `None` if it wants no others, or does not say.
    ///
    /// # Cancel safety
    /// Who was reading the list reads no more; the next who waits does.
    pub(super) async fn again(&self, link: &Arc<dyn Link>, call: &UpstreamCall) -> Option<Reply> {
        let header_params = self.wanted_headers(link, &call.original).await?;
        if header_params == call.header_params {
            return None;
        }
        tracing::info!(server = %self.name(), tool = &*call.original, "its headers are made anew; the call is sent again");
        let call = UpstreamCall { header_params, ..call.clone() };
        Some(Arc::clone(link).request(Outgoing::Call(Arc::new(call))).await)
    }

    async fn wanted_headers(&self, link: &Arc<dyn Link>, tool: &str) -> Option<Arc<[HeaderParam]>> {
        let mut last = self.headers.0.lock().await;
        let now = self.clock.now();
        if last.as_ref().is_none_or(|reading| now.since(reading.at) >= FRESH) {
            let listing = list::read(link, Kind::Tools, self.settings()).await;
            // Whatever was read, what is shown is not what the server has.
            link.relist();
            let listing = listing
                .inspect_err(|cause| tracing::warn!(server = %self.name(), cause, "its list could not be read"))
                .unwrap_or_default();
            let wanted = |tool: Definition| Some((Arc::clone(&tool.name), tool.header_params.ok()?));
            *last = Some(Reading { at: now, wanted: listing.items.into_iter().filter_map(wanted).collect() });
        }
        last.as_ref().and_then(|reading| reading.wanted.get(tool).map(Arc::clone))
    }
}

#[cfg(test)]
#[path = "again_tests.rs"]
mod tests;
