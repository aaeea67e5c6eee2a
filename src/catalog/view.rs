//! What one audience could ever be allowed to see, with list pages ready-encoded.
//!
//! Invariant: [`View::resolve`] and [`View::page`] read the same entries under the same [`Mask`]: visible ⇔ callable.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::{BufMut as _, Bytes, BytesMut};
use foldhash::HashMap;

use crate::id::UpstreamName;
use crate::wire::json;
use crate::wire::jsonrpc::Edits;
use crate::wire::mcp::{Era, ProtocolVersion, ToolDefinition};

use super::{Catalog, Entry, Mask};

/// Which path a list is for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// `/mcp`: every server, shown names.
    All,
    /// `/mcp/<server>`: one server under its own names [NAM-5].
    Server(&'a UpstreamName),
}

/// Which members a client's era knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Clients of the `initialize` era: no `outputSchema` that is no object.
    Handshake,
    /// Stateless clients: no `execution`.
    Stateless,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The JSON array of definitions.
    pub tools: Bytes,
    /// The entry the next page begins with.
    pub next: Option<usize>,
}

/// What one audience may see.
#[derive(Debug)]
pub struct View {
    entries: Vec<Shown>,
    by_name: HashMap<Arc<str>, usize>,
    whole: [OnceLock<Page>; 2],
    print: OnceLock<u64>,
}

#[derive(Debug)]
struct Shown {
    entry: Arc<Entry>,
    /// Under the shown name: handshake, stateless.
    prefixed: [Bytes; 2],
    /// Under the server's own name: handshake, stateless.
    own: [Bytes; 2],
}

impl From<ProtocolVersion> for Shape {
    fn from(version: ProtocolVersion) -> Self {
        match version.era() {
            Era::Legacy => Self::Handshake,
            Era::Stateless => Self::Stateless,
        }
    }
}

// === impl View ===

impl View {
    /// Builds the view of an audience.
    #[must_use]
    pub fn build(catalog: &Catalog, may_see: impl Fn(&Entry) -> bool) -> Self {
        let entries: Vec<Shown> = catalog
            .entries
            .iter()
            .filter(|entry| may_see(entry))
            .map(|entry| {
                let shown = json::quoted(&entry.shown);
                Shown {
                    entry: Arc::clone(entry),
                    prefixed: shapes(&entry.definition, Some(&shown)),
                    own: shapes(&entry.definition, None),
                }
            })
            .collect();
        let by_name =
            entries.iter().enumerate().map(|(index, shown)| (Arc::clone(&shown.entry.shown), index)).collect();
        Self { entries, by_name, whole: Default::default(), print: OnceLock::new() }
    }

    /// Returns the mask with everything in it.
    #[must_use]
    pub fn full_mask(&self) -> Mask {
        Mask::full(self.entries.len())
    }

