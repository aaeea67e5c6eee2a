//! Whose a question is that comes beside the calls of a session [TRN-10, R100].

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream;

use super::{GIVEN_UP_MAX, Questions};
use crate::exchange::{Answer, Event, OwnerKey, Reject, RejectKind, Reply, ReplyBody};
use crate::upstream::link::{BoxFuture, Left};
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Era, Feature, Features};

const ANN: OwnerKey = OwnerKey::Session(1);
const BOB: OwnerKey = OwnerKey::Session(2);

fn asked() -> Features {
    Features::NONE.with(Feature::Roots)
}

fn answer() -> Result<Answer, Reject> {
    let response = Box::new(Response::with_result(&RequestId::number(1), b"{}"));
    Ok(Answer::Upstream { response, era: Era::Legacy })
}

fn now(reply: Reply) -> BoxFuture<Reply> {
    Box::pin(std::future::ready(reply))
}

/// On a session that several principals share, a question beside the calls is nobody's, also with one call in flight.
#[test]
fn a_shared_session_asks_nobody_beside_its_calls() {
    for shared in [false, true] {
        let questions = Questions::new(shared);
        let _asking = questions.enter(ANN, asked());
        assert_eq!(questions.only_call().is_some(), !shared);
    }
}

/// A call whose answer was not waited for may still be worked on: no other client is asked what may be its question.
#[test]
fn what_may_be_of_a_call_that_was_given_up_is_nobodys() {
    let unknown = || Err(Reject::upstream(RejectKind::Upstream, "the stream broke", ""));
    let unsent = || unknown().map_err(Reject::safe_to_retry);
    let streamed = |outcome| {
        let reply = Reply::events(Box::pin(stream::iter([Event::Progress(Bytes::new()), Event::Done(outcome)])));
        now(reply)
    };
    for (what, reply, over) in [
        ("answered", now(Reply::once(answer())), true),
        ("never sent", now(Reply::once(unsent())), true),
        ("unknown", now(Reply::once(unknown())), false),
        ("streamed", streamed(answer()), true),
        ("streamed, then unknown", streamed(unknown()), false),
        ("given up", Box::pin(std::future::pending()), false),
    ] {
        let questions = Questions::new(false);
        let asking = questions.enter(ANN, asked());
        if let Some(reply) = asking.join(reply).now_or_never()
            && let (ReplyBody::Events(mut events), _) = reply.into_parts()
        {
            let mut context = Context::from_waker(Waker::noop());
            while let Poll::Ready(Some(_)) = events.as_mut().poll_next(&mut context) {}
        }
        let _bob = questions.enter(BOB, asked());
        assert_eq!(questions.only_call().is_some(), over, "{what}");
        let left = if over { (Left::Nothing, Left::Nothing) } else { (Left::Own, Left::Others) };
        assert_eq!((questions.left_behind(&ANN), questions.left_behind(&BOB)), left, "{what}");
    }
}

/// [LIM-6]: who has given up calls is remembered so far; over it the session is in doubt for everybody.
#[test]
fn what_is_remembered_of_given_up_calls_is_bounded() {
    let questions = Questions::new(false);
    for number in 0..1_000 {
        drop(questions.enter(OwnerKey::Session(number), asked()));
    }
    assert_eq!(questions.table().given_up.len(), GIVEN_UP_MAX);
    assert_eq!(questions.left_behind(&ANN), Left::Others);
}
