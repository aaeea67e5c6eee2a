//! What waits for a client that is slower than its server.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::{NOTES_MAX, Table};
use crate::exchange::{ClientFacts, Event, Owner, OwnerKey, Reject, RejectKind, ServerCall, UpstreamCall};
use crate::id::PrincipalId;
use crate::upstream::link::Outgoing;
use crate::wire::jsonrpc::{Decoded, Limits, Message, Notification, Request, decode};
use crate::wire::mcp::{CallParams, Method, ProtocolVersion, RequestMeta};

fn request(text: &str) -> Request {
    let Ok(Decoded::One(Message::Request(request))) = decode(&Bytes::from(text.to_owned()), &Limits::DOWNSTREAM) else {
        panic!("{text}")
    };
    request
}

fn call() -> Outgoing {
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
        client: ClientFacts::new(ProtocolVersion::V2025_11_25, None, Bytes::from_static(b"{}")),
        owner: Owner { key: OwnerKey::Principal(principal.clone()), ended: None },
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
