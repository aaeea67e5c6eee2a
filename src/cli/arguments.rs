//! `key=value` and `key:=JSON` to the arguments of a call, by the tool's `inputSchema`.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::codes::Code;

use super::trouble::{Exit, Trouble};

/// How many `$ref`, `anyOf` and `oneOf` are followed below each other.
const DEPTH_MAX: usize = 8;

/// Spells the arguments as a JSON object. A value is a string, unless the schema names other types alone.
pub(super) fn spell(given: &[String], schema: Option<&[u8]>) -> Result<String, Trouble> {
    let schema: Value = schema.and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
    let mut members: Vec<(&str, String)> = Vec::new();
    for argument in given {
        let (key, value) = argument.split_once('=').unwrap_or_default();
        let (key, json) = key.strip_suffix(':').map_or((key, false), |key| (key, true));
        if key.is_empty() {
            return Err(bad(format!("'{argument}' is neither key=value nor key:=JSON")));
        }
        if members.iter().any(|(other, _)| *other == key) {
            return Err(bad(format!("argument '{key}' is given twice")));
        }
        let value = if json { raw(key, value) } else { typed(key, value, &schema) };
        members.push((key, value?));
    }
    let members: Vec<_> = members.iter().map(|(key, value)| format!("{}:{value}", Value::from(*key))).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

fn raw(key: &str, text: &str) -> Result<String, Trouble> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(value) => Ok(value.get().to_owned()),
        Err(err) => Err(bad(format!("argument '{key}' is not JSON: {err}"))
            .fix(format!("write {key}=VALUE for a string, or quote it for the shell: {key}:='\"VALUE\"'"))),
    }
}

fn typed(key: &str, text: &str, schema: &Value) -> Result<String, Trouble> {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    let mut kinds = Vec::new();
    if let Some(property) = property {
        collect(property, schema, DEPTH_MAX, &mut kinds);
    }
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(Value::from(text).to_string());
    }
    // The spelling is kept: a number is not to lose digits on its way.
    let parsed = serde_json::from_str::<&RawValue>(text).ok().map(|raw| raw.get());
    let fits = |kind: &&str, value: &Value| match *kind {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        _ => false,
    };
    let value: Option<Value> = parsed.and_then(|text| serde_json::from_str(text).ok());
    match (parsed, value) {
        (Some(text), Some(value)) if kinds.iter().any(|kind| fits(kind, &value)) => Ok(text.to_owned()),
        _ => {
            let words = format!("argument '{key}' must be of type {}: the tool's schema says so", kinds.join(" or "));
            Err(bad(words).fix(format!("write {key}:=JSON to send something else")))
        }
    }
}

/// Collects the types that a property's schema names.
fn collect<'s>(property: &'s Value, root: &'s Value, depth: usize, kinds: &mut Vec<&'s str>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match property.get("type") {
        Some(Value::String(kind)) => kinds.push(kind),
        Some(Value::Array(list)) => kinds.extend(list.iter().filter_map(Value::as_str)),
        Some(_) | None => {}
    }
    for list in ["anyOf", "oneOf"].iter().filter_map(|key| property.get(key)).filter_map(Value::as_array) {
        list.iter().for_each(|one| collect(one, root, depth, kinds));
    }
    let pointer = property.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    if let Some(target) = pointer.and_then(|pointer| root.pointer(pointer)) {
        collect(target, root, depth, kinds);
    }
}

fn bad(words: String) -> Trouble {
    Trouble::new(Exit::Usage, Code::BadArgument, words)
}

#[cfg(test)]
mod tests {
    use super::spell;

    const SCHEMA: &[u8] = br##"{
        "type": "object",
        "$defs": { "Level": { "type": "integer" }, "Loop": { "$ref": "#/$defs/Loop" } },
        "properties": {
            "text": { "type": "string" }, "n": { "type": "number" }, "i": { "type": "integer" },
            "flag": { "type": "boolean" }, "list": { "type": "array" }, "object": { "type": "object" },
            "either": { "type": ["integer", "string"] }, "maybe": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "level": { "$ref": "#/$defs/Level" }, "loop": { "$ref": "#/$defs/Loop" }, "open": {}
        }
    }"##;

    fn spelled(arguments: &[&str]) -> Option<String> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        spell(&arguments, Some(SCHEMA)).ok()
    }

    /// [OPS-1]: a string, unless the schema names another type; `:=` is raw.
    #[test]
    fn the_schema_says_what_a_value_is() {
        for (argument, json) in [
            ("text=5", r#"{"text":"5"}"#),
            ("text=a=b \"c\"", r#"{"text":"a=b \"c\""}"#),
            ("text=", r#"{"text":""}"#),
            ("n=1.50", r#"{"n":1.50}"#),
            ("n=12345678901234567890123", r#"{"n":12345678901234567890123}"#),
            ("i=-3", r#"{"i":-3}"#),
            ("flag=true", r#"{"flag":true}"#),
            ("list=[1, \"a\"]", r#"{"list":[1, "a"]}"#),
            ("object={}", r#"{"object":{}}"#),
            ("either=5", r#"{"either":"5"}"#),
            ("maybe=5", r#"{"maybe":5}"#),
            ("maybe=null", r#"{"maybe":null}"#),
            ("level=2", r#"{"level":2}"#),
            ("loop=2", r#"{"loop":"2"}"#),
            ("open=2", r#"{"open":"2"}"#),
            ("unknown=2", r#"{"unknown":"2"}"#),
            ("text:=5", r#"{"text":5}"#),
            ("unknown:={\"a\": 1e2}", r#"{"unknown":{"a": 1e2}}"#),
        ] {
            assert_eq!(spelled(&[argument]).as_deref(), Some(json), "{argument}");
        }
        assert_eq!(spelled(&["n=1", "text=b"]).as_deref(), Some(r#"{"n":1,"text":"b"}"#));
        assert_eq!(spelled(&[]).as_deref(), Some("{}"));
    }

    #[test]
    fn what_cannot_be_given_is_refused() {
        for bad in [
            &["n=x"][..],
            &["i=1.5"],
            &["flag=yes"],
            &["list={}"],
            &["maybe=x"],
            &["no value"],
            &["=x"],
            &[":=1"],
            &["a:=x"],
            &["a:=1 2"],
            &["a=1", "a:=2"],
        ] {
            assert_eq!(spelled(bad), None, "{bad:?}");
        }
    }
}
