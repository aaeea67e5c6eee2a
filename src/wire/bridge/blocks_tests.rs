//! What clients before 2025-06-18 read of an answer.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::bridge::{ClientSide, lift_result};
use crate::wire::jsonrpc::{Decoded, Limits, Message, RequestId, Response, decode};
use crate::wire::mcp::ProtocolVersion::{self, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
use crate::wire::mcp::{Era, Method};

const AUDIO: &str = r#"{"type":"audio","data":"UklGRg==","mimeType":"audio/WAV; q=1","annotations":{"priority":1.0}}"#;
const LINK: &str =
    r#"{"type":"resource_link","uri":"docs+file:///a \"b\"","name":"n","title":"The \"file\"","_meta":{"a":1e0}}"#;
const REST: &str = r#"{"type":"text","text":"\u00e9"},{"type":"image","data":"","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","text":"x"}},{"type":"new"},7"#;

fn response(result: &str) -> Response {
    let text = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#));
    match decode(&text, &Limits::UPSTREAM) {
        Ok(Decoded::One(Message::Response(response))) => *response,
        other => panic!("{other:?}"),
    }
}

fn lifted(response: &Response, method: Method, version: ProtocolVersion) -> String {
    let id = RequestId::number(7);
    let client = ClientSide { version, id: &id, server_info: b"{}", method: method.spec().name };
    String::from_utf8(lift_result(response, Era::Legacy, &client).unwrap().concat()).unwrap()
}

fn read(result: &str, method: Method, version: ProtocolVersion) -> String {
    lifted(&response(result), method, version)
}

fn value(text: &str) -> Value {
    serde_json::from_str::<Value>(text).unwrap()["result"].clone()
}

/// [R87]: audio came with 2025-03-26, links with 2025-06-18; all else is as it was, byte for byte.
#[test]
fn blocks_that_a_revision_does_not_know_are_text() {
    let tool = format!(r#"{{"content":[{REST},{AUDIO} , {LINK}],"isError":false}}"#);
    let whole = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{tool}}}"#);
    for version in [V2025_06_18, V2025_11_25] {
        assert_eq!(read(&tool, Method::ToolsCall, version), whole);
    }
    let march = read(&tool, Method::ToolsCall, V2025_03_26);
    assert!(march.contains(AUDIO) && march.contains(REST), "{march}");
    let link = &value(&march)["content"][6];
    assert_eq!(
        (&link["type"], &link["text"]),
        (&json!("text"), &json!("[resource: The \"file\" at docs+file:///a \"b\"]"))
    );
    assert_eq!(link["_meta"], json!({"a": 1.0}));

    let first = read(&tool, Method::ToolsCall, V2024_11_05);
    assert!(first.contains(REST) && !first.contains("UklGRg"), "{first}");
    let audio = &value(&first)["content"][5];
    assert_eq!((&audio["type"], &audio["text"]), (&json!("text"), &json!("[audio attachment: audio/wav]")));
    assert_eq!(audio["annotations"], json!({"priority": 1.0}));
    assert_eq!(value(&first)["content"][6]["type"], "text");
}

/// [R87]: the messages of a prompt too; what another method answers is not looked at.
#[test]
fn messages_of_a_prompt_are_lowered_too() {
    let prompt = format!(
        r#"{{"messages":[{{"role":"user","content":{AUDIO}}},{{"content":[{LINK},{AUDIO}],"role":"assistant"}},{{"role":"user"}}]}}"#
    );
    let messages = &value(&read(&prompt, Method::PromptsGet, V2024_11_05))["messages"];
    assert_eq!((&messages[0]["role"], &messages[0]["content"]["type"]), (&json!("user"), &json!("text")));
    let kinds: Vec<_> = messages[1]["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "text"]);
    let other = format!(r#"{{"content":[{LINK}],"messages":[{{"content":{AUDIO}}}],"contents":[{AUDIO}]}}"#);
    for method in [Method::ResourcesRead, Method::CompletionComplete] {
        let read = read(&other, method, V2024_11_05);
        assert!(read.ends_with(&format!("\"result\":{other}}}")), "{read}");
    }
}

/// [R87]: what is structured can be read as text by who knows no structured content.
#[test]
fn structured_content_is_text_where_there_is_none() {
    let silent = r#"{"content":[],"structuredContent":{"a":1.0}}"#;
    for version in [V2024_11_05, V2025_03_26] {
        let answer = value(&read(silent, Method::ToolsCall, version));
        assert_eq!(answer["content"], json!([{"type": "text", "text": "{\"a\":1.0}"}]));
    }
    assert!(read(silent, Method::ToolsCall, V2025_06_18).contains(silent));
    let spoken = r#"{"content":[{"type":"text","text":"1"}],"structuredContent":{"a":1.0}}"#;
    assert!(read(spoken, Method::ToolsCall, V2024_11_05).contains(spoken));
}

/// [NAM-4]: a link is told by the URI that the client can read.
#[test]
fn a_link_that_was_rewritten_is_told_as_it_is_shown() {
    let mut response = response(r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}]}"#);
    let at = response.raw.windows(5).position(|window| window == b"\"a:b\"").unwrap();
    response.edit(at..at + 5, Bytes::from_static(b"\"docs+a:b\""));
    let block = value(&lifted(&response, Method::ToolsCall, V2025_03_26))["content"][0].clone();
    assert_eq!(block["text"], "[resource: n at docs+a:b]");
}
