//! The checker checked: for each rule a tree that breaks it, where the finding must be, and look-alikes that pass.
//!
//! Not for the real tree. Invariants: `RULES` names every rule of `rules.rs`, and each has a violation here.

use crate::{
    FLOORS, REQUIREMENTS,
    rules::{self, Finding, direct_dependencies},
    source::{Kind, Tree, lex},
};

type Edit = fn(&mut Vec<String>);
type Rule = fn(&Tree) -> Vec<Finding>;

/// Every place, as `path:line`, at which `rule` finds something in a tree of these files.
fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&Tree::of(files)).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}

fn assert_clean(rule: Rule, files: &[(&str, &str)]) {
    assert_eq!(places(rule, files), Vec::<String>::new(), "{files:?}");
}

/// Asserts that `rule` finds something in each one-line source, put at `path`, and only there.
fn assert_found(rule: Rule, path: &str, sources: &[&str]) {
    for source in sources {
        assert_eq!(places(rule, &[(path, &format!("//! Doc.\n{source}\n"))]), [format!("{path}:2")], "{source}");
    }
}

fn assert_passes(rule: Rule, path: &str, sources: &[&str]) {
    sources.iter().for_each(|source| assert_clean(rule, &[(path, &format!("//! Doc.\n{source}\n"))]));
}

#[test]
fn an_upward_or_level_import_is_found() {
    let rule = rules::stairs_only_go_down;
    assert_found(
        rule,
        "src/wire/sse/decode.rs",
        &[
            "use crate::session::Store;",
            "use crate::net;",
            "use super::super::super::gateway::Gateway;",
            "use super::super::{jsonrpc::Id, super::session};",
            "use crate::{clock::Clock, session::{self, Store}};",
            "fn f() { crate::app::build(); }",
            "type T = Vec<crate::upstream::Target>;",
            "pub(in crate::gateway) struct S;",
            "macro_rules! m { () => { $crate::audit::record() } }",
            "#[serde(default = \"crate::config::limit\")] struct S;",
            "use portcullis::cli::run;",
            "mod inner { use super::super::super::super::policy::Permitted; }",
            "mod inner {} use super::super::super::policy::Permitted;",
            "#[cfg(test)] mod tests { use crate::policy::Permitted; }",
            "/* one /* two */ three */ use crate::r#session::Store;",
            "const A: char = '\"'; use crate::session::Store; const B: char = '\"';",
            "fn f<'a>(x: &'a str) -> crate::audit::Log<'a> { g('\\'') }",
            "const A: &str = r#\"a \"quoted\" word\"#; use crate::session::Store;",
            "use crate as root;",
            "use crate::{self as root};",
            "use crate::*;",
            "use crate::{clock::Clock, *};",
            "use super::super::super::*;",
            "extern crate self as other;",
            "use crate::Reexported;",
        ],
    );
    let lines =
        [("src/wire/a.rs", "use crate::{\n    clock,\n    session::{\n        Store,\n        Id,\n    },\n};\n")];
    assert_eq!(places(rule, &lines), ["src/wire/a.rs:4", "src/wire/a.rs:5"]);
    assert_found(rule, "src/upstream/set.rs", &["use crate::downstream::router;", "use crate::gateway::Gateway;"]);
    assert_found(rule, "src/clock.rs", &["use super::id::Id;", "use super::*;"]);
    assert_found(rule, "src/cli/mod.rs", &["use portcullis::main;"]);
    assert_found(rule, "src/app/mod.rs", &["use portcullis::cli;"]);
}

#[test]
fn a_downward_import_and_what_only_looks_like_one_pass() {
    let rule = rules::stairs_only_go_down;
    assert_passes(
        rule,
        "src/exchange/reply.rs",
        &[
            "use crate::wire::mcp::Method;",
            "use crate::{clock::Clock, policy::{self, Permitted as May}, wire::*};",
            "use super::request::Exchange;",
            "use super::super::policy::Permitted;",
            "use super::*;",
            "pub(crate) use self::inner::T; pub(super) fn f(self) {}",
            "// use crate::gateway::Gateway;",
            "/// See [`crate::gateway::Gateway`].\nstruct S;",
            "/* use crate::gateway; /* nested */ use crate::app; */ struct S;",
            "const A: &str = \"use crate::gateway::Gateway;\";",
            "const A: &str = r##\"use \"# crate::gateway::Gateway;\"##;",
            "const A: &[u8] = b\"use crate::gateway;\"; const B: &str = \"\\\" use crate::gateway;\";",
            "#[doc = \"crate::gateway::Gateway\"] struct S;",
            "extern crate alloc;",
            "fn f(gateway: G) { gateway::run(); std::gateway::run(); }",
            "#[cfg(test)] mod tests { use super::*; use super::super::super::wire::Id; }",
        ],
    );
    assert_passes(rule, "src/main.rs", &["mod tests {} use portcullis::{app, cli}; use crate::arguments;"]);
    assert_passes(rule, "src/lib.rs", &["pub mod clock;\npub mod gateway;"]);
}

