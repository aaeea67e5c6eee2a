//! What is read of the definition of a tool, prompt, resource or template, and of an argument that travels as a header.
//!
//! Not for: naming (`catalog::name`) or judging (`policy`). Invariant: definitions stay raw; places are byte ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::wire::json::{self, JsonError, Raw};

use super::Kind;

/// One entry of a server's list. What tools alone have is empty for the other kinds.
#[derive(Clone, Debug)]
pub struct Definition {
    /// What it defines.
    pub kind: Kind,
    /// The definition as the server wrote it.
    pub raw: Bytes,
    /// The server's own name for it: a name, a URI, or a template of one.
    pub name: Arc<str>,
    /// Where the name's value lies in `raw`, quotes included.
    pub name_at: Range<usize>,
    /// Where the whole member `execution` lies (2025-11-25; the stateless era has none), with one comma.
    pub execution_at: Option<Range<usize>>,
    /// The same of `outputSchema` if the schema's `type` is not `object` (legacy clients cannot read it).
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

/// Why a definition cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// Not an object, or a key that is read stands twice.
    #[error("{0}")]
    Malformed(#[from] JsonError),
    /// What names it is missing or no string.
    #[error("'{0}' must be a string")]
    Name(&'static str),
}

// === impl Definition ===

impl Definition {
    /// Reads one definition.
    ///
    /// # Errors
    /// [`DefinitionError`] if the text is no object with a readable name or URI.
    pub fn read(kind: Kind, raw: Bytes) -> Result<Self, DefinitionError> {
        let members = json::members(&raw)?;
        let key = kind.key();
        let name_at = members.at(key)?.ok_or(DefinitionError::Name(key))?;
        let name = members.get(key)?.and_then(json::text).ok_or(DefinitionError::Name(key))?;
        let name: Arc<str> = Arc::from(name.as_ref());
        if kind != Kind::Tools {
            drop(members);
            return Ok(Self::plain(kind, raw, name, name_at));
        }
        let cut = |key: &'static str| -> Result<Option<Range<usize>>, DefinitionError> {
            members.at(key)?;
            Ok(members.without(|other| *other == *key.as_bytes()).pop())
        };
        let execution_at = cut("execution")?;
        let open = members.get("outputSchema")?.is_some_and(|schema| !is_object_schema(schema));
        let open_output_schema_at = if open { cut("outputSchema")? } else { None };
        let schema = members.get("inputSchema")?;
        let input_schema_at = members.at("inputSchema")?;
        let schema = schema.filter(|schema| schema.is_object());
        let header_params = schema.map_or_else(|| Ok(Arc::default()), |schema| header_params(schema.get()));
        let has_input_schema = schema.is_some();
        drop(members);
        Ok(Self {
            execution_at,
            open_output_schema_at,
            has_input_schema,
            input_schema_at,
            header_params,
            ..Self::plain(kind, raw, name, name_at)
        })
    }

    /// Makes the definition of a resource that is in no list: its URI alone.
    #[must_use]
    pub fn unlisted(uri: &str) -> Self {
        let raw = json::quoted(uri);
        let name_at = 0..raw.len();
        Self::plain(Kind::Resources, raw, Arc::from(uri), name_at)
    }

    fn plain(kind: Kind, raw: Bytes, name: Arc<str>, name_at: Range<usize>) -> Self {
        Self {
            kind,
            raw,
            name,
            name_at,
            execution_at: None,
            open_output_schema_at: None,
            has_input_schema: false,
            input_schema_at: None,
            header_params: Ok(Arc::default()),
        }
    }
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

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
