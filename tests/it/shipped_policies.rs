//! `policies/team.toml` and `policies/sidecar.toml` as they are named by principals with keys [POL-2, LIM-5, CTX-5].

use crate::support::{Client, ERAS, Gateway, Speaks, TestApp, Upstream, folder};

const TEAM: &str = include_str!("../../policies/team.toml");
const SIDECAR: &str = include_str!("../../policies/sidecar.toml");

/// A gateway before servers with these tools, where ann has the policy of that name.
async fn start(policy: (&str, &str), servers: &[(&str, &[&str])]) -> (Gateway, Vec<Upstream>) {
    let (name, text) = policy;
    let mut upstreams = Vec::new();
    let mut lines = Vec::new();
    for (server, tools) in servers {
        let upstream = Upstream::start(Speaks::Both, false, tools).await;
        lines.push((*server, upstream.lines()));
        upstreams.push(upstream);
    }
    let (tables, names) = TestApp::servers(&lines);
    let folder = folder();
    std::fs::create_dir_all(folder.join("policies")).unwrap();
    std::fs::write(folder.join(format!("policies/{name}.toml")), text).unwrap();
    let ann = format!("[principals.ann]\nmcp_bundles = [\"all\"]\npolicy = \"{name}\"\n{}", TestApp::key("ann"));
    let listen = "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n";
    let text = format!("{listen}{tables}[mcp_bundles.all]\nservers = [{names}]\n{ann}");
    std::fs::write(folder.join("portcullis.toml"), text).unwrap();
    let gateway = Gateway::try_start_at(&[], folder).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    (gateway, upstreams)
}

/// Reading tools come by prefix, writing ones by name, and what a server gains tomorrow does not.
#[tokio::test]
async fn a_team_sees_and_calls_what_is_named() {
    let servers: [(&str, &[&str]); 3] = [
        ("docs", &["search", "say"]),
        (
            "github",
            &["get_issue", "list_issues", "add_issue_comment", "add_issue_comments", "push_files", "delete_file"],
        ),
        ("tickets", &["get_one", "search", "search_all", "create", "create_webhook"]),
    ];
    let (gateway, upstreams) = start(("team", TEAM), &servers).await;
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
        let mut names = client.names().await;
        names.sort();
        let seen = [
            "docs__say",
            "docs__search",
            "github__add_issue_comment",
            "github__get_issue",
            "github__list_issues",
            "tickets__create",
            "tickets__get_one",
            "tickets__search",
        ];
        assert_eq!(names, seen, "{era:?}");
        for (server, tools) in servers {
            for tool in tools {
                let name = format!("{server}__{tool}");
                let answer = client.call_with(&name, r#"{"content":[]}"#).await;
                assert_eq!(answer.is_result(), seen.contains(&name.as_str()), "{era:?}: {name}: {answer:?}");
            }
        }
        // A picture is a link, and its bytes are not in the answer.
        let said = r#"{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]}"#;
        let answer = client.call_with("docs__say", said).await.value();
        let content = &answer["result"]["content"];
        assert_eq!(content[0]["type"], "resource_link", "{era:?}: {answer:#}");
        assert!(!content.to_string().contains("iVBORw0KGgo="), "{era:?}: {answer:#}");
    }
    assert_eq!(upstreams.len(), servers.len());
}

/// A sidecar's agent has three tools, and a loop of it ends at the gateway.
#[tokio::test]
async fn a_sidecar_s_agent_is_held() {
    let servers: [(&str, &[&str]); 2] =
        [("docs", &["search", "read_page", "read_page_history"]), ("tickets", &["create", "delete"])];
    let (gateway, upstreams) = start(("sidecar", SIDECAR), &servers).await;
    let [era, _] = ERAS;
    let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
    let mut names = client.names().await;
    names.sort();
    assert_eq!(names, ["docs__read_page", "docs__search", "tickets__create"]);
    assert_eq!(client.call_with("tickets__delete", "{}").await.code(), -32602);
    let mut done = 0;
    let refused = loop {
        let answer = client.call_with("docs__search", "{}").await;
        if !answer.is_result() {
            break answer;
        }
        done += 1;
        assert!(done < 500, "nothing ends the loop");
    };
    assert_eq!((refused.status, refused.code()), (429, -31001), "{refused:?}");
    assert_eq!(upstreams[0].calls().len(), done);
}
