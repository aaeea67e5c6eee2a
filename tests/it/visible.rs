//! What is listed is what can be called, and nothing else can be told apart [POL-10..12, NAM-1..3, NAM-5, AUT-1].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use portcullis::catalog::{full_name, shown_name};
use portcullis::id::UpstreamName;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::support::{Answer, Client, ERAS, Speaks, TestApp, Upstream, within_deadline};

const SERVERS: [&str; 2] = ["one", "two.b"];
const PRINCIPALS: usize = 32;
const APPS: usize = 8;
const TOOLS: usize = 5;

/// Names that others have tripped over: separators, look-alikes, hashes, quotes, length, scripts.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{1,40}",
        "[a-c_]{1,6}",
        "\\PC{120,200}",
        "[a-z]{60,70}",
        Just("__".to_owned()),
        Just("a__b".to_owned()),
        Just("two_b__a".to_owned()),
        Just("x_deadbeef".to_owned()),
        Just("\"}],\\u0041'".to_owned()),
        Just(" lead\ttab\n".to_owned()),
        Just("=?base64?YQ==?=".to_owned()),
        Just("../../etc".to_owned()),
        Just("ａｄｍｉｎ\u{202e}".to_owned()),
    ]
}

/// What a principal may see: its bundle's servers, and its policy's lines as indices into all shown names.
#[derive(Clone, Debug)]
struct Grant {
    servers: [bool; SERVERS.len()],
    allowed: Option<Vec<(usize, usize)>>,
    excluded: Vec<(usize, usize)>,
    deny: bool,
}

fn grant() -> impl Strategy<Value = Grant> {
    let lines = || prop::collection::vec((0..SERVERS.len() * TOOLS, 0_usize..5), 0..5);
    let servers = prop_oneof![6 => Just([true, true]), 2 => any::<[bool; SERVERS.len()]>()];
    (servers, prop::option::of(lines()), lines(), prop::bool::weighted(0.05)).prop_map(
        |(servers, allowed, excluded, deny)| Grant {
            servers,
            allowed: if deny { None } else { allowed },
            excluded,
            deny,
        },
    )
}

/// One tool as the whole test knows it.
#[derive(Clone, Debug)]
struct Tool {
    server: usize,
    original: String,
    shown: String,
    full: String,
}

fn pattern(tool: &Tool, kind: usize, tricky: bool) -> String {
    let prefix = SERVERS[tool.server].replace('.', "_");
    match kind {
        0 => format!("{prefix}__*"),
        1 if !tool.full.contains('*') => tool.full.clone(),
        2 => format!("{}*", tool.shown.chars().take(prefix.len() + 3).collect::<String>()),
        3 if tricky => "nobody__nothing".to_owned(),
        _ => tool.shown.clone(),
    }
}

/// Whether a pattern matches, said once more and more plainly.
fn matches(pattern: &str, tool: &Tool) -> bool {
    [&tool.shown, &tool.full].into_iter().any(|name| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    })
}

fn lists(grant: &Grant, tools: &[Tool]) -> (Option<Vec<String>>, Vec<String>) {
    let made = |lines: &[(usize, usize)], tricky| {
        lines.iter().map(|(at, kind)| pattern(&tools[*at], *kind, tricky)).collect::<Vec<_>>()
    };
    (grant.allowed.as_ref().map(|lines| made(lines, true)), made(&grant.excluded, false))
}

fn sees(grant: &Grant, tools: &[Tool], tool: &Tool) -> bool {
    let (allowed, excluded) = lists(grant, tools);
    grant.servers[tool.server]
        && !grant.deny
        && !excluded.iter().any(|pattern| matches(pattern, tool))
        && allowed.is_none_or(|allowed| allowed.is_empty() || allowed.iter().any(|pattern| matches(pattern, tool)))
}

fn toml_list(texts: &[String]) -> String {
    texts.iter().map(|text| toml::Value::from(text.as_str()).to_string()).collect::<Vec<_>>().join(", ")
}

fn configuration(upstreams: &[Upstream], grants: &[Grant], tools: &[Tool]) -> String {
    let servers: Vec<(&str, String)> = SERVERS.iter().copied().zip(upstreams.iter().map(Upstream::lines)).collect();
    let (mut text, _) = TestApp::servers(&servers);
    for (at, grant) in grants.iter().enumerate() {
        let granted =
            SERVERS.iter().zip(grant.servers).filter(|(_, granted)| *granted).map(|(name, _)| (*name).to_owned());
        let granted = toml_list(&granted.collect::<Vec<_>>());
        let (allowed, excluded) = lists(grant, tools);
        let key = TestApp::key(&format!("p{at}"));
        write!(text, "[mcp_bundles.b{at}]\nservers = [{granted}]\n[policies.q{at}]\n").unwrap();
        if let Some(allowed) = allowed {
            writeln!(text, "allowed_tools = [{}]", toml_list(&allowed)).unwrap();
        }
        write!(text, "excluded_tools = [{}]\ndeny_all_tools = {}\n", toml_list(&excluded), grant.deny).unwrap();
        write!(text, "[principals.p{at}]\nmcp_bundles = [\"b{at}\"]\npolicy = \"q{at}\"\n{key}").unwrap();
    }
    text
}

