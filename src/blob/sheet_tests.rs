//! Texts and base64 read by parts.

use base64::Engine as _;
use bytes::Bytes;
use proptest::prelude::*;

use super::{MARK_CHARS, Sheet};
use crate::wire::json::quoted;

fn spelled(text: &str) -> Bytes {
    let spelled = quoted(text);
    spelled.slice(1..spelled.len() - 1)
}

fn file() -> std::fs::File {
    let path = std::env::temp_dir()
        .join(format!("portcullis-sheet-{}", crate::seal::random::<8>().map(u64::from_le_bytes).unwrap()));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// Reads it all by parts of one size.
fn by_parts(sheet: &Sheet, chars: usize) -> String {
    let mut joined = String::new();
    let mut offset = 0;
    loop {
        let part = sheet.text(offset, chars).unwrap();
        if part.is_empty() {
            return joined;
        }
        offset += part.chars().count() as u64;
        joined.push_str(&part);
    }
}

/// [LIM-7]: far into a text, in memory and in a file.
#[test]
fn long_texts_are_read_from_any_place() {
    let line = "aé€😀\n\"\\";
    let text = line.repeat(3 * MARK_CHARS / line.chars().count() + 9);
    let chars: Vec<char> = text.chars().collect();
    let sheets = [Sheet::texts(vec![spelled(&text)]), Sheet::texts(vec![spelled(&text)]).in_file(file()).unwrap()];
    for sheet in sheets {
        assert_eq!(sheet.total, chars.len() as u64);
        for offset in
            [0, 1, MARK_CHARS - 1, MARK_CHARS, MARK_CHARS + 1, 3 * MARK_CHARS - 2, chars.len() - 1, chars.len()]
        {
            let wanted: String = chars.iter().skip(offset).take(5).collect();
            assert_eq!(sheet.text(offset as u64, 5).unwrap(), wanted, "{offset}");
        }
        assert_eq!(sheet.text(u64::MAX, 5).unwrap(), "");
        assert_eq!(by_parts(&sheet, 50_000), text);
    }
}

#[test]
fn a_json_value_is_kept_as_it_is_spelled() {
    let sheet = Sheet::json(Bytes::from_static(br#"{"a":"\n"}"#));
    assert_eq!((sheet.text(0, 99).unwrap().as_str(), sheet.total), (r#"{"a":"\n"}"#, 10));
    assert!(sheet.is_text() && sheet.mime == "application/json");
}

proptest! {
    /// [LIM-7]: the parts joined are the whole, however many texts there are and however long the parts.
    #[test]
    fn parts_joined_are_the_whole(
        texts in prop::collection::vec("(?s).{0,40}", 1..5),
        chars in 1usize..30,
        disk in any::<bool>(),
    ) {
        let sheet = Sheet::texts(texts.iter().map(|text| spelled(text)).collect());
        let sheet = if disk { sheet.in_file(file()).unwrap() } else { sheet.detached() };
        let whole = texts.join("\n");
        prop_assert_eq!(sheet.total, whole.chars().count() as u64);
        prop_assert_eq!(by_parts(&sheet, chars), whole);
    }

    /// [LIM-3]: the same of bytes.
    #[test]
    fn parts_of_a_blob_joined_are_the_whole(
        bytes in prop::collection::vec(any::<u8>(), 0..40_000),
        length in 1usize..20_000,
    ) {
        let encoded = Bytes::from(base64::prelude::BASE64_STANDARD.encode(&bytes));
        let sheet = Sheet::base64(encoded, "a/b".to_owned(), bytes.len() as u64);
        let mut joined = Vec::new();
        while joined.len() < bytes.len() {
            let part = sheet.blob(joined.len() as u64, length);
            prop_assert!(!part.is_empty() && part.len() <= length);
            joined.extend(part);
        }
        prop_assert_eq!(joined, bytes);
    }
}
