//! Edits of JSON with comments: what is not the edited value stays, byte for byte.

use proptest::prelude::*;

use super::{Change, change, entries, parse};
use crate::clients::How;

fn set(name: &str, value: &str) -> (String, Change) {
    (name.to_owned(), Change::Set(value.to_owned()))
}

/// Blanks and comments, as editors and people leave them.
fn trivia() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(" ".to_owned()),
        Just("\t".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        "[a-z\"{}\\[\\],: ]{0,8}".prop_map(|text| format!("// {text}\n")),
        "[a-z\"{}\\[\\],:/ \n]{0,8}".prop_map(|text| format!("/* {text} */")),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{}".to_owned()),
        Just("[1, 2,]".to_owned()),
        Just("\"a \\\" // b { é \\u0041\"".to_owned()),
        Just("{ \"command\": \"x\", /* } */ \"args\": [\"]\"] }".to_owned()),
        Just("-1.5e3".to_owned()),
        Just("null".to_owned()),
    ]
}

proptest! {
    /// [OPS-11]
    #[test]
    fn only_the_value_of_the_edited_member_changes(
        trivia in proptest::collection::vec(trivia(), 14),
        values in proptest::collection::vec(value(), 5),
        comma in any::<bool>(),
        mark in any::<bool>(),
    ) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = trivia.as_slice() else { unreachable!() };
        let [first, second, one, two, three] = values.as_slice() else { unreachable!() };
        let (mark, comma) = (if mark { "\u{feff}" } else { "" }, if comma { "," } else { "" });
        let before = format!(
            "{mark}{a}{{{b}\"first\"{c}:{d}{first},{e}\"servers\":{f}{{{g}\"one\":{one}{h},{i}\"tw\\u006f\":{j}"
        );
        let after = format!("{k},\"three\":{three}{l}{comma}{m}}},\"second\":{second}}}{n}");
        let text = format!("{before}{two}{after}");
        let changed = change(&text, "servers", &[set("two", "{}")]).unwrap();
        prop_assert_eq!(changed, format!("{before}{{}}{after}"));
        // A member that is added stands among the others, and taking it away again leaves nothing behind.
        let added = change(&text, "servers", &[set("new", "true")]).unwrap();
        let body = added.strip_prefix('\u{feff}').unwrap_or(&added);
        let root = parse(body).unwrap();
        let servers = root.get_object("servers").unwrap();
        prop_assert_eq!(servers.get_boolean("new").map(|found| found.value), Some(true));
        prop_assert_eq!(servers.properties.len(), 4);
        prop_assert_eq!(change(&added, "servers", &[("new".to_owned(), Change::Remove)]).unwrap(), text);
    }
}

/// [OPS-11]
#[test]
fn members_are_added_in_the_file_s_own_layout() {
    let added = |text: &str| change(text, "servers", &[set("new", "{\n\t\"a\": 1\n}")]).unwrap();
    assert_eq!(added(""), "{\n  \"servers\": {\n    \"new\": {\n      \"a\": 1\n    }\n  }\n}\n");
    assert_eq!(added("{}"), "{\n  \"servers\": {\n    \"new\": {\n      \"a\": 1\n    }\n  }\n}");
    assert_eq!(
        added("{\r\n\t\"x\": 1 // last\r\n}\r\n"),
        "{\r\n\t\"x\": 1,\r\n\t\"servers\": {\r\n\t\t\"new\": {\r\n\t\t\t\"a\": 1\r\n\t\t}\r\n\t} // last\r\n}\r\n"
    );
    assert_eq!(
        added("{\n    \"servers\": {}\n}"),
        "{\n    \"servers\": {\n        \"new\": {\n            \"a\": 1\n        }\n    }\n}"
    );
    assert_eq!(
        added("{\n  \"servers\": {\n    // none yet\n  }\n}"),
        "{\n  \"servers\": {\n    \"new\": {\n      \"a\": 1\n    }\n    // none yet\n  }\n}"
    );
}

/// [CFG-6]: two readers of one file may take different ones of two members.
#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for text in
        [r#"{"servers":{},"servers":{}}"#, r#"{"servers":{"a":{},"a":{}}}"#, r#"{"servers":[]}"#, "[]", "{", "1"]
    {
        assert!(change(text, "servers", &[set("a", "1")]).is_err(), "{text}");
    }
    for text in ["{'a': 1}", "{a: 1}", "{\"a\": 0x1}", "{\"a\": 1 \"b\": 2}"] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(parse(&"{\"a\":".repeat(100_000)).is_err());
}

/// [CFG-6]
#[test]
fn entries_are_read_with_and_without_type() {
    let text = r#"{
        "a": {"command": "x", "args": ["1", ""], "env": {"N": 987654, "T": true, "G": null}},
        "b": {"type": "streamable-http", "url": "http://h/"},
        "c": {"type": "sse", "url": "http://h/"},
        "d": {"command": "x", "url": "http://h/"},
        "e": {"type": "http", "command": "x"},
        "f": {"command": "x", "args": "1"},
        "g": 1,
        "h": {"command": "x", "enabled": false, "custom": 1},
        "i": {"command": "x", "command": "y"},
        "j": {"type": "ws", "url": "http://h/"}
    }"#;
    let found = entries(&parse(text).unwrap()).unwrap();
    let why = |index: usize| match &found[index].how {
        How::Not(why) => why.clone(),
        other @ (How::Http { .. } | How::Stdio { .. }) => format!("{other:?}"),
    };
    let How::Stdio { args, env, .. } = &found[0].how else { panic!("{found:?}") };
    assert_eq!(args, &["1", ""]);
    let env: Vec<_> = env.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
    assert_eq!(env, ["N=987654", "T=true"]);
    assert!(matches!(found[1].how, How::Http { .. }));
    assert!(matches!(found[2].how, How::Http { .. }));
    assert!(why(3).contains("both"), "{}", why(3));
    assert!(why(4).contains("no url"), "{}", why(4));
    assert!(why(5).contains("no list"), "{}", why(5));
    assert!(why(6).contains("no object"), "{}", why(6));
    assert!(!found[7].enabled && found[7].unused == ["custom"]);
    assert!(why(8).contains("two members"), "{}", why(8));
    assert!(why(9).contains("type"), "{}", why(9));
    assert!(!format!("{found:?}").contains("987654"), "a value of a variable is shown");
}
