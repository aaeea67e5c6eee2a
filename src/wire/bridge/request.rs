//! A client's `tools/call` as the server of the next hop must read it (protocol §4.2, §5.2, §5.3).
//!
//! Not for: headers; `upstream::http` computes them from the same facts.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::wire::json::{self, Decimal};
use crate::wire::jsonrpc::{Edits, Params, Request};
use crate::wire::mcp::{
    CAPABILITIES_KEY, CLIENT_INFO_KEY, CallParams, Era, Features, LOG_LEVEL_KEY, Level, ProtocolVersion,
    RESERVED_PREFIX, RequestMeta, Trace, VERSION_KEY,
};

use super::input::only_answers;
use super::visits::visited;

/// What the next hop speaks, and what the gateway says of the client there.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// The era of the server.
    pub era: Era,
    /// The id on this hop; it is the progress token too.
    pub id: u64,
    /// The server's own name for the tool.
    pub name: &'a [u8],
    /// `clientCapabilities` for a stateless server, a JSON object.
    pub capabilities: Bytes,
    /// `clientInfo` for a stateless server, a JSON object.
    pub client_info: Bytes,
    /// The server's own `requestState`, as JSON text, in place of the sealed one.
    pub request_state: Option<&'a Bytes>,
    /// From which severity on a stateless server shall log, where the request does not say.
    pub log: Option<Level>,
    /// The trace that it is part of here.
    pub trace: Option<&'a Trace>,
}

/// Rewrites a call for the next hop: id, name, `_meta`, and nothing else.
#[must_use]
pub fn lower_call(request: &Request, params: &CallParams, meta: &RequestMeta, hop: &Hop<'_>) -> Bytes {
    let id = Decimal::new(hop.id);
    let mut edits = Edits::new(request.raw.clone());
    edits.replace_by(request.id_at.clone(), id.as_slice());
    edits.replace_by(params.name_at.clone(), hop.name);
    if let (Some(at), None) = (&params.arguments_at, &params.arguments) {
        edits.replace_by(at.clone(), b"{}");
    }
    if params.request_state_at.is_some() || params.responses_at.is_some() {
        lower_retry(&mut edits, request, params, hop);
    }
    if let Some(rebuilt) = rebuilt_meta(meta, hop) {
        match &params.meta_at {
            Some(at) => edits.replace(at.clone(), rebuilt),
            None => {
                let mut member = BytesMut::from(&b"\"_meta\":"[..]);
                member.extend_from_slice(&rebuilt);
                member.put_u8(b',');
                // The params hold at least a name, so a comma is right.
                let start = request.params.as_deref().map_or(0, |params| params.place().start) + 1;
                edits.replace(start..start, member.freeze())
            }
        };
    }
    edits.apply()
}

/// Rewrites what a retry has beside its call: the server's own state, and what is an answer. What came of visits that the
/// gateway has asked for is none of a server's: to it the call is made anew.
fn lower_retry(edits: &mut Edits<'_>, request: &Request, params: &CallParams, hop: &Hop<'_>) {
    let all = request.params.as_deref().map(Params::text).unwrap_or_default();
    if hop.era == Era::Legacy && visited(&all).rounds > 0 {
        let Some(place) = request.params.as_deref().map(|params| params.place().clone()) else { return };
        let Ok(members) = json::members(request.raw.get(place.clone()).unwrap_or_default()) else { return };
        for cut in members.without(|key| matches!(key, b"inputResponses" | b"requestState")) {
            edits.replace(place.start + cut.start..place.start + cut.end, Bytes::new());
        }
        return;
    }
    if let (Some(at), Some(state)) = (&params.request_state_at, hop.request_state) {
        edits.replace(at.clone(), state.clone());
    }
    if let Some(at) = &params.responses_at
        && let Some(answers) = only_answers(&request.raw.slice(at.clone()))
    {
        edits.replace(at.clone(), answers);
    }
}

