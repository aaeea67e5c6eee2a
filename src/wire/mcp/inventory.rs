//! Where URIs of a server's resources stand in what it sends: the one table, for every method (protocol §4.5).
//!
//! Not for: rewriting them (`catalog::shown_uri`). What is not in it is never touched: free text, `structuredContent`, an
//! app's HTML, the tools of a sampling request, `icons[].src`.

use std::ops::Range;

use crate::wire::json::{Member, Place, find};

use super::{Content, Kind, Method};

/// What carries URIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// An entry of a list.
    Definition(Kind),
    /// The error of any request.
    Error,
    /// The params of a server's request: sampling, elicitation, roots.
    Question,
    /// The result of a method that one server answers.
    Result(Method),
    /// The params of `notifications/resources/updated`.
    Updated,
}

/// Returns where the URIs in a carrier's JSON text lie, quotes included, in the order written. Nothing is found in what is
/// no JSON: whoever reads it refuses it.
#[must_use]
pub fn uris(carrier: Carrier, text: &[u8]) -> Vec<Range<usize>> {
    table(carrier).map(|tree| find(text, tree).unwrap_or_default()).unwrap_or_default()
}

/// The table.
const fn table(carrier: Carrier) -> Option<&'static Place> {
    match carrier {
        Carrier::Definition(Kind::Tools) => Some(&TOOL),
        Carrier::Definition(Kind::Prompts) => None,
        Carrier::Definition(Kind::Resources) | Carrier::Updated => Some(&URI),
        Carrier::Definition(Kind::Templates) => Some(&TEMPLATE),
        Carrier::Error => Some(&ERROR),
        Carrier::Question => Some(&QUESTION),
        Carrier::Result(method) => match method.content() {
            Some(Content::Tool) => Some(&TOOL_RESULT),
            Some(Content::Prompt) => Some(&PROMPT_RESULT),
            Some(Content::Read) => Some(&READ_RESULT),
            None => None,
        },
    }
}

const fn member(key: &'static str, place: &'static Place) -> Member {
    Member { key, kind: None, place }
}

const fn of_type(kind: &'static str, key: &'static str, place: &'static Place) -> Member {
    Member { key, kind: Some(kind), place }
}

/// `uri`
static URI: Place = Place::In(&[member("uri", &Place::Here)]);
/// `uriTemplate`
static TEMPLATE: Place = Place::In(&[member("uriTemplate", &Place::Here)]);
/// `_meta` of a tool or a result: the page of an app, in both spellings.
static META: Place = Place::In(&[
    member("ui", &Place::In(&[member("resourceUri", &Place::Here)])),
    member("ui/resourceUri", &Place::Here),
]);
static TOOL: Place = Place::In(&[member("_meta", &META)]);
static ERROR: Place = Place::In(&[member("data", &URI)]);

/// Blocks of content: a link to a resource, an embedded one.
static BLOCKS: Place = Place::Each(&Place::In(&[
    of_type("resource_link", "uri", &Place::Here),
    of_type("resource", "resource", &URI),
    of_type("tool_result", "content", &INNER_BLOCKS),
]));
/// Blocks within a tool's result inside a sampling message.
static INNER_BLOCKS: Place =
    Place::Each(&Place::In(&[of_type("resource_link", "uri", &Place::Here), of_type("resource", "resource", &URI)]));
/// Messages of a prompt or a sampling request.
static MESSAGES: Place = Place::Each(&Place::In(&[member("content", &BLOCKS)]));
static QUESTION: Place = Place::In(&[member("messages", &MESSAGES)]);
/// `inputRequests` of a result that asks back: each is `{method, params}`.
static INPUT_REQUESTS: Place = Place::Any(&Place::In(&[member("params", &QUESTION)]));

static TOOL_RESULT: Place =
    Place::In(&[member("content", &BLOCKS), member("_meta", &META), member("inputRequests", &INPUT_REQUESTS)]);
