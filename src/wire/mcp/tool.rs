//! Tools: what is read of a definition and of a call's params.
//!
//! Not for: naming (`catalog::name`) or judging (`policy`). Invariant: definitions stay raw; places are byte ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::wire::json::{self, JsonError, Raw};
use crate::wire::jsonrpc::Params;

/// One entry of a server's `tools/list`.
#[derive(Clone, Debug)]
pub struct ToolDefinition {
    /// The definition as the server wrote it.
    pub raw: Bytes,
    /// The server's own name for the tool.
    pub name: Arc<str>,
    /// Where the name's value lies in `raw`, quotes included.
    pub name_at: Range<usize>,
    /// Where the whole member `execution` lies (2025-11-25; the stateless era has none), without a neighbouring comma.
    pub execution_at: Option<Range<usize>>,
    /// Where the whole member `outputSchema` lies if the schema's `type` is not `object` (legacy clients cannot read it).
    pub open_output_schema_at: Option<Range<usize>>,
    /// Whether there is an `inputSchema` that is an object.
    pub has_input_schema: bool,
    /// Where the value of `inputSchema` lies, whatever it is.
    pub input_schema_at: Option<Range<usize>>,
    /// The arguments that travel as headers, or why their annotations are invalid [R52].
    pub header_params: Result<Arc<[HeaderParam]>, String>,
}

/// An argument annotated with `x-mcp-header` (spec: Streamable HTTP, "Custom Headers").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// What follows `Mcp-Param-`, as annotated.
    pub header: String,
    /// The path of property names from the arguments' root.
    pub path: Vec<String>,
}

/// The value of an annotated argument in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamValue {
    /// Absent or null: no header.
    Absent,
    /// A value that no header can carry: an array, an object, or a number that is no integer.
    NotCarried,
    /// The text of the header before encoding.
    Text(String),
}

/// What is read of `tools/call` params. Places are counted from the beginning of the message.
#[derive(Clone, Debug)]
pub struct CallParams {
    /// The name as the client spelled it, decoded.
    pub name: String,
    /// Where the name's value lies.
    pub name_at: Range<usize>,
    /// The arguments as sent, where they are an object.
    pub arguments: Option<Bytes>,
    /// Where the arguments' value lies, if the key is there at all (an explicit `null` too).
    pub arguments_at: Option<Range<usize>>,
    /// Where `_meta` lies.
    pub meta_at: Option<Range<usize>>,
    /// Where `requestState` lies.
    pub request_state_at: Option<Range<usize>>,
    /// Whether this is a retry that carries `inputResponses` or `requestState`.
    pub is_retry: bool,
}

/// Why a definition or params cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// `arguments` is there, but neither an object nor null.
    #[error("'arguments' must be an object")]
    Arguments,
    /// Not an object, or a key that is read stands twice.
    #[error("{0}")]
    Malformed(#[from] JsonError),
    /// `name` is missing or no string.
    #[error("'name' must be a string")]
    Name,
}

// === impl ToolDefinition ===

impl ToolDefinition {
    /// Reads one definition.
    ///
    /// # Errors
    /// [`ToolError`] if the text is no object with a readable `name`.
    pub fn read(raw: Bytes) -> Result<Self, ToolError> {
        let members = json::members(&raw)?;
        let name_raw = members.get("name")?.ok_or(ToolError::Name)?;
        let name: Arc<str> = Arc::from(json::text(name_raw).ok_or(ToolError::Name)?.as_ref());
        let name_at = members.at("name")?.unwrap_or_default();
        let execution_at = member_at(&raw, &members, "execution")?;
        let open = members.get("outputSchema")?.is_some_and(|schema| !is_object_schema(schema));
        let open_output_schema_at = if open { member_at(&raw, &members, "outputSchema")? } else { None };
        let schema = members.get("inputSchema")?;
        let input_schema_at = members.at("inputSchema")?;
        let schema = schema.filter(|schema| schema.is_object());
        let header_params = schema.map_or_else(|| Ok(Arc::default()), |schema| header_params(schema.get()));
        let has_input_schema = schema.is_some();
        drop(members);
        Ok(Self {
            raw,
            name,
            name_at,
            execution_at,
            open_output_schema_at,
            has_input_schema,
            input_schema_at,
            header_params,
        })
    }
}

/// The place of a member from its key's opening quote to the end of its value.
fn member_at(raw: &Bytes, members: &json::Members<'_>, key: &'static str) -> Result<Option<Range<usize>>, ToolError> {
    let Some(value_at) = members.at(key)? else { return Ok(None) };
    let before = raw.get(..value_at.start).unwrap_or_default();
    let colon = memchr::memrchr(b':', before).unwrap_or(0);
    let end_quote = memchr::memrchr(b'"', before.get(..colon).unwrap_or_default()).unwrap_or(0);
    // A key spelled with escapes holds no bare quote either, so the opening quote is the next one backwards.
    let start = memchr::memrchr(b'"', before.get(..end_quote).unwrap_or_default()).unwrap_or(0);
    Ok(Some(start..value_at.end))
}

fn is_object_schema(schema: Raw<'_>) -> bool {
    json::members(schema.get())
        .ok()
        .and_then(|members| members.get("type").ok().flatten().map(|kind| kind.get() == b"\"object\""))
        .unwrap_or(false)
}