/// Returns `_meta` for the next hop, `None` where it can stay as it is.
fn rebuilt_meta(meta: &RequestMeta, hop: &Hop<'_>) -> Option<Bytes> {
    let token = meta.progress_token.as_ref().map(|_| hop.id);
    let traced = hop.trace.is_some() || meta.has_trace();
    match hop.era {
        Era::Legacy => {
            let reserved =
                |raw: &Bytes| memchr::memmem::find(raw, RESERVED_PREFIX.as_bytes()).is_some() || raw.contains(&b'\\');
            let rebuilds = traced || token.is_some() || meta.raw.as_ref().is_some_and(reserved);
            rebuilds.then(|| object(&[], token, meta, hop.trace))
        }
        Era::Stateless => {
            let same = meta.version.as_ref().and_then(Option::as_deref) == Some(ProtocolVersion::V2026_07_28.as_str())
                && meta.capabilities.as_ref() == Some(&hop.capabilities)
                && meta.client_info.as_ref() == Some(&hop.client_info);
            if same && token.is_none() && !traced {
                return None;
            }
            let version = Bytes::from_static(b"\"2026-07-28\"");
            let mut own = vec![
                (VERSION_KEY, version),
                (CLIENT_INFO_KEY, hop.client_info.clone()),
                (CAPABILITIES_KEY, hop.capabilities.clone()),
            ];
            match (&meta.log_level, hop.log) {
                (Some(level), _) => own.push((LOG_LEVEL_KEY, level.clone())),
                (None, Some(level)) => own.push((LOG_LEVEL_KEY, json::quoted(level.as_str()))),
                (None, None) => {}
            }
            Some(object(&own, token, meta, hop.trace))
        }
    }
}

fn object(own: &[(&str, Bytes)], token: Option<u64>, meta: &RequestMeta, trace: Option<&Trace>) -> Bytes {
    let mut out = BytesMut::from(&b"{"[..]);
    let mut add = |key: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.put_u8(b',');
        }
        out.extend_from_slice(key);
        out.put_u8(b':');
        out.extend_from_slice(value);
    };
    for (key, value) in own {
        add(&json::quoted(key), value);
    }
    if let Some(token) = token {
        add(b"\"progressToken\"", token.to_string().as_bytes());
    }
    for (key, value) in trace.into_iter().flat_map(Trace::iter) {
        add(&json::quoted(key), &json::quoted(value));
    }
    for (key, value) in meta.passing() {
        add(&key, &value);
    }
    out.put_u8(b'}');
    out.freeze()
}

