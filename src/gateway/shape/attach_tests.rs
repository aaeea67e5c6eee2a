//! Attachments of results in every mode.

use base64::Engine as _;
use serde_json::{Value, json};

use super::super::notice::Unavailable;
use super::super::support::{Folder, blocks, read_as, shaped, work, work_in};
use crate::blob::{BlobSettings, PartBody};
use crate::gateway::shape::shaper::Work;
use crate::policy::BlobMode;
use crate::wire::mcp::Content;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0 and so on";

fn base64(bytes: &[u8]) -> String {
    base64::prelude::BASE64_STANDARD.encode(bytes)
}

fn image(bytes: &[u8], mime: &str) -> String {
    json!({"type": "image", "data": base64(bytes), "mimeType": mime}).to_string()
}

fn resource(bytes: &[u8], mime: &str) -> String {
    let inner = json!({"uri": "docs://a/report.pdf", "blob": base64(bytes), "mimeType": mime, "_meta": {"k": 1}});
    json!({"type": "resource", "resource": inner, "annotations": {"priority": 1}}).to_string()
}

fn with_item_max(item_bytes_max: usize, work: Work) -> Work {
    let blob = BlobSettings { item_bytes_max, ..BlobSettings::default() };
    Work { settings: std::sync::Arc::new(super::super::support::settings(blob)), ..work }
}

fn parsed(blocks: &[String]) -> Vec<Value> {
    blocks.iter().map(|block| serde_json::from_str(block).unwrap()).collect()
}

fn is_unavailable(block: &Value, why: Unavailable) -> bool {
    block["text"] == why.words() || block["resource"]["text"] == why.words()
}

/// [LIM-2]: 64 pass, one more and none does; audio counts where it passes.
#[test]
fn sixty_five_are_too_many() {
    let folder = Folder::new();
    for mode in [BlobMode::Pass, BlobMode::File, BlobMode::Link] {
        let few: Vec<String> = (0..64).map(|_| image(PNG, "image/png")).collect();
        let work = work_in(&folder, mode);
        let answer = blocks(&work, &few);
        assert_eq!(answer == parsed(&few), mode == BlobMode::Pass);
        assert!(!answer.iter().any(|block| is_unavailable(block, Unavailable::Count)), "{mode:?}");
        let written = folder.files().len();
        let many = [&few[..], &[resource(b"other bytes", "a/b")]].concat();
        let answer = blocks(&work, &many);
        assert!(answer.iter().all(|block| is_unavailable(block, Unavailable::Count)), "{mode:?}: {answer:?}");
        assert_eq!(folder.files().len(), written, "nothing is written");
    }
    let audio = json!({"type": "audio", "data": "QUJD", "mimeType": "audio/wav"}).to_string();
    let many: Vec<String> = (0..65).map(|_| audio.clone()).collect();
    assert!(blocks(&work(BlobMode::Pass), &many).iter().all(|block| is_unavailable(block, Unavailable::Count)));
    // Elsewhere audio does not count, and an image that is none either.
    let odd = json!({"type": "image", "data": "QUJD"}).to_string();
    let many: Vec<String> = (0..65).flat_map(|_| [audio.clone(), odd.clone()]).collect();
    let answer = blocks(&work(BlobMode::Link), &many);
    assert_eq!(answer[0]["text"], "[audio attachment: audio/wav]");
    assert!(is_unavailable(&answer[1], Unavailable::Malformed));
}

/// [LIM-2]: 10,485,760 bytes in sum pass, one byte more does not; the padding is subtracted, so that one byte shows.
#[test]
fn the_sum_is_exact() {
    let folder = Folder::new();
    let (half, rest) = (vec![1; 5_242_881], vec![2; 5_242_879]);
    for mode in [BlobMode::Pass, BlobMode::File, BlobMode::Link] {
        let work = work_in(&folder, mode);
        let fits = [image(&half, "image/png"), resource(&rest, "a/b")];
        let answer = blocks(&work, &fits);
        assert!(!answer.iter().any(|block| is_unavailable(block, Unavailable::Sum)), "{mode:?}");
        let written = folder.files().len();
        let over = [image(&half, "image/png"), resource(&rest, "a/b"), image(b"x", "image/png")];
        let answer = blocks(&work, &over);
        assert!(answer.iter().all(|block| is_unavailable(block, Unavailable::Sum)), "{mode:?}");
        assert_eq!(folder.files().len(), written, "nothing is written");
    }
}

