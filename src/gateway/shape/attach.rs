//! Attachments: counted, estimated, and put in a file, on the shelf, or left where they are [LIM-2, LIM-3].
//!
//! Invariants: what becomes of all of them is known before the first is decoded; in `file` and `link` no base64 of a
//! block that is looked at stays, whatever goes wrong.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::blob::{BlobSettings, Image, OwnUri, PutError, Sheet, SheetId, Stored, extension_of};
use crate::policy::BlobMode;
use crate::wire::jsonrpc::Response;
use crate::wire::mcp::{
    Base64, Base64Error, Block, BlockKind, Content, Field, LinkFacts, audio_words, well_formed_mime,
};

use super::blocks::{self, Edits};
use super::notice::{Unavailable, document};
use super::shaper::Work;

/// How long the name of a link may be.
const NAME_MAX: usize = 64;

/// One block of the answer.
struct Item<'a> {
    at: Range<usize>,
    block: Block<'a>,
}

/// What becomes of a block.
enum Fate {
    Keep,
    /// The gateway has it in a file.
    Stored(Stored, String),
    /// The gateway keeps it in memory; its place among what is kept.
    Kept(usize, Facts),
    Words(String),
}

/// What is known of an attachment once its first bytes were seen.
struct Facts {
    mime: String,
    extension: &'static str,
    bytes: u64,
}

/// Takes attachments out of an answer, as the mode has it. Blocks if there is something to write.
pub(super) fn attach(work: &Work, response: Response) -> Response {
    let edits = edits(work, &response);
    if edits.is_empty() { response } else { response.with_edits(edits) }
}

fn edits(work: &Work, response: &Response) -> Edits {
    let read = |at: Range<usize>| Some(Item { block: blocks::read(work.kind, &response.raw, &at)?, at });
    let items: Vec<Item<'_>> = blocks::blocks(work.kind, response).into_iter().filter_map(read).collect();
    let over = over_all(work, &items);
    let mut sheets = Vec::new();
    let fates: Vec<Fate> = items.iter().map(|item| fate(work, response, item, over, &mut sheets)).collect();
    let kept = match sheets.is_empty() {
        true => Some(Vec::new()),
        false => work.blobs.keep(&work.principal, &work.origin, response.raw.len(), sheets, work.settings()),
    };
    let spelled = items.iter().zip(fates).filter_map(|(item, fate)| {
        let text = spell(work, item, fate, kept.as_deref())?;
        Some((item.at.clone(), Bytes::from(text)))
    });
    spelled.collect()
}

/// Says whether the attachments are too many or too large in sum: then none of them is there.
fn over_all(work: &Work, items: &[Item<'_>]) -> Option<Unavailable> {
    let sizes: Vec<usize> =
        items.iter().filter_map(|item| Some(counted(work.mode, &item.block)?.decoded_len())).collect();
    let sum = sizes.iter().fold(0, |sum: usize, size| sum.saturating_add(*size));
    if sizes.len() > BlobSettings::ITEMS_MAX {
        Some(Unavailable::Count)
    } else {
        (sum > BlobSettings::SUM_BYTES_MAX).then_some(Unavailable::Sum)
    }
}

/// Returns the base64 of a block that counts: a resource's, a well-formed image's, and where it passes, audio's.
fn counted<'a>(mode: BlobMode, block: &Block<'a>) -> Option<Base64<'a>> {
    let counts = match block.kind() {
        BlockKind::Audio => mode == BlobMode::Pass,
        BlockKind::Contents | BlockKind::Resource => true,
        BlockKind::Image => block.mime().is_some(),
        BlockKind::Malformed | BlockKind::Other | BlockKind::Text => false,
    };
    block.encoded().base64().filter(|_| counts)
}

fn fate(work: &Work, response: &Response, item: &Item<'_>, over: Option<Unavailable>, sheets: &mut Vec<Sheet>) -> Fate {
    let unavailable = |why: Unavailable| Fate::Words(why.words());
    let base64 = match counted(work.mode, &item.block) {
        None if work.mode == BlobMode::Pass => return Fate::Keep,
        None => return uncounted(&item.block),
        Some(base64) => base64,
    };
    if let Some(why) = over {
        return unavailable(why);
    }
    if base64.decoded_len() > work.settings().item_bytes_max {
        return unavailable(Unavailable::Size);
    }
    let done = match work.mode {
        BlobMode::Pass => return Fate::Keep,
        BlobMode::File | BlobMode::Link if work.blobs.has_files() => to_file(work, &item.block, base64),
        BlobMode::File | BlobMode::Link => to_shelf(response, &item.block, base64).map(|(sheet, facts)| {
            sheets.push(sheet);
            Fate::Kept(sheets.len() - 1, facts)
        }),
    };
    done.unwrap_or_else(unavailable)
}

/// What becomes of a block that does not count, where no base64 may stay.
fn uncounted(block: &Block<'_>) -> Fate {
    match (block.kind(), block.encoded()) {
        (BlockKind::Other | BlockKind::Text, _) | (BlockKind::Contents | BlockKind::Resource, Field::Absent) => {
            Fate::Keep
        }
        (BlockKind::Audio, Field::Text(_)) => Fate::Words(audio_words(block.mime().as_deref())),
        (BlockKind::Audio | BlockKind::Contents | BlockKind::Image | BlockKind::Malformed | BlockKind::Resource, _) => {
            Fate::Words(Unavailable::Malformed.words())
        }
    }
}

