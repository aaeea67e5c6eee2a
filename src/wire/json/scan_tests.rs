//! The scanner takes exactly what serde_json takes, and says where values lie.

use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{Fault, ScanError, Scanner};

fn scan(text: &[u8], depth_max: usize) -> Result<(), ScanError> {
    let mut scanner = Scanner::new(text, depth_max);
    scanner.value().and_then(|_| scanner.end()).map_err(|Fault| scanner.error())
}

/// What `serde_json` says of a text; its own depth is not bounded where nothing is decoded.
fn serde(text: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(text).is_ok()
}

#[test]
fn depth_is_counted_outside_of_strings() {
    assert_eq!(scan(br#"{"a":"[[[[\"[["}"#, 1), Ok(()));
    assert_eq!(scan(b"[[]]", 2), Ok(()));
    assert_eq!(scan(b"[[[1]]]", 2), Err(ScanError::Depth(2)));
    let deep = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(scan(&deep(512), 512), Ok(()));
    assert_eq!(scan(&deep(513), 9999), Err(ScanError::Depth(512)));
}

#[test]
fn brackets_of_both_kinds_close_what_they_opened() {
    for bad in ["[}", "{]", r#"{"a":[}"#, r#"[{"a":1]"#, r#"[[{"a":[1,{"b":2]]}"#] {
        assert!(scan(bad.as_bytes(), 512).is_err(), "{bad}");
    }
    let mixed = r#"[{"a":[{"b":[[],{}]}]},{}]"#;
    assert_eq!(scan(mixed.as_bytes(), 512), Ok(()));
}

#[test]
fn long_strings_are_checked_as_short_ones_are() {
    for length in [0, 1, 23, 24, 25, 100, 5000] {
        for (inside, good) in [("", true), ("é", true), ("\\n", true), ("\n", false), ("\u{1f}", false), ("\\x", false)]
        {
            let text = format!("\"{}{inside}{}\"", "a".repeat(length), "b".repeat(length));
            assert_eq!(scan(text.as_bytes(), 4).is_ok(), good, "{length} {inside:?}");
            assert_eq!(serde(text.as_bytes()), good);
            let mut broken = text.into_bytes();
            broken.insert(length + 1, 0xff);
            assert!(scan(&broken, 4).is_err());
        }
    }
}

/// Texts that are JSON, nearly JSON, or pieces of it in any order.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 34] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "\n",
        "\"a\"",
        "\"a\":",
        "{}",
        "[]",
        "1",
        "0",
        "-",
        "-0",
        "01",
        "1.5",
        "1.",
        ".5",
        "1e",
        "1e5",
        "E+2",
        "true",
        "false",
        "null",
        "nul",
        "\\u00e9",
        "\\ud800",
        "é",
        "\u{1}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    let piece = prop_oneof![
        9 => prop::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// Whole values with one byte changed, put in or taken out.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        ".{0,60}".prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    });
    (value, any::<bool>(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8).prop_map(
        |(value, pretty, place, byte, change)| {
            let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
            let mut text = text.unwrap();
            let place = place.index(text.len());
            match change {
                0 => {}
                1 => text[place] = byte,
                2 => text.insert(place, byte),
                _ => drop(text.remove(place)),
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What passes here is exactly what `serde_json` takes.
    #[test]
    fn agrees_with_serde_json(text in prop_oneof![texts(), mutated()]) {
        prop_assert_eq!(scan(&text, 512).is_ok(), serde(&text), "{}", String::from_utf8_lossy(&text));
    }
}
