//! Attachments and long texts through the whole gateway: each principal gets what its policy says [LIM-2, LIM-3, LIM-7].
//!
//! The tool `say` answers with its arguments.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{Child, Client, ERAS, Era, Gateway, Piped, Speaks, TestApp, Upstream, peak_memory_kib};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// One gateway, one server, a principal for each policy.
async fn gateway(server: String, more: &str) -> Gateway {
    let (tables, names) = TestApp::servers(&[("up", server)]);
    let policies = [
        ("pass", "blobs = \"pass\""),
        ("paths", "blobs = \"file\"\nblob_paths = true"),
        ("nopaths", "blobs = \"file\""),
        ("links", "blobs = \"link\""),
        ("short", "max_result_chars = 400"),
        ("dropped", "max_result_chars = 400\noverflow = \"drop\""),
    ];
    let mut rest = format!("{tables}{more}[mcp_bundles.all]\nservers = [{names}]\n");
    for (name, policy) in policies {
        let key = TestApp::key(name);
        rest.push_str(&format!(
            "[principals.{name}]\nmcp_bundles = [\"all\"]\npolicy = \"{name}\"\n{key}[policies.{name}]\n{policy}\n"
        ));
    }
    Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"))
}

fn encoded(bytes: &[u8]) -> String {
    base64::prelude::BASE64_STANDARD.encode(bytes)
}

/// Has the server say something; returns the result.
async fn say(gateway: &Gateway, era: Era, who: &str, result: &Value) -> Value {
    let client = Client::connect(era, gateway.addr, "/mcp", Some(who)).await;
    let answer = client.call_with("up__say", &result.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.value()["result"].clone()
}

/// Reads a resource; returns the whole answer.
async fn read(gateway: &Gateway, era: Era, who: &str, uri: &str) -> Value {
    let client = Client::connect(era, gateway.addr, "/mcp", Some(who)).await;
    client.read(uri).await.value()
}

/// Reads a part; returns its contents.
async fn read_part(gateway: &Gateway, era: Era, who: &str, uri: &str, offset: usize, length: usize) -> Value {
    let base = uri.split('?').next().unwrap();
    let answer = read(gateway, era, who, &format!("{base}?offset={offset}&length={length}")).await;
    answer["result"]["contents"][0].clone()
}

/// [LIM-3]: every mode on every transport, in both eras; nothing but the attachment changes.
async fn every_mode(server: String, context: &str) {
    let gateway = gateway(server, "").await;
    let image = json!({"type": "image", "data": encoded(PNG), "mimeType": "image/png", "annotations": {"priority": 1}});
    let inner = json!({"uri": "docs://report", "blob": encoded(b"%PDF-1.7"), "mimeType": "application/pdf"});
    let document = json!({"type": "resource", "resource": inner, "_meta": {"k": 1}});
    let audio = json!({"type": "audio", "data": encoded(b"RIFF"), "mimeType": "audio/wav"});
    let text = json!({"type": "text", "text": "\u{fffd} 😀"});
    let whole = json!({"content": [image, text, document, audio]});
    for era in ERAS {
        let context = format!("{context}, {era:?}");
        let passed = say(&gateway, era, "pass", &whole).await;
        let mut shown = whole["content"].clone();
        shown[2]["resource"]["uri"] = json!("up+docs://report");
        assert_eq!(passed["content"], shown, "{context}");
        let files = say(&gateway, era, "paths", &whole).await;
        let path = files["content"][0]["text"].as_str().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), PNG, "{context}");
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{context}");
        assert!(path.starts_with(gateway.folder().join("state").to_str().unwrap()), "{context}: {path}");
        assert_eq!(files["content"][0]["annotations"], json!({"priority": 1}), "{context}");
        assert_eq!(files["content"][1], text, "{context}");
        let words = files["content"][2]["resource"]["text"].as_str().unwrap();
        let path = words.strip_prefix("[Document: ").unwrap().trim_end_matches(']');
        assert_eq!(std::fs::read(path).unwrap(), b"%PDF-1.7", "{context}");
        assert_eq!(files["content"][2]["_meta"], json!({"k": 1}), "{context}");
        assert_eq!(files["content"][3]["text"], "[audio attachment: audio/wav]", "{context}");
        // A client that is somewhere else gets links, not paths.
        for who in ["links", "nopaths"] {
            let links = say(&gateway, era, who, &whole).await;
            let types: Vec<&str> = (0..4).map(|at| links["content"][at]["type"].as_str().unwrap()).collect();
            assert_eq!(types, ["resource_link", "text", "resource_link", "text"], "{context}, {who}");
            assert_eq!(links["content"][0]["size"], PNG.len(), "{context}");
            assert!(!links.to_string().contains(&encoded(PNG)), "{context}");
            let uri = links["content"][0]["uri"].as_str().unwrap();
            let read = read(&gateway, era, who, uri).await;
            assert_eq!(read["result"]["contents"][0]["blob"], encoded(PNG), "{context}: {read}");
            assert_eq!(read["result"]["contents"][0]["mimeType"], "image/png", "{context}");
            let part = read_part(&gateway, era, who, uri, 3, 5).await;
            assert_eq!(part["blob"], encoded(&PNG[3..8]), "{context}");
            assert_eq!(part["_meta"]["portcullis/range"]["total"], PNG.len(), "{context}");
            // Another principal, and nobody, read the same refusal.
            let foreign = self::read(&gateway, era, "pass", uri).await;
            let nothing = self::read(&gateway, era, who, &uri.replace("blob:///", "blob:///0")).await;
            assert_eq!(foreign["error"]["code"], nothing["error"]["code"], "{context}: {foreign}");
            assert_eq!(foreign["error"]["message"], nothing["error"]["message"], "{context}: {nothing}");
        }
    }
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0), "{context}");
}