#[test]
fn an_import_in_a_test_file_beside_its_module_is_judged_from_where_it_is_declared() {
    let parent = "//! Doc.\n#[cfg(test)]\n#[path = \"clock_tests.rs\"]\nmod tests;\n";
    let bad = [("src/clock.rs", parent), ("src/clock_tests.rs", "//! Doc.\nuse super::super::wire::Id;\n")];
    assert_eq!(places(rules::stairs_only_go_down, &bad), ["src/clock_tests.rs:2"]);
    assert_clean(rules::every_top_level_module_has_a_floor, &bad);
    assert_clean(rules::files_are_where_their_module_says, &bad);
    assert_clean(rules::stairs_only_go_down, &[("src/clock.rs", parent), ("src/clock_tests.rs", "use super::*;")]);
}

#[test]
fn the_hall_naming_the_front_door_is_found() {
    let rule = rules::gateway_never_sees_downstream;
    assert_found(
        rule,
        "src/gateway/list.rs",
        &[
            "use crate::downstream::respond;",
            "use super::super::{downstream, exchange};",
            "fn f() { crate::downstream::g() }",
        ],
    );
    assert_passes(rule, "src/gateway/list.rs", &["use crate::upstream::Target; // crate::downstream::respond"]);
    assert_passes(rule, "src/app/build.rs", &["use crate::downstream::Downstream;"]);
}

#[test]
fn a_room_without_a_floor_is_found() {
    let rule = rules::every_top_level_module_has_a_floor;
    assert_found(rule, "src/lib.rs", &["pub mod cellar;", "mod cellar { }"]);
    assert_found(rule, "src/main.rs", &["mod cellar;"]);
    assert_eq!(places(rule, &[("src/cellar/wine.rs", "//! Doc.\n")]), ["src/cellar/wine.rs:1"]);
    assert_eq!(places(rule, &[("src/bin/other.rs", "//! Doc.\n")]), ["src/bin/other.rs:1"]);
    let clean = [("src/lib.rs", "pub mod clock;\n// pub mod cellar;\n"), ("src/clock.rs", ""), ("src/main.rs", "")];
    assert_clean(rule, &clean);
}

#[test]
fn a_file_that_is_not_where_its_module_says_is_found() {
    let rule = rules::files_are_where_their_module_says;
    assert_found(rule, "src/wire/mod.rs", &["#[path = \"../net/x.rs\"] mod x;", "include!(\"x.rs\");"]);
    assert_passes(
        rule,
        "src/wire/decode.rs",
        &["#[cfg(test)] #[path = \"decode_tests.rs\"] mod tests;", "const A: &str = include_str!(\"x.json\");"],
    );
}

#[test]
fn an_era_outside_the_doors_is_found() {
    let rule = rules::only_the_doors_know_eras;
    let bad = [
        "fn f(era: Era) {}",
        "use crate::wire::mcp::{Method, ProtocolVersion};",
        "#[cfg(test)] mod t { type A = Era; }",
    ];
    for path in [
        "src/gateway/list.rs",
        "src/catalog/merge.rs",
        "src/app/mod.rs",
        "src/policy/decide.rs",
        "src/main.rs",
        "src/lib.rs",
    ] {
        assert_found(rule, path, &bad);
    }
    for path in
        ["src/catalog/view.rs", "src/catalog/view/page.rs", "src/config/mod.rs", "src/demo/mod.rs", "src/wire/a.rs"]
    {
        assert_passes(rule, path, &bad);
    }
    assert_passes(
        rule,
        "src/gateway/list.rs",
        &[
            "/// An Era.\nfn f(era: u8) {}",
            "// ProtocolVersion",
            "const A: &str = \"Era\";",
            "struct EraOfGoodFeelings;",
        ],
    );
}

