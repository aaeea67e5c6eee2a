//! `portcullis call`: one tool call through the whole pipeline, in this process or at a running gateway.

use bytes::Bytes;
use serde_json::Value;

use crate::app::{Local, LocalError};
use crate::codes::Code;
use crate::config::{PrincipalPlace, nearest};
use crate::exchange::RejectKind;
use crate::wire::bridge;
use crate::wire::json::{self, Raw};
use crate::wire::jsonrpc::{ErrorObject, Response};
use crate::wire::mcp::{
    CAPABILITIES_KEY, CLIENT_INFO_KEY, Definition, Kind, PROGRESS_TOKEN_KEY, STATELESS_LATEST, VERSION_KEY,
};

use super::args::Call;
use super::open::{Opened, block_on, down, open, speak_for};
use super::output::{data, foreign, one_line};
use super::spinner::Label;
use super::trouble::{Exit, Trouble};
use super::{arguments, explain, remote};

pub(super) fn run(call: &Call) -> Result<Exit, Trouble> {
    block_on(async {
        match &call.url {
            Some(url) => remote::call(url, call).await,
            None => local(call).await,
        }
    })
}

async fn local(call: &Call) -> Result<Exit, Trouble> {
    let opened = open(&call.source).await?;
    let principal = opened.principal(call.principal.as_deref())?;
    let needed = opened.needed_for(principal, &call.tool);
    opened
        .with_local(&needed, Some(principal), async |local| {
            let caller = speak_for(local, principal)?;
            let tools = local.list(&caller, Kind::Tools).await?;
            let tool = tools.iter().find(|tool| *tool.name == *call.tool);
            let request = request("tools/call", &members(call, tool)?);
            let label = Label::new(&call.tool);
            let mut progress = |notification: &[u8]| label.set(&progress_words(&call.tool, notification));
            match label.spin(local.call(&caller, request, &mut progress)).await {
                Ok(response) => show(call, &response),
                Err(LocalError::Refused(reject)) if reject.kind == RejectKind::Unknown => {
                    Err(denied(&opened, local, principal, &call.tool, &tools).await?)
                }
                Err(err) => Err(err.into()),
            }
        })
        .await
}

/// Why the gate has refused, for somebody who may know it.
async fn denied(
    opened: &Opened,
    local: &Local,
    principal: &PrincipalPlace,
    tool: &str,
    visible: &[Definition],
) -> Result<Trouble, Trouble> {
    if let Some(trouble) = opened.loaded.places.server_of(tool).and_then(|place| down(local, place)) {
        return Ok(trouble);
    }
    let names: Vec<_> = visible.iter().map(|tool| &*tool.name).collect();
    let near = nearest(tool, &names).map(|near| format!("did you mean {near}?"));
    let verdicts = explain::verdicts(opened, local, principal, Some(tool)).await?;
    let Some(verdict) = verdicts.into_iter().find(|verdict| verdict.is_about(tool)) else {
        let trouble = Trouble::new(Exit::Denied, Code::UnknownTool, format!("unknown tool '{}'", tool.escape_debug()));
        return Ok(near.into_iter().fold(trouble, Trouble::fix));
    };
    Ok(verdict.denial(&principal.id))
}

/// The params of the call.
pub(super) fn members(call: &Call, tool: Option<&Definition>) -> Result<String, Trouble> {
    let schema = tool.and_then(|tool| tool.raw.get(tool.input_schema_at.clone()?));
    let arguments = arguments::spell(&call.arguments, schema)?;
    Ok(format!(r#""name":{},"arguments":{arguments}"#, Value::from(call.tool.as_str())))
}

/// Spells a request of the newest revision; `members` are those of the params, without braces.
pub(super) fn request(method: &str, members: &str) -> Bytes {
    let info = bridge::server_info();
    let info = String::from_utf8_lossy(&info);
    let comma = if members.is_empty() { "" } else { "," };
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{members}{comma}"_meta":{{"{VERSION_KEY}":"{STATELESS_LATEST}","{CLIENT_INFO_KEY}":{info},"{CAPABILITIES_KEY}":{{}},"{PROGRESS_TOKEN_KEY}":1}}}}}}"#
    ))
}

/// What a progress notification says.
pub(super) fn progress_words(tool: &str, notification: &[u8]) -> String {
    let notification: Value = serde_json::from_slice(notification).unwrap_or_default();
    let said = |key: &str| notification.pointer(&format!("/params/{key}")).cloned().unwrap_or_default();
    match (said("message"), said("progress"), said("total")) {
        (Value::String(words), ..) => format!("{tool}: {words}"),
        (_, progress, Value::Null) => format!("{tool}: {progress}"),
        (_, progress, total) => format!("{tool}: {progress} of {total}"),
    }
}

