//! Lists and look-ups read one table.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::{Scope, Shape, View};
use crate::catalog::{Catalog, HeaderRule, ServerTools};
use crate::id::UpstreamName;
use crate::wire::mcp::ToolDefinition;

fn server(name: &str) -> UpstreamName {
    UpstreamName::new(name).unwrap()
}

fn catalog(servers: &[(&str, Vec<String>)]) -> Catalog {
    let lists: Vec<ServerTools> = servers
        .iter()
        .map(|(name, tools)| ServerTools {
            server: server(name),
            tools: tools.iter().map(|text| ToolDefinition::read(Bytes::from(text.clone())).unwrap()).collect(),
            headers: HeaderRule::Check,
        })
        .collect();
    Catalog::merge(&lists, 64)
}

fn list(view: &View, scope: Scope<'_>, shape: Shape) -> String {
    let page = view.page(scope, shape, &view.full_mask(), 0, usize::MAX);
    String::from_utf8(page.tools.to_vec()).unwrap()
}

/// [NAM-5]: one server alone sees its definitions byte for byte.
#[test]
fn definitions_pass_but_for_their_name() {
    let text = r#"{ "z":1.10, "name" : "t","inputSchema":{"type":"object","x":12345678901234567890123}}"#.to_owned();
    let view = View::build(&catalog(&[("s", vec![text.clone()])]), |_| true);
    let own = server("s");
    assert_eq!(list(&view, Scope::Server(&own), Shape::Handshake), format!("[{text}]"));
    assert_eq!(list(&view, Scope::All, Shape::Stateless), format!("[{}]", text.replace("\"t\"", "\"s__t\"")));
    assert_eq!(list(&view, Scope::Server(&server("other")), Shape::Stateless), "[]");
}

/// [R87, FC-NAM-10]
#[test]
fn each_era_sees_the_members_it_knows() {
    let schema = r#""inputSchema":{}"#;
    for (text, handshake, stateless) in [
        (
            format!(r#"{{"execution":{{"a":1}} , "name":"t",{schema}}}"#),
            format!(r#"{{"execution":{{"a":1}} , "name":"t",{schema}}}"#),
            format!(r#"{{ "name":"t",{schema}}}"#),
        ),
        (
            format!(r#"{{"name":"t",{schema} , "outputSchema":{{"type":"array"}} }}"#),
            format!(r#"{{"name":"t",{schema}  }}"#),
            format!(r#"{{"name":"t",{schema} , "outputSchema":{{"type":"array"}} }}"#),
        ),
        (
            r#"{"name":"t"}"#.to_owned(),
            r#"{"inputSchema":{"type":"object"},"name":"t"}"#.to_owned(),
            r#"{"inputSchema":{"type":"object"},"name":"t"}"#.to_owned(),
        ),
        (
            r#"{"name":"t","inputSchema":null}"#.to_owned(),
            r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(),
            r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(),
        ),
    ] {
        let view = View::build(&catalog(&[("s", vec![text])]), |_| true);
        let own = server("s");
        assert_eq!(list(&view, Scope::Server(&own), Shape::Handshake), format!("[{handshake}]"));
        assert_eq!(list(&view, Scope::Server(&own), Shape::Stateless), format!("[{stateless}]"));
    }
}

/// Any characters at all, control characters too, up to 300 of them.
fn arbitrary_name() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..=300).prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    /// [NAM-2]: what else exists changes no name, and each shown name leads back to its own tool.
    #[test]
    fn neighbours_change_no_name(
        names in prop::collection::btree_set(arbitrary_name(), 1..20),
        kept in prop::collection::vec(any::<bool>(), 20),
    ) {
        let tool = |name: &String| format!(r#"{{"name":{}}}"#, Value::from(name.as_str()));
        let all: Vec<String> = names.iter().map(tool).collect();
        let some: Vec<String> = names.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(name, _)| tool(name)).collect();
        let whole = View::build(&catalog(&[("one", all)]), |_| true);
        let part = View::build(&catalog(&[("zero", vec![tool(&"x".to_owned())]), ("one", some)]), |_| true);
        for entry in part.iter().filter(|entry| entry.server.as_str() == "one") {
            prop_assert!(entry.shown.len() <= 64);
            let (_, found) = whole.resolve(Scope::All, &entry.shown).expect("the same name with more neighbours");
            prop_assert_eq!(&found.original, &entry.original);
        }
    }

    /// Visible ⇔ callable, under any mask, and pages join to the whole list [POL-12, R82].
    #[test]
    fn what_is_listed_is_what_resolves(
        names in prop::collection::vec(arbitrary_name(), 0..20),
        hidden in prop::collection::vec(any::<bool>(), 20),
        masked in prop::collection::vec(any::<bool>(), 20),
        bytes_max in 1_usize..2_000,
    ) {
        let tools: Vec<String> =
            names.iter().map(|name| format!(r#"{{"name":{}}}"#, Value::from(name.as_str()))).collect();
        let catalog = catalog(&[("one", tools.clone()), ("two", tools)]);
        let shown: Vec<Arc<str>> = catalog.entries.iter().map(|entry| Arc::clone(&entry.shown)).collect();
        let index = |name: &str| shown.iter().position(|other| &**other == name).unwrap() % 20;
        let view = View::build(&catalog, |entry| !hidden[index(&entry.shown)]);
        let mut mask = view.full_mask();
        for (at, entry) in view.iter().enumerate() {
            if masked[index(&entry.shown)] {
                mask.remove(at);
            }
        }
        let (mut listed, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let page = view.page(Scope::All, Shape::Handshake, &mask, start, bytes_max);
            for tool in serde_json::from_slice::<Vec<Value>>(&page.tools).unwrap() {
                listed.push(tool["name"].as_str().unwrap().to_owned());
            }
            from = page.next;
        }
        for name in &shown {
            let callable = view.resolve(Scope::All, name).is_some_and(|(at, _)| mask.contains(at));
            prop_assert_eq!(callable, listed.contains(&name.to_string()), "{}", name);
        }
        for entry in view.iter() {
            let found = view.resolve(Scope::Server(&entry.server), &entry.original).unwrap().1;
            prop_assert_eq!(&found.shown, &entry.shown);
        }
        let same = view.fingerprint(Scope::All, &mask) == view.fingerprint(Scope::All, &view.full_mask());
        prop_assert_eq!(same, mask.is_full());
    }
}