/// Finds out what an attachment is: an image by its first bytes, else by what is declared; a document as declared.
fn known(block: &Block<'_>, head: &[u8]) -> Result<(String, &'static str), Unavailable> {
    let declared = block.mime().and_then(|mime| well_formed_mime(&mime));
    let is_image =
        block.kind() == BlockKind::Image || declared.as_deref().is_some_and(|mime| mime.starts_with("image/"));
    if !is_image {
        let mime = declared.unwrap_or_else(|| "application/octet-stream".to_owned());
        let extension = extension_of(&mime);
        return Ok((mime, extension));
    }
    let image = Image::of_signature(head).or_else(|| declared.as_deref().and_then(Image::of_mime));
    let image = image.filter(|_| !head.is_empty()).ok_or(Unavailable::Type)?;
    Ok((image.mime().to_owned(), extension_of(image.mime())))
}

fn to_file(work: &Work, block: &Block<'_>, base64: Base64<'_>) -> Result<Fate, Unavailable> {
    let mut facts = Err(Unavailable::Type);
    let stored = work.blobs.put(
        &work.principal,
        &work.origin,
        base64,
        |head| {
            facts = known(block, head);
            facts.as_ref().ok().map(|(_, extension)| *extension)
        },
        work.settings(),
    );
    match stored {
        Ok(stored) => Ok(Fate::Stored(stored, facts.map(|(mime, _)| mime)?)),
        Err(PutError::Base64) => Err(Unavailable::Base64),
        Err(PutError::Quota) => Err(Unavailable::Quota),
        Err(PutError::Refused) => Err(facts.err().unwrap_or(Unavailable::Type)),
        Err(PutError::Write(err)) => {
            tracing::warn!(principal = work.principal.as_str(), %err, "an attachment cannot be stored");
            Err(Unavailable::Storage)
        }
    }
}

/// Reads base64 to its end without keeping what it decodes to, and makes something of it that can be kept.
fn to_shelf(response: &Response, block: &Block<'_>, base64: Base64<'_>) -> Result<(Sheet, Facts), Unavailable> {
    let (mut head, mut bytes) = (Vec::new(), 0);
    let read = base64.decode(|part| {
        let wanted = Image::SIGNATURE_BYTES.saturating_sub(head.len()).min(part.len());
        head.extend_from_slice(part.get(..wanted).unwrap_or_default());
        bytes += part.len() as u64;
        Ok::<(), std::convert::Infallible>(())
    });
    match read {
        Ok(()) => {}
        Err(Base64Error::Malformed | Base64Error::Sink(_)) => return Err(Unavailable::Base64),
    }
    let (mime, extension) = known(block, &head)?;
    let spelled = base64.spelled();
    let sheet = Sheet::base64(response.raw.slice_ref(spelled), mime.clone(), bytes);
    Ok((sheet, Facts { mime, extension, bytes }))
}

/// Spells a block as what became of it; `None` if it stays.
fn spell(work: &Work, item: &Item<'_>, fate: Fate, kept: Option<&[SheetId]>) -> Option<Vec<u8>> {
    let is_image = |mime: &str| mime.starts_with("image/");
    match fate {
        Fate::Keep => None,
        Fate::Words(words) => Some(item.block.with_words(&words)),
        Fate::Stored(stored, mime) if work.mode == BlobMode::File => {
            let path = stored.path.to_string_lossy();
            let words = if is_image(&mime) { path.into_owned() } else { document(&path) };
            Some(item.block.with_words(&words))
        }
        Fate::Stored(stored, mime) => {
            let extension = stored.name.rsplit_once('.').map_or("bin", |(_, extension)| extension);
            Some(link(work, item, &stored.name, &mime, extension, stored.bytes))
        }
        Fate::Kept(index, facts) => Some(match kept.and_then(|ids| ids.get(index)) {
            Some(id) => link(work, item, &id.to_string(), &facts.mime, facts.extension, facts.bytes),
            None => item.block.with_words(&Unavailable::Quota.words()),
        }),
    }
}

fn link(work: &Work, item: &Item<'_>, id: &str, mime: &str, extension: &str, bytes: u64) -> Vec<u8> {
    let uri = OwnUri::Blob(id.to_owned(), crate::blob::Range::default()).to_string();
    if !work.links {
        let words = if mime.starts_with("image/") { uri } else { document(&uri) };
        return item.block.with_words(&words);
    }
    let name = name_of(item.block.uri().as_deref(), extension);
    item.block.as_link(&LinkFacts { uri: &uri, name: &name, mime, description: None, bytes: Some(bytes) })
}

/// Names a link after what the server calls it, as far as that is harmless.
fn name_of(uri: Option<&str>, extension: &str) -> Cow<'static, str> {
    let last = uri.map(|uri| uri.split(['?', '#']).next().unwrap_or_default());
    let last = last.and_then(|uri| uri.rsplit(['/', '\\', ':']).next()).unwrap_or_default();
    let plain: String = last
        .chars()
        .filter(|char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_'))
        .take(NAME_MAX)
        .collect();
    let plain = plain.trim_start_matches('.');
    if plain.is_empty() { Cow::Owned(format!("attachment.{extension}")) } else { Cow::Owned(plain.to_owned()) }
}

/// Says what content and mode leave alone altogether: bytes that a client asks for by name are what it wants.
pub(super) const fn mode_for(kind: Content, mode: BlobMode) -> BlobMode {
    match (kind, mode) {
        (Content::Read, BlobMode::Link) => BlobMode::Pass,
        (Content::Prompt | Content::Read | Content::Tool, mode) => mode,
    }
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
