//! What the tests of this room share.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::blob::{BlobSettings, Blobs, Origin, OwnUri, PartBody};
use crate::catalog::Entry;
use crate::clock::Clock;
use crate::gateway::GatewaySettings;
use crate::id::{PrincipalId, UpstreamName};
use crate::policy::{BlobMode, Caps, Overflow};
use crate::wire::jsonrpc::{Decoded, Limits, Message, Response, decode};
use crate::wire::mcp::Content;

use super::shaper::Work;

/// A folder that goes with the test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let name = u64::from_le_bytes(crate::seal::random::<8>().unwrap());
        let path = std::env::temp_dir().join(format!("portcullis-shape-{name:016x}"));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Returns the paths of all attachments below.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let below = |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let told = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with('.');
        below(self.0.clone()).flat_map(below).filter(|path| !told(path)).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

pub(super) fn settings(blob: BlobSettings) -> GatewaySettings {
    GatewaySettings { blob, ..crate::gateway::tests::settings(&[], &[]) }
}

/// Work of alice on a tool's result, by a client that knows links, with what is kept in memory.
pub(super) fn work(mode: BlobMode) -> Work {
    Work {
        blobs: Arc::new(Blobs::new(None, None, &Clock::manual())),
        settings: Arc::new(settings(BlobSettings::default())),
        principal: PrincipalId::new("alice"),
        origin: Origin::of(&Entry::unlisted(&UpstreamName::new("docs").unwrap(), "file:///a")),
        definition: Bytes::from_static(b"{}"),
        caps: Caps::default(),
        mode,
        kind: Content::Tool,
        links: true,
    }
}

/// The same with attachments in files.
pub(super) fn work_in(folder: &Folder, mode: BlobMode) -> Work {
    Work { blobs: Arc::new(Blobs::new(Some(folder.0.clone()), None, &Clock::manual())), ..work(mode) }
}

pub(super) fn caps(cap: usize, overflow: Overflow) -> Caps {
    Caps { max_result_chars: Some(cap), overflow, ..Caps::default() }
}

pub(super) fn response(result: &str) -> Response {
    let text = format!(r#"{{"jsonrpc":"2.0","result":{result},"id":7}}"#);
    let Ok(Decoded::One(Message::Response(response))) = decode(&Bytes::from(text), &Limits::UPSTREAM) else { panic!() };
    *response
}

/// Applies all rules; returns the result, which must be one of the same message.
pub(super) fn shaped(work: &Work, result: &str) -> Value {
    let shaped = work.apply(response(result));
    assert_eq!(&shaped.raw[shaped.id_at.clone()], b"7");
    let message: Value = serde_json::from_slice(&shaped.raw).unwrap();
    let inside: Value = serde_json::from_slice(&shaped.result().unwrap()).unwrap();
    assert_eq!(message["result"], inside);
    inside
}

/// Applies all rules to a result of these blocks; returns the blocks.
pub(super) fn blocks(work: &Work, content: &[String]) -> Vec<Value> {
    let result = shaped(work, &format!(r#"{{"content":[{}]}}"#, content.join(",")));
    result["content"].as_array().unwrap().clone()
}

/// Reads one of the gateway's own URIs as a principal does.
pub(super) fn read_as(work: &Work, principal: &str, uri: &str) -> Option<PartBody> {
    let uri = OwnUri::read(uri).unwrap().unwrap();
    let asked = (&uri, usize::MAX >> 8);
    work.blobs.read(&PrincipalId::new(principal), asked, |_| true, work.settings()).ok().map(|part| part.body)
}
