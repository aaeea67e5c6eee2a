//! Lists of many servers → one catalog, in a fixed order [CTX-6, NAM-2, NAM-8].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::codes::Code;
use crate::id::UpstreamName;
use crate::wire::mcp::{HeaderParam, ToolDefinition};

use super::name::{full_name, shown_name};

/// What happens to `x-mcp-header` annotations of a server [R52].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRule {
    /// HTTP: arguments travel as headers, and a tool with invalid annotations is dropped.
    Check,
    /// stdio: invalid annotations are ignored; valid ones still bind clients over HTTP, who mirror what the list shows
    /// them [R53].
    Ignore,
}

/// One server's list.
#[derive(Clone, Debug)]
pub struct ServerTools {
    /// The server.
    pub server: UpstreamName,
    /// Its tools in its own order.
    pub tools: Arc<[ToolDefinition]>,
    /// What its annotations mean.
    pub headers: HeaderRule,
}

/// One tool.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its server.
    pub server: UpstreamName,
    /// The server's own name for it.
    pub original: Arc<str>,
    /// The name it is shown under.
    pub shown: Arc<str>,
    /// The full, uncut name.
    pub full: Arc<str>,
    /// Its definition.
    pub definition: ToolDefinition,
    /// The arguments that travel as headers.
    pub header_params: Arc<[HeaderParam]>,
}

/// All tools of all servers.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The tools that can be shown, in the order of the configuration, then the server's own.
    pub entries: Vec<Arc<Entry>>,
    /// What was left out.
    pub warnings: Vec<Warning>,
}

/// A tool that was left out, or shown otherwise than its server listed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Warning {
    /// Its server.
    pub server: UpstreamName,
    /// Its original name.
    pub tool: String,
    /// Why.
    pub why: Why,
}

/// Why a tool was left out, or shown otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Its shown name is another tool's too: both are hidden [NAM-2].
    Clash {
        /// The name that both would have.
        shown: String,
        /// The other tools: server and original name.
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
    pub fn merge(servers: &[ServerTools], budget: usize) -> Self {
        let mut catalog = Self::default();
        for list in servers {
            catalog.add(list, budget);
        }
        catalog.hide_clashes();
        catalog.warnings.sort();
        catalog
    }

    fn add(&mut self, list: &ServerTools, budget: usize) {
        let mut firsts: HashMap<&str, &ToolDefinition> = HashMap::new();
        let mut differing: HashSet<&str> = HashSet::new();
        for tool in list.tools.iter() {
            match firsts.get(&*tool.name) {
                None => drop(firsts.insert(&tool.name, tool)),
                Some(first) if equal(first, tool) => {}
                Some(_) => drop(differing.insert(&tool.name)),
            }
        }
        for name in &differing {
            self.warn(&list.server, name, Why::Differs);
        }
        for tool in list.tools.iter() {
            if differing.contains(&*tool.name) || firsts.remove(&*tool.name).is_none() {
                continue;
            }
            let header_params = match (&tool.header_params, list.headers) {
                (Ok(params), HeaderRule::Check | HeaderRule::Ignore) => Arc::clone(params),
                (Err(_), HeaderRule::Ignore) => Arc::default(),
                (Err(why), HeaderRule::Check) => {
                    self.warn(&list.server, &tool.name, Why::Headers(why.clone()));
                    continue;
                }
            };
            if !tool.has_input_schema {
                self.warn(&list.server, &tool.name, Why::NoInputSchema);
            }
            self.entries.push(Arc::new(Entry {
                server: list.server.clone(),
                original: Arc::clone(&tool.name),
                shown: Arc::from(shown_name(&list.server, &tool.name, budget)),
                full: Arc::from(full_name(&list.server, &tool.name)),
                definition: tool.clone(),
                header_params,
            }));
        }
    }

    fn hide_clashes(&mut self) {
        let mut counts: HashMap<Arc<str>, usize> = HashMap::new();
        for entry in &self.entries {
            *counts.entry(Arc::clone(&entry.shown)).or_default() += 1;
        }
        let (kept, clashing) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| counts.get(&entry.shown).is_none_or(|count| *count == 1));
        self.entries = kept;
        let clashing: Vec<Arc<Entry>> = clashing;
        for entry in &clashing {
            let others = clashing.iter().filter(|other| other.shown == entry.shown && !Arc::ptr_eq(entry, other));
            let with = others.map(|other| (other.server.clone(), other.original.to_string())).collect();
            self.warn(&entry.server, &entry.original, Why::Clash { shown: entry.shown.to_string(), with });
        }
    }

    fn warn(&mut self, server: &UpstreamName, tool: &str, why: Why) {
        self.warnings.push(Warning { server: server.clone(), tool: tool.to_owned(), why });
    }
}

/// Equal definitions count once: byte for byte, or as JSON values.
fn equal(one: &ToolDefinition, two: &ToolDefinition) -> bool {
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

    /// Says whether the tool is hidden for it.
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
        write!(f, "server '{}', tool {:?}: {}", self.server, self.tool, self.why)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Catalog, HeaderRule, ServerTools, Why};
    use crate::id::UpstreamName;
    use crate::wire::mcp::ToolDefinition;

    fn list(server: &str, headers: HeaderRule, tools: &[&str]) -> ServerTools {
        let tools: Vec<_> =
            tools.iter().map(|text| ToolDefinition::read(Bytes::from((*text).to_owned())).unwrap()).collect();
        ServerTools { server: UpstreamName::new(server).unwrap(), tools: Arc::from(tools), headers }
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
        assert!(catalog.warnings.iter().all(|warning| (warning.why == Why::Differs) == (warning.tool == "differs")));
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
}
