//! The URIs of a server's resources in what it answers, as the client must see them to read them back [NAM-4, R88].
//!
//! Not for: which places carry one; `wire::mcp::uris` is that table.

use bytes::Bytes;

use crate::catalog::{Entry, shown_uri};
use crate::exchange::ServerCall;
use crate::id::UpstreamName;
use crate::upstream::Server;
use crate::wire::json;
use crate::wire::jsonrpc::{Edits, ErrorObject, Payload, Response, code};
use crate::wire::mcp::{Carrier, Method, uris};

/// What begins the URIs of resources that the gateway itself serves.
const OURS: &str = "portcullis+";

/// Says whether an answer may hold something to rewrite. Costs one look at a flag where nothing does.
pub(super) fn may_rewrite(call: &ServerCall, response: &Response) -> bool {
    response.may_have_uris() || (call.params.method == Method::ResourcesRead && response.error().is_some())
}

/// Puts shown URIs in the place of the server's own, and says which resource was not found [R61].
pub(super) fn rewrite(entry: &Entry, call: &ServerCall, response: &mut Response) {
    let (carrier, at) = match &response.payload {
        Payload::Result(at) => (Carrier::Result(call.params.method), at.clone()),
        Payload::Error(at) => (Carrier::Error, at.clone()),
    };
    let raw = response.raw.clone();
    let text = raw.get(at.clone()).unwrap_or_default();
    let slug = entry.server.slug();
    for place in uris(carrier, text) {
        let uri = text.get(place.clone()).and_then(json::text_of);
        if let Some(uri) = uri.filter(|uri| !uri.starts_with(OURS)) {
            response.edit(at.start + place.start..at.start + place.end, json::quoted(&shown_uri(&slug, &uri)));
        }
    }
}

/// Puts shown URIs in the place of the server's own in what it asks.
pub(super) fn question(server: &UpstreamName, params: &Bytes) -> Bytes {
    let slug = server.slug();
    let mut edits = Edits::new(params.clone());
    for place in uris(Carrier::Question, params) {
        let uri = params.get(place.clone()).and_then(json::text_of);
        if let Some(uri) = uri.filter(|uri| !uri.starts_with(OURS)) {
            edits.replace(place, json::quoted(&shown_uri(&slug, &uri)));
        }
    }
    edits.apply()
}

/// Puts `[secret:NAME]` in the place of a secret that an error of its server repeats [CFG-3].
pub(super) fn conceal(server: &Server, response: Response) -> Response {
    let mut response = response.settled();
    let Payload::Error(at) = &response.payload else { return response };
    let (start, conceals) = (at.start, server.conceals());
    let text = response.raw.slice(at.clone());
    for place in json::texts(&text) {
        let said = text.get(place.clone()).and_then(json::text_of);
        if let Some(concealed) = said.and_then(|said| conceals(&said)) {
            response.edit(start + place.start..start + place.end, json::quoted(&concealed));
        }
    }
    response.settled()
}

/// Says in an error which resource was not found, where an older server does not [R61].
pub(super) fn name_missing(call: &ServerCall, response: &mut Response) {
    let Payload::Error(at) = &response.payload else { return };
    let error = ErrorObject::read(response.raw.get(at.clone()).unwrap_or_default());
    if call.params.method != Method::ResourcesRead || error.code != code::RESOURCE_NOT_FOUND || error.data.is_some() {
        return;
    }
    let uri = json::quoted(&call.params.name);
    let member = [b",\"data\":{\"uri\":", &*uri, b"}"].concat();
    let end = at.end - 1;
    response.edit(end..end, Bytes::from(member));
}
