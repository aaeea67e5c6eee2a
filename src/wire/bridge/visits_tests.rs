//! Visits to URLs that are asked for by an error.

use bytes::Bytes;

use super::{Visited, asks_by_error, name_visits, told_visits, visited, wanted_visits};
use crate::wire::jsonrpc::{Decoded, Limits, Message, Response, decode};

const TWO: &str = r#"{"code":-32042,"message":"m","data":{"elicitations":[
    {"mode":"url","elicitationId":"e","url":"https://a.example/x","message":"Sign in","extra":1e2},
    {"url":"https://b.example/"}, {"elicitationId":"no URL"}, 7]}}"#;

fn error(text: &str) -> Response {
    let raw = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{text}}}"#));
    let Ok(Decoded::One(Message::Response(response))) = decode(&raw, &Limits::UPSTREAM) else { panic!("{text}") };
    *response
}

/// [R63]
#[test]
fn visits_of_an_error_become_questions() {
    let response = error(TWO);
    assert!(asks_by_error(&response) && !asks_by_error(&error(r#"{"code":-32602,"message":"m"}"#)));
    let wanted = wanted_visits(&response, 3).unwrap();
    let asked: Vec<(&str, &str)> = wanted
        .requests
        .iter()
        .map(|request| (request.key.as_str(), std::str::from_utf8(&request.params).unwrap()))
        .collect();
    assert_eq!(
        asked,
        [
            ("portcullis-visit-3.1", r#"{"url":"https://a.example/x","message":"Sign in","extra":1e2,"mode":"url"}"#),
            ("portcullis-visit-3.2", r#"{"url":"https://b.example/","mode":"url"}"#),
        ]
    );
    assert_eq!(wanted.state, None);
    for none in [
        r#"{"code":-32042,"message":"m"}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":{"url":"https://a"}}}"#,
        r#"{"code":-32042,"message":"m","data":[]}"#,
    ] {
        assert!(wanted_visits(&error(none), 1).is_err(), "{none}");
    }
}

/// [TRN-10, R99]
#[test]
fn visits_of_an_error_name_their_server() {
    let mut response = error(TWO);
    name_visits(&mut response, "up");
    let named = String::from_utf8(response.settled().raw.to_vec()).unwrap();
    assert!(named.contains(r#""message":"Server 'up' asks: Sign in""#), "{named}");
    assert_eq!(named.matches(r#""portcullis/server":"up""#).count(), 3, "{named}");
    assert!(named.contains(r#""elicitationId":"e""#), "sessions keep their ids: {named}");
}

#[test]
fn visits_are_told_in_words() {
    assert_eq!(told_visits(&error(TWO)), "https://a.example/x (Sign in), https://b.example/");
    assert_eq!(told_visits(&error(r#"{"code":-32042,"message":"m"}"#)), "");
    let long = format!(
        r#"{{"code":-32042,"message":"m","data":{{"elicitations":[{{"url":"https://a\n{}"}}]}}}}"#,
        "x".repeat(9_000)
    );
    let told = told_visits(&error(&long));
    assert!(told.len() == 200 && !told.contains('\n'), "{told}");
}

#[test]
fn a_retry_says_what_came_of_visits() {
    let read = |text: &'static str| visited(&Bytes::from_static(text.as_bytes()));
    let of = |rounds, declined| Visited { rounds, declined };
    assert_eq!(read(r#"{"name":"t"}"#), of(0, false));
    assert_eq!(read(r#"{"inputResponses":{"k":{"action":"decline"}}}"#), of(0, false), "a server's own");
    assert_eq!(read(r#"{"inputResponses":{"portcullis-visit-2.1":{"action":"accept"}}}"#), of(2, false));
    assert_eq!(
        read(
            r#"{"inputResponses":{"portcullis-visit-1.1":{"action":"accept"},"portcullis-visit-1.2":{"action":"cancel"}}}"#
        ),
        of(1, true)
    );
    assert_eq!(read(r#"{"inputResponses":{"portcullis-visit-x":{}}}"#), of(1, true));
    assert_eq!(read(r#"{"inputResponses":7}"#), of(0, false));
}
