//! Text cut, and the rest of it.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::support::{Folder, caps, read_as, response, shaped, work};
use super::notification;
use crate::blob::{BlobSettings, Blobs, PartBody};
use crate::clock::Clock;
use crate::gateway::shape::shaper::Work;
use crate::policy::{BlobMode, Overflow};
use crate::wire::mcp::Content;

fn cutting(cap: usize, overflow: Overflow) -> Work {
    Work { caps: caps(cap, overflow), ..work(BlobMode::Pass) }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn result(content: &[Value]) -> String {
    json!({"content": content}).to_string()
}

/// Returns the text of a block.
fn words(block: &Value) -> Option<&str> {
    block["text"].as_str().or_else(|| block["resource"]["text"].as_str())
}

/// Returns how much text a reader of the result gets.
fn seen(result: &Value) -> usize {
    let content = result["content"].as_array().unwrap();
    content.iter().filter_map(words).map(|text| text.chars().count()).sum()
}

/// Reads on by ranges from a link to the end; each part has at most so many characters.
fn rest(work: &Work, uri: &str, most: usize) -> String {
    let (base, query) = uri.split_once("?offset=").unwrap();
    let (offset, length) = query.split_once("&length=").unwrap();
    let (mut offset, mut left): (usize, usize) = (offset.parse().unwrap(), length.parse().unwrap());
    let mut joined = String::new();
    while left > 0 {
        let part = format!("{base}?offset={offset}&length={}", left.min(most));
        let Some(PartBody::Text(part)) = read_as(work, "alice", &part) else { panic!("{part}") };
        let chars = part.chars().count();
        assert!(chars == left.min(most), "{chars} of {left}");
        (offset, left) = (offset + chars, left - chars);
        joined.push_str(&part);
    }
    joined
}

/// [LIM-7, CTX-5, FC-CNT-02]: cut between characters, at most the cap with the words about it; the link has the rest.
#[test]
fn a_long_text_is_cut_and_linked() {
    for (cap, long) in [(256, "aé€😀\n".repeat(200)), (8000, "x".repeat(8001)), (300, "é".repeat(301))] {
        let work = cutting(cap, Overflow::Link);
        let answer = shaped(&work, &result(&[text(&long)]));
        let shown = answer["content"][0]["text"].as_str().unwrap();
        let (kept, words) = shown.split_once("\n[cut by the gateway: ").unwrap();
        assert!(long.starts_with(kept) && seen(&answer) <= cap && seen(&answer) + 20 > cap, "{shown}");
        let total = long.chars().count();
        assert_eq!(
            words,
            format!("{} of {total} characters; the rest is linked in this result]", kept.chars().count())
        );
        let link = &answer["content"][1];
        assert_eq!((&link["type"], &link["mimeType"]), (&json!("resource_link"), &json!("text/plain")));
        let uri = link["uri"].as_str().unwrap();
        assert_eq!(format!("{kept}{}", rest(&work, uri, 97)), long);
        assert_eq!(read_as(&work, "bob", uri), None);
    }
}

/// [CTX-5]: what fits is not touched.
#[test]
fn what_fits_stays() {
    let content = [text(&"é".repeat(100)), text(&"é".repeat(200))];
    // Two texts are one line break apart.
    let fits = response(&result(&content));
    let raw = fits.raw.clone();
    assert_eq!(cutting(301, Overflow::Link).apply(fits).raw, raw);
    assert_ne!(cutting(300, Overflow::Link).apply(response(&result(&content))).raw, raw);
}

/// [LIM-7]: `drop`, and an answer that is larger than all that is kept.
#[test]
fn what_is_dropped_is_said() {
    let long = "x".repeat(1000);
    let blob = BlobSettings { overflow_bytes_max: 999, ..BlobSettings::default() };
    let small = std::sync::Arc::new(super::super::support::settings(blob));
    for work in [cutting(256, Overflow::Drop), Work { settings: small, ..cutting(256, Overflow::Link) }] {
        let answer = shaped(&work, &result(&[text(&long), text("more")]));
        assert_eq!(answer["content"].as_array().unwrap().len(), 1);
        assert!(answer["content"][0]["text"].as_str().unwrap().ends_with(" of 1005 characters; the rest was dropped]"));
        assert!(seen(&answer) <= 256);
        assert_eq!(work.blobs.held(), (0, 0));
    }
}

/// [LIM-7]: a client that knows no links gets the URI as text.
#[test]
fn older_clients_read_the_uri() {
    let long = "x".repeat(10_000);
    let work = Work { links: false, ..cutting(400, Overflow::Link) };
    let answer = shaped(&work, &result(&[text(&long)]));
    assert_eq!(answer["content"].as_array().unwrap().len(), 1);
    let shown = answer["content"][0]["text"].as_str().unwrap();
    let (kept, words) = shown.split_once("\n[cut").unwrap();
    let uri = words.split_once("read on at ").unwrap().1.trim_end_matches(']');
    assert!(seen(&answer) <= 400);
    assert_eq!(format!("{kept}{}", rest(&work, uri, 5_000)), long);
}

/// [LIM-7]: several texts are one text to the reader; other blocks stay in their order.
#[test]
fn texts_after_the_cut_go() {
    let resource = json!({"type": "resource", "resource": {"uri": "a:b", "text": "y".repeat(500)}, "_meta": {"k": 1}});
    let other = json!({"type": "resource_link", "uri": "a:b", "name": "n"});
    let content = [text("first"), other.clone(), resource, text("gone"), other.clone(), text("gone too")];
    let work = cutting(256, Overflow::Link);
    let answer = shaped(&work, &result(&content));
    let left = answer["content"].as_array().unwrap();
    assert_eq!(left.len(), 5);
    assert_eq!((&left[0], &left[1], &left[3]), (&text("first"), &other, &other));
    assert_eq!(left[2]["_meta"], json!({"k": 1}));
    let (kept, _) = left[2]["resource"]["text"].as_str().unwrap().split_once("\n[cut").unwrap();
    let whole = format!("first\n{}\ngone\ngone too", "y".repeat(500));
    let uri = left[4]["uri"].as_str().unwrap();
    assert_eq!(format!("first\n{kept}{}", rest(&work, uri, 1000)), whole);
    assert!(seen(&answer) <= 256);
}

/// [LIM-7]: structured content is whole or not there.
#[test]
fn structured_content_is_whole_or_not_there() {
    let large = json!({"rows": vec!["é"; 400]});
    let work = cutting(300, Overflow::Link);
    for (structured, content) in
        [(large.clone(), vec![text("short")]), (large.clone(), vec![]), (large.clone(), vec![text(&"x".repeat(290))])]
    {
        let whole = json!({"structuredContent": structured, "content": content, "isError": false}).to_string();
        let answer = shaped(&work, &whole);
        assert!(answer.get("structuredContent").is_none() && seen(&answer) <= 300, "{answer}");
        let uri = answer["content"].as_array().unwrap().last().unwrap()["uri"].as_str().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Value>(&rest(&work, &uri, 77)).unwrap(), large);
        assert_eq!(answer["isError"], json!(false));
    }
    // Small ones stay beside a text that is cut, and an answer without content gets one.
    let small = json!({"content": [text(&"x".repeat(400))], "structuredContent": {"k": 1}}).to_string();
    assert_eq!(shaped(&work, &small)["structuredContent"], json!({"k": 1}));
    let alone = json!({"structuredContent": large}).to_string();
    let answer = shaped(&work, &alone);
    assert_eq!(answer["content"][0]["type"], "text");
    assert_eq!(answer["content"][1]["mimeType"], "application/json");
}

