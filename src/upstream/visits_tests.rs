//! Visits to URLs: who is told that they are over.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::{VISITS_MAX, Visits};
use crate::exchange::{Answer, Aside, Question, Responder};
use crate::wire::json;
use crate::wire::jsonrpc::{Decoded, Limits, Message, Response, decode};
use crate::wire::mcp::{Era, InputKind};

fn over(visits: &Visits, id: &str) {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{{"elicitationId":{id}}}}}"#
    );
    let Ok(Decoded::One(Message::Notification(note))) = decode(&Bytes::from(text), &Limits::UPSTREAM) else { panic!() };
    visits.hear(&note);
}

fn asked(visits: &Visits, params: &'static str, client: &Arc<Aside>) -> Bytes {
    let responder = Responder::new(|_| {});
    let kind = InputKind::Elicitation;
    visits.question(Question { kind, params: Bytes::from_static(params.as_bytes()), responder }, client).params
}

fn id_of(params: &[u8]) -> String {
    let members = json::members(params).unwrap();
    json::text(members.get("elicitationId").unwrap().unwrap()).unwrap().into_owned()
}

/// Two clients, two visits that a server calls by names of its own: each is told of its own, once, by the name that it knows.
#[test]
fn who_was_asked_is_told_that_it_is_over() {
    let (visits, ann, bob) = (Visits::default(), Arc::new(Aside::default()), Arc::new(Aside::default()));
    let anns = id_of(&asked(&visits, r#"{"mode":"url","url":"https://a","elicitationId":"1"}"#, &ann));
    let bobs = id_of(&asked(&visits, r#"{"mode":"url","url":"https://a","elicitationId":"2"}"#, &bob));
    assert!(anns != bobs && anns.len() == 32);
    for unknown in ["\"3\"", "7", "null"] {
        over(&visits, unknown);
    }
    over(&visits, "\"2\"");
    over(&visits, "\"2\"");
    let told = bob.said().now_or_never().unwrap();
    let complete = r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"#;
    assert_eq!(told, format!("{complete}\"{bobs}\"}}}}"));
    assert!(bob.said().now_or_never().is_none() && ann.said().now_or_never().is_none());
    over(&visits, "\"1\"");
    assert!(ann.said().now_or_never().is_some_and(|told| told == format!("{complete}\"{anns}\"}}}}")));
}

#[test]
fn a_form_is_no_visit() {
    let (visits, ann) = (Visits::default(), Arc::new(Aside::default()));
    let form = r#"{"message":"m","elicitationId":"1"}"#;
    assert_eq!(asked(&visits, form, &ann), form);
    over(&visits, "\"1\"");
    assert!(ann.said().now_or_never().is_none());
}

/// [R63]: those that an error asks for are known by an id of ours too.
#[test]
fn visits_of_an_error_are_told_of_too() {
    let (visits, ann) = (Visits::default(), Arc::new(Aside::default()));
    let visit = r#"{"mode":"url","url":"https://a","message":"m","elicitationId":"e"}"#;
    let error = format!(r#"{{"code":-32042,"message":"m","data":{{"elicitations":[{visit}]}}}}"#);
    let response = Box::new(Response::with_error(None, error.as_bytes()));
    let outcome = visits.outcome(Ok(Answer::Upstream { response, era: Era::Legacy }), &ann);
    let Ok(Answer::Upstream { response, .. }) = outcome else { panic!("{outcome:?}") };
    let text = String::from_utf8(response.raw.to_vec()).unwrap();
    assert!(!text.contains(r#""elicitationId":"e""#), "{text}");
    over(&visits, "\"e\"");
    let told = String::from_utf8(ann.said().now_or_never().unwrap().to_vec()).unwrap();
    let id = told.split('"').rev().nth(1).unwrap();
    assert!(text.contains(id), "{told} {text}");
}

/// [LIM-6]
#[test]
fn visits_that_are_remembered_are_bounded() {
    let (visits, ann) = (Visits::default(), Arc::new(Aside::default()));
    for number in 0..=VISITS_MAX {
        visits.enter(number.to_string(), &ann).unwrap();
    }
    over(&visits, "\"0\"");
    assert!(ann.said().now_or_never().is_none(), "the oldest is forgotten");
    over(&visits, "\"1\"");
    assert!(ann.said().now_or_never().is_some());
    assert_eq!(visits.visits().len(), VISITS_MAX - 1);
}
