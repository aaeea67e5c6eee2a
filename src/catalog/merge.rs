//! Lists of many servers → one catalog, in a fixed order [CTX-6, NAM-2, NAM-8].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

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
    pub why: String,
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
            self.warn(&list.server, name, "listed more than once with different definitions: hidden [NAM-8]");
        }
        for tool in list.tools.iter() {
            if differing.contains(&*tool.name) || firsts.remove(&*tool.name).is_none() {
                continue;
            }
            let header_params = match (&tool.header_params, list.headers) {
                (Ok(params), HeaderRule::Check | HeaderRule::Ignore) => Arc::clone(params),
                (Err(_), HeaderRule::Ignore) => Arc::default(),
                (Err(why), HeaderRule::Check) => {
                    self.warn(&list.server, &tool.name, why);
                    continue;
                }
            };
            if !tool.has_input_schema {
                self.warn(&list.server, &tool.name, "has no inputSchema: shown with an empty object schema");
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
        for entry in clashing {
            let why = format!("its shown name '{}' is another tool's too: both hidden [NAM-2]", entry.shown);
            self.warn(&entry.server, &entry.original, &why);
        }
    }

    fn warn(&mut self, server: &UpstreamName, tool: &str, why: &str) {
        self.warnings.push(Warning { server: server.clone(), tool: tool.to_owned(), why: why.to_owned() });
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

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server '{}', tool {:?}: {}", self.server, self.tool, self.why)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{Catalog, HeaderRule, ServerTools};
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
        assert_eq!(catalog.warnings.iter().filter(|warning| warning.why.contains("NAM-8")).count(), 1);
        assert!(catalog.warnings.iter().all(|warning| warning.why.contains("NAM-8") == (warning.tool == "differs")));
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
        assert_eq!(catalog.warnings.iter().filter(|warning| warning.why.contains("NAM-2")).count(), 2);
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
