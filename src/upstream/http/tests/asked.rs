//! Answers on their way to a server that has asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::Notify;

use super::kit::{Lab, accepted, legacy, upstream_call};
use crate::exchange::{ClientFacts, Event, QUESTIONS_MAX, ReplyBody, UpstreamCall};
use crate::net::script::{Step, stream, until};
use crate::upstream::link::{Outgoing, Want};
use crate::upstream::question::ANSWERS_BYTES_MAX;
use crate::wire::mcp::{Era, Feature, Features, ProtocolVersion};

/// [LIM-6]: answers that a server does not take are bounded in bytes; one without room becomes an error that says so, and what
/// is taken leaves its room.
#[tokio::test]
async fn answers_that_a_server_does_not_take_are_bounded_in_bytes() {
    let (open, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (opened, takes) = (Arc::clone(&open), Arc::clone(&taken));
    let lab = Lab::new(move |request| {
        legacy(request, |request| match request.kind().as_str() {
            "tools/call" => {
                let asks =
                    |id: usize| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"roots/list\"}}\n\n");
                vec![stream(&(0..QUESTIONS_MAX).map(asks).collect::<String>()), Step::Hang]
            }
            _ if opened.load(Ordering::SeqCst) => accepted(),
            _ => [vec![Step::Wait(Arc::clone(&takes))], accepted()].concat(),
        })
    })
    .await;
    let features = Features::NONE.with(Feature::Roots);
    let link = lab.open(Want { features, ..Want::of(Era::Legacy) }).await.unwrap().link;
    let capabilities = Bytes::from_static(br#"{"roots":{}}"#);
    let client = ClientFacts::new(ProtocolVersion::V2025_11_25, None, capabilities);
    let call = UpstreamCall { client, ..upstream_call("", "{}") };
    let (body, _guards) = link.request(Outgoing::Call(Arc::new(call))).await.into_parts();
    let ReplyBody::Events(mut events) = body else { panic!("it asks first") };
    let large = Bytes::from(format!(r#"{{"roots":[],"x":"{}"}}"#, "x".repeat(6 << 20)));
    let mut answer = async || {
        let Some(Event::Ask(question)) = events.next().await else { panic!("no question") };
        question.responder.settle(Ok(large.clone()));
    };
    let answers = || -> Vec<String> {
        let posts = lab.server.requests().into_iter().filter(|request| request.kind() == "POST");
        posts.map(|request| request.body).collect()
    };
    for _ in 0..4 {
        answer().await;
    }
    until("four answers", || answers().len() == 4).await;
    let (whole, refused): (Vec<String>, Vec<String>) = answers().into_iter().partition(|body| body.len() > 6 << 20);
    assert_eq!((whole.len(), refused.len()), (2, 2));
    let words = format!("The client has answered, and {ANSWERS_BYTES_MAX} bytes of answers are not read yet");
    assert!(refused.iter().all(|body| body.contains("-32603") && body.contains(&words)), "{refused:?}");
    open.store(true, Ordering::SeqCst);
    for count in 5..QUESTIONS_MAX {
        taken.notify_waiters();
        answer().await;
        until("one more", || answers().len() == count).await;
        if answers().iter().filter(|body| body.len() > 6 << 20).count() > 2 {
            return;
        }
    }
    panic!("what was taken has not left its room");
}
