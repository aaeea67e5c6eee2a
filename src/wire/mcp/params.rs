//! The params of a request that one server answers: what is read of them, for all such methods alike.
//!
//! Not for: naming (`catalog`) or judging (`policy`). Invariant: places are byte ranges of the whole message.

use std::ops::Range;

use bytes::Bytes;

use crate::wire::json::{self, JsonError, Raw};
use crate::wire::jsonrpc::Params;

use super::method::Target;
use super::{Kind, Method};

/// What is read of the params of `tools/call`, `prompts/get`, `resources/read`, `completion/complete` and the like.
/// Places are counted from the beginning of the message.
#[derive(Clone, Debug)]
pub struct CallParams {
    /// The method they are of.
    pub method: Method,
    /// What kind of thing they name. A completion's URI may be one of a resource or a template.
    pub kind: Kind,
    /// The name or URI as the client spelled it, decoded.
    pub name: String,
    /// Where the name's or URI's value lies.
    pub name_at: Range<usize>,
    /// The arguments as sent, where they are an object.
    pub arguments: Option<Bytes>,
    /// Where the arguments' value lies, if the key is there at all (an explicit `null` too).
    pub arguments_at: Option<Range<usize>>,
    /// Where `_meta` lies.
    pub meta_at: Option<Range<usize>>,
    /// Where `requestState` lies.
    pub request_state_at: Option<Range<usize>>,
    /// Where `inputResponses` lies.
    pub responses_at: Option<Range<usize>>,
}

/// Why params cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// `arguments` is there, but neither an object nor null.
    #[error("'arguments' must be an object")]
    Arguments,
    /// Not an object, or a key that is read stands twice.
    #[error("{0}")]
    Malformed(#[from] JsonError),
    /// What names the target is missing or no string.
    #[error("'{0}' must be a string")]
    Name(&'static str),
    /// `ref` is missing, or names neither a prompt nor a resource.
    #[error("'ref' must name a prompt or a resource")]
    Ref,
}

// === impl CallParams ===

impl CallParams {
    /// Reads the params of a method that one server answers.
    ///
    /// # Errors
    /// [`ParamsError`]: nothing is named, arguments that are no object, or a routed key that stands twice [FC-SEC-03].
    pub fn read(method: Method, params: &Params) -> Result<Self, ParamsError> {
        let key = match method.spec().target {
            Target::Name | Target::None => "name",
            Target::Ref => "ref",
            Target::Uri => "uri",
        };
        let keys = [key, "arguments", "_meta", "requestState", "inputResponses"];
        let [name_at, arguments_at, meta_at, request_state_at, responses_at] = params.find(keys)?;
        let (kind, name_at) = match (method.spec().target, name_at) {
            (Target::Ref, at) => reference(params, at)?,
            (Target::Name | Target::None, Some(at)) if method == Method::PromptsGet => (Kind::Prompts, at),
            (Target::Name | Target::None, Some(at)) => (Kind::Tools, at),
            (Target::Uri, Some(at)) => (Kind::Resources, at),
            (Target::Name | Target::None | Target::Uri, None) => return Err(ParamsError::Name(key)),
        };
        let name = params.part(name_at.clone());
        let name = json::text(Raw::new(&name)).ok_or_else(|| ParamsError::Name(kind_key(kind)))?.into_owned();
        let arguments = match arguments_at.clone().map(|at| params.part(at)) {
            None => None,
            Some(text) if text == "null" => None,
            Some(text) if text.first() == Some(&b'{') => Some(text),
            Some(_) => return Err(ParamsError::Arguments),
        };
        Ok(Self { method, kind, name, name_at, arguments, arguments_at, meta_at, request_state_at, responses_at })
    }
}

const fn kind_key(kind: Kind) -> &'static str {
    match kind {
        Kind::Tools | Kind::Prompts => "name",
        Kind::Resources | Kind::Templates => "uri",
    }
}

