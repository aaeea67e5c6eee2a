//! Questions for clients of the revisions before 2025-11-25: what such a client cannot read is said in its own way, or
//! refused to the server (protocol §3, §5.5).
//!
//! Not for: what a client did not declare (`wire::mcp::InputKind`). Invariant: where nothing must change, nothing does.

use std::borrow::Cow;

use bytes::Bytes;

use crate::wire::json::{self, Raw};
use crate::wire::jsonrpc::code;
use crate::wire::mcp::{InputKind, ProtocolVersion, Unasked};

use super::input::{Object, with_member};

/// Spells the params of a question for a client of `version`.
///
/// # Errors
/// [`Unasked`]: it asks for what this revision has no words for.
pub fn for_revision(kind: InputKind, params: &Bytes, version: ProtocolVersion) -> Result<Bytes, Unasked> {
    if version >= ProtocolVersion::V2025_11_25 {
        return Ok(params.clone());
    }
    let spelled = match kind {
        InputKind::Elicitation => form(params)?,
        InputKind::Sampling => messages(params, version)?,
        InputKind::Roots => None,
    };
    Ok(spelled.unwrap_or_else(|| params.clone()))
}

const fn refused(message: &'static str) -> Unasked {
    Unasked { code: code::INVALID_PARAMS, message }
}

fn member<'a>(object: &'a [u8], key: &'static str) -> Option<Raw<'a>> {
    json::members(object).ok()?.get(key).ok()?
}

/// A form with choices as 2025-06-18 knows them: one of several, by `enum` and `enumNames`. A choice of several that may be
/// left out is.
fn form(params: &Bytes) -> Result<Option<Bytes>, Unasked> {
    let Some(schema) = member(params, "requestedSchema") else { return Ok(None) };
    let Some(properties) = member(schema.get(), "properties") else { return Ok(None) };
    let Ok(properties) = json::members(properties.get()) else { return Ok(None) };
    let required: Vec<String> =
        member(schema.get(), "required").and_then(|list| serde_json::from_slice(list.get()).ok()).unwrap_or_default();
    let (mut out, mut changed) = (Object::new(), false);
    for (name, property) in properties.iter() {
        let spelled = match member(property.get(), "type").map(Raw::get) {
            Some(b"\"array\"") if required.iter().any(|one| one.as_bytes() == &*name) => {
                return Err(refused("The client's revision knows no choice of several"));
            }
            Some(b"\"array\"") => None,
            Some(_) | None => Some(choice(property.get())),
        };
        changed |= !matches!(spelled, Some(Cow::Borrowed(_)));
        if let Some(spelled) = spelled {
            out.member(&json::quoted(&String::from_utf8_lossy(&name)), &spelled);
        }
    }
    Ok(changed.then(|| {
        let schema = with_member(&params.slice_ref(schema.get()), "properties", Some(&out.end()));
        with_member(params, "requestedSchema", Some(&schema))
    }))
}

/// A property; a choice between values with titles becomes one between values, with the titles beside it.
fn choice(property: &[u8]) -> Cow<'_, [u8]> {
    #[derive(serde::Deserialize)]
    struct Titled {
        r#const: String,
        title: String,
    }
    let titled = member(property, "oneOf").and_then(|list| serde_json::from_slice::<Vec<Titled>>(list.get()).ok());
    let Some(titled) = titled else { return Cow::Borrowed(property) };
    let list = |of: fn(&Titled) -> &str| {
        let quoted: Vec<_> =
            titled.iter().map(|one| String::from_utf8_lossy(&json::quoted(of(one))).into_owned()).collect();
        format!("[{}]", quoted.join(","))
    };
    let mut out = Object::new();
    out.rest(property, |key| !matches!(key, b"oneOf" | b"enum" | b"enumNames"));
    out.member(b"\"enum\"", list(|one| &one.r#const).as_bytes());
    out.member(b"\"enumNames\"", list(|one| &one.title).as_bytes());
    Cow::Owned(out.end().to_vec())
}

/// Messages of one block each, of the kinds that the revision knows.
fn messages(params: &Bytes, version: ProtocolVersion) -> Result<Option<Bytes>, Unasked> {
    let Some(list) = member(params, "messages") else { return Ok(None) };
    let Ok(places) = json::elements(list.get()) else { return Ok(None) };
    let (mut out, mut changed) = (Vec::new(), false);
    for message in places.into_iter().filter_map(|at| list.get().get(at)) {
        let Some(content) = member(message, "content") else { continue };
        if content.is_object() {
            check(content.get(), version)?;
            out.push(message.to_vec());
            continue;
        }
        changed = true;
        let blocks = json::elements(content.get()).unwrap_or_default();
        for block in blocks.into_iter().filter_map(|at| content.get().get(at)) {
            check(block, version)?;
            let message = Bytes::copy_from_slice(message);
            out.push(with_member(&message, "content", Some(block)).to_vec());
        }
    }
    Ok(changed.then(|| {
        let list = [b"[".as_slice(), &out.join(&b","[..]), b"]"].concat();
        with_member(params, "messages", Some(&list))
    }))
}

fn check(block: &[u8], version: ProtocolVersion) -> Result<(), Unasked> {
    match member(block, "type").map(Raw::get) {
        Some(b"\"text\"" | b"\"image\"") => Ok(()),
        Some(b"\"audio\"") if version >= ProtocolVersion::V2025_03_26 => Ok(()),
        Some(_) | None => Err(refused("The client's revision knows no such content")),
    }
}

#[cfg(test)]
#[path = "older_tests.rs"]
mod tests;
