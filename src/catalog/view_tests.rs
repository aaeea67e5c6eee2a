//! Lists and look-ups read one table.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::{Scope, View};
use crate::catalog::{Catalog, HeaderRule, Lists, ServerLists, Shape};
use crate::id::UpstreamName;
use crate::wire::mcp::{Definition, Kind};

fn server(name: &str) -> UpstreamName {
    UpstreamName::new(name).unwrap()
}

fn catalog(servers: &[(&str, Vec<String>)]) -> Catalog {
    kinds(&servers.iter().map(|(name, tools)| (*name, Kind::Tools, tools.clone())).collect::<Vec<_>>())
}

fn kinds(servers: &[(&str, Kind, Vec<String>)]) -> Catalog {
    let lists: Vec<ServerLists> = servers
        .iter()
        .map(|(name, kind, items)| {
            let mut lists = Lists::default();
            let read = |text: &String| Definition::read(*kind, Bytes::from(text.clone())).unwrap();
            lists.set(*kind, items.iter().map(read).collect());
            ServerLists { server: server(name), lists, headers: HeaderRule::Check }
        })
        .collect();
    Catalog::merge(&lists, 64)
}

fn list(view: &View, scope: Scope<'_>, shape: Shape) -> String {
    list_of(view, scope, Kind::Tools, shape)
}

fn list_of(view: &View, scope: Scope<'_>, kind: Kind, shape: Shape) -> String {
    let page = view.page((scope, kind), shape, &view.full_mask(), 0, usize::MAX);
    String::from_utf8(page.items.to_vec()).unwrap()
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
            format!(r#"{{"name":"t",{schema}}}"#),
        ),
        (
            format!(r#"{{"name":"t",{schema} , "outputSchema":{{"type":"array"}} }}"#),
            format!(r#"{{"name":"t",{schema} }}"#),
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

/// [NAM-4, NAM-5, R88, R89]: names and URIs of every kind are prefixed on `/mcp` alone, an app's page too; all else passes.
#[test]
fn each_kind_has_its_list() {
    let tool =
        r#"{"name":"t","inputSchema":{},"_meta":{"ui":{"resourceUri":"ui://app/x"},"ui/resourceUri":"ui://app/x"}}"#;
    let shown = tool.replace("\"t\"", "\"s__t\"").replace("ui://app", "ui://s/app");
    let rows = [
        (Kind::Tools, tool, shown.as_str()),
        (Kind::Prompts, r#"{"name":"p","arguments":[{"name":"a"}]}"#, r#"{"name":"s__p","arguments":[{"name":"a"}]}"#),
        (Kind::Resources, r#"{"name":"n","uri":"x:\/y","size":1e2}"#, r#"{"name":"n","uri":"s+x:/y","size":1e2}"#),
        (Kind::Templates, r#"{"name":"n","uriTemplate":"x:{y}"}"#, r#"{"name":"n","uriTemplate":"s+x:{y}"}"#),
    ];
    let view = View::build(&kinds(&rows.map(|(kind, text, _)| ("s", kind, vec![text.to_owned()]))), |_| true);
    let own = server("s");
    for (kind, text, shown) in rows {
        for shape in [Shape::Handshake, Shape::Stateless] {
            assert_eq!(list_of(&view, Scope::All, kind, shape), format!("[{shown}]"));
            assert_eq!(list_of(&view, Scope::Server(&own), kind, shape), format!("[{text}]"));
        }
    }
    let mut mask = view.full_mask();
    let (at, _) = view.resolve(Scope::Server(&own), Kind::Resources, "x:/y").unwrap();
    mask.remove(at);
    for kind in Kind::ALL {
        let same = view.fingerprint(Scope::All, kind, &mask) == view.fingerprint(Scope::All, kind, &view.full_mask());
        assert_eq!(same, kind != Kind::Resources, "a kind's fingerprint is its own");
    }
    assert!(view.resolve(Scope::All, Kind::Prompts, "s__t").is_none(), "a tool is no prompt");
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
            let (_, found) = whole.resolve(Scope::All, Kind::Tools, &entry.shown).expect("the same name with more neighbours");
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
            let page = view.page((Scope::All, Kind::Tools), Shape::Handshake, &mask, start, bytes_max);
            for tool in serde_json::from_slice::<Vec<Value>>(&page.items).unwrap() {
                listed.push(tool["name"].as_str().unwrap().to_owned());
            }
            from = page.next;
        }
        for name in &shown {
            let callable = view.resolve(Scope::All, Kind::Tools, name).is_some_and(|(at, _)| mask.contains(at));
            prop_assert_eq!(callable, listed.contains(&name.to_string()), "{}", name);
        }
        for entry in view.iter() {
            let found = view.resolve(Scope::Server(&entry.server), Kind::Tools, &entry.original).unwrap().1;
            prop_assert_eq!(&found.shown, &entry.shown);
        }
        let same = view.fingerprint(Scope::All, Kind::Tools, &mask) == view.fingerprint(Scope::All, Kind::Tools, &view.full_mask());
        prop_assert_eq!(same, mask.is_full());
    }
}
