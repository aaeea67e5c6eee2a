//! Where the blocks of an answer lie.

use std::ops::Range;

use bytes::Bytes;

use crate::wire::json::{self, Outline};
use crate::wire::jsonrpc::{Payload, Response};
use crate::wire::mcp::{Block, Content};

/// Replacements in an answer.
pub(super) type Edits = Vec<(Range<usize>, Bytes)>;

/// Finds the blocks of a result; places are counted from the beginning of the message. What cannot be read has none.
pub(super) fn blocks(content: Content, response: &Response) -> Vec<Range<usize>> {
    let (Payload::Result(_), Ok(outline)) = (&response.payload, response.outline()) else { return Vec::new() };
    let array = match content {
        Content::Prompt => "messages",
        Content::Read => "contents",
        Content::Tool => "content",
    };
    let Some(array) = outline.at(&response.raw, array).ok().flatten() else { return Vec::new() };
    let elements = elements(&response.raw, &array);
    match content {
        Content::Read | Content::Tool => elements,
        Content::Prompt => elements.into_iter().flat_map(|message| of_message(&response.raw, &message)).collect(),
    }
}

/// Reads a block at its place.
pub(super) fn read<'a>(content: Content, raw: &'a [u8], at: &Range<usize>) -> Option<Block<'a>> {
    let text = raw.get(at.clone())?;
    match content {
        Content::Read => Block::contents(text),
        Content::Prompt | Content::Tool => Block::read(text),
    }
}

fn elements(raw: &[u8], array: &Range<usize>) -> Vec<Range<usize>> {
    let found = json::elements(raw.get(array.clone()).unwrap_or_default()).unwrap_or_default();
    found.into_iter().map(|at| at.start + array.start..at.end + array.start).collect()
}

/// A message has one block, or several.
fn of_message(raw: &[u8], message: &Range<usize>) -> Vec<Range<usize>> {
    let text = raw.get(message.clone()).unwrap_or_default();
    let Some(at) = json::members(text).ok().and_then(|members| members.at("content").ok().flatten()) else {
        return Vec::new();
    };
    let at = at.start + message.start..at.end + message.start;
    if raw.get(at.start) == Some(&b'[') { elements(raw, &at) } else { vec![at] }
}

/// Returns the members of a result, if it can be read.
pub(super) fn outline(response: &Response) -> Option<Outline> {
    response.outline().ok().map(std::borrow::Cow::into_owned)
}
