//! Characters of strings as they are spelled.

use proptest::prelude::*;

use super::super::{Raw, quoted};
use super::Spelled;

fn decoded(spelled: Spelled<'_>, from: usize, to: usize) -> String {
    let mut out = String::new();
    spelled.decode(from..to, &mut out);
    out
}

/// [FC-CNT-01]: halves of pairs, in any order, are a character each.
#[test]
fn lone_halves_are_read_as_the_replacement_character() {
    for (spelled, text) in [
        (r"\ud83d\ude00", "😀"),
        (r"\uD83D\uDE00x", "😀x"),
        (r"a\ud83d", "a\u{fffd}"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83d\u0041", "\u{fffd}A"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r#"\u0000\b\f\n\r\t\/\\\""#, "\0\u{8}\u{c}\n\r\t/\\\""),
    ] {
        let read = Spelled::inner(spelled.as_bytes());
        assert_eq!(decoded(read, 0, spelled.len()), text, "{spelled}");
        assert_eq!(read.count(), text.chars().count(), "{spelled}");
    }
}

#[test]
fn a_plain_text_has_no_escapes() {
    let plain = Spelled::plain(br"a\nb");
    assert_eq!((plain.count(), decoded(plain, 0, 4)), (4, r"a\nb".to_owned()));
    assert!(Spelled::of(Raw::NULL).is_none());
}

/// Spells some characters as escapes.
fn spell(text: &str, escaped: &[bool]) -> String {
    let mut out = String::new();
    for (index, char) in text.chars().enumerate() {
        if escaped.get(index % escaped.len().max(1)).copied().unwrap_or(false) {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            let spelled = quoted(&char.to_string());
            out.push_str(std::str::from_utf8(&spelled[1..spelled.len() - 1]).unwrap());
        }
    }
    out
}

proptest! {
    /// [LIM-7]: however a text is spelled, it is cut between characters, and its parts joined are the whole.
    #[test]
    fn cut_anywhere_the_parts_are_the_whole(
        text in "(?s).{0,60}|[a-z\u{e9}\u{20ac}\u{1f600}]{1000,2100}",
        escaped in prop::collection::vec(any::<bool>(), 1..5),
        cuts in prop::collection::vec(0usize..2200, 0..6),
    ) {
        let whole = spell(&text, &escaped);
        let read = Spelled::inner(whole.as_bytes());
        let count = text.chars().count();
        prop_assert_eq!(read.count(), count);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(count)).collect();
        cuts.sort_unstable();
        cuts.push(count);
        let (mut joined, mut at, mut done) = (String::new(), 0, 0);
        for cut in cuts {
            let (place, walked) = read.walk(at, cut - done);
            prop_assert_eq!(walked, cut - done);
            let (direct, _) = read.walk(0, cut);
            prop_assert_eq!(direct, place);
            // What stands before the cut is a JSON string of its own.
            let head = format!("\"{}\"", whole.get(..place).unwrap());
            let head: String = serde_json::from_str(&head).unwrap();
            prop_assert_eq!(head.chars().count(), cut);
            read.decode(at..place, &mut joined);
            (at, done) = (place, cut);
        }
        prop_assert_eq!(joined, text);
    }
}