#[test]
fn a_runtime_in_a_room_without_io_is_found() {
    let rule = rules::sans_io_rooms_name_no_runtime;
    let bad = [
        "use tokio::time::sleep;",
        "fn f(body: hyper::body::Incoming) {}",
        "use tokio_util::codec;",
        "use hyper_util::rt;",
    ];
    for path in ["src/wire/a.rs", "src/identity/a.rs", "src/catalog/a.rs", "src/limit/mod.rs", "src/policy/a/b.rs"] {
        assert_found(rule, path, &bad);
    }
    assert_passes(rule, "src/session/store.rs", &bad);
    assert_passes(rule, "src/wire/a.rs", &["// tokio", "const A: &str = \"hyper\";", "fn hyperbole(tokios: u8) {}"]);
}

#[test]
fn an_await_in_a_synchronous_room_is_found() {
    let rule = rules::facts_and_rules_never_await;
    assert_found(rule, "src/policy/decide.rs", &["async fn f() {}", "fn f() { g().await }"]);
    assert_passes(rule, "src/policy/decide.rs", &["// We never await, and nothing is async."]);
    assert_passes(rule, "src/session/store.rs", &["async fn f() {}"]);
}

#[test]
fn a_fenced_package_outside_its_file_is_found() {
    let rule = rules::fenced_packages_stay_in_their_file;
    assert_found(rule, "src/upstream/http.rs", &["use eventsource_stream::Eventsource;", "use rustls_pemfile::certs;"]);
    assert_found(rule, "src/wire/sse/decode.rs", &["use rustls_pemfile::certs;"]);
    assert_found(rule, "tests/it/main.rs", &["use eventsource_stream::Eventsource;"]);
    assert_passes(rule, "src/wire/sse/decode.rs", &["use eventsource_stream::Eventsource;"]);
    assert_passes(rule, "src/net/tls/pem.rs", &["use rustls_pemfile::certs;"]);
    assert_passes(
        rule,
        "src/wire/sse/encode.rs",
        &["// unlike eventsource_stream\nconst A: &str = \"rustls_pemfile\";"],
    );
}

#[test]
fn a_file_above_the_ceiling_is_found() {
    let rule = rules::no_file_is_too_long;
    let long = |lines: usize, tests: usize| {
        let (code, tested) = ("// a\n".repeat(lines), "// b\n".repeat(tests));
        format!("{code}#[cfg(test)]\n#[expect(dead_code, reason = \"}}\")]\nmod tests {{\n{tested}}}\n")
    };
    assert_clean(rule, &[("src/wire/a.rs", &long(600, 900))]);
    assert_eq!(places(rule, &[("src/wire/a.rs", &long(601, 0))]), ["src/wire/a.rs:600"]);
    let after = format!("{}{}", long(10, 900), "// c\n".repeat(591));
    assert_eq!(places(rule, &[("src/wire/a.rs", &after)]), ["src/wire/a.rs:600"]);
    let untested = format!("#[cfg(not(test))] mod tests {{\n{}}}\n", "// b\n".repeat(600));
    assert_eq!(places(rule, &[("src/wire/a.rs", &untested)]), ["src/wire/a.rs:600"]);
    let vectors = "// v\n".repeat(900);
    assert_clean(rule, &[("src/wire/tests.rs", &vectors)]);
    let declared = "//! Doc.\n#[cfg(test)]\nmod vectors;\n";
    assert_clean(rule, &[("src/wire/mod.rs", declared), ("src/wire/vectors.rs", &vectors)]);
    assert_eq!(
        places(rule, &[("src/wire/mod.rs", "mod vectors;"), ("src/wire/vectors.rs", &vectors)]),
        ["src/wire/vectors.rs:600"]
    );
}

#[test]
fn a_file_that_does_not_say_what_it_is_for_is_found() {
    let rule = rules::every_file_says_what_it_is_for;
    for text in ["", "\n//! Late.\n", "// Not a doc.\n", "use std::fmt;\n"] {
        assert_eq!(places(rule, &[("src/wire/a.rs", text)]), ["src/wire/a.rs:1"]);
    }
    assert_eq!(places(rule, &[("tests/it/main.rs", "fn main() {}\n")]), ["tests/it/main.rs:1"]);
    assert_clean(rule, &[("src/wire/a.rs", "//! Words.\n"), ("deploy/README.md", "# Deploy\n")]);
}

