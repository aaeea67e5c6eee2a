//! What the gateway keeps of answers is readable as long as what they came from may be called, and no longer
//! [POL-12, LIM-3, LIM-7].
//!
//! Principals: alice, and bob with the same policy. The tool `say` answers with its arguments.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::reload::{bundle, listening, principal, start, tables};
use crate::support::{Client, ERAS, Speaks, Upstream};

/// The configuration: what alice is granted of the servers that there are, and a line of her policy.
fn text(servers: &[(&str, String)], granted: &[&str], line: &str, more: &str) -> String {
    let caps = "max_result_chars = 400\nblobs = \"link\"";
    let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
    let alice =
        principal("alice", &["alice"], "hers", &format!("policy = \"hers\"\n[policies.hers]\n{caps}\n{line}\n"));
    let bob = principal("bob", &["bob"], "all", &format!("policy = \"all\"\n[policies.all]\n{caps}\n"));
    let bundles = bundle("hers", granted) + &bundle("all", &names);
    listening(&format!("{more}{}{bundles}{alice}{bob}", tables(servers)))
}

/// Has a server say something with an attachment and a long text; returns the links to both.
async fn say(client: &Client, server: &str, picture: &str) -> [String; 2] {
    let picture = base64::prelude::BASE64_STANDARD.encode(format!("\u{89}PNG\r\n\u{1a}\n{picture}"));
    let content = json!({ "content": [
        { "type": "resource", "resource": { "uri": "docs://r", "blob": picture, "mimeType": "application/pdf" } },
        { "type": "text", "text": "long ".repeat(200) },
    ] });
    let answer = client.call_with(&format!("{server}__say"), &content.to_string()).await.value();
    let links: Vec<String> = answer["result"]["content"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"))
        .iter()
        .filter_map(|block| Some(block["uri"].as_str()?.to_owned()))
        .collect();
    links.try_into().unwrap_or_else(|links| panic!("{links:?}: {answer}"))
}

/// Reads; `None` if it is refused, and then as what never was.
async fn read(client: &Client, uri: &str) -> Option<Value> {
    let answer = client.read(uri).await.value();
    if let Some(contents) = answer["result"]["contents"].as_array() {
        return contents.first().cloned();
    }
    let (scheme, _) = uri.split_once(":///").unwrap();
    let nothing = client.read(&format!("{scheme}:///{}", "0".repeat(32))).await.value();
    assert_eq!(answer["error"]["code"], nothing["error"]["code"], "{answer}");
    assert_eq!(answer["error"]["message"], nothing["error"]["message"], "{answer}");
    None
}

async fn all_are(readable: bool, client: &Client, links: &[String; 2], context: &str) {
    for link in links {
        assert_eq!(read(client, link).await.is_some(), readable, "{context}: {link}");
    }
}

/// What a grant has let in goes with it: the tool that is excluded, the bundle that is lost, the server that is removed; for
/// nobody else, and it comes back with the grant. In files and in memory.
#[tokio::test]
async fn what_is_kept_ends_with_its_grant() {
    let up = Upstream::start(Speaks::Both, false, &["say"]).await;
    let servers = [("up", up.lines()), ("other", up.lines())];
    // A state folder that cannot be used leaves attachments in memory.
    for (in_files, more) in [(true, ""), (false, "[state]\ndir = \"/dev/null/none\"\n")] {
        let granted = text(&servers, &["up", "other"], "", more);
        let mut gateway = start(&granted).await;
        for (at, era) in ERAS.into_iter().enumerate() {
            let context = format!("{era:?} {more}");
            let client = async |who: &str| Client::connect(era, gateway.addr, "/mcp", Some(who)).await;
            let (alice, bob) = (client("alice").await, client("bob").await);
            let hers = say(&alice, "up", &format!("mine {at}")).await;
            let his = say(&bob, "up", &format!("mine {at}")).await;
            all_are(true, &alice, &hers, &context).await;
            for (why, granted, line, servers) in [
                ("excluded", &["up", "other"][..], "excluded_tools = [\"up__say\"]", &servers[..]),
                ("not allowed", &["up", "other"], "allowed_tools = [\"other__*\"]", &servers),
                ("denied", &["up", "other"], "deny_all_tools = true", &servers),
                ("removed", &["other"], "", &servers[1..]),
                ("not granted", &["other"], "", &servers),
            ] {
                gateway.reload(&text(servers, granted, line, more)).await;
                let context = format!("{context} {why}");
                all_are(false, &alice, &hers, &context).await;
                all_are(why != "removed", &bob, &his, &context).await;
            }
            // The same bytes from a server that is granted are the same file, and hers again.
            let [attachment, rest] = say(&alice, "other", &format!("mine {at}")).await;
            assert!(read(&alice, &attachment).await.is_some() && read(&alice, &rest).await.is_some(), "{context}");
            assert_eq!(attachment == hers[0], in_files, "{context}");
            assert_eq!(read(&alice, &hers[0]).await.is_some(), in_files, "{context}");
            assert!(read(&alice, &hers[1]).await.is_none(), "{context}");
            gateway.reload(&granted).await;
            all_are(true, &alice, &hers, &context).await;
            all_are(true, &bob, &his, &context).await;
        }
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
    }
}
