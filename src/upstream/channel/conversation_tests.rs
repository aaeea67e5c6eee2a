//! What a hostile server says on its channel.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use proptest::prelude::*;

use super::Conversation;
use crate::exchange::{Event, RejectKind};
use crate::id::UpstreamName;
use crate::net::{Frame, LineReader, Pieces};
use crate::upstream::channel::pending::tests::call_of;
use crate::upstream::{ServerSettings, Transport};
use crate::wire::mcp::{Era, Feature, Features};

fn conversation(features: Features) -> Arc<Conversation> {
    conversation_of(features, |_| {})
}

/// A conversation with a server of the legacy era that was told of these features.
pub(in crate::upstream::channel) fn conversation_of(
    features: Features,
    adjust: impl FnOnce(&mut ServerSettings),
) -> Arc<Conversation> {
    let transport = Transport::Stdio {
        command: "none".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    let mut settings = ServerSettings::new(UpstreamName::new("one").unwrap(), transport);
    adjust(&mut settings);
    let conversation = Arc::new(Conversation::new(Arc::new(settings), features));
    conversation.settle(Era::Legacy);
    conversation
}

/// Something that stands in a line, or ends it.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"x":""#,
        "[",
        "]",
        ",",
        "\n",
        "\n",
        "\r\n",
        " ",
        "\"",
    ];
    prop_oneof![
        6 => prop::sample::select(known.map(|text| text.as_bytes().to_vec()).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0..900_usize).prop_map(|length| vec![b'x'; length]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// [LIM-1, LIM-6, TRN-10]: whatever a server says, cut anywhere: its call has exactly one outcome, at the latest when the
    /// channel ends, and what waits for the client is bounded.
    #[test]
    fn any_bytes_are_one_outcome(
        said in prop::collection::vec(fragment(), 0..40),
        pieces in prop::collection::vec(1..60_usize, 0..60),
    ) {
        let conversation = conversation(Features::NONE.with(Feature::Roots));
        let (_, slot) = conversation.table.enter(call_of(Features::NONE.with(Feature::Roots))).unwrap();
        let said = said.concat();
        let mut reader = LineReader::new(Pieces::new(&said, pieces), 300);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        loop {
            match runtime.block_on(reader.next()).unwrap() {
                Frame::Line(line) => { conversation.receive(&line); }
                Frame::TooLong(ends) => conversation.too_long(&ends),
                Frame::Endless(ends) => { conversation.too_long(&ends); break; }
                Frame::End => break,
            }
        }
        conversation.table.fail_all(&conversation.reject(RejectKind::Upstream, "has ended"));
        let context = Context::from_waker(Waker::noop());
        let (mut done, mut others) = (0, 0);
        while let Poll::Ready(event) = slot.poll(&context) {
            if matches!(event, Event::Done(_)) {
                done += 1;
            } else {
                prop_assert_eq!(done, 0, "nothing comes after the outcome");
                others += 1;
            }
        }
        prop_assert_eq!(done, 1);
        prop_assert!(others <= 32 + 64, "{} events wait", others);
    }
}

/// [LIM-6, TRN-10]: however often a server asks under one id, one question of that id is out.
#[test]
fn a_question_is_asked_once_under_one_id() {
    let features = Features::NONE.with(Feature::Roots);
    let conversation = conversation(features);
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

/// [LIM-6]: what waits for a server that does not read is bounded in bytes too; an answer without room becomes an error that says
/// so, and a flood of the server's own is dropped.
#[test]
fn answers_that_wait_for_a_server_are_bounded_in_bytes() {
    let features = Features::NONE.with(Feature::Roots);
    let conversation = conversation(features);
    let (_, slot) = conversation.table.enter(call_of(features)).unwrap();
    let context = Context::from_waker(Waker::noop());
    let large = Bytes::from(format!(r#"{{"roots":[],"x":"{}"}}"#, "x".repeat(3 << 20)));
    let answer = |id: usize| {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
        assert!(conversation.receive(&Bytes::from(line)));
        let Poll::Ready(Event::Ask(question)) = slot.poll(&context) else { panic!("it is asked") };
        question.responder.settle(Ok(large.clone()));
    };
    let waits = || -> Vec<Bytes> { std::iter::from_fn(|| conversation.next_control()).collect() };
    (0..8).for_each(answer);
    let lines = waits();
    let errors: Vec<&[u8]> = lines.iter().filter(|line| line.len() < 1_000).map(|line| &**line).collect();
    assert_eq!((lines.len(), errors.len()), (8, 3));
    let bytes: usize = lines.iter().map(Bytes::len).sum();
    assert!(bytes <= super::ANSWERS_BYTES_MAX, "{bytes}");
    assert_eq!(
        std::str::from_utf8(errors[0]).unwrap(),
        r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"The client has answered, and 16777216 bytes of answers are not read yet"}}"#
    );
    // What was taken has left its room.
    answer(9);
    assert!(waits()[0].len() > 3 << 20);
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(1 << 20));
    for _ in 0..100 {
        assert!(conversation.receive(&Bytes::from(ping.clone())));
    }
    let bytes: usize = waits().iter().map(Bytes::len).sum();
    assert!(bytes > 8 << 20 && bytes <= super::ANSWERS_BYTES_MAX, "{bytes}");
}

/// [LIM-6]: questions that were taken back while nobody looked hold no place, in number or in bytes; those that are out do, and
/// their server is told how much there is.
#[test]
fn what_was_taken_back_holds_no_place() {
    let features = Features::NONE.with(Feature::Sampling);
    let conversation = conversation(features);
    let (_, slot) = conversation.table.enter(call_of(features)).unwrap();
    let ask = |id: usize, bytes: usize| {
        let (method, text) = ("sampling/createMessage", "x".repeat(bytes));
        let params = format!(r#"{{"messages":[],"maxTokens":1,"x":"{text}"}}"#);
        Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
    };
    for id in 0..70 {
        assert!(conversation.receive(&ask(id, 1 << 17)));
        let taken_back =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
        assert!(conversation.receive(&Bytes::from(taken_back)));
    }
    assert_eq!(conversation.next_control(), None, "none was refused");
    for id in 0..5 {
        assert!(conversation.receive(&ask(id, 1 << 20)));
    }
    let refused: Vec<Bytes> = std::iter::from_fn(|| conversation.next_control()).collect();
    assert!(refused.len() == 2 && refused.iter().all(|line| line.windows(7).any(|part| part == b"4194304")));
    let context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(matches!(slot.poll(&context), Poll::Ready(Event::Ask(_))));
    }
    assert!(slot.poll(&context).is_pending());
}