/// [LIM-7]: a tool that has promised a schema cannot answer with less, so its cut result says that it is an error.
#[test]
fn a_promised_schema_stays_valid() {
    let promising = |overflow| Work {
        definition: Bytes::from_static(br#"{"name":"t","outputSchema":{"type":"object","required":["rows"]}}"#),
        ..cutting(256, overflow)
    };
    let rows = json!({"rows": vec!["x"; 200]});
    for (whole, structured) in [
        (json!({"content": [text(&rows.to_string())], "structuredContent": rows}), false),
        (json!({"content": [text(&"x".repeat(300))], "structuredContent": {"rows": []}, "isError": false}), true),
    ] {
        let answer = shaped(&promising(Overflow::Link), &whole.to_string());
        assert_eq!(answer["isError"], json!(true));
        assert_eq!(answer.get("structuredContent").is_some(), structured);
        assert!(answer["content"].as_array().unwrap().iter().any(|block| block["type"] == "resource_link"));
        assert!(answer["content"][0]["text"].as_str().is_some());
        assert_eq!(shaped(&promising(Overflow::Drop), &whole.to_string())["isError"], json!(true));
    }
    let fits = json!({"content": [text("x")], "structuredContent": {"rows": []}}).to_string();
    assert!(shaped(&promising(Overflow::Link), &fits).get("isError").is_none());
}

/// [LIM-7]: the rest in files without a name.
#[test]
fn the_rest_can_lie_on_the_disk() {
    let folder = Folder::new();
    let blob = BlobSettings { overflow_disk: true, ..BlobSettings::default() };
    let work = Work {
        blobs: std::sync::Arc::new(Blobs::new(None, Some(folder.0.clone()), &Clock::manual())),
        settings: std::sync::Arc::new(super::super::support::settings(blob)),
        ..cutting(300, Overflow::Link)
    };
    let long = "aé😀\"\\\n".repeat(30_000);
    let answer = shaped(&work, &result(&[text(&long)]));
    let (kept, _) = answer["content"][0]["text"].as_str().unwrap().split_once("\n[cut").unwrap();
    let uri = answer["content"][1]["uri"].as_str().unwrap();
    assert_eq!(format!("{kept}{}", rest(&work, uri, 40_000)), long);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "the file has no name");
}

