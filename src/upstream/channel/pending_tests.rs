//! What waits for a client that is slower than its server.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::{NOTES_BYTES_MAX, NOTES_MAX, Table};
use crate::exchange::{ClientFacts, Event, Owner, Question, Reject, RejectKind, Responder, ServerCall, UpstreamCall};
use crate::id::PrincipalId;
use crate::upstream::link::Outgoing;
use crate::wire::jsonrpc::{Decoded, Limits, Message, Notification, Request, decode};
use crate::wire::mcp::{CallParams, Features, InputKind, Method, ProtocolVersion, RequestMeta};

fn request(text: &str) -> Request {
    let Ok(Decoded::One(Message::Request(request))) = decode(&Bytes::from(text.to_owned()), &Limits::DOWNSTREAM) else {
        panic!("{text}")
    };
    request
}

fn call() -> Outgoing {
    call_of(Features::NONE)
}

/// A call whose client can be asked so much.
pub(in crate::upstream) fn call_of(features: Features) -> Outgoing {
    let request = request(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"mine"}}}"#,
    );
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::read(request.params.as_deref()).unwrap();
    let principal = PrincipalId::new("p");
    Outgoing::Call(Arc::new(UpstreamCall {
        call: Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }),
        original: Arc::from("t"),
        original_spelled: Bytes::from_static(b"\"t\""),
        header_params: Arc::from([]),
        client: ClientFacts {
            features,
            ..ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(b"{}"))
        },
        owner: Owner::principal(principal.clone()),
        principal,
        request_state: None,
        trace: None,
    }))
}

fn progress(id: u64, value: usize) -> Notification {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{value}}}}}"#
    );
    let Ok(Decoded::One(Message::Notification(notification))) = decode(&Bytes::from(text), &Limits::UPSTREAM) else {
        panic!()
    };
    notification
}

/// [LIM-6, FC-CON-04]: of a flood of progress the newest waits, so much and no more; the answer is not lost by it.
#[test]
fn progress_that_waits_is_bounded() {
    let table = Table::default();
    let (id, slot) = table.enter(call()).unwrap();
    for value in 1..=10_000 {
        assert!(table.progress(id, &progress(id, value)));
    }
    assert!(table.finish(id, Err(Reject::upstream(RejectKind::Upstream, "the answer", ""))));
    let context = Context::from_waker(Waker::noop());
    for value in 10_001 - NOTES_MAX..=10_000 {
        let Poll::Ready(Event::Progress(spelled)) = slot.poll(&context) else { panic!("progress {value}") };
        let text = String::from_utf8(spelled.to_vec()).unwrap();
        assert!(
            text.contains(r#""progressToken":"mine""#) && text.contains(&format!(r#""progress":{value}}}"#)),
            "{text}"
        );
    }
    assert!(matches!(slot.poll(&context), Poll::Ready(Event::Done(Err(_)))));
}

/// [LIM-6]: large progress is no way around the number of what waits.
#[test]
fn the_bytes_of_progress_that_waits_are_bounded() {
    let table = Table::default();
    let (id, slot) = table.enter(call()).unwrap();
    for value in 1..=20 {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{value},"message":"{}"}}}}"#,
            "m".repeat(NOTES_BYTES_MAX / 4)
        );
        let Ok(Decoded::One(Message::Notification(large))) = decode(&Bytes::from(text), &Limits::UPSTREAM) else {
            panic!()
        };
        assert!(table.progress(id, &large));
        let waiting: usize = slot.state().notes.iter().map(Event::note_bytes).sum();
        assert!(waiting <= NOTES_BYTES_MAX, "{waiting}");
    }
    let context = Context::from_waker(Waker::noop());
    let mut last = Bytes::new();
    while let Poll::Ready(Event::Progress(spelled)) = slot.poll(&context) {
        last = spelled;
    }
    assert!(memchr::memmem::find(&last, br#""progress":20,"#).is_some(), "the newest is never what goes");
}

/// [LIM-6]: what a server asks and takes back does not heap up while the client is slow.
#[test]
fn questions_that_were_taken_back_do_not_wait() {
    let table = Table::default();
    let (_, slot) = table.enter(call()).unwrap();
    for _ in 0..1_000 {
        let responder = Responder::new(|_| {});
        let asked = responder.asked();
        slot.ask(Question { kind: InputKind::Roots, params: Bytes::from_static(b"{}"), responder });
        asked.withdraw();
    }
    assert_eq!(slot.state().questions.len(), 1);
}
