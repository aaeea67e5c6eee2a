//! The gateway's own resources: attachments, and the rest of what was cut, read by ranges [LIM-3, LIM-7].
//!
//! Not for: resources of servers. Invariants: what is kept is read as long as what it came from may be called, and no longer
//! [POL-12]; what is not there, is too old, is another principal's or may not be read any more is answered alike.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::blob::{Origin, OwnUri, PartBody, Range, ReadError, ReadPart, UriError};
use crate::exchange::{Answer, Call, Caller as _, Exchange, ReasonCode, Reject, RejectKind, Reply, ServerCall};
use crate::gateway::{Gateway, Identified};
use crate::policy::Decision;
use crate::wire::json;
use crate::wire::jsonrpc::Response;
use crate::wire::mcp::{Kind, Method};

/// How many characters one read gives where no cap says less.
///
/// Some clients take no message over 1 MiB, and a character has up to four bytes.
const READ_CHARS_MAX: usize = 200_000;

/// Returns the URI that is asked for if it is one of the gateway's own: at every path, because links are given there.
pub(in crate::gateway) fn asks_for_own(exchange: &Exchange) -> Option<(Arc<ServerCall>, Result<OwnUri, UriError>)> {
    let Call::ToServer(call) = &exchange.call else { return None };
    if call.params.method != Method::ResourcesRead {
        return None;
    }
    OwnUri::read(&call.params.name).map(|own| (Arc::clone(call), own))
}

/// Reads one of the gateway's own resources.
pub(in crate::gateway) async fn read_own(
    gateway: &Gateway,
    caller: &Identified,
    exchange: &Exchange,
    (call, own): (Arc<ServerCall>, Result<OwnUri, UriError>),
) -> Result<Reply, Reject> {
    let own = own.map_err(|err| invalid(err.to_string()))?;
    let result = read(gateway, caller.clone(), &call.params.name, own).await?;
    let response = Box::new(Response::with_result(&call.request.id, &result));
    // It is spoken as the client speaks.
    Ok(Reply::once(Ok(Answer::Upstream { response, era: exchange.client.version.era() })))
}

async fn read(gateway: &Gateway, caller: Identified, uri: &str, own: OwnUri) -> Result<Vec<u8>, Reject> {
    let chars = caller.read_chars_max().unwrap_or(READ_CHARS_MAX).min(READ_CHARS_MAX);
    let (blobs, settings) = (Arc::clone(&gateway.blobs), Arc::clone(gateway.snapshot.load().settings()));
    let uri = uri.to_owned();
    let work = move || {
        // Whatever becomes of its server: it has answered.
        let may = |origin: &Origin| caller.subject().decide(&origin.action()) == Decision::Allow;
        let part = blobs.read(caller.principal(), (&own, chars), may, &settings.blob)?;
        Ok::<_, ReadError>(spell(&uri, &own, part))
    };
    match gateway.tasks.blocking(work).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(ReadError::NotFound)) => Err(Reject::unknown(Kind::Resources, ReasonCode::Unknown)),
        Ok(Err(err @ ReadError::Io(_))) => Err(unreadable(err.to_string())),
        Err(err) => Err(unreadable(err.to_string())),
    }
}

fn invalid(words: String) -> Reject {
    Reject::client(RejectKind::InvalidParams, words, ReasonCode::BadRequest)
}

fn unreadable(detail: String) -> Reject {
    Reject::upstream(RejectKind::Upstream, "the gateway cannot read what it has kept", detail)
}

/// Spells the result: the part, and where it lies in the whole.
fn spell(uri: &str, own: &OwnUri, part: ReadPart) -> Vec<u8> {
    let ReadPart { body, mime, offset, total } = part;
    let (key, length) = match &body {
        PartBody::Blob(bytes) => ("blob", bytes.len() as u64),
        PartBody::Text(text) => ("text", text.chars().count() as u64),
    };
    let end = offset + length;
    let next = (length > 0 && end < total).then(|| {
        let range = Range { offset: end, length: Some(length.min(total - end)) };
        match own {
            OwnUri::Blob(id, _) => OwnUri::Blob(id.clone(), range),
            OwnUri::Overflow(id, _) => OwnUri::Overflow(id.clone(), range),
        }
    });
    let next = next.map(|next| format!(r#","next":"{next}""#)).unwrap_or_default();
    let mut out = br#"{"contents":[{"uri":"#.to_vec();
    out.extend_from_slice(&json::quoted(uri));
    out.extend_from_slice(br#","mimeType":"#);
    out.extend_from_slice(&json::quoted(&mime));
    out.extend_from_slice(
        format!(
            r#","_meta":{{"portcullis/range":{{"offset":{offset},"length":{length},"total":{total}{next}}}}},"{key}":"#
        )
        .as_bytes(),
    );
    match body {
        PartBody::Text(text) => out.extend_from_slice(&json::quoted(&text)),
        PartBody::Blob(bytes) => {
            out.reserve(bytes.len().div_ceil(3) * 4 + 8);
            out.push(b'"');
            // By blocks of whole groups: no second text of all of it.
            for block in bytes.chunks(48 << 10) {
                out.extend_from_slice(BASE64_STANDARD.encode(block).as_bytes());
            }
            out.push(b'"');
        }
    }
    out.extend_from_slice(b"}]}");
    out
}