/// [LIM-7]: what is kept of a small part of a large answer does not hold the answer.
#[test]
fn a_small_rest_does_not_hold_the_answer() {
    let mut whole = json!({"content": [text(&"x".repeat(500))]});
    whole["padding"] = Value::from("p".repeat(100_000));
    let work = cutting(256, Overflow::Link);
    shaped(&work, &whole.to_string());
    let names = "docs+file:///a".len() + "docs__file:///a".len();
    assert_eq!(work.blobs.held(), (500 + names, 1));
    let work = cutting(256, Overflow::Link);
    let answer = response(&result(&[text(&"x".repeat(500))]));
    let bytes = answer.raw.len();
    drop(work.apply(answer));
    assert_eq!(work.blobs.held(), (bytes + names, 1));
}

/// [LIM-7]: prompts and resources: the URI stands in the text, and every message has content.
#[test]
fn prompts_and_resources_are_cut() {
    let long = "x".repeat(600);
    let message = |words: &str| json!({"role": "user", "content": text(words)});
    let work = |kind| Work { kind, ..cutting(400, Overflow::Link) };
    let prompt = work(Content::Prompt);
    let answer = shaped(&prompt, &json!({"messages": [message(&long), message("second")]}).to_string());
    let shown = answer["messages"][0]["content"]["text"].as_str().unwrap();
    let (kept, words) = shown.split_once("\n[cut").unwrap();
    let uri = words.split_once("read on at ").unwrap().1.trim_end_matches(']');
    assert_eq!(format!("{kept}{}", rest(&prompt, uri, 99)), format!("{long}\nsecond"));
    assert_eq!(answer["messages"][1]["content"]["text"], "[cut]");
    let read = work(Content::Read);
    let answer = shaped(&read, &json!({"contents": [{"uri": "a:b", "text": long, "_meta": {}}]}).to_string());
    assert!(answer["contents"][0]["text"].as_str().unwrap().contains("read on at portcullis+overflow:///"));
    assert_eq!(answer["contents"][0]["uri"], "a:b");
}