/// [LIM-3]
#[tokio::test]
async fn attachments_over_pipes() {
    for era in ERAS {
        let child = Child::new(era, &["say"]);
        every_mode(child.lines(), &format!("pipe, {era:?}")).await;
    }
}

/// [LIM-3]
#[tokio::test]
async fn attachments_over_http() {
    for sse in [false, true] {
        let up = Upstream::start(Speaks::Both, sse, &["say"]).await;
        every_mode(up.lines(), if sse { "events" } else { "body" }).await;
    }
}

/// [LIM-3]: a client on pipes is on this machine: in `file` it has paths without `blob_paths`.
#[tokio::test]
async fn a_client_on_pipes_has_paths() {
    let child = Child::new(Era::Legacy, &["say"]);
    let image = json!({"content": [{"type": "image", "data": encoded(PNG), "mimeType": "image/png"}]}).to_string();
    for era in ERAS {
        let text = Piped::configuration(&[("up", child.lines())]);
        let mut piped = Piped::start(&text.replacen("[mcp]\n", "[mcp]\nblobs = \"file\"\n", 1), &[]);
        piped.hello(era).await;
        piped.call(era, "2", "up__say", &image).await;
        let answer: Value = serde_json::from_str(&piped.answer("2").await).unwrap();
        let path = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{era:?}: {answer}"));
        assert!(path.ends_with(".png") && std::fs::read(path).unwrap() == PNG, "{era:?}: {answer}");
        piped.close();
        assert_eq!(piped.ended().await.code, Some(0), "{era:?}");
    }
}

/// [LIM-2, FC-CNT-03]: 65 images are words, in every mode, and no file is written.
#[tokio::test]
async fn sixty_five_images_are_words() {
    let up = Upstream::start(Speaks::Both, false, &["say"]).await;
    let gateway = gateway(up.lines(), "").await;
    let image = json!({"type": "image", "data": encoded(PNG), "mimeType": "image/png"});
    let many = json!({"content": vec![image; 65]});
    for who in ["pass", "paths", "links"] {
        let answer = say(&gateway, Era::Legacy, who, &many).await;
        let content = answer["content"].as_array().unwrap();
        let words = "[attachment unavailable: too many attachments in one result]";
        assert!(content.len() == 65 && content.iter().all(|block| block["text"] == words), "{who}: {answer}");
    }
    let uploads = gateway.folder().join("state/uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0);
}

/// [LIM-3]: an attachment of 10 MiB is not held a second time while it goes to its file or to its link.
#[tokio::test]
async fn a_large_attachment_is_held_once() {
    const SLACK_KIB: u64 = 8 << 10;
    let mut bytes = vec![7; 10 << 20];
    bytes[..PNG.len()].copy_from_slice(PNG);
    let whole = json!({"content": [{"type": "image", "data": encoded(&bytes), "mimeType": "image/png"}]});
    let small = json!({"content": [{"type": "image", "data": encoded(PNG), "mimeType": "image/png"}]});
    for who in ["paths", "links"] {
        let up = Upstream::start(Speaks::Both, false, &["say", "large"]).await;
        up.answer_with("large", &whole.to_string());
        let gateway = gateway(up.lines(), "").await;
        // Every path is warm before memory is looked at.
        say(&gateway, Era::Legacy, who, &small).await;
        let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some(who)).await;
        let before = peak_memory_kib(gateway.pid());
        let answer = client.call_with("up__large", "{}").await.value();
        let grown = peak_memory_kib(gateway.pid()) - before;
        let block = &answer["result"]["content"][0];
        assert!(block["type"] == "resource_link" || block["text"].as_str().unwrap().ends_with(".png"), "{block}");
        let once = u64::try_from(whole.to_string().len()).unwrap() / 1024;
        assert!(grown <= once + SLACK_KIB, "{who}: grew by {grown} KiB, the answer has {once}");
    }
}