/// Spells a request of the gateway's own; `members` are the params' members without braces. A stateless server is told that
/// everything can be asked, for it may list its asking tools to such clients alone; these requests cannot be asked back.
#[must_use]
pub fn own_request(id: u64, method: &str, era: Era, client_info: &[u8], members: &str) -> Bytes {
    let meta = match era {
        Era::Legacy => String::new(),
        Era::Stateless => format!(
            "\"_meta\":{{\"{VERSION_KEY}\":\"{}\",\"{CLIENT_INFO_KEY}\":{},\"{CAPABILITIES_KEY}\":{}}}{}",
            ProtocolVersion::V2026_07_28,
            String::from_utf8_lossy(client_info),
            Features::ASKABLE.spelled(era),
            if members.is_empty() { "" } else { "," },
        ),
    };
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{meta}{members}}}}}"#))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Hop, lower_call, own_request};
    use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
    use crate::wire::mcp::{CallParams, Era, Method, RequestMeta};

    fn lower(text: &str, era: Era) -> String {
        let raw = Bytes::from(text.to_owned());
        let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else { panic!("{text}") };
        let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
        let meta = RequestMeta::read(request.params.as_deref()).unwrap();
        let hop = Hop {
            era,
            id: 7,
            name: b"\"t\"",
            capabilities: meta.capabilities.clone().unwrap_or_else(|| Bytes::from_static(b"{}")),
            client_info: meta.client_info.clone().unwrap_or_else(|| Bytes::from_static(br#"{"name":"g"}"#)),
            request_state: None,
            log: None,
            trace: None,
        };
        String::from_utf8(lower_call(&request, &params, &meta, &hop).to_vec()).unwrap()
    }

    /// [R63]: a server of sessions is told nothing of visits, wherever they stand.
    #[test]
    fn visits_stay_in_the_newer_era() {
        for params in [
            r#"{"inputResponses":{"portcullis-visit-1.1":{}},"name":"s__t","_meta":{"progressToken":1}}"#,
            r#"{"name":"s__t","requestState":"x","arguments":{},"inputResponses":{"portcullis-visit-2.1":{}}}"#,
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let legacy = lower(&text, Era::Legacy);
            assert!(!legacy.contains("inputResponses") && !legacy.contains("requestState"), "{legacy}");
            assert!(serde_json::from_str::<serde_json::Value>(&legacy).unwrap()["params"]["name"] == "t", "{legacy}");
            assert!(lower(&text, Era::Stateless).contains("inputResponses"));
        }
    }

    /// [R86]: two legacy peers see each other's bytes but for id and name.
    #[test]
    fn legacy_to_legacy_changes_id_and_name_alone() {
        assert_eq!(
            lower(
                r#"{ "x":1e2,"id":"a" ,"jsonrpc":"2.0","method":"tools/call","params":{"z":1.10,"name":"s__t","arguments":{"a":12345678901234567890123,"s":"\ud800"}} }"#,
                Era::Legacy
            ),
            r#"{ "x":1e2,"id":7 ,"jsonrpc":"2.0","method":"tools/call","params":{"z":1.10,"name":"t","arguments":{"a":12345678901234567890123,"s":"\ud800"}} }"#
        );
    }

    #[test]
    fn stateless_to_stateless_keeps_meta_without_a_token() {
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"} , "io.modelcontextprotocol/clientCapabilities":{},"x":null}"#;
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta},"name":"s__t"}}}}"#);
        assert_eq!(lower(&text, Era::Stateless), text.replace("\"id\":1", "\"id\":7").replace("s__t", "t"));
    }

    /// [TRN-9]: reserved keys are rebuilt per hop, others pass; the progress token is ours.
    #[test]
    fn meta_is_rebuilt_across_eras() {
        let stateless = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p","a/b":1.0},"name":"s__t"}}"#;
        assert_eq!(
            lower(stateless, Era::Legacy),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"progressToken":7,"a/b":1.0},"name":"t"}}"#
        );
        let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__t","arguments":null}}"#;
        assert_eq!(
            lower(legacy, Era::Stateless),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"g"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"t","arguments":{}}}"#
        );
    }

    /// [R94]: what is no answer is left out, so that a server asks for it again.
    #[test]
    fn what_is_no_answer_is_not_passed_on() {
        for (given, wanted) in [
            (r#"{"a":{"action":"accept"} , "b":{}}"#, r#"{"a":{"action":"accept"} , "b":{}}"#),
            (r#"{"a":12345,"b":{"x":1e2},"c":null}"#, r#"{"b":{"x":1e2}}"#),
            ("null", "{}"),
            ("[{}]", "{}"),
        ] {
            let spelled = |answers: &str, id: u64, name: &str| {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","inputResponses":{answers},"requestState":"s"}}}}"#
                )
            };
            assert_eq!(lower(&spelled(given, 1, "s__t"), Era::Legacy), spelled(wanted, 7, "t"));
        }
    }

    #[test]
    fn own_requests_carry_meta_in_the_stateless_era_alone() {
        assert_eq!(
            own_request(1, "tools/list", Era::Legacy, b"{}", ""),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#
        );
        assert_eq!(
            own_request(1, "tools/list", Era::Stateless, b"{}", r#""cursor":"""#),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"tools":{}}}},"cursor":""}}"#
        );
    }
}