/// [LIM-2]: over the cap of one item, that item alone.
#[test]
fn one_that_is_too_large_goes_alone() {
    let folder = Folder::new();
    for mode in [BlobMode::Pass, BlobMode::File, BlobMode::Link] {
        let work = with_item_max(PNG.len(), work_in(&folder, mode));
        let answer = blocks(&work, &[image(&[PNG, b"!"].concat(), "image/png"), image(PNG, "image/png")]);
        assert!(is_unavailable(&answer[0], Unavailable::Size), "{mode:?}");
        assert!(!is_unavailable(&answer[1], Unavailable::Size), "{mode:?}");
    }
}

/// [LIM-3]: `pass` keeps every byte, whatever is wrong with it.
#[test]
fn pass_touches_nothing() {
    let text = r#"{ "content" : [{"type":"image","data":"%%%","data":"x"}, {"type":"audio"},{"type":"resource","resource":{"blob":7}} ] }"#;
    let response = super::super::support::response(text);
    let (raw, work) = (response.raw.clone(), work(BlobMode::Pass));
    assert_eq!(work.apply(response).raw, raw);
}

/// [LIM-3]: an image becomes text with the path of its file, a document the same within its resource.
#[test]
fn files_are_named_in_text() {
    let folder = Folder::new();
    let work = work_in(&folder, BlobMode::File);
    let answer = blocks(
        &work,
        &[image(PNG, "image/PNG; charset=x"), resource(b"%PDF-1.7", "application/pdf"), resource(JPEG, "image/png")],
    );
    let path = answer[0]["text"].as_str().unwrap();
    assert!(path.ends_with(".png") && answer[0]["type"] == "text" && answer[0].get("data").is_none());
    assert_eq!(std::fs::read(path).unwrap(), PNG);
    let document = answer[1]["resource"]["text"].as_str().unwrap();
    let path = document.strip_prefix("[Document: ").and_then(|rest| rest.strip_suffix(']')).unwrap();
    assert!(path.ends_with(".pdf") && std::fs::read(path).unwrap() == b"%PDF-1.7");
    assert_eq!(answer[1]["type"], "resource");
    assert_eq!(answer[1]["annotations"], json!({"priority": 1}));
    assert_eq!(answer[1]["resource"]["_meta"], json!({"k": 1}));
    assert_eq!(answer[1]["resource"]["uri"], "docs://a/report.pdf");
    assert!(answer[1]["resource"].get("blob").is_none());
    // The bytes' signature counts before what is declared.
    let path = answer[2]["resource"]["text"].as_str().unwrap();
    assert!(path.ends_with(".jpg") && std::fs::read(path).unwrap() == JPEG);
}

/// [LIM-3, FC-CNT-04]: nothing of a server gets into a path.
#[test]
fn no_path_comes_from_a_server() {
    let folder = Folder::new();
    let work = work_in(&folder, BlobMode::File);
    for uri in ["file:///../../.bashrc", "/etc/passwd", "a\0b", "CON", &"x".repeat(300)] {
        let inner = json!({"uri": uri, "name": uri, "blob": base64(b"abc"), "mimeType": "a/../../b"});
        let block = json!({"type": "resource", "resource": inner}).to_string();
        let answer = blocks(&work, &[block]);
        assert!(answer[0]["resource"]["text"].as_str().unwrap().starts_with("[Document: "), "{answer:?}");
        assert_eq!(answer[0]["resource"]["uri"], uri);
    }
    let files = folder.files();
    assert_eq!(files.len(), 1);
    assert!(files[0].file_name().unwrap().to_str().unwrap().ends_with(".bin"));
}

