//! One thing that a server lists, under the name it is shown, with its definition encoded for every list it stands in.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::UpstreamName;
use crate::wire::json;
use crate::wire::jsonrpc::Edits;
use crate::wire::mcp::{Carrier, Definition, HeaderParam, Kind, uris};

use super::Shape;
use super::name::{full_name, shown_name};
use super::uri::{shown_template, shown_uri};

/// One tool, prompt, resource or template.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its server.
    pub server: UpstreamName,
    /// The server's own name for it, or its URI.
    pub original: Arc<str>,
    /// The name or URI it is shown under.
    pub shown: Arc<str>,
    /// The full, uncut `<server>__<original>`.
    pub full: Arc<str>,
    /// Its definition.
    pub definition: Definition,
    /// The arguments that travel as headers.
    pub header_params: Arc<[HeaderParam]>,
    texts: Texts,
}

/// A definition in the lists: handshake, stateless. One allocation where they are equal.
#[derive(Clone, Debug, Default)]
struct Texts {
    prefixed: [Bytes; 2],
    own: [Bytes; 2],
}

/// Returns the name or URI that a server's own is shown under; `budget` is the longest name.
#[must_use]
pub fn shown(kind: Kind, server: &UpstreamName, original: &str, budget: usize) -> String {
    match kind {
        Kind::Tools | Kind::Prompts => shown_name(server, original, budget),
        Kind::Resources => shown_uri(&server.slug(), original),
        Kind::Templates => shown_template(&server.slug(), original),
    }
}

// === impl Entry ===

impl Entry {
    /// Names a definition and encodes it; `budget` is the longest shown name.
    #[must_use]
    pub fn new(
        server: &UpstreamName,
        definition: &Definition,
        header_params: Arc<[HeaderParam]>,
        budget: usize,
    ) -> Self {
        let unnamed = Self::named(server, definition.clone(), budget);
        let mut edits = vec![(definition.name_at.clone(), json::quoted(&unnamed.shown))];
        edits.extend(shown_uris(server, definition));
        let texts = Texts { prefixed: shapes(definition, &edits), own: shapes(definition, &[]) };
        Self { header_params, texts, ..unnamed }
    }

    /// Names a resource that stands in no list: a server may have more than it lists [NAM-4].
    #[must_use]
    pub fn unlisted(server: &UpstreamName, uri: &str) -> Self {
        Self::named(server, Definition::unlisted(uri), usize::MAX)
    }

    fn named(server: &UpstreamName, definition: Definition, budget: usize) -> Self {
        let original = Arc::clone(&definition.name);
        let shown = shown(definition.kind, server, &original, budget);
        Self {
            kind: definition.kind,
            server: server.clone(),
            shown: Arc::from(shown),
            full: Arc::from(full_name(server, &original)),
            original,
            definition,
            header_params: Arc::default(),
            texts: Texts::default(),
        }
    }

    /// Returns its definition under the shown name, for a list of all servers.
    #[must_use]
    pub fn prefixed(&self, shape: Shape) -> &Bytes {
        pick(&self.texts.prefixed, shape)
    }

    /// Returns its definition under its own name, for a list of its server alone.
    #[must_use]
    pub fn own(&self, shape: Shape) -> &Bytes {
        pick(&self.texts.own, shape)
    }
}

const fn pick(texts: &[Bytes; 2], shape: Shape) -> &Bytes {
    let [handshake, stateless] = texts;
    match shape {
        Shape::Handshake => handshake,
        Shape::Stateless => stateless,
    }
}

/// What a definition says of resources besides its own name: an app's page.
fn shown_uris(server: &UpstreamName, definition: &Definition) -> Vec<(Range<usize>, Bytes)> {
    let own_name = |at: &Range<usize>| *at == definition.name_at;
    let shown = |at: Range<usize>| {
        let uri = json::text_of(definition.raw.get(at.clone())?)?;
        Some((at, json::quoted(&shown_uri(&server.slug(), &uri))))
    };
    let places = uris(Carrier::Definition(definition.kind), &definition.raw);
    places.into_iter().filter(|at| !own_name(at)).filter_map(shown).collect()
}

/// Encodes a definition in both shapes; one allocation where they are equal.
fn shapes(definition: &Definition, edits: &[(Range<usize>, Bytes)]) -> [Bytes; 2] {
    let handshake = encode(definition, edits, definition.open_output_schema_at.as_ref());
    let stateless = if definition.open_output_schema_at == definition.execution_at {
        handshake.clone()
    } else {
        encode(definition, edits, definition.execution_at.as_ref())
    };
    [handshake, stateless]
}

fn encode(definition: &Definition, changes: &[(Range<usize>, Bytes)], without: Option<&Range<usize>>) -> Bytes {
    let mut edits = Edits::new(definition.raw.clone());
    for (at, text) in changes {
        edits.replace(at.clone(), text.clone());
    }
    if let Some(member) = without {
        edits.replace(member.clone(), Bytes::new());
    }
    match (&definition.input_schema_at, definition.has_input_schema || definition.kind != Kind::Tools) {
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
