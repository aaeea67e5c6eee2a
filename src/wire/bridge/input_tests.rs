//! Tests of questions between the eras.

use bytes::Bytes;

use super::{InputError, Wanted, answers, answers_kind, named, retry, with_member};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::InputKind;

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// [R91]: at least one of the two members, known kinds, params that are objects.
#[test]
fn what_asks_for_nothing_is_no_question() {
    for bad in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"inputRequests":[],"requestState":"s"}"#,
        r#"{"inputRequests":{"q":1}}"#,
        r#"{"inputRequests":{"q":{"method":"elicitation/create","params":1}}}"#,
        r#"{"inputRequests":{"q":{"method":"roots/list"},"q":{"method":"roots/list"}}}"#,
        r#"{"requestState":1}"#,
    ] {
        assert!(matches!(Wanted::read(&Bytes::from(bad)), Err(InputError::Malformed(_))), "{bad}");
    }
    let unknown = Bytes::from_static(br#"{"inputRequests":{"q":{"method":"tools/call","params":{}}}}"#);
    assert_eq!(Wanted::read(&unknown), Err(InputError::Unknown("tools/call".to_owned())));
    let state = Wanted::read(&Bytes::from_static(br#"{"requestState":"s","inputRequests":null}"#)).unwrap();
    assert_eq!((state.requests.len(), state.state.as_deref()), (0, Some(&b"\"s\""[..])));
}

/// [TRN-10, R99, R86]: the server is named, what else is there stays.
#[test]
fn a_question_names_its_server() {
    for (kind, params, expected) in [
        (
            InputKind::Elicitation,
            r#"{"message":"Your \"name\"?","requestedSchema":{"x":1.0},"_meta":{"progressToken":3,"a":1}}"#,
            r#"{"message":"Server 'up' asks: Your \"name\"?","requestedSchema":{"x":1.0},"_meta":{"portcullis/server":"up","a":1}}"#,
        ),
        (
            InputKind::Sampling,
            r#"{"messages":[],"systemPrompt":"Be short.","includeContext":"allServers"}"#,
            r#"{"messages":[],"systemPrompt":"This request comes from the MCP server 'up'.\n\nBe short.","includeContext":"none","_meta":{"portcullis/server":"up"}}"#,
        ),
        (
            InputKind::Sampling,
            r#"{"messages":[]}"#,
            r#"{"messages":[],"systemPrompt":"This request comes from the MCP server 'up'.","_meta":{"portcullis/server":"up"}}"#,
        ),
        (InputKind::Roots, "{}", r#"{"_meta":{"portcullis/server":"up"}}"#),
    ] {
        assert_eq!(text(&named(kind, &Bytes::from(params), "up")), expected);
    }
}

#[test]
fn a_result_is_spelled_as_it_was_read() {
    let result = r#"{"resultType":"input_required","x":1.0,"inputRequests":{"q":{"method":"roots/list","params":{}}},"requestState":"s"}"#;
    let result = Bytes::from(result);
    let mut wanted = Wanted::read(&result).unwrap();
    wanted.state = Some(Bytes::from_static(b"\"sealed\""));
    assert_eq!(
        text(&wanted.spelled(Some(&result))),
        r#"{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{}}},"requestState":"sealed","x":1.0}"#
    );
}

/// [R93, R86]: the next round has the same params, the answers, and the state that was given.
#[test]
fn a_retry_holds_the_answers_and_the_same_params() {
    let raw = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{ "a":1.0 },"requestState":"old","inputResponses":{}}}"#;
    let Ok(Decoded::One(Message::Request(request))) = decode(&Bytes::from(raw), &Limits::DOWNSTREAM) else {
        panic!("no request")
    };
    let given = [("q".to_owned(), Bytes::from_static(br#"{"action":"accept"}"#))];
    assert_eq!(
        text(&retry(&request, &given, Some(&Bytes::from_static(b"\"new\"")))),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{ "a":1.0 },"inputResponses":{"q":{"action":"accept"}},"requestState":"new"}}"#
    );
    assert!(!text(&retry(&request, &[], None)).contains("requestState"));
}

/// [R94]: what is no object answers nothing; a member that is no object at all is an error.
#[test]
fn answers_are_objects() {
    let read = |params: &str| answers(&Bytes::from(params.to_owned()));
    assert_eq!(read(r#"{"name":"t"}"#), Ok(Vec::new()));
    assert!(read(r#"{"inputResponses":null}"#).is_err() && read(r#"{"inputResponses":[]}"#).is_err());
    let given = read(r#"{"inputResponses":{"a":1,"b":{"action":"decline"}}}"#).unwrap();
    assert_eq!(given, [("b".to_owned(), Bytes::from_static(br#"{"action":"decline"}"#))]);
    for (kind, answer, good) in [
        (InputKind::Elicitation, r#"{"action":"accept","content":{}}"#, true),
        (InputKind::Elicitation, r#"{"action":"maybe"}"#, false),
        (InputKind::Roots, r#"{"roots":[]}"#, true),
        (InputKind::Roots, "{}", false),
        (InputKind::Sampling, r#"{"content":{}}"#, true),
    ] {
        assert_eq!(answers_kind(kind, answer.as_bytes()), good, "{answer}");
    }
}

#[test]
fn one_member_is_set_or_left_out() {
    let object = Bytes::from_static(br#"{"a":1,"b":2}"#);
    assert_eq!(text(&with_member(&object, "b", Some(b"3"))), r#"{"a":1,"b":3}"#);
    assert_eq!(text(&with_member(&object, "a", None)), r#"{"b":2}"#);
}