/// [LIM-3]: a link to what the gateway keeps, in memory or in a file, for that principal alone.
#[test]
fn links_lead_to_the_bytes() {
    let folder = Folder::new();
    for work in [work(BlobMode::Link), work_in(&folder, BlobMode::Link)] {
        let answer = blocks(&work, &[image(JPEG, "image/png"), resource(b"%PDF", "application/pdf")]);
        assert_eq!(answer[0]["type"], "resource_link");
        assert_eq!((&answer[0]["mimeType"], &answer[0]["size"]), (&json!("image/jpeg"), &json!(JPEG.len())));
        assert_eq!(answer[0]["name"], "attachment.jpg");
        assert_eq!(answer[1]["name"], "report.pdf");
        assert_eq!((&answer[1]["annotations"], &answer[1]["_meta"]), (&json!({"priority": 1}), &json!({"k": 1})));
        assert!(answer[1].get("resource").is_none() && answer[0].get("data").is_none());
        for (block, bytes) in [(&answer[0], JPEG), (&answer[1], b"%PDF")] {
            let uri = block["uri"].as_str().unwrap();
            assert!(uri.starts_with("portcullis+blob:///"), "{uri}");
            assert_eq!(read_as(&work, "alice", uri), Some(PartBody::Blob(bytes.to_vec())));
            let part = format!("{uri}?offset=1&length=2");
            assert_eq!(read_as(&work, "alice", &part), Some(PartBody::Blob(bytes[1..3].to_vec())));
            assert_eq!(read_as(&work, "bob", uri), None);
        }
    }
}

/// [LIM-7]: who does not know links reads the URI.
#[test]
fn older_clients_get_the_uri_as_text() {
    let work = Work { links: false, ..work(BlobMode::Link) };
    let answer = blocks(&work, &[image(PNG, "image/png"), resource(b"%PDF", "application/pdf")]);
    assert!(answer[0]["text"].as_str().unwrap().starts_with("portcullis+blob:///"));
    let document = answer[1]["resource"]["text"].as_str().unwrap();
    assert!(document.starts_with("[Document: portcullis+blob:///"));
    assert_eq!((&answer[0]["type"], &answer[1]["type"]), (&json!("text"), &json!("resource")));
}