/// [LIM-7]: an error's words too.
#[test]
fn errors_are_cut() {
    let long = "x".repeat(1000);
    let text =
        json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": long, "data": {"d": long}}}).to_string();
    let Ok(crate::wire::jsonrpc::Decoded::One(crate::wire::jsonrpc::Message::Response(error))) =
        crate::wire::jsonrpc::decode(&Bytes::from(text), &crate::wire::jsonrpc::Limits::UPSTREAM)
    else {
        panic!()
    };
    let cut: Value = serde_json::from_slice(&cutting(256, Overflow::Link).apply(*error).raw).unwrap();
    assert!(cut["error"]["message"].as_str().unwrap().chars().count() <= 256);
    assert_eq!((&cut["error"]["code"], cut["error"].get("data")), (&json!(-1), None));
}

/// [LIM-7]: notifications too; what they are about stays.
#[test]
fn notifications_are_cut() {
    let long = "é".repeat(1000);
    let log = |data: &Value| {
        let params = json!({"level": "info", "data": data, "logger": "l"});
        Bytes::from(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string())
    };
    for data in [Value::from(long.as_str()), json!({"deep": [long]})] {
        let cut: Value = serde_json::from_slice(&notification(&log(&data), 256).unwrap()).unwrap();
        let shown = cut["params"]["data"].as_str().unwrap();
        assert!(shown.chars().count() <= 256 && shown.ends_with("; the rest was dropped]"), "{shown}");
        assert_eq!((&cut["params"]["level"], &cut["params"]["logger"]), (&json!("info"), &json!("l")));
    }
    let params = json!({"progressToken": 1, "progress": 1, "message": long});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string();
    let cut: Value = serde_json::from_slice(&notification(&Bytes::from(progress), 256).unwrap()).unwrap();
    assert!(cut["params"]["message"].as_str().unwrap().chars().count() <= 256);
    assert_eq!(cut["params"]["progressToken"], 1);
    assert_eq!(notification(&log(&Value::from("short")), 256), None);
    assert_eq!(notification(&log(&Value::from("é".repeat(256))), 256), None);
}

/// A text block, a resource, or something else.
fn block() -> impl Strategy<Value = Value> {
    let words = prop_oneof!["(?s).{0,80}", "[a\u{e9}\u{1f600}\n\"\\\\]{100,400}"];
    prop_oneof![
        words.clone().prop_map(|words| text(&words)),
        words.prop_map(|words| json!({"type": "resource", "resource": {"uri": "a:b", "text": words}})),
        Just(json!({"type": "resource_link", "uri": "a:b", "name": "n"})),
        Just(json!({"type": "other", "k": [1, 2]})),
    ]
}

proptest! {
    /// [LIM-7]: whatever the blocks are, what is seen is within the cap and what was shown and the rest are the whole.
    #[test]
    fn shown_and_rest_are_the_whole(content in prop::collection::vec(block(), 0..6), cap in 256usize..500, links in any::<bool>()) {
        let work = Work { links, ..cutting(cap, Overflow::Link) };
        let texts: Vec<&str> =
            content.iter().filter_map(words).collect();
        let whole = texts.join("\n");
        let answer = shaped(&work, &result(&content));
        if whole.chars().count() <= cap {
            prop_assert_eq!(&answer["content"], &Value::from(content));
            return Ok(());
        }
        prop_assert!(seen(&answer) <= cap);
        let left = answer["content"].as_array().unwrap();
        let shown: Vec<&str> = left.iter().filter_map(words).collect();
        let shown = shown.join("\n");
        let (shown, about) = shown.rsplit_once("\n[cut by the gateway: ").unwrap();
        let uri = match links {
            true => left.last().unwrap()["uri"].as_str().unwrap(),
            false => about.split_once("read on at ").unwrap().1.trim_end_matches(']'),
        };
        prop_assert_eq!(format!("{}{}", shown, rest(&work, uri, 61)), whole);
    }
}
