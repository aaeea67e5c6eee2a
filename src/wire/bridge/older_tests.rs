//! Questions for clients before 2025-11-25.

use bytes::Bytes;

use super::for_revision;
use crate::wire::jsonrpc::code::INVALID_PARAMS;
use crate::wire::mcp::InputKind::{self, Elicitation, Roots, Sampling};
use crate::wire::mcp::ProtocolVersion;

const JUNE: ProtocolVersion = ProtocolVersion::V2025_06_18;
const MARCH: ProtocolVersion = ProtocolVersion::V2025_03_26;
const FIRST: ProtocolVersion = ProtocolVersion::V2024_11_05;

/// What the client is asked; the refusal's code where it is not.
fn asked(kind: InputKind, params: &str, version: ProtocolVersion) -> Result<String, i64> {
    let spelled = for_revision(kind, &Bytes::from(params.to_owned()), version);
    spelled.map(|params| String::from_utf8(params.to_vec()).unwrap()).map_err(|unasked| unasked.code.0)
}

fn form(properties: &str, required: &str) -> String {
    let schema = format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#);
    format!(r#"{{"mode":"form","message":"m","requestedSchema":{schema}}}"#)
}

/// [R98]: choices with titles, and choices of several.
#[test]
fn a_form_is_one_that_the_revision_knows() {
    let old = r#""a":{"type":"string","default":"x"},"b":{"type":"string","enum":["1"],"enumNames":["One"]},"n":{"type":"number","minimum":1e0}"#;
    assert_eq!(asked(Elicitation, &form(old, "\"a\""), JUNE).unwrap(), form(old, "\"a\""), "nothing changes");

    let titled = r#""c":{"type":"string","title":"C","oneOf":[{"const":"1","title":"One"},{"const":"2","title":"\"Two\""}],"default":"1"}"#;
    let spelled = asked(Elicitation, &form(titled, "\"c\""), JUNE).unwrap();
    let value: serde_json::Value = serde_json::from_str(&spelled).unwrap();
    assert_eq!(
        value["requestedSchema"],
        serde_json::json!({ "type": "object", "required": ["c"], "properties": { "c": {
            "type": "string", "title": "C", "default": "1", "enum": ["1", "2"], "enumNames": ["One", "\"Two\""],
        } } })
    );
    assert_eq!(asked(Elicitation, &form(titled, ""), ProtocolVersion::V2025_11_25).unwrap(), form(titled, ""));

    let several = r#""m":{"type":"array","items":{"type":"string","enum":["1","2"]}}"#;
    let both = format!("{several},{old}");
    let spelled = asked(Elicitation, &form(&both, "\"a\""), JUNE).unwrap();
    assert!(!spelled.contains("array") && spelled.contains(r#""n":{"type":"number","minimum":1e0}"#), "{spelled}");
    assert_eq!(asked(Elicitation, &form(&both, "\"m\""), JUNE), Err(INVALID_PARAMS.0));
    for odd in [r#"{"message":"m"}"#, r#"{"requestedSchema":7}"#, r#"{"requestedSchema":{"properties":[]}}"#] {
        assert_eq!(asked(Elicitation, odd, JUNE).unwrap(), odd);
    }
}

/// [R98]: one block for each message, of a kind that the revision knows.
#[test]
fn messages_to_sample_have_one_block_each() {
    let params = |content: &str| {
        let first = r#"{"role":"assistant","content":{"type":"text","text":"1.0"}}"#;
        format!(r#"{{"messages":[{first},{{"role":"user","content":{content}}}],"maxTokens":9}}"#)
    };
    let one = r#"{"type":"image","data":"","mimeType":"image/png"}"#;
    assert_eq!(asked(Sampling, &params(one), FIRST).unwrap(), params(one), "nothing changes");
    let many = params(&format!(r#"[{{"type":"text","text":"a"}},{one}]"#));
    let value: serde_json::Value = serde_json::from_str(&asked(Sampling, &many, JUNE).unwrap()).unwrap();
    let kinds: Vec<_> =
        value["messages"].as_array().unwrap().iter().map(|message| &message["content"]["type"]).collect();
    assert_eq!(kinds, ["text", "text", "image"]);
    assert_eq!((&value["messages"][2]["role"], &value["maxTokens"]), (&"user".into(), &9.into()));
    assert_eq!(asked(Sampling, &many, ProtocolVersion::V2025_11_25).unwrap(), many);

    let audio = params(r#"{"type":"audio","data":"","mimeType":"audio/wav"}"#);
    assert_eq!(asked(Sampling, &audio, MARCH).unwrap(), audio);
    assert_eq!(asked(Sampling, &audio, FIRST), Err(INVALID_PARAMS.0));
    let tools = params(r#"[{"type":"tool_result","toolUseId":"1","content":[]}]"#);
    assert_eq!(asked(Sampling, &tools, JUNE), Err(INVALID_PARAMS.0));
    assert_eq!(asked(Roots, "{}", FIRST).unwrap(), "{}");
}