/// Collects the `x-mcp-header` annotations of a schema and checks them [R52].
fn header_params(schema: &[u8]) -> Result<Arc<[HeaderParam]>, String> {
    if memchr::memmem::find(schema, b"x-mcp-header").is_none() {
        return Ok(Arc::default());
    }
    let schema: Value = serde_json::from_slice(schema).map_err(|err| err.to_string())?;
    let mut found = Vec::new();
    collect(&schema, &mut Vec::new(), Place::Root, &mut found)?;
    for (index, param) in found.iter().enumerate() {
        if found.iter().skip(index + 1).any(|other| other.header.eq_ignore_ascii_case(&param.header)) {
            return Err(format!("'x-mcp-header' value '{}' appears twice", param.header));
        }
    }
    Ok(Arc::from(found))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not reachable from the root through `properties` alone.
    Elsewhere,
    /// A property's schema.
    Property,
    /// The root schema.
    Root,
}

fn collect(schema: &Value, path: &mut Vec<String>, place: Place, found: &mut Vec<HeaderParam>) -> Result<(), String> {
    let Value::Object(members) = schema else {
        if let Value::Array(items) = schema {
            for item in items {
                collect(item, path, Place::Elsewhere, found)?;
            }
        }
        return Ok(());
    };
    if let Some(annotation) = members.get("x-mcp-header") {
        if place != Place::Property {
            return Err("'x-mcp-header' stands where no header can be derived".to_owned());
        }
        found.push(HeaderParam { header: checked_header(annotation, members.get("type"))?, path: path.clone() });
    }
    for (key, value) in members {
        if key == "properties" && place != Place::Elsewhere {
            let Value::Object(properties) = value else { continue };
            for (name, property) in properties {
                path.push(name.clone());
                collect(property, path, Place::Property, found)?;
                path.pop();
            }
        } else if !matches!(key.as_str(), "const" | "default" | "enum" | "examples" | "x-mcp-header") {
            collect(value, path, Place::Elsewhere, found)?;
        }
    }
    Ok(())
}

fn checked_header(annotation: &Value, kind: Option<&Value>) -> Result<String, String> {
    let header = annotation.as_str().ok_or("'x-mcp-header' must be a string")?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if header.is_empty() || !header.bytes().all(token) {
        return Err(format!("'x-mcp-header' value '{header}' is no header name"));
    }
    match kind.and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(header.to_owned()),
        _ => Err(format!("'x-mcp-header' value '{header}' stands on a type other than string, integer or boolean")),
    }
}

// === impl HeaderParam ===

impl HeaderParam {
    /// Returns what the header must hold for these arguments.
    #[must_use]
    pub fn value(&self, arguments: Option<&Bytes>) -> ParamValue {
        let Some(arguments) = arguments else { return ParamValue::Absent };
        let mut text = arguments.clone();
        for name in &self.path {
            let Ok(members) = json::members(&text) else { return ParamValue::Absent };
            let Some(value) = members.iter().find(|(key, _)| **key == *name.as_bytes()).map(|(_, value)| value) else {
                return ParamValue::Absent;
            };
            text = text.slice_ref(value.get());
        }
        match serde_json::from_slice::<Value>(&text) {
            Ok(Value::Null) => ParamValue::Absent,
            Ok(Value::String(text)) => ParamValue::Text(text),
            Ok(Value::Bool(flag)) => ParamValue::Text(flag.to_string()),
            Ok(Value::Number(_)) => {
                std::str::from_utf8(&text).ok().and_then(integer).map_or(ParamValue::NotCarried, ParamValue::Text)
            }
            Ok(Value::Array(_) | Value::Object(_)) | Err(_) => ParamValue::NotCarried,
        }
    }
}

/// Spells a JSON number as a decimal integer within ±(2^53−1), `None` if it is none.
fn integer(text: &str) -> Option<String> {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    if let Ok(number) = text.parse::<i64>() {
        return (number.unsigned_abs() <= 9_007_199_254_740_991).then(|| number.to_string());
    }
    let number: f64 = text.parse().ok()?;
    (number.fract() == 0.0 && number.abs() <= SAFE).then(|| format!("{number:.0}"))
}

// === impl CallParams ===

impl CallParams {
    /// Reads the params of `tools/call`.
    ///
    /// # Errors
    /// [`ToolError`]: no name, arguments that are no object, or a routed key that stands twice [FC-SEC-03].
    pub fn read(params: &Params) -> Result<Self, ToolError> {
        const KEYS: [&str; 5] = ["name", "arguments", "_meta", "requestState", "inputResponses"];
        let [name_at, arguments_at, meta_at, request_state_at, responses_at] = params.find(KEYS)?;
        let name_at = name_at.ok_or(ToolError::Name)?;
        let name = params.part(name_at.clone());
        let name = json::text(Raw::new(&name)).ok_or(ToolError::Name)?.into_owned();
        let arguments = match arguments_at.clone().map(|at| params.part(at)) {
            None => None,
            Some(text) if text == "null" => None,
            Some(text) if text.first() == Some(&b'{') => Some(text),
            Some(_) => return Err(ToolError::Arguments),
        };
        let is_retry = request_state_at.is_some() || responses_at.is_some();
        Ok(Self { name, name_at, arguments, arguments_at, meta_at, request_state_at, is_retry })
    }
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
