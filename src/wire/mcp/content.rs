//! Content blocks: what of them can hold base64 or text, and the same block with something else in its place.
//!
//! Not for: deciding what is replaced (`gateway`). Invariants: annotations, `_meta` and every field nobody knows stay as
//! they are spelled [LIM-3]; an unknown block is never changed.

use std::borrow::Cow;
use std::ops::Range;

use crate::wire::json::{self, JsonError, Members, Raw, Spelled};

use super::{Base64, Content};

/// The longest media type that is taken for one.
const MIME_MAX: usize = 127;

/// One block of a tool's result or a prompt, or one of the contents of a resource.
#[derive(Debug)]
pub struct Block<'a> {
    members: Members<'a>,
    /// The contents of an embedded resource, with their place in the block; of a resource's contents, themselves.
    inner: Option<(Members<'a>, usize)>,
    kind: BlockKind,
}

/// What kind of block it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Audio.
    Audio,
    /// One of the contents of a resource.
    Contents,
    /// An image.
    Image,
    /// A key that is read stands twice: two readers could see two blocks.
    Malformed,
    /// Something that is neither looked into nor changed.
    Other,
    /// An embedded resource.
    Resource,
    /// Text.
    Text,
}

/// A member that should be a string.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// It is not there.
    Absent,
    /// It is something else.
    Malformed,
    /// The string.
    Text(Spelled<'a>),
}

/// What a link to a resource says.
#[derive(Clone, Copy, Debug)]
pub struct LinkFacts<'a> {
    /// The URI.
    pub uri: &'a str,
    /// The name.
    pub name: &'a str,
    /// The media type.
    pub mime: &'a str,
    /// What it is for.
    pub description: Option<&'a str>,
    /// How many bytes it has.
    pub bytes: Option<u64>,
}

/// Returns a media type without its parameters in lower case; `None` if it is not well formed.
#[must_use]
pub fn well_formed_mime(text: &str) -> Option<String> {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let (kind, subtype) = essence.split_once('/')?;
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
            && part.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
    };
    (essence.len() <= MIME_MAX && token(kind) && token(subtype)).then(|| essence.to_ascii_lowercase())
}

impl LinkFacts<'_> {
    /// Spells a block that links to a resource.
    #[must_use]
    pub fn block(&self) -> Vec<u8> {
        let mut out = br#"{"type":"resource_link","#.to_vec();
        for (index, (key, value)) in self.members().iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&[b"\"", key.as_bytes(), b"\":", value].concat());
        }
        out.push(b'}');
        out
    }

    fn members(&self) -> Vec<(&'static str, Vec<u8>)> {
        let texts = [("uri", Some(self.uri)), ("name", Some(self.name)), ("mimeType", Some(self.mime))];
        let texts = texts.into_iter().chain([("description", self.description)]);
        let texts = texts.filter_map(|(key, text)| Some((key, json::quoted(text?).to_vec())));
        texts.chain(self.bytes.map(|bytes| ("size", bytes.to_string().into_bytes()))).collect()
    }
}

