//! `policies/desktop.toml` as a person at a desktop uses it: named by the one principal of a loopback gateway, and of
//! `portcullis stdio` [CTX-5, LIM-7, POL-2].

use std::path::Path;

use crate::support::{Child, Client, ERAS, Era, Gateway, Piped, Speaks, TestApp, Upstream, folder, raw};

const POLICY: &str = include_str!("../../policies/desktop.toml");

/// Writes the policy and a configuration that names it; returns that.
fn write(folder: &Path, lines: String) -> String {
    let (tables, _) = TestApp::servers(&[("filesystem", lines)]);
    let rest = "[mcp_bundles.all]\nservers = [\"filesystem\"]\n[principals]\nlocal = { mcp_bundles = [\"all\"], policy = \
                \"desktop\" }\n";
    let text = format!("[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"none\"\n{tables}{rest}");
    std::fs::create_dir_all(folder.join("policies")).unwrap();
    std::fs::write(folder.join("policies/desktop.toml"), POLICY).unwrap();
    std::fs::write(folder.join("portcullis.toml"), &text).unwrap();
    text
}

/// A long text is cut to 8,000 characters, says so, and links the rest; what changes files is neither listed nor called.
#[tokio::test]
async fn a_desktop_client_gets_what_its_policy_says() {
    let up =
        Upstream::start(Speaks::Both, false, &["say", "read_text_file", "write_file", "edit_file", "move_file"]).await;
    let folder = folder();
    write(&folder, up.lines());
    let gateway = Gateway::try_start_at(&[], folder).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", None).await;
        let mut names = client.names().await;
        names.sort();
        assert_eq!(names, ["filesystem__read_text_file", "filesystem__say"], "{era:?}");
        for hidden in ["write_file", "edit_file", "move_file"] {
            assert_eq!(client.call_with(&format!("filesystem__{hidden}"), "{}").await.code(), -32602, "{era:?}");
        }
        let text = "word ".repeat(4_000);
        let said = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let answer = client.call_with("filesystem__say", &said).await.value();
        let content = &answer["result"]["content"];
        let shown = content[0]["text"].as_str().unwrap();
        assert!(shown.chars().count() <= 8_000 && shown.contains("of 20000 characters"), "{era:?}: {shown:.200}");
        assert_eq!(content[1]["type"], "resource_link", "{era:?}: {answer:.500}");
        let rest = client.read(content[1]["uri"].as_str().unwrap()).await.value();
        let rest = rest["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
        // One read gives no more than one result may.
        assert_eq!(rest.chars().count(), 8_000, "{era:?}");
        let before = shown.split("\n[cut by the gateway").next().unwrap();
        assert!(text.starts_with(&format!("{before}{rest}")), "{era:?}");
    }
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// The same over the pipes that a desktop client opens.
#[tokio::test]
async fn a_desktop_client_s_pipes_hold_its_policy() {
    let child = Child::new(Era::Legacy, &["say", "write_file"]);
    for era in ERAS {
        let folder = folder();
        let text = write(&folder, child.lines());
        let mut piped = Piped::start_in(folder, &text, &[], &[]);
        piped.hello(era).await;
        assert_eq!(piped.names(era).await, ["filesystem__say"], "{era:?}");
        let said = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "word ".repeat(4_000));
        piped.call(era, "2", "filesystem__say", &said).await;
        let answer = piped.answer("2").await;
        assert!(raw(&answer, "result.content").unwrap().contains("of 20000 characters"), "{era:?}: {answer:.300}");
        piped.call(era, "3", "filesystem__write_file", "{}").await;
        assert_eq!(raw(&piped.answer("3").await, "error.code").as_deref(), Some("-32602"), "{era:?}");
        piped.close();
        assert_eq!(piped.ended().await.code, Some(0), "{era:?}");
    }
}
