//! Blocks read, and spelled anew.

use super::{Block, BlockKind, Field, LinkFacts, text_block, well_formed_mime};

fn kind(text: &str) -> BlockKind {
    Block::read(text.as_bytes()).unwrap().kind()
}

fn words(text: &str) -> String {
    String::from_utf8(Block::read(text.as_bytes()).unwrap().with_words("W")).unwrap()
}

#[test]
fn kinds_are_told_apart() {
    assert_eq!(kind(r#"{"type":"image"}"#), BlockKind::Image);
    assert_eq!(kind(r#"{"\u0074ype":"im\u0061ge"}"#), BlockKind::Image);
    assert_eq!(kind(r#"{"type":"audio"}"#), BlockKind::Audio);
    assert_eq!(kind(r#"{"type":"resource","resource":{}}"#), BlockKind::Resource);
    assert_eq!(kind(r#"{"type":"resource","resource":7}"#), BlockKind::Other);
    assert_eq!(kind(r#"{"type":"hologram","data":"QQ=="}"#), BlockKind::Other);
    assert_eq!(kind(r#"{"type":"image","data":"QQ==","data":""}"#), BlockKind::Malformed);
    assert_eq!(kind(r#"{"type":"resource","resource":{"blob":"","blob":""}}"#), BlockKind::Malformed);
    assert!(Block::read(b"[]").is_none());
}

#[test]
fn what_holds_base64_is_found() {
    let image = Block::read(br#"{"type":"image","data":"QUJD","mimeType":"image/png"}"#).unwrap();
    assert_eq!(image.encoded().base64().unwrap().decoded_len(), 3);
    assert_eq!(image.mime().as_deref(), Some("image/png"));
    let odd = Block::read(br#"{"type":"image","data":7}"#).unwrap();
    assert!(matches!(odd.encoded(), Field::Malformed));
    let text = Block::read(br#"{"type":"resource","resource":{"text":"a"}}"#).unwrap();
    assert!(matches!(text.encoded(), Field::Absent));
    let (spelled, at) = text.words().unwrap();
    assert_eq!((spelled.get(), at), (&b"a"[..], 39));
    let contents = Block::contents(br#"{"uri":"u","blob":"QQ=="}"#).unwrap();
    assert_eq!(contents.encoded().base64().unwrap().decoded_len(), 1);
}

/// [LIM-3]: annotations, `_meta` and other fields stay, as they are spelled; a text has no media type.
#[test]
fn everything_but_the_base64_stays() {
    assert_eq!(
        words(
            r#"{"annotations": {"audience":["user"]},"type":"image","data":"QQ==","mimeType":"image/png","_meta":{"a":1e0}}"#
        ),
        r#"{"annotations": {"audience":["user"]},"type":"text","text":"W","_meta":{"a":1e0}}"#
    );
    assert_eq!(
        words(r#"{"type":"resource","resource":{"uri":"file:///x","blob":"QQ==","x":[1, 2]},"_meta":{}}"#),
        r#"{"type":"resource","resource":{"uri":"file:///x","text":"W","x":[1, 2]},"_meta":{}}"#
    );
    // Two texts would be two blocks to two readers.
    assert_eq!(words(r#"{"type":"image","text":"t","data":"QQ=="}"#), r#"{"type":"text","text":"W"}"#);
    assert_eq!(words(r#"{"type":"image","data":"a","data":"b"}"#), r#"{"type":"text","text":"W"}"#);
    let contents = Block::contents(br#"{"uri":"u","blob":"QQ==","_meta":{}}"#).unwrap();
    assert_eq!(contents.with_words("W"), br#"{"uri":"u","text":"W","_meta":{}}"#);
}

#[test]
fn a_block_becomes_a_link() {
    let facts =
        LinkFacts { uri: "portcullis+blob:///1", name: "a.png", mime: "image/png", description: None, bytes: Some(3) };
    let link = |text: &str| String::from_utf8(Block::read(text.as_bytes()).unwrap().as_link(&facts)).unwrap();
    let ours = r#""type":"resource_link","uri":"portcullis+blob:///1","name":"a.png","mimeType":"image/png","size":3"#;
    assert_eq!(
        link(r#"{"annotations":{},"type":"image","data":"QUJD","mimeType":"image/jpeg","x":1}"#),
        format!(r#"{{"annotations":{{}},{ours},"x":1}}"#)
    );
    assert_eq!(
        link(
            r#"{"type":"resource","resource":{"uri":"file:///etc","blob":"QUJD","mimeType":"a/b","_meta":{"k":1},"y":2},"y":3}"#
        ),
        format!(r#"{{{ours},"_meta":{{"k":1}},"y":3}}"#)
    );
    assert_eq!(facts.block(), format!("{{{ours}}}").into_bytes());
    assert_eq!(text_block("a\"b"), br#"{"type":"text","text":"a\"b"}"#);
}

/// [LIM-3]: a media type is printed only if it is well formed.
#[test]
fn media_types_are_read_strictly() {
    assert_eq!(well_formed_mime("image/PNG; charset=x").as_deref(), Some("image/png"));
    assert_eq!(well_formed_mime("application/vnd.a+json").as_deref(), Some("application/vnd.a+json"));
    for odd in ["", "image", "image/", "/png", "image/p ng", "image/png]", "image/\u{e9}", "a/b/c", "image/<script>"] {
        assert_eq!(well_formed_mime(odd), None, "{odd}");
    }
    assert_eq!(well_formed_mime(&format!("image/{}", "a".repeat(200))), None);
}
