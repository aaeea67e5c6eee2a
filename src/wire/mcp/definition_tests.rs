//! What is read of tools, and what is refused.

use bytes::Bytes;

use super::{Definition, DefinitionError, HeaderParam, ParamValue};
use crate::wire::mcp::Kind;

fn definition(text: &str) -> Definition {
    Definition::read(Kind::Tools, Bytes::from(text.to_owned())).unwrap()
}

#[test]
fn a_definition_knows_its_places() {
    let tool = definition(
        r#"{ "title":"x", "name" : "a\u002fb","execution" : {"taskSupport":"optional"},"inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#,
    );
    assert_eq!(&*tool.name, "a/b");
    assert_eq!(&tool.raw[tool.name_at.clone()], br#""a\u002fb""#);
    assert_eq!(&tool.raw[tool.execution_at.unwrap()], br#""execution" : {"taskSupport":"optional"},"#);
    assert_eq!(&tool.raw[tool.open_output_schema_at.unwrap()], br#","outputSchema":{"type":"array"}"#);
    assert!(tool.has_input_schema);
}

/// [FC-NAM-10]
#[test]
fn minimal_definitions_are_read() {
    assert!(!definition(r#"{"name":"a"}"#).has_input_schema);
    assert!(!definition(r#"{"name":"a","inputSchema":null}"#).has_input_schema);
    assert!(definition(r#"{"name":"","inputSchema":{}}"#).has_input_schema);
    assert!(matches!(Definition::read(Kind::Tools, Bytes::from_static(b"{}")), Err(DefinitionError::Name("name"))));
    assert!(matches!(
        Definition::read(Kind::Tools, Bytes::from_static(br#"{"name":1}"#)),
        Err(DefinitionError::Name("name"))
    ));
    assert!(Definition::read(Kind::Tools, Bytes::from_static(br#"{"name":"a","name":"b"}"#)).is_err());
}

/// [R52]
#[test]
fn header_annotations_are_collected_or_refused() {
    let tool = definition(
        r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},
        "o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N-1"}}}}}}"#,
    );
    let params = tool.header_params.unwrap();
    assert_eq!(params.len(), 2);
    assert!(params.contains(&HeaderParam { header: "N-1".into(), path: vec!["o".into(), "n".into()] }));
    for schema in [
        r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
        r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
        r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
        r#"{"properties":{"a":{"type":"string","x-mcp-header":1}}}"#,
        r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
        r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
        r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
        r#"{"x-mcp-header":"A"}"#,
    ] {
        let tool = definition(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#));
        assert!(tool.header_params.is_err(), "{schema}");
    }
}

/// [R53]
#[test]
fn header_values_follow_the_arguments() {
    let param = HeaderParam { header: "A".into(), path: vec!["o".into(), "n".into()] };
    let value = |text: &str| param.value(Some(&Bytes::from(text.to_owned())));
    assert_eq!(value(r#"{"o":{"n":42.0}}"#), ParamValue::Text("42".into()));
    assert_eq!(value(r#"{"o":{"n":-7}}"#), ParamValue::Text("-7".into()));
    assert_eq!(value(r#"{"o":{"n":true}}"#), ParamValue::Text("true".into()));
    assert_eq!(value(r#"{"o":{"n":"é"}}"#), ParamValue::Text("é".into()));
    assert_eq!(value(r#"{"o":{"n":null}}"#), ParamValue::Absent);
    assert_eq!(value(r#"{"o":{}}"#), ParamValue::Absent);
    assert_eq!(value(r#"{"o":{"n":1.5}}"#), ParamValue::NotCarried);
    assert_eq!(value(r#"{"o":{"n":9007199254740993}}"#), ParamValue::NotCarried);
    assert_eq!(param.value(None), ParamValue::Absent);
}