/// [LIM-7, LIM-8, CTX-5, FC-CLI-05, FC-CNT-02]: each principal its own cap; the other gets all. What is asked is never cut: the
/// arguments that come back are longer than any result may be.
#[tokio::test]
async fn each_principal_has_its_cap() {
    let up = Upstream::start(Speaks::Both, false, &["say"]).await;
    let gateway = gateway(up.lines(), "").await;
    let long = "é".repeat(120_000);
    let whole = json!({"content": [{"type": "text", "text": long}]});
    for era in ERAS {
        assert_eq!(say(&gateway, era, "pass", &whole).await["content"], whole["content"]);
        let short = say(&gateway, era, "short", &whole).await;
        let text = short["content"][0]["text"].as_str().unwrap();
        assert!(
            text.chars().count() <= 400 && text.starts_with('é') && text.contains(" of 120000 characters"),
            "{text}"
        );
        assert_eq!(short["content"][1]["type"], "resource_link");
        let uri = short["content"][1]["uri"].as_str().unwrap();
        let (mut joined, mut next) = (text.split("\n[cut").next().unwrap().to_owned(), Some(uri.to_owned()));
        let mut parts = 0;
        while let Some(uri) = next {
            let answer = read(&gateway, era, "short", &uri).await;
            let part = &answer["result"]["contents"][0];
            let text = part["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            // One read gives no more than a result may have.
            assert!(text.chars().count() <= 400);
            joined.push_str(text);
            next = part["_meta"]["portcullis/range"]["next"].as_str().map(str::to_owned);
            parts += 1;
        }
        assert!(joined == long && parts == 300, "{parts}");
        for odd in ["offset=x", "offset=1&offset=2", "length=-1", "range=1"] {
            let base = uri.split('?').next().unwrap();
            let answer = read(&gateway, era, "short", &format!("{base}?{odd}")).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
        let dropped = say(&gateway, era, "dropped", &whole).await;
        assert_eq!(dropped["content"].as_array().unwrap().len(), 1);
        assert!(dropped["content"][0]["text"].as_str().unwrap().ends_with("; the rest was dropped]"));
    }
}

/// [LIM-1]: no rule applies to a server that nobody looks at.
#[tokio::test]
async fn what_is_not_inspected_is_not_changed() {
    let up = Upstream::start(Speaks::Both, false, &["say"]).await;
    let gateway = gateway(format!("{}\ninspect = \"off\"", up.lines()), "").await;
    for length in [500, 200_000] {
        let image = json!({"type": "image", "data": encoded(PNG), "mimeType": "image/png"});
        let whole = json!({"content": [{"type": "text", "text": "x".repeat(length)}, image]});
        for who in ["short", "links"] {
            assert_eq!(say(&gateway, Era::Legacy, who, &whole).await["content"], whole["content"], "{who}, {length}");
        }
    }
}

/// [LIM-8]: a request over its cap is refused whole.
#[tokio::test]
async fn requests_are_refused_whole() {
    let up = Upstream::start(Speaks::Both, false, &["say"]).await;
    let gateway = gateway(up.lines(), "[limits]\nrequest_body_bytes = 10000\n").await;
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", Some("short")).await;
        let calls = up.calls().len();
        let answer = client.call_with("up__say", &json!({"content": [], "x": "x".repeat(10_000)}).to_string()).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert_eq!(up.calls().len(), calls, "nothing of it reaches the server");
    }
}