#[test]
fn an_empty_name_is_found() {
    let rule = rules::no_module_has_an_empty_name;
    for name in crate::EMPTY_NAMES {
        let (file, folder) = (format!("src/wire/{name}.rs"), format!("src/{name}/wire.rs"));
        assert_eq!(places(rule, &[(&file, "")]), [format!("{file}:1")]);
        assert_eq!(places(rule, &[(&folder, "")]), [format!("{folder}:1")]);
        assert_found(rule, "src/wire/a.rs", &[&format!("mod {name} {{ }}")]);
    }
    assert_clean(rule, &[("src/wire/utility_bill.rs", "// mod utils { }\n"), ("tests/lab/common/a.mjs", "")]);
}

#[test]
fn a_long_door_plate_is_found() {
    let rule = rules::door_plates_stay_short;
    let (at, above) = ("// a\n".repeat(90), "// a\n".repeat(91));
    assert_eq!(places(rule, &[("src/wire/mod.rs", &above), ("src/wire/a.rs", "")]), ["src/wire/mod.rs:90"]);
    assert_eq!(places(rule, &[("src/wire/mod.rs", &above), ("src/wire/sse/mod.rs", "")]), ["src/wire/mod.rs:90"]);
    assert_clean(rule, &[("src/wire/mod.rs", &at), ("src/wire/a.rs", "")]);
    assert_clean(rule, &[("src/wire/mod.rs", &above), ("src/wire/tests.rs", ""), ("src/wired.rs", "")]);
}

#[test]
fn an_ignored_test_without_a_reason_is_found() {
    let rule = rules::ignored_tests_say_why;
    let bad = ["#[ignore] fn f() {}", "#[ignore = \"\"] fn f() {}", "#[cfg_attr(miri, ignore)] fn f() {}"];
    assert_found(rule, "tests/it/main.rs", &bad);
    assert_found(rule, "src/wire/a.rs", &bad);
    let good = ["#[ignore = \"needs a network\"] fn f() {}", "// #[ignore]", "const A: &str = \"#[ignore]\";"];
    assert_passes(rule, "tests/it/main.rs", &good);
    assert_passes(rule, "tests/it/main.rs", &["#[cfg_attr(miri, ignore = \"slow\")] fn f() {}"]);
}

#[test]
fn a_private_key_is_found_in_any_file() {
    let (rule, begin) = (rules::no_private_key_in_the_tree, "BEGIN");
    for kind in ["", "RSA ", "EC ", "ENCRYPTED ", "OPENSSH "] {
        let block = format!("a\n-----{begin} {kind}PRIVATE KEY-----\nMII\n");
        assert_eq!(places(rule, &[("certs/dev.pem", &block)]), ["certs/dev.pem:2"]);
        assert_eq!(places(rule, &[("tests/it/main.rs", &block)]), ["tests/it/main.rs:2"]);
    }
    assert_clean(rule, &[("README.md", "A PRIVATE KEY block is refused.\n-----BEGIN CERTIFICATE-----\n")]);
}

#[test]
fn a_machine_path_is_found_in_any_file() {
    let rule = rules::no_machine_paths_in_the_tree;
    for folder in ["work", "root"] {
        for line in [
            format!("/{folder}/a"),
            format!("cd \"/{folder}/a\""),
            format!("file:///{folder}/a"),
            format!("x=/{folder}/"),
        ] {
            assert_eq!(places(rule, &[("deploy/a.sh", &line)]), ["deploy/a.sh:1"], "{line}");
        }
        for line in
            [format!("a/{folder}/b"), format!("../{folder}/b"), format!("$HOME/{folder}/b"), format!("/{folder}s/")]
        {
            assert_clean(rule, &[("deploy/a.sh", &line)]);
        }
    }
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let rule = rules::every_dependency_has_a_reason;
    let known: String = crate::packages::PACKAGES.iter().map(|package| format!("{} = \"1\"\n", package.name)).collect();
    assert_clean(rule, &[("Cargo.toml", &format!("[dependencies]\n{known}"))]);
    for more in [
        "left-pad = \"1\"",
        "left-pad.workspace = true",
        "serde = \"1\"\n\n[dev-dependencies.left-pad]\nversion = \"1\"",
    ] {
        let manifest = format!("[dependencies]\n{known}{more}\n");
        assert_eq!(rule(&Tree::of(&[("Cargo.toml", &manifest)])).len(), 1, "{more}");
    }
    let stale = known.replace("bytes = \"1\"\n", "");
    let stale = places(rule, &[("Cargo.toml", &format!("[dependencies]\n{stale}"))]);
    assert_eq!(stale, ["tests/architecture/packages.rs:1"]);
    assert_eq!(places(rule, &[]), ["Cargo.toml:1"]);
}

