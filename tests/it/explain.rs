//! `explain` names the line of the file that decided, and never disagrees with the lists [POL-14, OPS-2].

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Child, Command, Era};

/// Two names of a server `up` that are shown alike: every character of both is replaced, and their hashes are equal.
const TWINS: [&str; 2] = ["..$?^", ":^?@~"];

/// The line of a text that holds a part, from 1.
#[track_caller]
fn line_of(text: &str, part: &str) -> u64 {
    let mut found = text.lines().enumerate().filter(|(_, line)| line.contains(part));
    let (index, _) = found.next().unwrap_or_else(|| panic!("no '{part}'"));
    assert!(found.next().is_none(), "'{part}' stands twice");
    index as u64 + 1
}

struct World {
    configuration: String,
    command: Command,
    _children: [Child; 3],
}

const POLICY: &str = "allowed_tools = [
  \"up__*\",
  \"far__*\",
  \"other__echo\",
]
excluded_tools = [
  \"up__secret\",
]
";

impl World {
    fn new() -> Self {
        let differs = [r#"{"name":"twice","x":1}"#, r#"{"name":"twice","x":2}"#];
        let long = "t".repeat(70);
        let tools = ["echo", "secret", "read.file", long.as_str(), TWINS[0], TWINS[1], differs[0], differs[1]];
        let children = [
            Child::new(Era::Legacy, &tools),
            Child::new(Era::Stateless, &["echo", "second"]),
            Child::new(Era::Legacy, &["echo"]),
        ];
        let [up, other, far] = &children;
        let configuration = format!(
            r#"[listen]
auth = "keys"
[mcp]
name_budget = 60
[[mcp.servers]]
name = "up"
{}
[[mcp.servers]]
name = "other"
{}
[[mcp.servers]]
name = "far"
{}
[[mcp.servers]]
name = "broken"
command = "no-such-program-anywhere"
[[mcp.servers]]
name = "dark"
command = "true"
enabled = false
[[mcp.servers]]
name = "poor"
command = "true"
env = {{ KEY = "${{env:NOT_SET_ANYWHERE}}" }}
[mcp_bundles.all]
servers = [
  "up",
  "other",
  "broken",
  "dark", # granted, but off
  "poor", # granted, but disabled
]
[mcp_bundles.less]
servers = ["far"] # the grant
exclude = ["far"] # the exclusion
[principals.alice]
mcp_bundles = ["all"] # alice's
policy = "some"
[principals.carol]
mcp_bundles = ["all", "less"]
[principals.dave]
mcp_bundles = ["all"]
policy = "none"
[policies.none]
deny_all_tools = true
"#,
            up.lines(),
            other.lines(),
            far.lines(),
        );
        let command = Command::new(&configuration);
        command.write("policies/some.toml", POLICY);
        Self { configuration, command, _children: children }
    }

    /// Explains one tool; returns the only verdict.
    async fn explain(&self, principal: &str, tool: &str) -> Value {
        let ended = self.command.run(&["explain", "--json", "--as", principal, tool]).await.code(0);
        let verdicts = ended.json();
        assert_eq!(verdicts.as_array().unwrap().len(), 1, "{verdicts:#}");
        // What a person reads names the same line.
        let text = self.command.run(&["explain", "--as", principal, tool]).await.code(0);
        for reason in verdicts[0]["reasons"].as_array().unwrap() {
            let place = format!("--> {}:{}", reason["file"].as_str().unwrap(), reason["line"]);
            assert!(text.stdout.contains(&place), "{place} in {text:#?}");
        }
        verdicts[0].clone()
    }

    /// Expects a tool to be hidden for a code, by a line of the configuration.
    async fn hidden(&self, principal: &str, tool: &str, code: &str, part: &str) {
        let verdict = self.explain(principal, tool).await;
        assert_eq!((&verdict["visible"], &verdict["code"]), (&false.into(), &code.into()), "{verdict:#}");
        let first = &verdict["reasons"][0];
        assert_eq!(first["file"], "portcullis.toml", "{verdict:#}");
        assert_eq!(first["line"], line_of(&self.configuration, part), "{verdict:#}");
        assert!(verdict["help"].is_string(), "{verdict:#}");
    }

    /// The same with a line of the policy's own file.
    async fn hidden_by_policy(&self, tool: &str, code: &str, part: &str) {
        let verdict = self.explain("alice", tool).await;
        assert_eq!((&verdict["visible"], &verdict["code"]), (&false.into(), &code.into()), "{verdict:#}");
        let first = &verdict["reasons"][0];
        assert_eq!(first["file"], "policies/some.toml", "{verdict:#}");
        assert_eq!(first["line"], line_of(POLICY, part), "{verdict:#}");
    }
}

/// [POL-14]: bundle missing, bundle excluded, not in allow, in exclude, all denied, switched off, without its secret,
/// server down.
#[tokio::test]
async fn every_reason_to_hide_a_tool_names_its_line() {
    let world = World::new();
    world.hidden("alice", "far__echo", "P301", "# alice's").await;
    world.hidden("carol", "far__echo", "P301", "# the exclusion").await;
    world.hidden_by_policy("other__second", "P302", "allowed_tools = [").await;
    world.hidden_by_policy("up__secret", "P303", "  \"up__secret\",").await;
    world.hidden("dave", "up__echo", "P303", "deny_all_tools").await;
    world.hidden("alice", "dark__echo", "P301", "enabled = false").await;
    world.hidden("alice", "poor__echo", "P110", "name = \"poor\"").await;
    world.hidden("alice", "broken__echo", "P204", "name = \"broken\"").await;
    let verdict = world.explain("alice", "broken__echo").await;
    assert!(verdict["reasons"][0]["words"].as_str().unwrap().contains("no-such-program-anywhere"), "{verdict:#}");
    // What to change is said word by word.
    for (principal, tool, help) in [
        ("alice", "up__secret", "take \"up__secret\" out of excluded_tools"),
        ("dave", "up__echo", "take deny_all_tools out of policy 'none'"),
        ("alice", "other__second", "add \"other__second\" to allowed_tools"),
    ] {
        assert_eq!(world.explain(principal, tool).await["help"], help);
    }
}

/// [POL-14, NAM-2, NAM-8]: hidden by a clash, or by two definitions, at the line of the server.
#[tokio::test]
async fn a_tool_that_is_left_out_names_the_line_of_its_server() {
    let world = World::new();
    for twin in TWINS {
        world.hidden("alice", &format!("up__{twin}"), "P401", "name = \"up\"").await;
        let verdict = world.explain("alice", &format!("up__{twin}")).await;
        let other = TWINS.iter().find(|other| **other != twin).unwrap();
        assert!(verdict["reasons"][0]["words"].as_str().unwrap().contains(other), "{verdict:#}");
    }
    world.hidden("alice", "up__twice", "P402", "name = \"up\"").await;
}

/// [POL-14, NAM-7]: a renamed tool is found by its own name, and says why and by which line it has another.
#[tokio::test]
async fn a_renamed_tool_says_why() {
    let world = World::new();
    let long = format!("up__{}", "t".repeat(70));
    for (asked, part) in [("read.file", "name = \"up\""), ("up__read.file", "name = \"up\""), (&long, "name_budget")] {
        let verdict = world.explain("alice", asked).await;
        assert_eq!(verdict["visible"], true, "{verdict:#}");
        let renamed = &verdict["renamed"];
        assert_eq!(renamed["file"], "portcullis.toml", "{verdict:#}");
        assert_eq!(renamed["line"], line_of(&world.configuration, part), "{verdict:#}");
        assert!(verdict["tool"].as_str().unwrap().len() <= 60, "{verdict:#}");
        // A call under the own name is refused, and the refusal names the shown one.
        if asked.contains("__") {
            let refused = world.command.run(&["call", "--as", "alice", asked]).await.code(5);
            assert!(refused.stderr.contains("P406"), "{refused:#?}");
            assert!(refused.stderr.contains(verdict["tool"].as_str().unwrap()), "{refused:#?}");
        }
    }
}

/// [NAM-7]: `names` prints original, shown name, length, and why it was changed.
#[tokio::test]
async fn names_shows_what_became_of_each_name() {
    let world = World::new();
    let names = world.command.run(&["names", "up", "--json"]).await.code(0).json();
    let find = |original: &str| {
        names.as_array().unwrap().iter().find(|one| one["original"] == original).unwrap_or_else(|| panic!("{names:#}"))
    };
    let plain = find("echo");
    assert_eq!((&plain["shown"], &plain["length"], &plain["server"]), (&"up__echo".into(), &8.into(), &"up".into()));
    assert!(plain["changed"].is_null() && plain["hidden"].is_null(), "{plain:#}");
    let long = "t".repeat(70);
    for (original, why) in [("read.file", "characters"), (&long, "name_budget is 60"), (TWINS[0], "characters")] {
        let one = find(original);
        assert!(one["changed"].as_str().unwrap().contains(why), "{one:#}");
        assert_eq!(one["length"], one["shown"].as_str().unwrap().len(), "{one:#}");
        assert_eq!(one["hidden"].is_string(), original == TWINS[0], "{one:#}");
    }
    assert_eq!(find(TWINS[0])["shown"], find(TWINS[1])["shown"]);
    let table = world.command.run(&["names", "up"]).await.code(0).stdout;
    let row = table.lines().find(|line| line.contains("read.file")).unwrap();
    assert!(row.contains("up__read_file_") && row.contains("characters"), "{row}");
}

/// A tool that is shown names what grants and what allows it.
#[tokio::test]
async fn a_shown_tool_names_its_grant_and_its_permission() {
    let world = World::new();
    let verdict = world.explain("alice", "other__echo").await;
    assert_eq!((&verdict["visible"], &verdict["code"]), (&true.into(), &Value::Null), "{verdict:#}");
    let places: Vec<_> =
        verdict["reasons"].as_array().unwrap().iter().map(|one| (&one["file"], &one["line"])).collect();
    let (allowed, granted) = (line_of(POLICY, "other__echo"), line_of(&world.configuration, "  \"other\","));
    assert_eq!(
        places,
        [(&"policies/some.toml".into(), &Value::from(allowed)), (&"portcullis.toml".into(), &Value::from(granted))],
        "{verdict:#}"
    );
}

/// Without a tool everything is explained, and what is said to be shown is what is listed [promise 1].
#[tokio::test]
async fn what_is_explained_as_shown_is_what_is_listed() {
    let world = World::new();
    for principal in ["alice", "carol", "dave"] {
        let verdicts = world.command.run(&["explain", "--json", "--as", principal]).await.code(0).json();
        let shown: BTreeSet<String> = verdicts
            .as_array()
            .unwrap()
            .iter()
            .filter(|verdict| verdict["visible"] == true)
            .map(|verdict| verdict["tool"].as_str().unwrap().to_owned())
            .collect();
        // `broken` is down, which the list says with its exit code.
        let listed = world.command.run(&["ls", "tools", "--json", "--as", principal]).await.code(4).json();
        let listed: BTreeSet<String> =
            listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(shown, listed, "{principal}");
        assert_eq!(shown.is_empty(), principal == "dave");
        let hidden = verdicts.as_array().unwrap().iter().filter(|verdict| verdict["visible"] == false);
        for verdict in hidden {
            assert!(verdict["code"].is_string() && verdict["reasons"][0]["line"].is_u64(), "{verdict:#}");
        }
    }
}

/// Every code has its page, and an unknown one is a usage error [OPS-2].
#[tokio::test]
async fn a_code_is_explained() {
    let command = Command::new("");
    let page = command.run(&["explain", "p204"]).await.code(0);
    assert!(page.stdout.starts_with("P204: ") && page.stdout.contains("Cause") && page.stdout.contains("Fix"));
    assert_eq!(command.run(&["explain", "--json", "P204"]).await.code(0).json()["code"], "P204");
    let unknown = command.run(&["explain", "P999"]).await.code(2);
    assert!(unknown.stdout.is_empty() && unknown.stderr.contains("P204"), "{unknown:#?}");
}
