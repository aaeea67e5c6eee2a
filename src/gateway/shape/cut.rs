//! Text cut at a character, with its sizes, and the rest kept [LIM-7, CTX-5].
//!
//! Invariants: what is left is at most the cap, the words about it included; structured content is whole or not there; a
//! result that its tool has promised a schema for says that it is an error once it is cut.

use std::ops::Range;

use bytes::Bytes;

use crate::blob::{OVERFLOW_SCHEME, OwnUri, Sheet, SheetId};
use crate::policy::Overflow;
use crate::wire::json::{self, Outline, Spelled};
use crate::wire::jsonrpc::{Payload, Response};
use crate::wire::mcp::{Content, LinkFacts, text_block};

use super::blocks::{self, Edits, outline};
use super::notice::{self, Rest};
use super::shaper::Work;

/// The text of one block.
#[derive(Clone, Debug)]
struct Words {
    /// Between its quotes, in the message.
    at: Range<usize>,
    /// The whole block.
    block: Range<usize>,
    chars: usize,
}

/// What is over the cap.
struct Over {
    /// All texts, one line break apart, have so many characters; `None`: few enough.
    text: Option<usize>,
    /// The structured content's place and its characters.
    structured: Option<(Range<usize>, usize)>,
}

/// Where the rest can be read.
struct Kept {
    text: Option<SheetId>,
    structured: Option<SheetId>,
}

/// Cuts what is over the cap. Blocks if the rest goes to a file.
pub(super) fn cut(work: &Work, cap: usize, response: Response) -> Response {
    if let Payload::Error(at) = &response.payload {
        let edits = error(&response, at, cap);
        return if edits.is_empty() { response } else { response.with_edits(edits) };
    }
    let Some(outline) = outline(&response) else { return response };
    let words = words(work.kind, &response);
    let total = words.iter().map(|one| one.chars).sum::<usize>() + words.len().saturating_sub(1);
    let structured = structured(work.kind, &response, &outline).filter(|(_, chars)| *chars > cap);
    // The words about structured content that is left out are text of the result too.
    let room = cap - structured.as_ref().map_or(0, |(_, chars)| words_about(work, *chars, notice::left_out)).min(cap);
    let over = Over { text: (total > room).then_some(total), structured };
    if over.text.is_none() && over.structured.is_none() {
        return response;
    }
    let kept = keep(work, &response, &words, &over);
    let edits = edits(work, (cap, room), &response, &outline, (&words, &over, &kept));
    response.with_edits(edits)
}

fn words(kind: Content, response: &Response) -> Vec<Words> {
    let find = |block: Range<usize>| {
        let read = blocks::read(kind, &response.raw, &block)?;
        let (spelled, start) = read.words()?;
        let start = block.start + start;
        Some(Words { at: start..start + spelled.get().len(), chars: spelled.count(), block })
    };
    blocks::blocks(kind, response).into_iter().filter_map(find).collect()
}

fn structured(kind: Content, response: &Response, outline: &Outline) -> Option<(Range<usize>, usize)> {
    let at = outline.at(&response.raw, "structuredContent").ok()?.filter(|_| kind == Content::Tool)?;
    let value = response.raw.get(at.clone())?;
    (value != b"null").then(|| (at, Spelled::plain(value).count()))
}

/// Keeps the whole of what is cut; `None` for what is not kept.
fn keep(work: &Work, response: &Response, words: &[Words], over: &Over) -> Kept {
    let none = Kept { text: None, structured: None };
    if work.caps.overflow == Overflow::Drop {
        return none;
    }
    let part = |at: &Range<usize>| response.raw.slice(at.clone());
    let mut sheets = Vec::new();
    if over.text.is_some() {
        sheets.push(Sheet::texts(words.iter().map(|one| part(&one.at)).collect()));
    }
    if let Some((at, _)) = &over.structured {
        sheets.push(Sheet::json(part(at)));
    }
    let ids = work.blobs.keep(&work.principal, &work.origin, response.raw.len(), sheets, work.settings());
    let Some(ids) = ids else { return none };
    let mut ids = ids.into_iter();
    let text = over.text.and_then(|_| ids.next());
    Kept { text, structured: over.structured.as_ref().and_then(|_| ids.next()) }
}