#[test]
fn the_manifest_is_read_as_cargo_reads_it() {
    let manifest = r#"
[package]
name = "no"
[dependencies] # a comment
a = "1"
b = { version = "1", features = [
  "no",
  "x = # no",
] }
"c" = { path = "no", package = "real" }
d.version = "1"
# no = "1"
[target.'cfg(unix)'.dependencies]
e = "1"
[build-dependencies.f]
version = "1"
features = ["no"]
[dev-dependencies]
g = "1"
[profile.dev]
no = 1
"#;
    let names: Vec<String> = direct_dependencies(manifest).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "b", "real", "d", "e", "f", "g"]);
}

#[test]
fn a_bound_without_its_test_is_found() {
    let rule = rules::every_bound_has_its_test;
    let page = |rows: &str| {
        format!("# A\n\n## What can grow\n\n| a | b | c | d | e |\n|---|---|---|---|---|\n{rows}\n## B\n| x |\n")
    };
    let test = ("tests/a.rs", "//! A.\n#[test]\nfn it_is_bounded() {}\n");
    assert_clean(rule, &[("ARCHITECTURE.md", &page("| lines | 5 | fixed | dropped | `it_is_bounded` |\n")), test]);
    for rows in [
        "",
        "| lines | 5 | fixed | dropped | `it_is_not` |\n",
        "| lines | 5 | fixed | dropped | it_is_bounded |\n",
        "| lines | 5 | fixed | | `it_is_bounded` |\n",
        "| lines | 5 | `it_is_bounded` |\n",
    ] {
        assert_eq!(rule(&Tree::of(&[("ARCHITECTURE.md", &page(rows)), test])).len(), 1, "{rows}");
    }
    assert_eq!(rule(&Tree::of(&[test])).len(), 1, "no document");
}

#[test]
fn a_floor_table_that_differs_is_found() {
    let rule = rules::floor_table_is_the_documented_one;
    let row = |number: usize, name: &str, rooms: &str| format!("| {number} {name} | {rooms} | words |\n");
    let rows: Vec<String> = FLOORS
        .iter()
        .map(|floor| {
            row(floor.number, floor.name, &floor.rooms.iter().map(|room| format!("`{room}` ")).collect::<String>())
        })
        .collect();
    let page = |rows: &[String]| {
        format!(
            "# A\n\n## Floors\n\n| floor | rooms | what |\n|---|---|---|\n{}\n## B\n| 12 attic | `x` |\n",
            rows.concat()
        )
    };
    assert_clean(rule, &[("ARCHITECTURE.md", &page(&rows))]);
    assert_eq!(rule(&Tree::of(&[])).len(), FLOORS.len(), "no document");
    let edits: [(&str, Edit); 5] = [
        ("a floor is missing", |rows| drop(rows.remove(3))),
        ("a floor too many", |rows| rows.push("| 12 attic | `x` | |\n".to_owned())),
        ("another order", |rows| rows.swap(2, 3)),
        ("a room moved", |rows| rows[1] = rows[1].replace("`wire`", "`wire` `policy`")),
        ("another name", |rows| rows[1] = rows[1].replace("words", "letters")),
    ];
    for (what, edit) in edits {
        let mut edited = rows.clone();
        edit(&mut edited);
        assert!(!rule(&Tree::of(&[("ARCHITECTURE.md", &page(&edited))])).is_empty(), "{what}");
    }
}