/// Returns where the blocks of a result lie in `raw`, of which `array` is the member that holds them. What cannot be read has
/// none.
#[must_use]
pub fn blocks(content: Content, raw: &[u8], array: &Range<usize>) -> Vec<Range<usize>> {
    let all = elements(raw, array);
    match content {
        Content::Read | Content::Tool => all,
        Content::Prompt => all.into_iter().flat_map(|message| of_message(raw, &message)).collect(),
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

/// Returns the words that stand for audio; the type only if it is well formed.
#[must_use]
pub fn audio_words(mime: Option<&str>) -> String {
    match mime.and_then(well_formed_mime) {
        Some(mime) => format!("[audio attachment: {mime}]"),
        None => "[audio attachment]".to_owned(),
    }
}

/// Spells a block of text.
#[must_use]
pub fn text_block(words: &str) -> Vec<u8> {
    [br#"{"type":"text","text":"#, &*json::quoted(words), b"}"].concat()
}

// === impl Block ===

impl<'a> Block<'a> {
    /// Reads a block of a tool's result or a prompt; `None` if it is no object.
    #[must_use]
    pub fn read(text: &'a [u8]) -> Option<Self> {
        let members = json::members(text).ok()?;
        let mut block = Self { members, inner: None, kind: BlockKind::Other };
        block.kind = block.find_kind(text).unwrap_or(BlockKind::Malformed);
        Some(block)
    }

    /// Reads one of the contents of a resource; `None` if it is no object.
    #[must_use]
    pub fn contents(text: &'a [u8]) -> Option<Self> {
        let (members, inner) = (json::members(text).ok()?, json::members(text).ok()?);
        let twice = inner.find(["blob", "text", "mimeType", "uri"]).is_err();
        let kind = if twice { BlockKind::Malformed } else { BlockKind::Contents };
        Some(Self { members, inner: Some((inner, 0)), kind })
    }

    fn find_kind(&mut self, text: &'a [u8]) -> Result<BlockKind, JsonError> {
        let [kind, resource, ..] = self.members.find(["type", "resource", "data", "text", "mimeType"])?;
        let part = |at: Range<usize>| text.get(at).unwrap_or_default();
        let kind = kind.and_then(|_| self.members.get("type").ok().flatten()).and_then(json::text);
        Ok(match kind.as_deref() {
            Some("audio") => BlockKind::Audio,
            Some("image") => BlockKind::Image,
            Some("text") => BlockKind::Text,
            Some("resource") => {
                let Some(at) = resource else { return Ok(BlockKind::Other) };
                let Ok(inner) = json::members(part(at.clone())) else { return Ok(BlockKind::Other) };
                inner.find(["blob", "text", "mimeType", "uri"])?;
                self.inner = Some((inner, at.start));
                BlockKind::Resource
            }
            Some(_) | None => BlockKind::Other,
        })
    }

    /// Returns what kind of block this is.
    #[must_use]
    pub const fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Returns the object that holds what the block is about.
    fn holder(&self) -> &Members<'a> {
        self.inner.as_ref().map_or(&self.members, |(inner, _)| inner)
    }

    fn field(&self, key: &'static str) -> Field<'a> {
        match self.holder().get(key) {
            Ok(None) => Field::Absent,
            Ok(Some(value)) => Spelled::of(value).map_or(Field::Malformed, Field::Text),
            Err(_) => Field::Malformed,
        }
    }

    /// Returns what should be base64: `data`, or the `blob` of a resource.
    #[must_use]
    pub fn encoded(&self) -> Field<'a> {
        match self.kind {
            BlockKind::Audio | BlockKind::Image => self.field("data"),
            BlockKind::Contents | BlockKind::Resource => self.field("blob"),
            BlockKind::Malformed | BlockKind::Other | BlockKind::Text => Field::Absent,
        }
    }

    /// Returns the text of a text block or of a resource, and where it lies in the block, between its quotes.
    #[must_use]
    pub fn words(&self) -> Option<(Spelled<'a>, usize)> {
        let offset = match self.kind {
            BlockKind::Text => 0,
            BlockKind::Contents | BlockKind::Resource => self.inner.as_ref()?.1,
            BlockKind::Audio | BlockKind::Image | BlockKind::Malformed | BlockKind::Other => return None,
        };
        let at = self.holder().at("text").ok()??;
        let Field::Text(spelled) = self.field("text") else { return None };
        Some((spelled, offset + at.start + 1))
    }

    /// Returns `mimeType` as it was declared.
    #[must_use]
    pub fn mime(&self) -> Option<Cow<'a, str>> {
        self.holder().get("mimeType").ok().flatten().and_then(json::text)
    }

    /// Returns the words that a link to a resource comes to, for who knows no links; `None` if it is none.
    #[must_use]
    pub fn link_words(&self) -> Option<String> {
        let text = |key| self.members.get(key).ok().flatten().and_then(json::text);
        let uri = text("uri").filter(|_| text("type").as_deref() == Some("resource_link"))?;
        Some(match text("title").or_else(|| text("name")) {
            Some(name) => format!("[resource: {name} at {uri}]"),
            None => format!("[resource: {uri}]"),
        })
    }

    /// Returns the URI of an embedded resource.
    #[must_use]
    pub fn uri(&self) -> Option<Cow<'a, str>> {
        self.inner.as_ref()?.0.get("uri").ok().flatten().and_then(json::text)
    }

    /// Spells the block with words in the place of its base64: a resource stays one, all else becomes text, which has no
    /// media type.
    #[must_use]
    pub fn with_words(&self, words: &str) -> Vec<u8> {
        let text = json::quoted(words);
        match (self.kind, &self.inner) {
            (BlockKind::Malformed, Some(_)) | (BlockKind::Malformed, None) => text_block(words),
            (BlockKind::Contents, Some((inner, _))) => inner.rebuilt(&["blob", "text"], &[("text", &text)]),
            (_, Some((inner, _))) => {
                let inner = inner.rebuilt(&["blob", "text"], &[("text", &text)]);
                self.members.rebuilt(&["resource"], &[("resource", &inner)])
            }
            (_, None) => {
                let members = self.members.rebuilt(&["data", "text", "mimeType"], &[("text", &text)]);
                json::members(&members)
                    .map_or_else(|_| text_block(words), |members| members.rebuilt(&["type"], &[("type", b"\"text\"")]))
            }
        }
    }

    /// Spells the block as a link to a resource.
    #[must_use]
    pub fn as_link(&self, facts: &LinkFacts<'_>) -> Vec<u8> {
        const OURS: [&str; 4] = ["uri", "name", "mimeType", "size"];
        let link = facts.members();
        let mut add: Vec<(&str, &[u8])> = vec![("type", b"\"resource_link\"")];
        add.extend(link.iter().map(|(key, value)| (*key, value.as_slice())));
        // What the resource says beyond its bytes goes on the link, where the block does not say it itself.
        let own: Vec<(Cow<'_, [u8]>, Raw<'_>)> = self.inner.iter().flat_map(|(inner, _)| inner.iter()).collect();
        for (key, value) in &own {
            let Ok(key) = std::str::from_utf8(key) else { continue };
            let known = OURS.contains(&key) || matches!(key, "blob" | "text" | "type" | "resource");
            if !known && !self.members.iter().any(|(mine, _)| *mine == *key.as_bytes()) && plain(key) {
                add.push((key, value.get()));
            }
        }
        self.members.rebuilt(&["type", "data", "resource", "uri", "name", "mimeType", "size"], &add)
    }
}

/// Says whether a key can be written between quotes as it is.
fn plain(key: &str) -> bool {
    key.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

impl<'a> Field<'a> {
    /// Returns the base64, if the member is a string.
    #[must_use]
    pub fn base64(self) -> Option<Base64<'a>> {
        match self {
            Self::Text(text) => Some(Base64::of(text)),
            Self::Absent | Self::Malformed => None,
        }
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
