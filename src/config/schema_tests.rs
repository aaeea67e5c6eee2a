//! The schema and the reader know the same keys, and what the one takes the other takes.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::Rows;
use crate::codes::Code;
use crate::config::{keys, load_text};

/// Every kind of table: its definition's name, the reader's keys, the schema's rows.
fn sections() -> Vec<(&'static str, &'static [&'static str], Rows)> {
    vec![
        ("", keys::ROOT, super::root()),
        ("api_key", keys::API_KEY, super::api_key()),
        ("bundle", keys::BUNDLE, super::bundle()),
        ("concurrency", keys::CONCURRENCY, super::concurrency()),
        ("expect", keys::EXPECT, super::expect()),
        ("limits", keys::LIMITS, super::limits()),
        ("listen", keys::LISTEN, super::listen()),
        ("log", keys::LOG, super::log()),
        ("mcp", keys::MCP, super::mcp()),
        ("policy", keys::POLICY, super::policy()),
        ("principal", keys::PRINCIPAL, super::principal()),
        ("rates", keys::RATES, super::rates()),
        ("server", keys::SERVER, super::server()),
        ("state", keys::STATE, super::state()),
    ]
}

/// [OPS-1, CFG]: no key is in the one and not in the other.
#[test]
fn the_schema_has_the_readers_keys_and_no_others() {
    let schema = super::schema();
    for (name, known, rows) in sections() {
        let known: BTreeSet<_> = known.iter().copied().collect();
        let described: BTreeSet<_> = rows.iter().map(|(key, _)| *key).collect();
        assert_eq!(known, described, "table '{name}'");
        assert_eq!(rows.len(), described.len(), "table '{name}' has a key twice");
        let whole = if name.is_empty() { &schema } else { &schema["$defs"][name] };
        assert_eq!(whole["additionalProperties"], json!(false), "{name}");
        for (key, row) in rows {
            assert_eq!(whole["properties"][key], row, "{name}.{key}");
            assert!(row.get("$ref").is_some() || row["description"].is_string(), "{name}.{key} says nothing");
        }
    }
    // No definition is forgotten above.
    let names: BTreeSet<_> = sections().iter().map(|(name, ..)| *name).filter(|name| !name.is_empty()).collect();
    assert_eq!(schema["$defs"].as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
}

/// A file in which one key has a value that no key takes.
fn with_wrong(section: &str, key: &str) -> String {
    let wrong = format!("{key} = 1979-05-27\n");
    let http = matches!(key, "url" | "headers");
    let transport = if http { "url = \"http://127.0.0.1:1/\"\n" } else { "command = \"x\"\n" };
    let other = |name: &str, line: &str| if key == name { String::new() } else { line.to_owned() };
    match section {
        "" => wrong,
        "api_key" => format!("[principals.p]\napi_keys = [{{ {} }}]\n", wrong.trim()),
        "bundle" => format!("[mcp_bundles.b]\n{wrong}"),
        "expect" => {
            let rest = format!("{}{}", other("tool", "tool = \"a__b\"\n"), other("visible", "visible = true\n"));
            format!("[[policies.p.expect]]\n{rest}{wrong}")
        }
        "policy" => format!("[policies.p]\n{wrong}"),
        "principal" => format!("[principals.p]\n{wrong}"),
        "server" => {
            let name = other("name", "name = \"s\"\n");
            let transport = if matches!(key, "url" | "command") { "" } else { transport };
            format!("[[mcp.servers]]\n{name}{transport}{wrong}")
        }
        "concurrency" | "rates" => format!("[limits.{section}]\n{wrong}"),
        section => format!("[{section}]\n{wrong}"),
    }
}

/// Every key of the schema is really read: a value of a type that no key takes is refused at its place, while the same
/// key misspelt is unknown.
#[test]
fn the_reader_reads_every_key_of_the_schema() {
    for (section, _, rows) in sections() {
        for (key, _) in rows {
            let text = with_wrong(section, key);
            let found = load_text(Path::new("t.toml"), &text, &|_| None).expect_err(&text);
            let of_keys = [Code::UnknownKey, Code::Later];
            let (unread, read): (Vec<_>, Vec<_>) =
                found.0.iter().filter(|one| one.key.ends_with(key)).partition(|one| of_keys.contains(&one.code));
            assert!(unread.is_empty() && !read.is_empty(), "{section}.{key}: {found}");
            let text = with_wrong(section, &format!("{key}x"));
            let found = load_text(Path::new("t.toml"), &text, &|_| None).expect_err(&text);
            let near =
                found.0.iter().find(|one| one.code == Code::UnknownKey).unwrap_or_else(|| panic!("{text}: {found}"));
            assert!(near.help.as_ref().is_some_and(|help| help.contains(&format!("'{key}'"))), "{found}");
        }
    }
}
