//! What one audience could ever be allowed to see, with list pages ready-encoded.
//!
//! Invariant: [`View::resolve`] and [`View::page`] read the same entries under the same [`Mask`]: visible ⇔ callable.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::{BufMut as _, Bytes, BytesMut};
use foldhash::HashMap;

use crate::id::UpstreamName;
use crate::wire::mcp::{Era, Kind, ProtocolVersion};

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

impl From<ProtocolVersion> for Shape {
    fn from(version: ProtocolVersion) -> Self {
        match version.era() {
            Era::Legacy => Self::Handshake,
            Era::Stateless => Self::Stateless,
        }
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The JSON array of definitions.
    pub items: Bytes,
    /// The entry the next page begins with.
    pub next: Option<usize>,
}

/// What one audience may see: the entries of all kinds in one row, and a part of it for each kind.
#[derive(Debug)]
pub struct View {
    entries: Vec<Arc<Entry>>,
    shelves: [Shelf; Kind::ALL.len()],
}

/// The part of one kind.
#[derive(Debug, Default)]
struct Shelf {
    range: Range<usize>,
    by_name: HashMap<Arc<str>, usize>,
    whole: [OnceLock<Page>; 2],
    print: OnceLock<u64>,
}

// === impl View ===

impl View {
    /// Builds the view of an audience.
    #[must_use]
    pub fn build(catalog: &Catalog, may_see: impl Fn(&Entry) -> bool) -> Self {
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        let shelves = Kind::ALL.map(|kind| {
            let start = entries.len();
            entries.extend(catalog.of(kind).filter(|entry| may_see(entry)).map(Arc::clone));
            let range = start..entries.len();
            let added = entries.get(range.clone()).unwrap_or_default().iter();
            let by_name = added.zip(start..).map(|(entry, index)| (Arc::clone(&entry.shown), index)).collect();
            Shelf { range, by_name, ..Shelf::default() }
        });
        Self { entries, shelves }
    }

    /// Returns the mask with everything in it.
    #[must_use]
    pub const fn full_mask(&self) -> Mask {
        Mask::full(self.entries.len())
    }

    /// Walks the entries of all kinds.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    /// Finds what a client names on this path; never by parsing the name.
    #[must_use]
    pub fn resolve(&self, scope: Scope<'_>, kind: Kind, name: &str) -> Option<(usize, &Arc<Entry>)> {
        match scope {
            Scope::All => {
                let index = *self.shelf(kind).by_name.get(name)?;
                self.entries.get(index).map(|entry| (index, entry))
            }
            Scope::Server(server) => {
                self.shelved(kind).find(|(_, entry)| entry.server == *server && &*entry.original == name)
            }
        }
    }

    /// Encodes a page that begins at entry `from`, up to `bytes_max` but with at least one entry.
    #[must_use]
    pub fn page(
        &self,
        (scope, kind): (Scope<'_>, Kind),
        shape: Shape,
        mask: &Mask,
        from: usize,
        bytes_max: usize,
    ) -> Page {
        if matches!(scope, Scope::All)
            && mask.is_full()
            && from == 0
            && let Some(whole) = self.shelf(kind).whole.get(shape as usize)
        {
            return whole.get_or_init(|| self.encode((scope, kind), shape, mask, from, bytes_max)).clone();
        }
        self.encode((scope, kind), shape, mask, from, bytes_max)
    }

    fn encode(
        &self,
        (scope, kind): (Scope<'_>, Kind),
        shape: Shape,
        mask: &Mask,
        from: usize,
        bytes_max: usize,
    ) -> Page {
        let mut items = BytesMut::from(&b"["[..]);
        for (index, text) in self.visible(scope, kind, shape, mask).filter(|(index, _)| *index >= from) {
            if items.len() > 1 {
                if items.len() + text.len() + 2 > bytes_max {
                    items.put_u8(b']');
                    return Page { items: items.freeze(), next: Some(index) };
                }
                items.put_u8(b',');
            }
            items.extend_from_slice(text);
        }
        items.put_u8(b']');
        Page { items: items.freeze(), next: None }
    }

    fn shelf(&self, kind: Kind) -> &Shelf {
        let [tools, prompts, resources, templates] = &self.shelves;
        match kind {
            Kind::Tools => tools,
            Kind::Prompts => prompts,
            Kind::Resources => resources,
            Kind::Templates => templates,
        }
    }

    fn shelved(&self, kind: Kind) -> impl Iterator<Item = (usize, &Arc<Entry>)> {
        let range = self.shelf(kind).range.clone();
        let entries = self.entries.get(range.clone()).unwrap_or_default();
        range.zip(entries)
    }

    fn visible<'a>(
        &'a self,
        scope: Scope<'a>,
        kind: Kind,
        shape: Shape,
        mask: &'a Mask,
    ) -> impl Iterator<Item = (usize, &'a Bytes)> {
        self.shelved(kind).filter(|(index, _)| mask.contains(*index)).filter_map(move |(index, entry)| match scope {
            Scope::All => Some((index, entry.prefixed(shape))),
            Scope::Server(server) => (entry.server == *server).then(|| (index, entry.own(shape))),
        })
    }

    /// Returns a number that changes with what is visible of a kind: names and definitions, in order [POL-10]. Never zero.
    #[must_use]
    pub fn fingerprint(&self, scope: Scope<'_>, kind: Kind, mask: &Mask) -> u64 {
        if matches!(scope, Scope::All) && mask.is_full() {
            return *self.shelf(kind).print.get_or_init(|| self.print_of(scope, kind, mask));
        }
        self.print_of(scope, kind, mask)
    }

    fn print_of(&self, scope: Scope<'_>, kind: Kind, mask: &Mask) -> u64 {
        let mut text = Vec::new();
        // Both shapes: a change that one era alone can see is a change.
        for shape in [Shape::Handshake, Shape::Stateless] {
            for (_, definition) in self.visible(scope, kind, shape, mask) {
                text.extend_from_slice(digest(&SHA256, definition).as_ref());
            }
        }
        let hash = digest(&SHA256, &text);
        let first = hash.as_ref().first_chunk::<8>().map_or(1, |bytes| u64::from_be_bytes(*bytes));
        first.max(1)
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