/// Reads what a completion refers to: `{"type":"ref/prompt","name":…}` or `{"type":"ref/resource","uri":…}`.
fn reference(params: &Params, at: Option<Range<usize>>) -> Result<(Kind, Range<usize>), ParamsError> {
    let at = at.ok_or(ParamsError::Ref)?;
    let text = params.part(at.clone());
    let members = json::members(&text).map_err(|err| match err {
        JsonError::Kind(_) => ParamsError::Ref,
        other @ (JsonError::Duplicate(_) | JsonError::Scan(_)) => ParamsError::Malformed(other),
    })?;
    let [kind, name, uri] = members.find(["type", "name", "uri"])?;
    let kind = kind.and_then(|kind| json::text(Raw::new(text.get(kind)?)));
    let (kind, place) = match kind.as_deref() {
        Some("ref/prompt") => (Kind::Prompts, name),
        Some("ref/resource") => (Kind::Templates, uri),
        Some(_) | None => return Err(ParamsError::Ref),
    };
    let place = place.ok_or_else(|| ParamsError::Name(kind_key(kind)))?;
    Ok((kind, at.start + place.start..at.start + place.end))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{CallParams, ParamsError};
    use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
    use crate::wire::mcp::{Kind, Method};

    fn read(method: Method, text: &str) -> Result<(CallParams, Bytes), ParamsError> {
        let raw = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}"#));
        let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else { panic!("{text}") };
        CallParams::read(method, request.params.as_deref().unwrap()).map(|params| (params, raw))
    }

    /// [FC-NAM-08]
    #[test]
    fn arguments_are_absent_null_or_an_object() {
        for method in [Method::ToolsCall, Method::PromptsGet] {
            let read = |text: &'static str| read(method, text).map(|(params, _)| params);
            assert!(read(r#"{"name":"a"}"#).unwrap().arguments.is_none());
            let null = read(r#"{"name":"a","arguments":null}"#).unwrap();
            assert!(null.arguments.is_none() && null.arguments_at.is_some());
            assert_eq!(read(r#"{"name":"a","arguments":{"b":null}}"#).unwrap().arguments.unwrap(), r#"{"b":null}"#);
            for bad in
                [r#"{"name":"a","arguments":[]}"#, r#"{"name":"a","arguments":"x"}"#, r#"{"name":"a","arguments":1}"#]
            {
                assert_eq!(read(bad).err(), Some(ParamsError::Arguments));
            }
        }
    }

    /// [FC-SEC-03]
    #[test]
    fn a_name_given_twice_is_refused_and_case_matters() {
        let read = |text: &'static str| read(Method::ToolsCall, text).map(|(params, _)| params);
        assert!(read(r#"{"name":"a","name":"b"}"#).is_err());
        assert!(read(r#"{"name":"a","n\u0061me":"b"}"#).is_err());
        assert!(read(r#"{"name":"a","arguments":{},"arguments":{}}"#).is_err());
        assert_eq!(read(r#"{"Name":"x","name":"a","arguments":{"k":1,"k":2}}"#).unwrap().name, "a");
        assert!(matches!(read(r#"{"Name":"x"}"#), Err(ParamsError::Name("name"))));
    }

    #[test]
    fn each_method_names_its_target() {
        for (method, text, kind, name, spelled) in [
            (Method::ToolsCall, r#"{"uri":"u","name":"a\u0062"}"#, Kind::Tools, "ab", r#""a\u0062""#),
            (Method::PromptsGet, r#"{ "name" : "p" }"#, Kind::Prompts, "p", r#""p""#),
            (Method::ResourcesRead, r#"{"name":"n","uri":"x:\/y"}"#, Kind::Resources, "x:/y", r#""x:\/y""#),
            (
                Method::CompletionComplete,
                r#"{"argument":{"name":"n"},"ref":{ "name":"p" ,"type":"ref/prompt"}}"#,
                Kind::Prompts,
                "p",
                r#""p""#,
            ),
            (
                Method::CompletionComplete,
                r#"{"ref":{"type":"ref\/resource","name":"n","uri":"x:{y}"},"argument":{}}"#,
                Kind::Templates,
                "x:{y}",
                r#""x:{y}""#,
            ),
        ] {
            let (params, raw) = read(method, text).unwrap();
            assert_eq!((params.method, params.kind, params.name.as_str()), (method, kind, name));
            assert_eq!(&raw[params.name_at], spelled.as_bytes());
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (method, text, why) in [
            (Method::ResourcesRead, r#"{"name":"a"}"#, ParamsError::Name("uri")),
            (Method::ResourcesRead, r#"{"uri":7}"#, ParamsError::Name("uri")),
            (Method::PromptsGet, r#"{"uri":"a"}"#, ParamsError::Name("name")),
            (Method::CompletionComplete, r#"{"argument":{}}"#, ParamsError::Ref),
            (Method::CompletionComplete, r#"{"ref":"x"}"#, ParamsError::Ref),
            (Method::CompletionComplete, r#"{"ref":{"type":"ref/tool","name":"x"}}"#, ParamsError::Ref),
            (Method::CompletionComplete, r#"{"ref":{"type":"ref/prompt","uri":"x"}}"#, ParamsError::Name("name")),
            (Method::CompletionComplete, r#"{"ref":{"type":"ref/resource","uri":null}}"#, ParamsError::Name("uri")),
        ] {
            assert_eq!(read(method, text).err(), Some(why), "{text}");
        }
        assert!(read(Method::CompletionComplete, r#"{"ref":{"type":"ref/prompt","name":"a","name":"b"}}"#).is_err());
    }
}
