//! What a reload says of itself: names, and never a value [CFG-4].

use std::path::Path;

use super::Kept;
use crate::config::{Settings, load_text};
use crate::gateway::{Changes, GatewaySettings};

fn settings(text: &str) -> GatewaySettings {
    let listen = "[listen]\nauth = \"keys\"\n";
    let loaded = load_text(Path::new("test.toml"), &format!("{listen}{text}"), &|_| Some("canary".into()));
    loaded.unwrap_or_else(|found| panic!("{found}")).settings.gateway
}

fn key(letter: char) -> String {
    std::iter::repeat_n(letter, 64).collect()
}

fn server(name: &str, more: &str) -> String {
    format!("[[mcp.servers]]\nname = \"{name}\"\ncommand = \"true\"\n{more}\n")
}

fn principal(name: &str, key_letter: char, more: &str) -> String {
    format!("[principals.{name}]\napi_keys = [{{ sha256 = \"{}\" }}]\n{more}\n", key(key_letter))
}

const BUNDLES: &str = "[mcp_bundles.one]\nservers = [\"a\"]\n[mcp_bundles.two]\nservers = [\"a\", \"b\"]\n\
                       [policies.p]\nexcluded_tools = [\"a__x\"]\n";

#[test]
fn the_same_is_no_change() {
    let text = [server("a", ""), server("b", ""), BUNDLES.to_owned(), principal("ann", '1', "policy = \"p\"")].concat();
    assert!(Changes::between(&settings(&text), &settings(&text)).is_empty());
}

#[test]
fn what_came_changed_and_went_is_named() {
    let old = [
        server("a", "env = { KEY = \"${env:KEY}\" }"),
        server("b", ""),
        BUNDLES.to_owned(),
        principal("ann", '1', "mcp_bundles = [\"one\"]"),
        principal("bob", '2', ""),
        principal("eve", '3', ""),
    ];
    let new = [
        server("a", "env = { KEY = \"canary-2\" }"),
        server("c", ""),
        BUNDLES.replace("\"b\"", "\"c\""),
        principal("ann", '1', "mcp_bundles = [\"two\"]\npolicy = \"p\""),
        principal("bob", '4', ""),
        principal("fay", '5', ""),
    ];
    let changes = Changes::between(&settings(&old.concat()), &settings(&new.concat()));
    assert_eq!(changes.servers.to_string(), "+c ~a -b");
    assert_eq!(changes.principals.to_string(), "+fay ~ann (policy, servers) ~bob (keys) -eve");
    assert!(changes.keys.is_empty());
    assert!(!format!("{changes:?}").contains("canary"));
}

#[test]
fn keys_of_the_file_and_the_order_count() {
    let old = [server("a", ""), server("b", "")].concat();
    let new = ["[mcp]\nfirst_list_wait_secs = 1\n".to_owned(), server("b", ""), server("a", "")].concat();
    let changes = Changes::between(&settings(&old), &settings(&new));
    assert_eq!(changes.keys, ["mcp.first_list_wait_secs", "the order of mcp.servers"]);
    assert_eq!(changes.servers.to_string(), "as before");
}

fn all(text: &str) -> Settings {
    load_text(Path::new("test.toml"), text, &|_| None).unwrap_or_else(|found| panic!("{found}")).settings
}

/// [CFG-4]: each limit of the front door is one that waits for the next start.
#[test]
fn every_limit_of_the_door_waits_for_the_next_start() {
    let before = Kept::of(&all("[listen]\nauth = \"keys\"\n"));
    for key in ["question_secs", "parked_calls", "parked_calls_per_principal", "resume_secs", "write_timeout_secs"] {
        let text = format!("[listen]\nauth = \"keys\"\n[limits]\n{key} = 7\n");
        assert_eq!(before.differences(&Kept::of(&all(&text))), ["limits"], "{key}");
    }
    let text = "[listen]\nauth = \"keys\"\npublic_url = \"https://example.com/tools\"\n";
    assert_eq!(before.differences(&Kept::of(&all(text))), ["listen.public_url"]);
}

/// [CFG-4] What is taken at the start alone is named as the file spells it.
#[test]
fn what_waits_for_the_next_start_is_named() {
    let before = Kept::of(&all("[listen]\nauth = \"keys\"\n"));
    assert!(before.differences(&before).is_empty());
    let text = "[listen]\nauth = \"keys\"\nhttp = \"127.0.0.1:9\"\nadmin = \"127.0.0.1:8\"\nallowed_hosts = [\"h\"]\n\
                allowed_origins = [\"https://o\"]\n[log]\nlevel = \"debug\"\n";
    let named = before.differences(&Kept::of(&all(text)));
    assert_eq!(
        named,
        ["listen.http", "listen.allowed_hosts", "listen.allowed_origins", "listen.admin and health", "log"]
    );
}
