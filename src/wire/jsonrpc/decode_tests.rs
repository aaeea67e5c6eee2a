//! What decodes to what.

use bytes::Bytes;

use super::{DecodeErrorKind, Decoded, Limits, decode};
use crate::wire::jsonrpc::{Message, Payload};

fn one(text: &str) -> Result<Message, DecodeErrorKind> {
    match decode(&Bytes::from(text.to_owned()), &Limits::DOWNSTREAM) {
        Ok(Decoded::One(message)) => Ok(message),
        Ok(Decoded::Batch(_)) => panic!("a batch: {text}"),
        Err(err) => Err(err.kind),
    }
}

#[test]
fn parts_are_places_in_the_text() {
    let text = r#" { "x" : 1, "id" : "a\u0062" , "params":{"n":1e2} ,"jsonrpc":"2.0","method":"tools/call"} "#;
    let Ok(Message::Request(request)) = one(text) else { panic!("no request") };
    assert_eq!(&request.raw[request.id_at.clone()], br#""a\u0062""#);
    let params = request.params.unwrap();
    assert_eq!(params.text(), &br#"{"n":1e2}"#[..]);
    assert_eq!(&request.raw[params.at("n").unwrap().unwrap()], b"1e2");
    assert_eq!(request.method, "tools/call");
}

/// [FC-IDS-01, FC-IDS-02, FC-IDS-08]
#[test]
fn ids_keep_their_type_and_spelling() {
    for id in ["0", "-1", "\"\"", "\"1\"", "1", "9007199254740993", "1e2", "1.10", "18446744073709551616"] {
        let Ok(Message::Request(request)) = one(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)) else {
            panic!("{id}")
        };
        assert_eq!(request.id.raw(), id.as_bytes());
    }
    for id in ["null", "true", "[]", "{}"] {
        assert!(one(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).is_err(), "{id}");
    }
}

/// [FC-SEC-03]: two readings of one message are refused.
#[test]
fn duplicate_routed_keys_are_refused() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"b","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"b","result":{}}"#,
    ] {
        assert!(matches!(one(text), Err(DecodeErrorKind::NotMessage(_))), "{text}");
    }
}

#[test]
fn what_is_not_a_message_says_why() {
    for text in ["", "nonsense", "{", r#"{"a":1}x"#, "\u{feff}{}"] {
        assert!(matches!(one(text), Err(DecodeErrorKind::NotJson(_))), "{text}");
    }
    for text in ["1", "null", r#"{"id":1}"#, r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, r#"{"jsonrpc":"2.0","id":1}"#]
    {
        assert!(matches!(one(text), Err(DecodeErrorKind::NotMessage(_))), "{text}");
    }
    for params in ["[]", "1", "null", "\"x\""] {
        assert!(one(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{params}}}"#)).is_err(), "{params}");
    }
}

/// [FC-SEC-09]
#[test]
fn deep_nesting_is_refused_without_recursion() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}{}}}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    assert!(matches!(one(&deep), Err(DecodeErrorKind::Depth(128))));
}

/// [FC-SEC-04]
#[test]
fn a_batch_is_bounded_and_each_element_stands_alone() {
    let body = Bytes::from_static(br#" [ {"jsonrpc":"2.0","id":1,"method":"ping"}, 1 ] "#);
    let Ok(Decoded::Batch(elements)) = decode(&body, &Limits::DOWNSTREAM) else { panic!("no batch") };
    assert!(matches!(elements.as_slice(), [Ok(Message::Request(_)), Err(_)]));
    for bad in ["[]".to_owned(), format!("[{}1]", "1,".repeat(10_000))] {
        let err = decode(&Bytes::from(bad), &Limits::DOWNSTREAM).unwrap_err();
        assert_eq!(err.kind, DecodeErrorKind::BatchSize(64));
    }
}

#[test]
fn answers_know_their_payload() {
    let Ok(Message::Response(answer)) = one(r#"{"jsonrpc":"2.0","id":7,"result":{"a":null}}"#) else { panic!() };
    assert_eq!(answer.result().as_deref(), Some(&br#"{"a":null}"#[..]));
    assert_eq!(answer.id.unwrap().as_u64(), Some(7));
    let Ok(Message::Response(answer)) = one(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#) else { panic!() };
    assert!(answer.id.is_none());
    assert!(matches!(answer.payload, Payload::Error(_)));
}