fn made_tools(runner: &mut TestRunner) -> Vec<Tool> {
    let mut tools = Vec::new();
    for (server, name) in SERVERS.iter().enumerate() {
        let upstream = UpstreamName::new(name).unwrap();
        let mut originals = BTreeSet::new();
        while originals.len() < TOOLS {
            originals.insert(hostile().new_tree(runner).unwrap().current());
        }
        tools.extend(originals.into_iter().map(|original| Tool {
            server,
            shown: shown_name(&upstream, &original, 64),
            full: full_name(&upstream, &original),
            original,
        }));
    }
    tools
}

/// Asks for everything there is, on one path in one era; returns how many calls were let through.
async fn check_path(client: &Client, names: &[String], expected: &BTreeSet<&str>, context: &str) -> usize {
    let listed = client.names().await;
    let set: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), set.len(), "{context}: a name twice in {listed:?}");
    assert_eq!(set, *expected, "{context}");
    let unknown: Answer = client.call_with("no_such_tool", "{}").await;
    assert_eq!((unknown.status, unknown.code()), (200, -32602), "{context}: {unknown:?}");
    let mut through = 0;
    for name in names {
        let answer = client.call_with(name, r#"{"k":1}"#).await;
        if set.contains(name.as_str()) {
            assert!(answer.is_result(), "{context}: listed, not callable: {name:?}: {answer:?}");
            through += 1;
        } else {
            // Hidden and unknown are one answer, byte for byte.
            assert_eq!(answer.messages, unknown.messages, "{context}: {name:?}");
            assert_eq!(answer.status, unknown.status, "{context}: {name:?}");
        }
    }
    through
}

async fn check_app(runner: &mut TestRunner, case: usize) {
    let tools = made_tools(runner);
    let mut upstreams = Vec::new();
    for server in 0..SERVERS.len() {
        let names = tools.iter().filter(|tool| tool.server == server).map(|tool| tool.original.as_str());
        upstreams.push(Upstream::start(Speaks::Both, false, &names.collect::<Vec<_>>()).await);
    }
    let grants: Vec<Grant> = (0..PRINCIPALS).map(|_| grant().new_tree(runner).unwrap().current()).collect();
    let app = TestApp::start("keys", &configuration(&upstreams, &grants, &tools)).await;
    for (at, grant) in grants.iter().enumerate() {
        let key = format!("p{at}");
        let mut expected_calls = 0;
        let before: usize = upstreams.iter().map(|upstream| upstream.calls().len()).sum();
        for era in ERAS {
            let context = format!("case {case}, {era:?}, {grant:?}");
            let visible = |server: Option<usize>| {
                tools
                    .iter()
                    .filter(move |tool| server.is_none_or(|at| tool.server == at))
                    .filter(|tool| sees(grant, &tools, tool))
            };
            let client = Client::connect(era, app.addr, "/mcp", Some(&key)).await;
            let mut names: Vec<String> = tools.iter().map(|tool| tool.shown.clone()).collect();
            // Names that are nobody's on this path: whole ones, and a server's own.
            names.extend(
                tools.iter().map(|tool| tool.full.clone()).filter(|full| tools.iter().all(|tool| tool.shown != *full)),
            );
            names.push(tools[0].original.clone());
            names.sort();
            names.dedup();
            let expected = visible(None).map(|tool| tool.shown.as_str()).collect();
            expected_calls += check_path(&client, &names, &expected, &context).await;
            for (server, name) in SERVERS.iter().enumerate().filter(|(server, _)| grant.servers[*server]) {
                let client = Client::connect(era, app.addr, &format!("/mcp/{name}"), Some(&key)).await;
                let names: Vec<String> = tools.iter().map(|tool| tool.original.clone()).collect();
                let names: BTreeSet<String> = names.into_iter().collect();
                let expected = visible(Some(server)).map(|tool| tool.original.as_str()).collect();
                let names: Vec<String> = names.into_iter().collect();
                expected_calls += check_path(&client, &names, &expected, &format!("{context}, at {name}")).await;
            }
        }
        let after: usize = upstreams.iter().map(|upstream| upstream.calls().len()).sum();
        assert_eq!(after - before, expected_calls, "case {case}: a refused call reached a server: {grant:?}");
    }
    app.stop().await;
}

/// 256 principals over 8 catalogs, on each path and in each era [POL-10, POL-11, POL-12, NAM-5].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_is_callable_and_nothing_else_is() {
    let mut runner = TestRunner::deterministic();
    for case in 0..APPS {
        within_deadline("a case", check_app(&mut runner, case)).await;
    }
}

/// A server that is not granted, and one that does not exist, are one answer at their path [NAM-5].
#[tokio::test]
async fn the_path_of_a_foreign_server_is_no_path() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let (tables, _) = TestApp::servers(&[("one", upstream.lines())]);
    let key = TestApp::key("ann");
    let app = TestApp::start("keys", &format!("{tables}[principals.ann]\n{key}")).await;
    let mut answers = Vec::new();
    for path in ["/mcp/one", "/mcp/none"] {
        let client = Client::connect(crate::support::Era::Stateless, app.addr, path, Some("ann")).await;
        answers.push(client.call_with("a", "{}").await);
    }
    assert_eq!(answers[0].status, 404);
    assert_eq!((answers[0].status, &answers[0].messages), (answers[1].status, &answers[1].messages));
    assert!(upstream.calls().is_empty());
    app.stop().await;
}
