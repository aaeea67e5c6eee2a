//! What the scripted server has beside tools, where it is asked to: prompts, resources, templates, completion, logs.

use super::quoted;
use super::wire::raw;

/// Everything, as a server declares it.
pub(super) const ALL: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"completions":{},"logging":{}}"#;

/// Prompts, as they are listed.
pub(crate) const PROMPTS: &str = r#"{"name":"greet","arguments":[{"name":"who"}],"x":1.10},{"name":"pro.mpt"}"#;
/// Resources.
pub(crate) const RESOURCES: &str = r#"{"uri":"test://a/b?c=d","name":"a","size":1e2},{"uri":"not a uri","name":"b"},{"uri":"ui://app/x.html","name":"c"},{"uri":"file:///secret/s","name":"d"}"#;
/// Templates.
pub(crate) const TEMPLATES: &str = r#"{"uriTemplate":"test://t/{id}","name":"t"}"#;

/// The result of a method, or the error after `!`.
pub(super) fn answer(method: &str, body: &str, stateless: bool) -> Option<String> {
    let complete = if stateless { r#""resultType":"complete","# } else { "" };
    let cached = if stateless { r#""resultType":"complete","ttlMs":60000,"cacheScope":"public","# } else { "" };
    Some(match method {
        "prompts/list" => format!(r#"{{{cached}"prompts":[{PROMPTS}]}}"#),
        "resources/list" => format!(r#"{{{cached}"resources":[{RESOURCES}]}}"#),
        "resources/templates/list" => format!(r#"{{{cached}"resourceTemplates":[{TEMPLATES}]}}"#),
        "prompts/get" => {
            let name = raw(body, "params.name").unwrap();
            format!(
                r#"{{{complete}"description":{name},"messages":[{{"role":"user","content":{{"type":"resource","resource":{{"uri":"test://in/prompt","text":"1.10"}}}}}}],"n":1.10}}"#
            )
        }
        "resources/read" => {
            let uri = raw(body, "params.uri").unwrap();
            if uri.contains("missing") {
                let code = if stateless { -32602 } else { -32002 };
                return Some(format!(r#"!{{"code":{code},"message":"no"}}"#));
            }
            format!(r#"{{{cached}"contents":[{{"uri":{uri},"text":"read"}}]}}"#)
        }
        "completion/complete" => {
            let reference = raw(body, "params.ref").unwrap();
            format!(r#"{{{complete}"completion":{{"values":[{}],"hasMore":false}}}}"#, quoted(&reference))
        }
        "logging/setLevel" => "{}".to_owned(),
        _ => return None,
    })
}

/// The result of the tool `links`, which names resources in every way.
pub(super) const LINKS: &str = r#""content":[{"type":"resource_link","uri":"test://li\u006ek","name":"l"},{"type":"resource","resource":{"uri":"made up","text":"t"}},{"type":"text","text":"test://text"}],"structuredContent":{"uri":"test://structured"},"_meta":{"ui":{"resourceUri":"ui://app/x.html"}}"#;
/// Log messages, one of each of two severities.
pub(super) const LOGS: [&str; 2] =
    [r#"{"level":"debug","logger":"db","data":1.10}"#, r#"{"level":"error","data":{"a":1.10}}"#];
