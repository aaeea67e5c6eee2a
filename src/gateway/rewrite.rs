//! The URIs of a server's resources in what it answers, as the client must see them to read them back [NAM-4, R88]; and the
//! names of its loggers.
//!
//! Not for: which places carry one; `wire::mcp::uris` is that table.

use bytes::Bytes;

use crate::catalog::{Entry, shown_uri};
use crate::exchange::ServerCall;
use crate::id::UpstreamName;
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

/// Says in a log message which server it is of: its logger's name begins with the server's.
pub(super) fn name_logger(server: &UpstreamName, message: &Bytes) -> Bytes {
    named(server, message).unwrap_or_else(|| message.clone())
}

/// `None` for a message that cannot be read; it passes as it is.
fn named(server: &UpstreamName, message: &Bytes) -> Option<Bytes> {
    let mut edits = Edits::new(message.clone());
    let (outer, params) = json::nested(message, usize::MAX, |key| key == b"params").ok()?;
    let start = outer.at(message, "params").ok()??.start;
    let params = params?;
    let logger = params.at(message, "logger").ok()?;
    let own = logger.clone().and_then(|at| json::text_of(message.get(at)?));
    let name = match own {
        Some(own) => format!("{server}/{own}"),
        None => server.to_string(),
    };
    match logger {
        Some(at) => edits.replace(at, json::quoted(&name)),
        None => {
            let comma = if params.is_empty() { "" } else { "," };
            let name = String::from_utf8_lossy(&json::quoted(&name)).into_owned();
            edits.replace(start + 1..start + 1, format!("\"logger\":{name}{comma}"))
        }
    };
    Some(edits.apply())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::name_logger;
    use crate::id::UpstreamName;

    #[test]
    fn a_log_message_names_its_server() {
        let server = UpstreamName::new("up.1").unwrap();
        let spelled = |params: &str| {
            let message = format!(r#"{{"method":"notifications/message","params":{params},"jsonrpc":"2.0"}}"#);
            let named = name_logger(&server, &Bytes::from(message.clone()));
            let named = String::from_utf8(named.to_vec()).unwrap();
            (named.clone(), named == message)
        };
        for (params, named) in [
            (r#"{"level":"info","logger":"db","data":1.0}"#, r#"{"level":"info","logger":"up.1/db","data":1.0}"#),
            (r#"{"level":"info","data":{"logger":"x"}}"#, r#"{"logger":"up.1","level":"info","data":{"logger":"x"}}"#),
            (r#"{"logger":7}"#, r#"{"logger":"up.1"}"#),
            ("{}", r#"{"logger":"up.1"}"#),
        ] {
            assert!(spelled(params).0.contains(&format!(r#""params":{named},"#)), "{params}");
        }
        assert!(spelled("7").1 && spelled(r#"{"logger":"a","logger":"b"}"#).1, "what cannot be read passes");
    }
}
