//! Entries written into clients' files, and put back.

use super::{Edit, Launch, edit, undo_entries};
use crate::clients::Client;

fn program(name: &str) -> Edit {
    let args = ["stdio", "--server", name].map(str::to_owned).to_vec();
    Edit {
        name: name.to_owned(),
        launch: Launch::Program { program: "/opt/portcullis".to_owned(), args, variables: Vec::new() },
    }
}

/// What is the client's own stays in an entry, as it is spelled; how the server is reached goes [OPS-11].
#[test]
fn the_client_s_own_keys_stay_in_an_entry() {
    let before = "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\", // gone\n      \"env\": { \"K\": \"secret\" },\n      \"alwaysAllow\": [\n        \"x\", // kept\n        \"y\"\n      ],\n      \"disabled\": false\n    }, // end\n    \"b\": { \"url\": \"http://h/\" }\n  }\n}\n";
    let after = edit(Client::Cursor, before, &[program("a")]).unwrap();
    let wanted = "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"/opt/portcullis\",\n      \"args\": [\"stdio\", \"--server\", \"a\"],\n      \"alwaysAllow\": [\n        \"x\", // kept\n        \"y\"\n      ],\n      \"disabled\": false\n    }, // end\n    \"b\": { \"url\": \"http://h/\" }\n  }\n}\n";
    assert_eq!(after, wanted);
    let url = Edit { name: "b".to_owned(), launch: Launch::Url("http://127.0.0.1:7800/mcp/b".to_owned()) };
    let after = edit(Client::ClaudeCode, before, &[url]).unwrap();
    assert!(
        after.contains("\"b\": {\n      \"type\": \"http\",\n      \"url\": \"http://127.0.0.1:7800/mcp/b\"\n    }\n"),
        "{after}"
    );
}

/// [OPS-11]
#[test]
fn an_older_zed_gets_the_form_it_wrote() {
    let before = "{\"context_servers\": {\"a\": {\"command\": {\"path\": \"x\", \"args\": []}, \"settings\": {}}}}";
    let after = edit(Client::Zed, before, &[program("a")]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&after).unwrap();
    let wanted = serde_json::json!({ "command": { "path": "/opt/portcullis", "args": ["stdio", "--server", "a"] } });
    assert_eq!(value["context_servers"]["a"], wanted);
}

/// [OPS-11]
#[test]
fn toml_keeps_every_other_line() {
    for ends in ["\n", "\r\n"] {
        let before = "# top\nmodel = 'x'  # kept\n\n[mcp_servers.a] # here\ncommand = \"npx\"\nstartup_timeout_sec = 20.0 # kept\n\n[mcp_servers.a.env]\nK = \"secret\"\n\n# about b\n[mcp_servers.\"b c\"]\nurl = \"http://h/\"\n\n[tui]\nnotifications = true\n".replace('\n', ends);
        let after = edit(Client::Codex, &before, &[program("a")]).unwrap();
        let wanted = "# top\nmodel = 'x'  # kept\n\n[mcp_servers.a] # here\nstartup_timeout_sec = 20.0 # kept\ncommand = \"/opt/portcullis\"\nargs = [\"stdio\", \"--server\", \"a\"]\n\n# about b\n[mcp_servers.\"b c\"]\nurl = \"http://h/\"\n\n[tui]\nnotifications = true\n".replace('\n', ends);
        assert_eq!(after, wanted);
    }
}

/// An entry that somebody has changed since stays changed; the others go back [OPS-11].
#[test]
fn an_undo_leaves_what_is_not_ours() {
    let before = r#"{"mcpServers": {"a": {"command": "1"}, "b": {"command": "2"}, "c": {"command": "3"}}}"#;
    let after = edit(Client::Cursor, before, &[program("a"), program("b")]).unwrap();
    let mut now: serde_json::Value = serde_json::from_str(&after).unwrap();
    now["mcpServers"]["b"]["command"] = "mine".into();
    now["mcpServers"]["c"]["command"] = "new".into();
    now["more"] = true.into();
    let (text, left) = undo_entries(Client::Cursor, before, &after, &now.to_string()).unwrap();
    assert_eq!(left, ["b"]);
    let text: serde_json::Value = serde_json::from_str(&text).unwrap();
    now["mcpServers"]["a"] = serde_json::json!({ "command": "1" });
    assert_eq!(text, now);

    let before = "[mcp_servers.a]\ncommand = \"1\"\n[mcp_servers.b]\ncommand = \"2\"\n";
    let after = edit(Client::Codex, before, &[program("a"), program("b"), program("added")]).unwrap();
    let now = after.replacen("--server", "--else", 1);
    let (text, left) = undo_entries(Client::Codex, before, &after, &now).unwrap();
    assert_eq!(left, ["a"]);
    let servers = text.parse::<toml::Table>().unwrap()["mcp_servers"].as_table().unwrap().clone();
    assert_eq!(servers.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(servers["b"].to_string(), "{ command = \"2\" }");
}

/// The gateway gets its variables as the client gives them: VS Code asks its person as before, Codex passes names
/// [OPS-11].
#[test]
fn the_gateway_gets_the_variables_of_its_server() {
    let launch = Launch::Program {
        program: "/opt/portcullis".to_owned(),
        args: vec!["stdio".to_owned()],
        variables: vec![("API_KEY".to_owned(), "${input:api-key}".to_owned())],
    };
    let edits = [Edit { name: "a".to_owned(), launch }];
    let added = |client: Client| edit(client, "", &edits).unwrap();
    assert!(added(Client::VsCode).contains(r#""env": { "API_KEY": "${input:api-key}" }"#));
    assert!(added(Client::Codex).contains("env_vars = [\"API_KEY\"]"));
    assert!(!added(Client::Zed).contains("API_KEY") && !added(Client::ClaudeDesktop).contains("API_KEY"));
}