fn edits(
    work: &Work,
    (cap, room): (usize, usize),
    response: &Response,
    outline: &Outline,
    (words, over, kept): (&[Words], &Over, &Kept),
) -> Edits {
    let mut edits = Edits::new();
    let mut added: Vec<Vec<u8>> = Vec::new();
    if let Some(total) = over.text {
        let about = words_about(work, total, |total, rest| notice::cut(total, total, rest));
        let room = room.saturating_sub(about);
        let shown = text(work, room, response, (words, total), kept.text.as_ref(), &mut edits);
        let facts = (shown, total, "text/plain");
        added.extend(kept.text.as_ref().and_then(|id| link(work, cap, id, facts)));
    }
    if let Some((_, total)) = &over.structured {
        let removals = outline.without(&response.raw, |key| key == b"structuredContent");
        edits.extend(removals.into_iter().map(|at| (at, Bytes::new())));
        let uri = kept.structured.as_ref().map(|id| uri_of(id, 0, *total));
        added.push(text_block(&notice::left_out(*total, rest(work, uri.as_deref()))));
        let facts = (0, *total, "application/json");
        added.extend(kept.structured.as_ref().and_then(|id| link(work, cap, id, facts)));
    }
    let mut head = Vec::new();
    if work.kind == Content::Tool {
        append(response, outline, &added, &mut edits, &mut head);
        if work.promises_schema() {
            match outline.at(&response.raw, "isError").ok().flatten() {
                Some(at) => edits.push((at, Bytes::from_static(b"true"))),
                None => head.extend_from_slice(b"\"isError\":true,"),
            }
        }
    }
    if over.structured.is_some() && outline.iter(&response.raw).count() == 1 {
        // Nothing else is left that a comma could stand before.
        head.pop();
    }
    if let (Payload::Result(at), false) = (&response.payload, head.is_empty()) {
        edits.push((at.start + 1..at.start + 1, Bytes::from(head)));
    }
    edits
}

/// Returns how many characters the words about what is taken out have at most.
fn words_about(work: &Work, total: usize, words: impl Fn(usize, Rest<'_>) -> String) -> usize {
    // The longest id, and numbers as long as any.
    let uri = format!("{OVERFLOW_SCHEME}:///{}-0?offset={total}&length={total}", "0".repeat(32));
    let kept = Some(uri.as_str()).filter(|_| work.caps.overflow == Overflow::Link);
    words(total, rest(work, kept)).chars().count().max(words(total, Rest::Gone).chars().count())
}

/// Cuts the texts to so many characters and the words about it; returns how many are left.
fn text(
    work: &Work,
    room: usize,
    response: &Response,
    (words, total): (&[Words], usize),
    id: Option<&SheetId>,
    edits: &mut Edits,
) -> usize {
    let (mut left, mut shown, mut over) = (room, 0, None);
    for (index, one) in words.iter().enumerate() {
        // The line break between two texts is theirs, not the reader's.
        let text = response.raw.get(one.at.clone()).unwrap_or_default();
        if one.chars <= left && index + 1 < words.len() {
            left = (left - one.chars).saturating_sub(1);
            shown += one.chars + 1;
            continue;
        }
        let (place, walked) = Spelled::inner(text).walk(0, left);
        shown += walked;
        let uri = id.map(|id| uri_of(id, shown, total - shown));
        let words = notice::cut(shown, total, rest(work, uri.as_deref()));
        edits.push((one.at.start + place..one.at.end, inner(&words)));
        over = Some(index);
        break;
    }
    for pair in words.get(over.unwrap_or(words.len())..).unwrap_or_default().windows(2) {
        let [_, gone] = pair else { continue };
        edits.push(without(work.kind, response, gone));
    }
    shown
}

/// Takes a whole block out, with the comma before it; where there must be one, a word stands for its text.
fn without(kind: Content, response: &Response, gone: &Words) -> (Range<usize>, Bytes) {
    if kind != Content::Tool {
        return (gone.at.clone(), Bytes::from_static(b"[cut]"));
    }
    let before = response.raw.get(..gone.block.start).unwrap_or_default();
    let comma = before.iter().rposition(|byte| *byte == b',').unwrap_or(gone.block.start);
    (comma..gone.block.end, Bytes::new())
}

/// Adds blocks to the end of the content, or content to a result that has none.
fn append(response: &Response, outline: &Outline, added: &[Vec<u8>], edits: &mut Edits, head: &mut Vec<u8>) {
    if added.is_empty() {
        return;
    }
    let blocks = added.join(&b","[..]);
    let content = outline.at(&response.raw, "content").ok().flatten();
    match content.filter(|at| response.raw.get(at.start) == Some(&b'[')) {
        Some(at) => {
            let empty =
                json::elements(response.raw.get(at.clone()).unwrap_or_default()).is_ok_and(|all| all.is_empty());
            let comma: &[u8] = if empty { b"" } else { b"," };
            edits.push((at.end - 1..at.end - 1, Bytes::from([comma, &blocks].concat())));
        }
        None => head.extend_from_slice(&[b"\"content\":[", &*blocks, b"],"].concat()),
    }
}

fn uri_of(id: &SheetId, offset: usize, length: usize) -> String {
    let range = crate::blob::Range { offset: offset as u64, length: Some(length as u64) };
    OwnUri::Overflow(id.to_string(), range).to_string()
}

/// Says what became of the rest, in words that fit the reader.
fn rest<'a>(work: &Work, uri: Option<&'a str>) -> Rest<'a> {
    match uri {
        None => Rest::Gone,
        Some(_) if work.links && work.kind == Content::Tool => Rest::Linked,
        Some(uri) => Rest::Uri(uri),
    }
}

