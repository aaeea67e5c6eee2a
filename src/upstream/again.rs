//! A call that its server refuses because of its headers: the list is read again, the headers are made anew, and the call
//! is sent once more [R51].
//!
//! Invariant: -32020 says that the server has not acted on the call; nothing else is sent twice.

use std::sync::Arc;

use crate::exchange::{Answer, Reply, ReplyBody, UpstreamCall};
use crate::wire::jsonrpc::{ErrorObject, Payload, code};
use crate::wire::mcp::{Definition, Era, Kind, Method};

use super::link::{Link, Outgoing};
use super::list;
use super::server::Server;

/// Says whether a server refuses a tool call for its headers. Costs a look at the kind of answer where it does not.
pub(super) fn is_mismatch(reply: &Reply, call: &UpstreamCall) -> bool {
    let ReplyBody::Done(outcome) = &reply.body else { return false };
    let Ok(Answer::Upstream { response, era: Era::Stateless }) = outcome.as_ref() else { return false };
    matches!(response.payload, Payload::Error(_))
        && call.call.params.method == Method::ToolsCall
        && response.error().is_some_and(|error| ErrorObject::read(&error).code == code::HEADER_MISMATCH)
}

impl Server {
    /// Sends a call once more with the headers that the tool wants now; `None` if it does not say so.
    pub(super) async fn again(&self, link: &Arc<dyn Link>, call: &UpstreamCall) -> Option<Reply> {
        let listing = list::read(link, Kind::Tools, self.settings()).await;
        // Whatever was read, what is shown is not what the server has.
        link.relist();
        let listing = listing
            .inspect_err(|cause| tracing::warn!(server = %self.name(), cause, "its list could not be read"))
            .ok()?;
        let wanted = |tool: &Definition| *tool.name == *call.original;
        let tool = listing.items.into_iter().find(wanted)?;
        let header_params = tool.header_params.ok()?;
        tracing::info!(server = %self.name(), tool = &*call.original, "its headers are made anew; the call is sent again");
        let call = UpstreamCall { header_params, ..call.clone() };
        Some(Arc::clone(link).request(Outgoing::Call(Arc::new(call))).await)
    }
}
