//! What waits for a client that is slower than its server.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::{Abandoned, NOTES_BYTES_MAX, NOTES_MAX, STRAGGLERS_MAX, Table};
use crate::exchange::{
    ClientFacts, Event, Owner, OwnerKey, Question, Reject, RejectKind, Responder, ServerCall, UpstreamCall,
};
use crate::id::PrincipalId;
use crate::upstream::link::{Left, Outgoing};
use crate::wire::jsonrpc::{Decoded, Limits, Message, Notification, Request, decode};
use crate::wire::mcp::{CallParams, Feature, Features, InputKind, Method, ProtocolVersion, RequestMeta};

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
    owned(features, OwnerKey::Principal(PrincipalId::new("p")))
}

/// The same, of an owner.
pub(in crate::upstream) fn owned(features: Features, key: OwnerKey) -> Outgoing {
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
        owner: Owner { key, ended: None, aside: None },
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

/// [TRN-10, R100, R111]: on a pipe that several principals share, what comes beside the calls is nobody's, also while one call
/// alone is under way: it may be of work that another one's call has left behind.
#[test]
fn what_comes_beside_shared_calls_is_nobodys() {
    for shared in [false, true] {
        let table = Table::new(shared);
        let (first, _) = table.enter(call_of(Features::NONE.with(Feature::Roots))).unwrap();
        assert!(
            table.begin(first) && table.finish(first, Err(Reject::upstream(RejectKind::Upstream, "the answer", "")))
        );
        let (_, slot) = table.enter(call_of(Features::NONE.with(Feature::Roots))).unwrap();
        assert_eq!(table.only_call().is_some(), !shared);
        assert_eq!(table.log(&progress(1, 1)), !shared);
        assert_eq!(slot.poll(&Context::from_waker(Waker::noop())).is_ready(), !shared);
    }
}

/// [TRN-10, R100, R111]: while the server has not answered a call that one client gave up, what it asks and logs beside the
/// calls is no other client's. Neither a failure of all calls at once, nor more of them than are remembered, is an answer.
#[test]
fn what_may_be_of_a_call_that_was_given_up_is_nobodys() {
    let features = Features::NONE.with(Feature::Roots);
    let (one, two) = (OwnerKey::Session(1), OwnerKey::Session(2));
    let known = |table: &Table| (table.only_call().is_some(), table.log(&progress(1, 1)));
    for fails in [false, true] {
        let table = Table::default();
        let (first, _) = table.enter(owned(features, one.clone())).unwrap();
        assert!(table.begin(first));
        if fails {
            table.fail_all(&Reject::upstream(RejectKind::Limit, "a line that is nobody's", ""));
        } else {
            assert_eq!(table.abandon(first), Abandoned::Cancel);
        }
        let (second, _) = table.enter(owned(features, two.clone())).unwrap();
        assert_eq!(known(&table), (false, false), "another client");
        assert_eq!((table.left_behind(&one), table.left_behind(&two)), (Left::Own, Left::Others));
        assert_eq!(table.abandon(second), Abandoned::Nothing);
        let (third, _) = table.enter(owned(features, one.clone())).unwrap();
        assert_eq!(known(&table), (true, true), "the same client");
        assert_eq!(table.abandon(third), Abandoned::Nothing);
        table.finish(first, Err(Reject::upstream(RejectKind::Upstream, "late", "")));
        let (_, _slot) = table.enter(owned(features, two.clone())).unwrap();
        assert_eq!(known(&table), (true, true), "it is answered");
        assert_eq!(table.left_behind(&two), Left::Nothing);
    }
    let table = Table::default();
    for _ in 0..=STRAGGLERS_MAX {
        let (id, _) = table.enter(owned(features, one.clone())).unwrap();
        table.begin(id);
        table.abandon(id);
    }
    assert_eq!(table.left_behind(&one), Left::Others, "more than are remembered may be anybody's");
}
