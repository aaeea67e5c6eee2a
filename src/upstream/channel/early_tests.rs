//! Questions for roots while no call is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};

use super::{BYTES_MAX, KEPT_MAX};
use crate::exchange::{Event, EventStream, OwnerKey, ReplyBody};
use crate::upstream::Isolation;
use crate::upstream::channel::Conversation;
use crate::upstream::channel::conversation::tests::conversation_of;
use crate::upstream::channel::pending::tests::owned;
use crate::upstream::channel::waiting::FIRST_MAX;
use crate::wire::mcp::{Era, Feature, Features};

const ROOTS: Features = Features::NONE.with(Feature::Roots);

fn conversation(isolation: Isolation) -> Arc<Conversation> {
    conversation_of(ROOTS.with(Feature::Sampling), |settings| settings.isolation = Some(isolation))
}

fn ask(conversation: &Arc<Conversation>, id: &str) {
    let line = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#);
    assert!(conversation.receive(&Bytes::from(line)));
}

/// What is written to the server.
fn written(conversation: &Conversation) -> Vec<String> {
    let lines = std::iter::from_fn(|| conversation.next_control());
    lines.map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
}

/// Begins a session's call, which asks first; what it comes to, and whether it has been sent.
fn call(conversation: &Arc<Conversation>, session: u64) -> (EventStream, Arc<AtomicBool>) {
    let waiting = conversation.enter(owned(ROOTS, OwnerKey::Session(session))).unwrap();
    assert!(waiting.asks_first());
    let sent = Arc::new(AtomicBool::new(false));
    let sending = Arc::clone(&sent);
    let sending = Box::pin(async move { sending.store(true, Ordering::SeqCst) });
    let reply = waiting.sent_by(sending).reply(Era::Legacy).now_or_never().expect("a question");
    let ReplyBody::Events(events) = reply.into_parts().0 else { panic!("no question") };
    (events, sent)
}

/// [TRN-10]: what a server asks before the first call of the one client that has it is asked with that call, which is sent once
/// it is answered; so is what it asks between two calls.
#[tokio::test(start_paused = true)]
async fn roots_are_asked_for_with_the_next_call() {
    let conversation = conversation(Isolation::Principal);
    for id in ["first", "again"] {
        ask(&conversation, id);
        assert!(written(&conversation).is_empty());
        let (mut events, sent) = call(&conversation, 7);
        let Some(Event::Ask(question)) = events.next().await else { panic!("no question") };
        assert!(events.next().now_or_never().is_none() && !sent.load(Ordering::SeqCst));
        question.responder.settle(Ok(Bytes::from_static(br#"{"roots":[]}"#)));
        let answer = written(&conversation);
        // The server has a moment to take the answer in.
        assert!(events.next().now_or_never().is_none() && !sent.load(Ordering::SeqCst));
        let over = tokio::time::timeout(FIRST_MAX, events.next()).await;
        assert!(over.is_err() && sent.load(Ordering::SeqCst));
        assert!(answer[0].contains(id) && answer[0].contains(r#""result":{"roots":[]}"#), "{answer:?}");
    }
    assert!(conversation.early().is_cancelled());
}

/// [LIM-4]: a client that does not answer has its call sent all the same.
#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_ever() {
    let conversation = conversation(Isolation::Session);
    ask(&conversation, "first");
    let (mut events, sent) = call(&conversation, 7);
    let question = events.next().await;
    let over = tokio::time::timeout(FIRST_MAX * 2, events.next()).await;
    assert!(over.is_err() && sent.load(Ordering::SeqCst));
    drop(question);
}

/// [TRN-10]: on a channel that several clients have had, or that principals share, it is nobody's.
#[test]
fn what_may_be_of_several_clients_is_refused() {
    let shared = conversation(Isolation::Shared);
    ask(&shared, "shared");
    assert!(written(&shared)[0].contains("-32601"));

    let conversation = conversation(Isolation::Principal);
    drop(conversation.enter(owned(ROOTS, OwnerKey::Session(1))).unwrap());
    ask(&conversation, "of one");
    let other = conversation.enter(owned(ROOTS, OwnerKey::Session(2))).unwrap();
    assert!(!other.asks_first() && written(&conversation)[0].contains("-32601"));
    drop(other);
    ask(&conversation, "of two");
    assert!(written(&conversation)[0].contains("-32601"));
}

/// [LIM-6, TRN-10]: few and small ones are kept, and nothing but roots; what is taken back is forgotten.
#[test]
fn few_are_kept() {
    let conversation = conversation(Isolation::Principal);
    for id in 0..KEPT_MAX {
        ask(&conversation, &id.to_string());
    }
    assert!(written(&conversation).is_empty());
    ask(&conversation, "one more");
    assert!(written(&conversation)[0].contains("one more"));
    let taken_back = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"0"}}"#;
    assert!(conversation.receive(&Bytes::from_static(taken_back.as_bytes())));
    ask(&conversation, &"x".repeat(BYTES_MAX));
    assert_eq!(written(&conversation).len(), 1);
    ask(&conversation, "in its place");
    assert!(written(&conversation).is_empty());
    let sampling =
        r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    assert!(conversation.receive(&Bytes::from_static(sampling.as_bytes())));
    assert!(written(&conversation)[0].contains("-32601"));
}

/// [R75]: where the list is read there is nobody, and it is refused at once, until somebody calls there.
#[test]
fn where_nobody_is_about_to_call_it_is_refused() {
    let conversation = conversation(Isolation::Principal);
    ask(&conversation, "before");
    conversation.refuse_early();
    ask(&conversation, "then");
    let refused = written(&conversation);
    assert!(refused.len() == 2 && refused.iter().all(|line| line.contains("-32601")), "{refused:?}");
    assert!(conversation.early().is_cancelled());
    drop(conversation.enter(owned(ROOTS, OwnerKey::Session(1))).unwrap());
    ask(&conversation, "later");
    assert!(written(&conversation).is_empty());
}
