//! Drafts: names, values, and what is refused.

use super::{Draft, DraftTransport, Import, Piece, draft};
use crate::clients::{Existing, Surroundings, existing, read};
use crate::id::UpstreamName;

fn drafted(servers: &str, there: &[Existing]) -> Import {
    let env = |name: &str| (name == "HOME").then(|| "/home/u".to_owned());
    let around = Surroundings { env: &env, workspace: None };
    draft(read(&format!(r#"{{"mcpServers":{servers}}}"#)).unwrap().entries, &around, there)
}

fn one(server: &str) -> Result<Draft, String> {
    let mut import = drafted(&format!(r#"{{"s":{server}}}"#), &[]);
    import.drafts.pop().ok_or_else(|| import.refused[0].why.clone())
}

fn pieces(list: &[Piece]) -> String {
    let one = |piece: &Piece| match piece {
        Piece::Env { name, .. } => format!("<{name}>"),
        Piece::Secret { file, value } => format!("[{file}={}]", value.expose()),
        Piece::Text(text) => text.clone(),
    };
    list.iter().map(one).collect()
}

/// [CFG-5, CFG-6]
#[test]
fn every_name_becomes_one_that_is_allowed() {
    for (given, name) in [
        ("files", "files"),
        ("a.b", "a.b"),
        ("My Notes!", "My-Notes"),
        ("a__b", "a_b"),
        ("_x_", "x"),
        ("mcp", "mcp-server"),
        ("portcullis", "portcullis-server"),
        ("日本", "server"),
        ("@scope/name", "scope-name"),
    ] {
        let import = drafted(&format!(r#"{{"{given}":{{"command":"x"}}}}"#), &[]);
        assert_eq!(import.drafts[0].name.as_str(), name, "{given}");
        assert!(UpstreamName::new(name).is_ok());
    }
    let long = "n".repeat(60);
    let import = drafted(&format!(r#"{{"{long}":{{"command":"x"}},"{long}y":{{"command":"x"}}}}"#), &[]);
    let names: Vec<_> = import.drafts.iter().map(|draft| draft.name.as_str().to_owned()).collect();
    assert_eq!(names, ["n".repeat(40), format!("{}-2", "n".repeat(36))]);
    // The slug counts, not the spelling [CFG-5].
    let import = drafted(r#"{"A_b":{"command":"x"},"a-B":{"command":"y"}}"#, &[]);
    assert_eq!(import.drafts[1].name.as_str(), "a-B-2");
}

/// [CFG-6]
#[test]
fn a_server_that_is_there_already_is_found_under_any_of_its_names() {
    let there = existing(
        "[[mcp.servers]]\nname = \"s\"\ncommand = \"x\"\nargs = [\"1\"]\n[[mcp.servers]]\nname = \"s-2\"\ncommand = \"x\"\nargs = [\"2\"]\n",
    )
    .unwrap();
    let find = |server: &str| {
        let import = drafted(&format!(r#"{{"s":{server}}}"#), &there);
        (import.drafts[0].name.as_str().to_owned(), import.drafts[0].already)
    };
    assert_eq!(find(r#"{"command":"x","args":["1"]}"#), ("s".to_owned(), true));
    assert_eq!(find(r#"{"command":"x","args":["2"]}"#), ("s-2".to_owned(), true));
    assert_eq!(find(r#"{"command":"x","args":["3"]}"#), ("s-3".to_owned(), false));
}

/// [CFG-3, CFG-6]
#[test]
fn literal_values_become_secrets_and_references_stay() {
    let draft = one(
        r#"{"url":"http://h/mcp","headers":{"A":"Bearer ${T}","B":"plain","C":"pre ${T} post","D":"","x y":"1","x.y":"2"}}"#,
    )
    .unwrap();
    let DraftTransport::Http { url, headers } = &draft.transport else { panic!("{draft:?}") };
    assert_eq!(pieces(url), "http://h/mcp");
    let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {}", pieces(value))).collect();
    let wanted =
        ["A: Bearer <T>", "B: [B=plain]", "C: [C=pre ]<T>[C.2= post]", "D: ", "x y: [x_y=1]", "x.y: [x_y.2=2]"];
    assert_eq!(headers, wanted);
    assert!(!format!("{draft:?}").contains("plain"));
    // What may be a secret in a URL is one.
    for (url, shown) in [("http://h/?k=1", "[url=http://h/?k=1]"), ("http://${H}/x", "http://<H>/x")] {
        let draft = one(&format!(r#"{{"url":"{url}"}}"#)).unwrap();
        let DraftTransport::Http { url, .. } = &draft.transport else { panic!("{draft:?}") };
        assert_eq!(pieces(url), shown);
    }
}

/// [CFG-3], FC-CFG-01, FC-CFG-02
#[test]
fn what_cannot_be_carried_whole_is_refused_with_its_reason() {
    for (server, why) in [
        (r#"{"command":"x","args":["--key=${KEY}"]}"#, "argument 1 refers to the variable KEY"),
        (r#"{"command":"${BIN}/x"}"#, "command refers to the variable BIN"),
        (r#"{"command":"x","args":["${workspaceFolder}"]}"#, "belongs to no project"),
        (r#"{"command":"x","env":{"A":"${command:pick}"}}"#, "no counterpart"),
        (r#"{"command":"x","env":{"PEM":"a\nb"}}"#, "line end"),
        (r#"{"command":"x","env":{"A":"enc2:abc"}}"#, "encrypted"),
        (r#"{"command":"x","envFile":"/nowhere/.env"}"#, "cannot be read"),
        (r#"{"command":"/opt/bin/portcullis","args":["stdio"]}"#, "already"),
    ] {
        let refused = one(server).unwrap_err();
        assert!(refused.contains(why), "{server}: {refused}");
    }
    // Arguments are no shell text.
    let draft = one(r#"{"command":"x","args":["a b","$HOME","*","","'q'"]}"#).unwrap();
    let DraftTransport::Stdio { args, .. } = &draft.transport else { panic!("{draft:?}") };
    assert_eq!(args, &["a b", "$HOME", "*", "", "'q'"]);
    assert_eq!(draft.describe(), r"x 'a b' '$HOME' '*' '' '\'q\''");
    // What a hostile file says moves no cursor.
    assert_eq!(one("{\"command\":\"x\",\"args\":[\"\\u001b[2J\"]}").unwrap().describe(), r"x '\u{1b}[2J'");
}

/// A program that is fetched anew may be another one tomorrow [CFG-6].
#[test]
fn what_is_not_pinned_is_said() {
    for (command, package, pinned) in [
        ("npx", "server", false),
        ("npx", "@scope/server", false),
        ("npx", "@scope/server@latest", false),
        ("/usr/bin/npx", "@scope/server@1.2.3", true),
        ("uvx", "server==2.0", true),
        ("uvx", "server@2.0", true),
        ("uvx", "server", false),
        ("node", "server.js", true),
    ] {
        let draft = one(&format!(r#"{{"command":"{command}","args":["-y","{package}","/x@1"]}}"#)).unwrap();
        assert_eq!(draft.notes.is_empty(), pinned, "{command} {package}: {:?}", draft.notes);
    }
}