#[test]
fn a_requirement_without_proof_is_found() {
    let rule = rules::every_requirement_has_its_row;
    let source = "//! Doc.\n/// One [R1, R5-R9].\n#[test]\nfn one() {\n    x();\n}\n\n/// [R2]\n#[test]\nfn two() {}\n";
    let page = |edit: &dyn Fn(usize) -> String| (1..=REQUIREMENTS).map(edit).collect::<String>();
    let excuse = |number: usize| format!("| R{number} | what | not yet: later |\n");
    let places = |row: &str| {
        let text = page(&|number| if number == 7 { row.to_owned() } else { excuse(number) });
        places(rule, &[("src/a.rs", source), ("tests/README.md", &text)])
    };
    assert_eq!(rule(&Tree::of(&[])).len(), REQUIREMENTS, "no table");
    for good in ["`src/a.rs::one`", "partly: `src/a.rs::one`; the rest later", "by construction: it is so"] {
        assert_eq!(places(&format!("| R7 | what | {good} |\n")), Vec::<String>::new(), "{good}");
    }
    for bad in [
        "",
        "some words",
        "`src/a.rs::two`",
        "`src/a.rs::three`",
        "`src/b.rs::one`",
        "`src/a.rs::one`, `src/a.rs::two`",
    ] {
        assert_eq!(places(&format!("| R7 | what | {bad} |\n")), ["tests/README.md:7"], "{bad}");
    }
    assert_eq!(places("| R7 | what | `src/a.rs::one` |\n| R8 | twice | not yet: later |\n"), ["tests/README.md:1"]);
    assert_eq!(places(""), ["tests/README.md:1"]);
    assert_eq!(places(&format!("{}| R129 | what | not yet: later |\n", excuse(7))), ["tests/README.md:8"]);
}

#[test]
fn the_lexer_keeps_lines_and_drops_comments() {
    let text = "//! a\n/* b\n/* c */ \" */ x\nr#\"y\n\"z\"# 'q' '\\u{1F600}' b'\\'' 'life 1.5e3 0..2 \"s\\\n\" end";
    let tokens = lex(text);
    let words: Vec<(usize, &str)> = tokens.iter().filter_map(|token| Some((token.line, token.ident()?))).collect();
    assert_eq!(words, [(3, "x"), (6, "end")]);
    let strings: Vec<&str> =
        tokens.iter().filter(|token| token.kind == Kind::Text).map(|token| token.text.as_str()).collect();
    assert_eq!(strings, ["y\n\"z", "s\n"]);
}

#[test]
fn odd_input_never_panics() {
    for text in [
        "",
        "\"",
        "'",
        "r#\"",
        "/*",
        "#[",
        "#[cfg(test",
        "mod",
        "mod a {",
        "}}}",
        "use crate::",
        "use crate::{",
        "b'",
        "::",
    ] {
        let tree = Tree::of(&[
            ("src/wire/a.rs", text),
            ("Cargo.toml", text),
            ("ARCHITECTURE.md", text),
            ("tests/README.md", text),
        ]);
        for rule in RULES {
            rule(&tree);
        }
    }
}

/// Every rule, so that the test below can say which has no `#[test]` of its own.
const RULES: &[Rule] = &[
    rules::stairs_only_go_down,
    rules::gateway_never_sees_downstream,
    rules::every_top_level_module_has_a_floor,
    rules::files_are_where_their_module_says,
    rules::only_the_doors_know_eras,
    rules::sans_io_rooms_name_no_runtime,
    rules::facts_and_rules_never_await,
    rules::no_file_is_too_long,
    rules::every_file_says_what_it_is_for,
    rules::no_module_has_an_empty_name,
    rules::door_plates_stay_short,
    rules::every_dependency_has_a_reason,
    rules::fenced_packages_stay_in_their_file,
    rules::no_private_key_in_the_tree,
    rules::floor_table_is_the_documented_one,
    rules::every_bound_has_its_test,
    rules::ignored_tests_say_why,
    rules::no_machine_paths_in_the_tree,
    rules::every_requirement_has_its_row,
];

#[test]
fn every_rule_runs_on_the_real_tree_and_has_a_violation_here() {
    let tokens = lex(include_str!("rules.rs"));
    let rules = tokens.windows(8).filter(|at| at[0].is("fn") && at[3].is("tree") && at[6].is("Tree") && at[7].is(")"));
    let defined: Vec<&str> = rules.filter_map(|at| at[1].ident()).collect();
    assert_eq!(defined.len(), RULES.len(), "RULES and rules.rs name different rules: {defined:?}");
    let (here, top) = (include_str!("selftest.rs"), include_str!("../architecture.rs"));
    for rule in defined {
        assert!(top.contains(&format!("check(rules::{rule});")), "`{rule}` has no #[test] in architecture.rs");
        let uses = here.matches(&format!("rules::{rule}")).count();
        assert!(uses >= 2, "`{rule}` has no violation in selftest.rs");
    }
}
