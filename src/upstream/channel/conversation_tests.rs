//! What a hostile server says on its channel.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::Conversation;
use crate::exchange::Event;
use crate::id::UpstreamName;
use crate::upstream::channel::pending::tests::call_of;
use crate::upstream::{ServerSettings, Transport};
use crate::wire::mcp::{Era, Feature, Features};

/// [LIM-6, TRN-10]: however often a server asks under one id, one question of that id is out.
#[test]
fn a_question_is_asked_once_under_one_id() {
    let transport = Transport::Stdio {
        command: "none".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    let settings = Arc::new(ServerSettings::new(UpstreamName::new("one").unwrap(), transport));
    let features = Features::NONE.with(Feature::Roots);
    let conversation = Arc::new(Conversation::new(settings, features));
    conversation.settle(Era::Legacy);
    let (_, slot) = conversation.table.enter(call_of(features)).unwrap();
    let line = Bytes::from_static(br#"{"jsonrpc":"2.0","id":"again","method":"roots/list"}"#);
    for _ in 0..1_000 {
        assert!(conversation.receive(&line));
    }
    let context = Context::from_waker(Waker::noop());
    let mut asked = Vec::new();
    while let Poll::Ready(Event::Ask(question)) = slot.poll(&context) {
        asked.push(question);
    }
    assert_eq!(asked.len(), 1);
    // Once it is answered, the id is free again.
    drop(asked);
    assert!(conversation.receive(&line));
    assert!(matches!(slot.poll(&context), Poll::Ready(Event::Ask(_))));
}