/// [LIM-3, FC-CNT-03, FC-CNT-06]: broken attachments are said to be, and lose no neighbour.
#[test]
fn what_is_broken_is_said() {
    let folder = Folder::new();
    let wav = r#"{"type":"audio","data":"QUJD","mimeType":"audio/wav; rate=1"}"#;
    for mode in [BlobMode::File, BlobMode::Link] {
        let good =
            [image(PNG, "image/png"), r#"{"type":"text","text":"data:image/png;base64,iVBORw0KGgo="}"#.to_owned()];
        for (block, words) in [
            (r#"{"type":"image","data":7,"mimeType":"image/png"}"#, Unavailable::Malformed.words()),
            (r#"{"type":"image","data":"QUJD"}"#, Unavailable::Malformed.words()),
            (r#"{"type":"image","mimeType":"image/png"}"#, Unavailable::Malformed.words()),
            (r#"{"type":"image","data":"QUJD","data":"QUJD","mimeType":"image/png"}"#, Unavailable::Malformed.words()),
            (r#"{"type":"image","data":"QUJD","mimeType":"image/svg+xml"}"#, Unavailable::Type.words()),
            (r#"{"type":"image","data":"","mimeType":"image/png"}"#, Unavailable::Type.words()),
            (r#"{"type":"image","data":"Q!","mimeType":"image/png"}"#, Unavailable::Base64.words()),
            (r#"{"type":"resource","resource":{"uri":"a:b","blob":{}}}"#, Unavailable::Malformed.words()),
            (r#"{"type":"resource","resource":{"uri":"a:b","blob":"Q!"}}"#, Unavailable::Base64.words()),
            (
                r#"{"type":"resource","resource":{"uri":"a:b","blob":"PHN2Zz4=","mimeType":"image/svg+xml"}}"#,
                Unavailable::Type.words(),
            ),
            (r#"{"type":"audio","data":9}"#, Unavailable::Malformed.words()),
            (wav, "[audio attachment: audio/wav]".to_owned()),
            (r#"{"type":"audio","data":"QUJD","mimeType":"audio/]\n[x"}"#, "[audio attachment]".to_owned()),
        ] {
            let content = [good[0].clone(), block.to_owned(), good[1].clone()];
            let answer = blocks(&work_in(&folder, mode), &content);
            assert!(answer[1]["text"] == words || answer[1]["resource"]["text"] == words, "{block}: {}", answer[1]);
            assert!(answer[0].to_string().contains("png") && answer[0].get("data").is_none(), "{answer:?}");
            assert_eq!(answer[2], serde_json::from_str::<Value>(&good[1]).unwrap());
            assert!(!serde_json::to_string(&answer[..2]).unwrap().contains("QUJD"), "{block}");
        }
        // Readable forms of base64 are read.
        for data in [
            base64(PNG).replace('/', r"\/"),
            format!("data:image/png;base64,{}", base64(PNG)),
            base64(PNG).replace("Kg", r"K\ng"),
        ] {
            let block = format!(r#"{{"type":"image","data":"{data}","mimeType":"image/png"}}"#);
            let answer = blocks(&work_in(&folder, mode), &[block]);
            assert!(!answer[0].to_string().contains("unavailable"), "{data}: {answer:?}");
        }
    }
}

/// [LIM-3, FC-CNT-03]: what is no attachment, and a block that nobody knows, stay as they are.
#[test]
fn other_blocks_stay() {
    let content = [
        r#"{"type":"hologram","data":"QUJD","mimeType":"image/png"}"#,
        r#"{"type":"resource_link","uri":"a:b","name":"data"}"#,
        r#"{"type":"resource","resource":{"uri":"a:b","text":"t"}}"#,
        r#"{"type":"text","text":"blob","data":"QUJD"}"#,
        "7",
    ];
    let text = format!(r#"{{"structuredContent":{{"blob":"QUJD"}},"content":[{}]}}"#, content.join(" , "));
    let response = super::super::support::response(&text);
    let raw = response.raw.clone();
    assert_eq!(work(BlobMode::Link).apply(response).raw, raw);
}

/// [LIM-3]: where nothing can be written, or there is no room, the client still gets an answer.
#[test]
fn without_room_there_are_words() {
    let blob = BlobSettings { upload_bytes_max: 3, overflow_bytes_max: 3, ..BlobSettings::default() };
    let settings = std::sync::Arc::new(super::super::support::settings(blob));
    let folder = Folder::new();
    for work in [work(BlobMode::Link), work_in(&folder, BlobMode::File)] {
        let work = Work { settings: std::sync::Arc::clone(&settings), ..work };
        assert!(is_unavailable(&blocks(&work, &[image(PNG, "image/png")])[0], Unavailable::Quota));
    }
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    let blobs = crate::blob::Blobs::new(Some(file), None, &crate::clock::Clock::manual());
    let work = Work { blobs: std::sync::Arc::new(blobs), ..work(BlobMode::File) };
    assert!(is_unavailable(&blocks(&work, &[image(PNG, "image/png")])[0], Unavailable::Storage));
}

/// [LIM-3, LIM-7]: a prompt's messages are looked at as a result is; what is read by its name keeps its bytes in `link`.
#[test]
fn prompts_and_resources_have_the_same_rules() {
    let prompt = Work { kind: Content::Prompt, ..work(BlobMode::Link) };
    let text = format!(
        r#"{{"messages":[{{"role":"user","content":{}}},{{"role":"user","content":[{}]}}]}}"#,
        image(PNG, "image/png"),
        resource(b"abc", "a/b")
    );
    let answer = shaped(&prompt, &text);
    assert_eq!(answer["messages"][0]["content"]["type"], "resource_link");
    assert_eq!(answer["messages"][1]["content"][0]["type"], "resource_link");
    let folder = Folder::new();
    let contents =
        format!(r#"{{"contents":[{{"uri":"a:b","mimeType":"image/png","blob":"{}","_meta":{{}}}}]}}"#, base64(PNG));
    let read = Work { kind: Content::Read, ..work_in(&folder, BlobMode::File) };
    let answer = shaped(&read, &contents);
    assert!(answer["contents"][0]["text"].as_str().unwrap().ends_with(".png"));
    assert!(answer["contents"][0].get("blob").is_none() && answer["contents"][0].get("_meta").is_some());
    assert_eq!(super::mode_for(Content::Read, BlobMode::Link), BlobMode::Pass);
}