fn link(work: &Work, cap: usize, id: &SheetId, (shown, total, mime): (usize, usize, &str)) -> Option<Vec<u8>> {
    if !work.links || work.kind != Content::Tool {
        return None;
    }
    let uri = uri_of(id, shown, total - shown);
    let age = work.settings().overflow_age.as_secs();
    let description = notice::how_to_read(shown, total, cap, age);
    let facts = LinkFacts { uri: &uri, name: "rest of the result", mime, description: Some(&description), bytes: None };
    Some(facts.block())
}

/// Spells words as they stand between the quotes of a JSON string.
fn inner(words: &str) -> Bytes {
    let quoted = json::quoted(words);
    quoted.slice(1..quoted.len() - 1)
}

/// Cuts the message of an error, and takes out its data if that is too large itself.
fn error(response: &Response, at: &Range<usize>, cap: usize) -> Edits {
    let mut edits = Edits::new();
    let Some(outline) = outline(response) else { return edits };
    let part = |at: &Range<usize>| response.raw.get(at.clone()).unwrap_or_default();
    if at.len() <= cap {
        return edits;
    }
    if let Ok(Some(message)) = outline.at(&response.raw, "message") {
        edits.extend(
            shortened(part(&message), cap).map(|(at, text)| (at.start + message.start..at.end + message.start, text)),
        );
    }
    if let Ok(Some(data)) = outline.at(&response.raw, "data")
        && Spelled::plain(part(&data)).count() > cap
    {
        let removals = outline.without(&response.raw, |key| key == b"data");
        edits.extend(removals.into_iter().map(|at| (at, Bytes::new())));
    }
    edits
}

/// Cuts a JSON string to the cap; `None` if it is short enough, or something else. The place is one in the string.
fn shortened(value: &[u8], cap: usize) -> Option<(Range<usize>, Bytes)> {
    let text = value.strip_prefix(b"\"")?.strip_suffix(b"\"").map(Spelled::inner)?;
    let total = text.count();
    if total <= cap {
        return None;
    }
    let room = cap.saturating_sub(notice::cut(total, total, Rest::Gone).chars().count());
    let (place, shown) = text.walk(0, room);
    Some((place + 1..value.len() - 1, inner(&notice::cut(shown, total, Rest::Gone))))
}

/// Cuts what a notification tells: the `data` of a log, the `message` of progress. `None` if it is short enough.
pub(super) fn notification(raw: &Bytes, cap: usize) -> Option<Bytes> {
    if raw.len() <= cap {
        return None;
    }
    let params = json::members(raw).ok()?.at("params").ok()??;
    let members = json::members(raw.get(params.clone())?).ok()?;
    let [data, message] = members.find(["data", "message"]).ok()?;
    let at = data.or(message)?;
    let at = at.start + params.start..at.end + params.start;
    let value = raw.get(at.clone())?;
    let with = |at: Range<usize>, text: Bytes| {
        Bytes::from([raw.get(..at.start).unwrap_or_default(), &text, raw.get(at.end..).unwrap_or_default()].concat())
    };
    if value.first() == Some(&b'"') {
        let (inside, text) = shortened(value, cap)?;
        return Some(with(inside.start + at.start..inside.end + at.start, text));
    }
    // What is no text is told as the text of its JSON.
    let total = Spelled::plain(value).count();
    if total <= cap {
        return None;
    }
    let as_text = json::quoted(&String::from_utf8_lossy(value));
    let (inside, text) = shortened(&as_text, cap)?;
    let head = as_text.get(..inside.start).unwrap_or_default();
    Some(with(at, Bytes::from([head, &text, b"\""].concat())))
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
