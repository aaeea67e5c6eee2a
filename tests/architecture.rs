//! Who keeps the stairs straight: the shape of the house, checked on its own source text.
//!
//! One `#[test]` per rule. A failure names file and line, what is wrong and how to put it right. Not for behaviour:
//! nothing here calls the crate, so it also runs (and says why) when the crate does not compile.
//!
//! Invariants: std only; every rule has a source in `architecture/selftest.rs` that it must find, so none can
//! silently pass; comments and strings are never mistaken for code.

/// What each direct dependency is for.
#[path = "architecture/packages.rs"]
mod packages;
/// The rules, as functions from a tree of files to findings.
#[path = "architecture/rules.rs"]
mod rules;
/// A violation of every rule, and look-alikes that are none.
#[cfg(test)]
#[path = "architecture/selftest.rs"]
mod selftest;
/// Files, tokens, modules and the paths they name.
#[path = "architecture/source.rs"]
mod source;

use std::{path::Path, sync::LazyLock};

use rules::{Finding, Floor};
use source::Tree;

/// The floors, ground first. A room imports only from floors below its own; a room may be missing from the source
/// until its first working code. The same table stands in ARCHITECTURE.md, and `floor_table_is_the_documented_one`
/// compares them. Changing it is a decision: add an entry to the decision list there.
const FLOORS: &[Floor] = &[
    Floor { number: 0, name: "ground", rooms: &["clock", "codes", "id", "secret", "seal"] },
    Floor { number: 1, name: "words", rooms: &["wire"] },
    Floor { number: 2, name: "utilities", rooms: &["runtime", "telemetry"] },
    Floor { number: 3, name: "facts", rooms: &["identity", "catalog", "limit", "net"] },
    Floor { number: 4, name: "rules", rooms: &["policy"] },
    Floor { number: 5, name: "narrow waist", rooms: &["exchange"] },
    Floor { number: 6, name: "memory", rooms: &["session", "approval", "audit", "blob"] },
    Floor { number: 7, name: "doors", rooms: &["downstream", "upstream"] },
    Floor { number: 8, name: "hall", rooms: &["gateway"] },
    Floor { number: 9, name: "office", rooms: &["admin", "config", "clients"] },
    Floor { number: 10, name: "wiring", rooms: &["app", "demo"] },
    Floor { number: 11, name: "street", rooms: &["cli", "main"] },
];

/// Modules that may say `Era` or `ProtocolVersion`. Everyone else works on the canonical form.
const KNOWS_ERAS: &[&str] =
    &["wire", "catalog::view", "exchange", "session", "downstream", "upstream", "audit", "config", "demo"];

/// Rooms that name no runtime and no socket library.
const SANS_IO: &[&str] = &["wire", "identity", "catalog", "limit", "policy"];

/// Rooms that are synchronous: they never say `async` or `await`.
const SYNCHRONOUS: &[&str] = &["identity", "catalog", "limit", "policy"];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc", "types"];

/// Packages with a trap (design: "fixed packages"), and the one file that may name each.
const FENCED: &[(&str, &str)] =
    &[("eventsource_stream", "src/wire/sse/decode.rs"), ("rustls_pemfile", "src/net/tls/pem.rs")];

/// Non-test lines a file may have.
const FILE_LINES_MAX: usize = 600;

/// Non-test lines a door plate (a `mod.rs` that is not alone in its folder) may have.
const DOOR_PLATE_LINES_MAX: usize = 90;

/// How many requirements the protocol puts on a gateway: the rows of the table in tests/README.md.
const REQUIREMENTS: usize = 128;

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::read(Path::new(env!("CARGO_MANIFEST_DIR"))));

fn check(rule: fn(&Tree) -> Vec<Finding>) {
    assert!(TREE.file("src/lib.rs").is_some(), "the tree was not read: no src/lib.rs below {}", TREE.root());
    let findings = rule(&TREE);
    let text: String = findings.iter().map(|finding| format!("\n{finding}\n")).collect();
    assert!(findings.is_empty(), "{} finding(s)\n{text}", findings.len());
}

#[test]
fn stairs_only_go_down() {
    check(rules::stairs_only_go_down);
}

#[test]
fn gateway_never_sees_downstream() {
    check(rules::gateway_never_sees_downstream);
}

#[test]
fn every_top_level_module_has_a_floor() {
    check(rules::every_top_level_module_has_a_floor);
}

#[test]
fn files_are_where_their_module_says() {
    check(rules::files_are_where_their_module_says);
}

#[test]
fn only_the_doors_know_eras() {
    check(rules::only_the_doors_know_eras);
}

#[test]
fn sans_io_rooms_name_no_runtime() {
    check(rules::sans_io_rooms_name_no_runtime);
}

#[test]
fn facts_and_rules_never_await() {
    check(rules::facts_and_rules_never_await);
}

#[test]
fn no_file_is_too_long() {
    check(rules::no_file_is_too_long);
}

#[test]
fn every_file_says_what_it_is_for() {
    check(rules::every_file_says_what_it_is_for);
}

#[test]
fn no_module_has_an_empty_name() {
    check(rules::no_module_has_an_empty_name);
}

#[test]
fn door_plates_stay_short() {
    check(rules::door_plates_stay_short);
}

#[test]
fn every_dependency_has_a_reason() {
    check(rules::every_dependency_has_a_reason);
}

#[test]
fn fenced_packages_stay_in_their_file() {
    check(rules::fenced_packages_stay_in_their_file);
}

#[test]
fn no_private_key_in_the_tree() {
    check(rules::no_private_key_in_the_tree);
}

#[test]
fn floor_table_is_the_documented_one() {
    check(rules::floor_table_is_the_documented_one);
}

#[test]
fn ignored_tests_say_why() {
    check(rules::ignored_tests_say_why);
}

#[test]
fn every_bound_has_its_test() {
    check(rules::every_bound_has_its_test);
}

#[test]
fn no_machine_paths_in_the_tree() {
    check(rules::no_machine_paths_in_the_tree);
}

#[test]
fn every_requirement_has_its_row() {
    check(rules::every_requirement_has_its_row);
}