    /// Walks the entries.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().map(|shown| &shown.entry)
    }

    /// Finds a tool by the name a client uses on this path; never by parsing it.
    #[must_use]
    pub fn resolve(&self, scope: Scope<'_>, name: &str) -> Option<(usize, &Arc<Entry>)> {
        let index = match scope {
            Scope::All => *self.by_name.get(name)?,
            Scope::Server(server) => {
                self.entries.iter().position(|shown| shown.entry.server == *server && &*shown.entry.original == name)?
            }
        };
        self.entries.get(index).map(|shown| (index, &shown.entry))
    }

    /// Encodes a page that begins at entry `from`, up to `bytes_max` but with at least one entry.
    #[must_use]
    pub fn page(&self, scope: Scope<'_>, shape: Shape, mask: &Mask, from: usize, bytes_max: usize) -> Page {
        if matches!(scope, Scope::All)
            && mask.is_full()
            && from == 0
            && let Some(whole) = self.whole.get(shape as usize)
        {
            return whole.get_or_init(|| self.encode(scope, shape, mask, from, bytes_max)).clone();
        }
        self.encode(scope, shape, mask, from, bytes_max)
    }

    fn encode(&self, scope: Scope<'_>, shape: Shape, mask: &Mask, from: usize, bytes_max: usize) -> Page {
        let mut tools = BytesMut::from(&b"["[..]);
        for (index, text) in self.visible(scope, shape, mask).filter(|(index, _)| *index >= from) {
            if tools.len() > 1 {
                if tools.len() + text.len() + 2 > bytes_max {
                    tools.put_u8(b']');
                    return Page { tools: tools.freeze(), next: Some(index) };
                }
                tools.put_u8(b',');
            }
            tools.extend_from_slice(text);
        }
        tools.put_u8(b']');
        Page { tools: tools.freeze(), next: None }
    }

    fn visible<'a>(
        &'a self,
        scope: Scope<'a>,
        shape: Shape,
        mask: &'a Mask,
    ) -> impl Iterator<Item = (usize, &'a Bytes)> {
        self.entries.iter().enumerate().filter(|(index, _)| mask.contains(*index)).filter_map(move |(index, shown)| {
            let texts = match scope {
                Scope::All => &shown.prefixed,
                Scope::Server(server) if *server == shown.entry.server => &shown.own,
                Scope::Server(_) => return None,
            };
            texts.get(shape as usize).map(|text| (index, text))
        })
    }

    /// Returns a number that changes with what is visible: names and definitions, in order [POL-10]. Never zero.
    #[must_use]
    pub fn fingerprint(&self, scope: Scope<'_>, mask: &Mask) -> u64 {
        if matches!(scope, Scope::All) && mask.is_full() {
            return *self.print.get_or_init(|| self.print_of(scope, mask));
        }
        self.print_of(scope, mask)
    }

    fn print_of(&self, scope: Scope<'_>, mask: &Mask) -> u64 {
        let mut text = Vec::new();
        // Both shapes: a change that one era alone can see is a change.
        for shape in [Shape::Handshake, Shape::Stateless] {
            for (_, definition) in self.visible(scope, shape, mask) {
                text.extend_from_slice(digest(&SHA256, definition).as_ref());
            }
        }
        let hash = digest(&SHA256, &text);
        let first = hash.as_ref().first_chunk::<8>().map_or(1, |bytes| u64::from_be_bytes(*bytes));
        first.max(1)
    }
}

/// Encodes a definition in both shapes; one allocation where they are equal.
fn shapes(definition: &ToolDefinition, name: Option<&Bytes>) -> [Bytes; 2] {
    let handshake = encode(definition, name, definition.open_output_schema_at.as_ref());
    let stateless = if definition.open_output_schema_at == definition.execution_at {
        handshake.clone()
    } else {
        encode(definition, name, definition.execution_at.as_ref())
    };
    [handshake, stateless]
}

fn encode(definition: &ToolDefinition, name: Option<&Bytes>, without: Option<&Range<usize>>) -> Bytes {
    let mut edits = Edits::new(definition.raw.clone());
    if let Some(name) = name {
        edits.replace(definition.name_at.clone(), name.clone());
    }
    if let Some(member) = without {
        edits.replace(with_comma(&definition.raw, member), Bytes::new());
    }
    match (&definition.input_schema_at, definition.has_input_schema) {
        (_, true) => {}
        (Some(at), false) => {
            edits.replace(at.clone(), Bytes::from_static(br#"{"type":"object"}"#));
        }
        (None, false) => {
            let open = memchr::memchr(b'{', &definition.raw).unwrap_or(0) + 1;
            edits.replace(open..open, Bytes::from_static(br#""inputSchema":{"type":"object"},"#));
        }
    }
    edits.apply()
}

/// Widens a member's range by one neighbouring comma: the one after it, else the one before.
fn with_comma(raw: &[u8], member: &Range<usize>) -> Range<usize> {
    let white = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let after = raw.get(member.end..).unwrap_or_default();
    let gap = after.iter().take_while(|byte| white(byte)).count();
    if after.get(gap) == Some(&b',') {
        return member.start..member.end + gap + 1;
    }
    let before = raw.get(..member.start).unwrap_or_default();
    let gap = before.iter().rev().take_while(|byte| white(byte)).count();
    let comma = member.start.saturating_sub(gap + 1);
    if before.get(comma) == Some(&b',') { comma..member.end } else { member.clone() }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
