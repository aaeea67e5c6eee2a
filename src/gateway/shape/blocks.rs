//! Where the blocks of an answer lie.

use std::ops::Range;

use bytes::Bytes;

use crate::wire::json::Outline;
use crate::wire::jsonrpc::{Payload, Response};
use crate::wire::mcp::{self, Block, Content};

/// Replacements in an answer.
pub(super) type Edits = Vec<(Range<usize>, Bytes)>;

/// Finds the blocks of a result; places are counted from the beginning of the message. What cannot be read has none.
pub(super) fn blocks(content: Content, response: &Response) -> Vec<Range<usize>> {
    let (Payload::Result(_), Ok(outline)) = (&response.payload, response.outline()) else { return Vec::new() };
    let array = outline.at(&response.raw, content.member()).ok().flatten();
    array.map(|array| mcp::blocks(content, &response.raw, &array)).unwrap_or_default()
}

/// Reads a block at its place.
pub(super) fn read<'a>(content: Content, raw: &'a [u8], at: &Range<usize>) -> Option<Block<'a>> {
    let text = raw.get(at.clone())?;
    match content {
        Content::Read => Block::contents(text),
        Content::Prompt | Content::Tool => Block::read(text),
    }
}

/// Returns the members of a result, if it can be read.
pub(super) fn outline(response: &Response) -> Option<Outline> {
    response.outline().ok().map(std::borrow::Cow::into_owned)
}
