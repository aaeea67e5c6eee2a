//! What a gateway says on stderr with `[log] format = "json"` [OPS-4].

use serde_json::Value;

use crate::support::{Command, Gateway, TestApp};

/// The lines, each of which must be a JSON object.
fn lines(said: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).ok().filter(Value::is_object);
    said.lines().map(|line| read(line).unwrap_or_else(|| panic!("no JSON object: {line}\n{said}"))).collect()
}

fn find<'l>(lines: &'l [Value], key: &str, value: &str) -> &'l Value {
    let found = lines.iter().map(|line| &line["fields"]).find(|fields| fields[key] == value);
    found.unwrap_or_else(|| panic!("no {key} {value} in {lines:#?}"))
}

/// [OPS-3, OPS-4]: the start block and what is doubtful.
#[tokio::test]
async fn the_start_block_is_lines_of_the_log() {
    let (tables, names) = TestApp::servers(&[("up", "command = \"false\"".to_owned())]);
    let off = "[[mcp.servers]]\nname = \"off\"\ncommand = \"x\"\nenv = { A = \"${env:NOT_SET}\" }\n";
    let rest = format!(
        "[log]\nformat = \"json\"\n{tables}{off}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles \
         = [\"all\"]\n[principals.nobody]\n"
    );
    let gateway = Gateway::try_start("127.0.0.1:0", &rest).await.unwrap();
    let lines = lines(&gateway.said);
    let places = find(&lines, "message", "serving");
    assert_eq!(places["mcp"], format!("http://{}/mcp", gateway.addr));
    let mine = |name: &str| {
        lines.iter().map(|line| &line["fields"]).find(|one| one["server"] == name && one["message"] == "server")
    };
    let state = |name: &str| mine(name).unwrap()["state"].as_str().unwrap();
    assert!(state("up").starts_with("down [P204]") && state("off").starts_with("disabled [P110]"), "{lines:#?}");
    let doubtful = find(&lines, "key", "principals.nobody");
    assert_eq!((&doubtful["code"], &doubtful["line"].is_u64()), (&Value::from("P113"), &true), "{doubtful}");

    let taken = Gateway::try_start(&gateway.addr.to_string(), &rest).await;
    let (code, said) = taken.err().unwrap();
    assert_eq!(code, Some(1), "{said}");
    find(&self::lines(&said), "code", "P501");
    gateway.terminate();
}

/// [OPS-4]: why the file is refused, by `serve` and by `stdio`, and why there is nobody to be.
#[tokio::test]
async fn what_ends_a_start_is_lines_of_the_log() {
    let refused = Command::new("[listen]\nhtpp = 1\n[mcp]\nname_budget = \"x\"\n[log]\nformat = \"json\"\n");
    for verb in ["serve", "stdio"] {
        let lines = lines(&refused.run(&[verb]).await.code(3).stderr);
        let unknown = find(&lines, "code", "P102");
        assert_eq!((&unknown["key"], &unknown["line"]), (&Value::from("listen.htpp"), &Value::from(2)), "{unknown}");
        assert!(unknown["help"].as_str().unwrap().contains("'http'"), "{unknown}");
        find(&lines, "code", "P104");
    }
    let empty = Command::new("[listen]\nauth = \"keys\"\n[log]\nformat = \"json\"\n");
    let lines = lines(&empty.run(&["stdio", "--as", "nobody"]).await.code(2).stderr);
    find(&lines, "code", "P601");
}
