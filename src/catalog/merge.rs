//! Lists of many servers, of every kind → one catalog, in a fixed order [CTX-6, NAM-2, NAM-8].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::codes::Code;
use crate::id::UpstreamName;
use crate::wire::mcp::{Definition, Kind};

use super::{Entry, Lists};

/// What happens to `x-mcp-header` annotations of a server [R52].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRule {
    /// HTTP: arguments travel as headers, and a tool with invalid annotations is dropped.
    Check,
    /// stdio: invalid annotations are ignored; valid ones still bind clients over HTTP, who mirror what the list shows
    /// them [R53].
    Ignore,
}

/// One server's lists.
#[derive(Clone, Debug)]
pub struct ServerLists {
    /// The server.
    pub server: UpstreamName,
    /// What it has listed, in its own order.
    pub lists: Lists,
    /// What the annotations of its tools mean.
    pub headers: HeaderRule,
}

/// Everything of all servers.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// What can be shown: in the order of the configuration, then of the kinds, then the server's own.
    pub entries: Vec<Arc<Entry>>,
    /// What was left out.
    pub warnings: Vec<Warning>,
}

/// Something that was left out, or is shown otherwise than its server listed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Warning {
    /// Its server.
    pub server: UpstreamName,
    /// What it is.
    pub kind: Kind,
    /// Its original name or URI.
    pub name: String,
    /// Why.
    pub why: Why,
}

/// Why something was left out, or is shown otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Its shown name is another's too: both are hidden [NAM-2].
    Clash {
        /// The name that both would have.
        shown: String,
        /// The others: server and original name.
        with: Vec<(UpstreamName, String)>,
    },
    /// Listed more than once with different definitions: all are hidden [NAM-8].
    Differs,
    /// Its header annotations are invalid: it is hidden [R52].
    Headers(String),
    /// It has no `inputSchema`: it is shown with an empty object schema.
    NoInputSchema,
}

impl Catalog {
    /// Merges lists; `budget` is the longest shown name.
    #[must_use]
    pub fn merge(servers: &[ServerLists], budget: usize) -> Self {
        let mut catalog = Self::default();
        for one in servers {
            for kind in Kind::ALL {
                catalog.add(one, kind, budget);
            }
        }
        catalog.hide_clashes();
        catalog.warnings.sort();
        catalog
    }

    /// Walks the entries of one kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    fn add(&mut self, one: &ServerLists, kind: Kind, budget: usize) {
        let list = one.lists.of(kind);
        let mut firsts: HashMap<&str, &Definition> = HashMap::new();
        let mut differing: HashSet<&str> = HashSet::new();
        for definition in list.iter() {
            match firsts.get(&*definition.name) {
                None => drop(firsts.insert(&definition.name, definition)),
                Some(first) if equal(first, definition) => {}
                Some(_) => drop(differing.insert(&definition.name)),
            }
        }
        for name in &differing {
            self.warn(&one.server, kind, name, Why::Differs);
        }
        for definition in list.iter() {
            if differing.contains(&*definition.name) || firsts.remove(&*definition.name).is_none() {
                continue;
            }
            let header_params = match (&definition.header_params, one.headers) {
                (Ok(params), HeaderRule::Check | HeaderRule::Ignore) => Arc::clone(params),
                (Err(_), HeaderRule::Ignore) => Arc::default(),
                (Err(why), HeaderRule::Check) => {
                    self.warn(&one.server, kind, &definition.name, Why::Headers(why.clone()));
                    continue;
                }
            };
            if kind == Kind::Tools && !definition.has_input_schema {
                self.warn(&one.server, kind, &definition.name, Why::NoInputSchema);
            }
            self.entries.push(Arc::new(Entry::new(&one.server, definition, header_params, budget)));
        }
    }

    fn hide_clashes(&mut self) {
        let name = |entry: &Entry| (entry.kind, Arc::clone(&entry.shown));
        let mut counts: HashMap<(Kind, Arc<str>), usize> = HashMap::new();
        for entry in &self.entries {
            *counts.entry(name(entry)).or_default() += 1;
        }
        let (kept, clashing) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| counts.get(&name(entry)).is_none_or(|count| *count == 1));
        self.entries = kept;
        let clashing: Vec<Arc<Entry>> = clashing;
        for entry in &clashing {
            let others = clashing.iter().filter(|other| name(other) == name(entry) && !Arc::ptr_eq(entry, other));
            let with = others.map(|other| (other.server.clone(), other.original.to_string())).collect();
            self.warn(&entry.server, entry.kind, &entry.original, Why::Clash { shown: entry.shown.to_string(), with });
        }
    }

    fn warn(&mut self, server: &UpstreamName, kind: Kind, name: &str, why: Why) {
        self.warnings.push(Warning { server: server.clone(), kind, name: name.to_owned(), why });
    }
}

/// Equal definitions count once: byte for byte, or as JSON values.
fn equal(one: &Definition, two: &Definition) -> bool {
    one.raw == two.raw
        || matches!(
            (serde_json::from_slice::<Value>(&one.raw), serde_json::from_slice::<Value>(&two.raw)),
            (Ok(one), Ok(two)) if one == two
        )
}

