//! Blocks of an answer for clients of the revisions before 2025-06-18: what such a client has no word for is text (protocol §3,
//! §5.5).
//!
//! Not for: caps and base64 (`gateway::shape`). Invariants: annotations and `_meta` stay; what every revision knows is not
//! touched.

use std::ops::Range;

use crate::wire::jsonrpc::Edits;
use crate::wire::mcp::{Block, BlockKind, Content, ProtocolVersion, audio_words, blocks};

/// Says whether a client of `version` knows every kind of block that there is, and structured content.
pub(super) fn knows_all(version: ProtocolVersion) -> bool {
    version >= ProtocolVersion::V2025_06_18
}

/// Rewrites the blocks that a client of `version` cannot read; `array` is where they lie in `raw`.
pub(super) fn lower(
    edits: &mut Edits<'_>,
    content: Content,
    (raw, array): (&[u8], &Range<usize>),
    version: ProtocolVersion,
) {
    for at in blocks(content, raw, array) {
        let Some(block) = raw.get(at.clone()).and_then(Block::read) else { continue };
        if let Some(words) = words(&block, version) {
            edits.replace(at, block.with_words(&words));
        }
    }
}

fn words(block: &Block<'_>, version: ProtocolVersion) -> Option<String> {
    match block.kind() {
        BlockKind::Audio if version < ProtocolVersion::V2025_03_26 => Some(audio_words(block.mime().as_deref())),
        BlockKind::Other => block.link_words(),
        BlockKind::Audio
        | BlockKind::Contents
        | BlockKind::Image
        | BlockKind::Malformed
        | BlockKind::Resource
        | BlockKind::Text => None,
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