/// Shows the answer; an error of the tool's own is data too.
pub(super) fn show(call: &Call, response: &Response) -> Result<Exit, Trouble> {
    let Some(result) = response.result() else {
        let error = response.error().unwrap_or_default();
        if call.json {
            data(&[br#"{"error":"#, &one_line(&error)[..], b"}\n"].concat())?;
        }
        let error = ErrorObject::read(&error);
        let words = format!("the server answered error {}: {}", error.code.0, super::output::sentence(&error.message));
        return Err(Trouble::new(Exit::Failure, Code::ServerFailed, words));
    };
    if call.json {
        data(&[&one_line(&result)[..], b"\n"].concat())?;
    } else {
        data(text_of(&result).as_bytes())?;
    }
    let says = |key, value: &str| member(&result, key).is_some_and(|raw| raw.get() == value.as_bytes());
    if says("resultType", "\"input_required\"") {
        return Err(Trouble::new(Exit::Failure, Code::AsksBack, format!("'{}' asks for more input", call.tool)));
    }
    if says("isError", "true") {
        if let Some(code) = refusal(&result) {
            return Err(Trouble::new(Exit::Failure, code, format!("the gateway refused '{}'", call.tool)));
        }
        return Err(Trouble::new(Exit::Failure, Code::ToolError, format!("'{}' reports an error", call.tool)));
    }
    Ok(Exit::Ok)
}

/// The code of a result that is the gateway's own refusal [POL-11].
fn refusal(result: &Bytes) -> Option<Code> {
    let meta: Value = serde_json::from_slice(member(result, "_meta")?.get()).ok()?;
    Code::find(meta.pointer("/portcullis~1refusal/code")?.as_str()?)
}

fn member<'r>(result: &'r Bytes, key: &'static str) -> Option<Raw<'r>> {
    json::members(result).ok()?.get(key).ok()?
}

/// The content for a person: texts as they are, a line for everything else.
fn text_of(result: &Bytes) -> String {
    let content = member(result, "content").map(Raw::get).unwrap_or_default();
    let items: Vec<_> = json::elements(content).unwrap_or_default();
    let mut text = String::new();
    for raw in items.iter().filter_map(|at| content.get(at.clone())) {
        let part = match serde_json::from_slice::<Value>(raw) {
            Ok(item) => item.get("text").and_then(Value::as_str).map_or_else(|| placeholder(&item), foreign),
            // JSON that spells half a character: as it is.
            Err(_) => foreign(&String::from_utf8_lossy(raw)),
        };
        text.push_str(&part);
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    match member(result, "structuredContent") {
        Some(structured) if items.is_empty() => format!("{}\n", foreign(&String::from_utf8_lossy(structured.get()))),
        Some(_) | None => text,
    }
}

fn placeholder(item: &Value) -> String {
    let said = |key: &str| item.get(key).and_then(Value::as_str).map(super::output::line);
    let resource = item.get("resource");
    let inner = |key: &str| resource.and_then(|resource| resource.get(key)).and_then(Value::as_str);
    if let Some(text) = inner("text") {
        return foreign(text);
    }
    let kind = said("type").unwrap_or_else(|| "item".to_owned());
    let mime = said("mimeType").or_else(|| inner("mimeType").map(super::output::line)).unwrap_or_default();
    let uri = said("uri").or_else(|| inner("uri").map(super::output::line)).unwrap_or_default();
    let words: Vec<_> = [kind, mime, uri].into_iter().filter(|word| !word.is_empty()).collect();
    format!("[{}: --json shows it]", words.join(" "))
}

/// Reads the definitions of a list result.
pub(super) fn definitions(result: &Bytes) -> Vec<Definition> {
    let Some(tools) = member(result, "tools").map(|raw| result.slice_ref(raw.get())) else { return Vec::new() };
    let list = json::elements(&tools).unwrap_or_default();
    list.into_iter().filter_map(|at| Definition::read(Kind::Tools, tools.slice(at)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::{progress_words, text_of};

    fn text(result: &serde_json::Value) -> String {
        text_of(&Bytes::from(result.to_string()))
    }

    #[test]
    fn content_is_shown_as_text_and_the_rest_is_named() {
        let result = json!({ "content": [
            { "type": "text", "text": "one\n" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "x://y", "text": "inside" } },
            { "type": "text", "text": "two" },
        ], "structuredContent": { "a": 1 } });
        assert_eq!(
            text(&result),
            "one\n[image image/png: --json shows it]\n[resource_link file:///a: --json shows it]\ninside\ntwo\n"
        );
        assert_eq!(text(&json!({ "content": [], "structuredContent": { "a": 1 } })), "{\"a\":1}\n");
        assert_eq!(text(&json!({})), "");
        let half = Bytes::from_static(br#"{"content":[{"type":"text","text":"\udfff"},{"type":"text","text":"b"}]}"#);
        assert_eq!(text_of(&half), "{\"type\":\"text\",\"text\":\"\\udfff\"}\nb\n");
    }

    #[test]
    fn progress_is_put_into_words() {
        let words = |params: serde_json::Value| progress_words("t", json!({ "params": params }).to_string().as_bytes());
        assert_eq!(words(json!({ "progress": 1, "total": 4 })), "t: 1 of 4");
        assert_eq!(words(json!({ "progress": 1 })), "t: 1");
        assert_eq!(words(json!({ "progress": 1, "message": "half" })), "t: half");
    }
}