impl Why {
    /// Returns the code that a person can look up [OPS-2].
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Clash { .. } => Code::Clash,
            Self::Differs => Code::Differs,
            Self::Headers(_) => Code::HeaderAnnotation,
            Self::NoInputSchema => Code::NoInputSchema,
        }
    }

    /// Says whether it is hidden for that.
    #[must_use]
    pub const fn hides(&self) -> bool {
        match self {
            Self::Clash { .. } | Self::Differs | Self::Headers(_) => true,
            Self::NoInputSchema => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clash { shown, with } => {
                let with: Vec<_> = with.iter().map(|(server, tool)| format!("{tool:?} of server '{server}'")).collect();
                write!(f, "its shown name '{shown}' is also that of {}: all are hidden [NAM-2]", with.join(", "))
            }
            Self::Differs => f.write_str("listed more than once with different definitions: hidden [NAM-8]"),
            Self::Headers(why) => f.write_str(why),
            Self::NoInputSchema => f.write_str("has no inputSchema: shown with an empty object schema"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server '{}', {} {:?}: {}", self.server, self.kind.noun(), self.name, self.why)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Catalog, HeaderRule, ServerLists, Why};
    use crate::catalog::Lists;
    use crate::id::UpstreamName;
    use crate::wire::mcp::{Definition, Kind};

    fn list(server: &str, headers: HeaderRule, tools: &[&str]) -> ServerLists {
        lists(server, headers, Kind::Tools, tools)
    }

    fn lists(server: &str, headers: HeaderRule, kind: Kind, items: &[&str]) -> ServerLists {
        let items: Vec<_> =
            items.iter().map(|text| Definition::read(kind, Bytes::from((*text).to_owned())).unwrap()).collect();
        let mut lists = Lists::default();
        lists.set(kind, Arc::from(items));
        ServerLists { server: UpstreamName::new(server).unwrap(), lists, headers }
    }

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog.entries.iter().map(|entry| &*entry.shown).collect()
    }

    /// [NAM-8, FC-NAM-04]
    #[test]
    fn equal_definitions_count_once_and_different_ones_are_hidden() {
        let catalog = Catalog::merge(
            &[
                list(
                    "a",
                    HeaderRule::Ignore,
                    &[
                        r#"{"name":"same","x":1}"#,
                        r#"{"name":"differs","x":1}"#,
                        r#"{"x":1,"name":"same"}"#,
                        r#"{"name":"differs","x":2}"#,
                        r#"{"name":"Same"}"#,
                    ],
                ),
                list("b", HeaderRule::Ignore, &[r#"{"name":"same"}"#]),
            ],
            64,
        );
        assert_eq!(names(&catalog), ["a__same", "a__Same", "b__same"]);
        assert_eq!(catalog.warnings.iter().filter(|warning| warning.why == Why::Differs).count(), 1);
        assert!(catalog.warnings.iter().all(|warning| (warning.why == Why::Differs) == (warning.name == "differs")));
    }

    /// [NAM-2, FC-NAM-03]
    #[test]
    fn names_that_clash_are_both_hidden() {
        let catalog = Catalog::merge(
            &[
                list("a.b", HeaderRule::Ignore, &[r#"{"name":"c"}"#, r#"{"name":"d"}"#]),
                list("a_b", HeaderRule::Ignore, &[r#"{"name":"c"}"#]),
            ],
            64,
        );
        assert_eq!(names(&catalog), ["a_b__d"]);
        assert_eq!(
            catalog
                .warnings
                .iter()
                .filter(|warning| matches!(&warning.why, Why::Clash { with, .. } if with.len() == 1))
                .count(),
            2
        );
    }

    /// [R52]
    #[test]
    fn invalid_annotations_drop_the_tool_of_an_http_server_alone() {
        let bad = r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
        let merged = |headers| Catalog::merge(&[list("a", headers, &[bad, r#"{"name":"u"}"#])], 64);
        assert_eq!(names(&merged(HeaderRule::Ignore)), ["a__t", "a__u"]);
        assert_eq!(names(&merged(HeaderRule::Check)), ["a__u"]);
        let params = merged(HeaderRule::Ignore).entries.iter().map(|entry| entry.header_params.len()).sum::<usize>();
        assert_eq!(params, 0, "what is invalid binds nobody");
    }

    /// [R53]
    #[test]
    fn valid_annotations_bind_callers_of_a_stdio_server_too() {
        let tool = r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#;
        for rule in [HeaderRule::Ignore, HeaderRule::Check] {
            let catalog = Catalog::merge(&[list("a", rule, &[tool])], 64);
            let headers: Vec<_> = catalog.entries[0].header_params.iter().map(|param| &*param.header).collect();
            assert_eq!(headers, ["A"], "{rule:?}");
        }
    }

    /// [NAM-4, NAM-8]: what is said of tools is said of every kind, and each kind has names of its own.
    #[test]
    fn every_kind_is_merged_alike() {
        let rule = HeaderRule::Check;
        let catalog = Catalog::merge(
            &[
                lists("a.b", rule, Kind::Tools, &[r#"{"name":"c","inputSchema":{}}"#]),
                lists("a_b", rule, Kind::Prompts, &[r#"{"name":"c"}"#, r#"{"name":"d"}"#, r#"{"name":"d","x":1}"#]),
                lists("a-1", rule, Kind::Resources, &[r#"{"uri":"x:y","name":"n"}"#, r#"{"name":"n","uri":"x:y"}"#]),
                lists("a-1", rule, Kind::Templates, &[r#"{"uriTemplate":"x:{y}"}"#, r#"{"uriTemplate":"x:y"}"#]),
            ],
            64,
        );
        assert_eq!(names(&catalog), ["a_b__c", "a_b__c", "a-1+x:y", "a-1+x:{y}", "a-1+x:y"]);
        let warning = &catalog.warnings[0];
        assert_eq!((warning.kind, warning.name.as_str(), &warning.why), (Kind::Prompts, "d", &Why::Differs));
        assert_eq!(catalog.warnings.len(), 1);
    }
}