static PROMPT_RESULT: Place = Place::In(&[member("messages", &MESSAGES), member("inputRequests", &INPUT_REQUESTS)]);
static READ_RESULT: Place =
    Place::In(&[member("contents", &Place::Each(&URI)), member("inputRequests", &INPUT_REQUESTS)]);

#[cfg(test)]
mod tests {
    use super::{Carrier, uris};
    use crate::wire::mcp::{Kind, Method};

    fn found(carrier: Carrier, text: &str) -> Vec<&str> {
        uris(carrier, text.as_bytes()).into_iter().map(|at| text.get(at).unwrap().trim_matches('"')).collect()
    }

    /// [R88]: every row of protocol §4.5 that carries a URI.
    #[test]
    fn every_place_of_the_inventory_is_found_and_nothing_else() {
        let block = |uri: &str| {
            format!(
                r#"{{"type":"resource_link","uri":"{uri}1","icons":[{{"src":"no"}}]}},{{"type":"resource","resource":{{"uri":"{uri}2","text":"uri"}}}},{{"type":"text","text":"x","uri":"no"}}"#
            )
        };
        let result = format!(
            r#"{{"content":[{}],"structuredContent":{{"uri":"no"}},"_meta":{{"ui":{{"resourceUri":"m"}},"uri":"no"}},"uri":"no","contents":[{{"uri":"no"}}]}}"#,
            block("a")
        );
        assert_eq!(found(Carrier::Result(Method::ToolsCall), &result), ["a1", "a2", "m"]);
        let prompt = format!(
            r#"{{"messages":[{{"role":"user","content":{{"type":"resource","resource":{{"uri":"p"}}}}}},{{"content":[{}]}}],"content":[{}]}}"#,
            block("b"),
            block("no")
        );
        assert_eq!(found(Carrier::Result(Method::PromptsGet), &prompt), ["p", "b1", "b2"]);
        let read = r#"{"contents":[{"uri":"r1","text":"x"},{"uri":"r2","blob":""}],"content":[{"type":"resource_link","uri":"no"}]}"#;
        assert_eq!(found(Carrier::Result(Method::ResourcesRead), read), ["r1", "r2"]);
        let question = format!(
            r#"{{"messages":[{{"content":{{"type":"tool_result","toolUseId":"t","content":[{}]}}}}],"tools":[{{"name":"no","uri":"no"}}]}}"#,
            block("q")
        );
        assert_eq!(found(Carrier::Question, &question), ["q1", "q2"]);
        let asks = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"sampling/createMessage","params":{question}}}}}}}"#
        );
        for method in [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead] {
            assert_eq!(found(Carrier::Result(method), &asks), ["q1", "q2"]);
        }
        assert_eq!(found(Carrier::Error, r#"{"code":-32002,"data":{"uri":"e"},"uri":"no"}"#), ["e"]);
        assert_eq!(found(Carrier::Updated, r#"{"uri":"u","title":"x"}"#), ["u"]);
        let tool =
            r#"{"name":"t","_meta":{"ui/resourceUri":"old","ui":{"resourceUri":"new","visibility":[]}},"uri":"no"}"#;
        assert_eq!(found(Carrier::Definition(Kind::Tools), tool), ["old", "new"]);
        assert_eq!(found(Carrier::Definition(Kind::Resources), r#"{"name":"n","uri":"x"}"#), ["x"]);
        assert_eq!(found(Carrier::Definition(Kind::Templates), r#"{"name":"n","uriTemplate":"x"}"#), ["x"]);
        assert!(found(Carrier::Definition(Kind::Prompts), r#"{"name":"n","uri":"no"}"#).is_empty());
        assert!(
            found(Carrier::Result(Method::CompletionComplete), r#"{"completion":{"values":["file:///x"]}}"#).is_empty()
        );
        assert!(found(Carrier::Error, "{").is_empty());
    }
}
