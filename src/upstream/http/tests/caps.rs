//! `max_response_bytes` over HTTP, to the byte: each way a response can be framed [LIM-1].

use std::sync::Arc;

use super::kit::{Lab, ask, call, legacy, list, modern, payload, refused, result};
use crate::exchange::RejectKind;
use crate::net::script::{Recorded, Step, json, response, stream, until};
use crate::wire::mcp::{Kind, Kinds};

const CAP: usize = 10_000;

async fn capped(script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static) -> Lab {
    Lab::with(|settings| settings.max_response_bytes = CAP, script).await
}

/// An answer of exactly so many bytes.
fn answer(request: &Recorded, bytes: usize) -> String {
    let bare = result(request, "\"\"").len();
    let text = result(request, &format!("\"{}\"", "x".repeat(bytes - bare)));
    assert_eq!(text.len(), bytes);
    text
}

/// In chunks that end anywhere.
fn chunked(body: &str) -> Vec<Step> {
    let mut text = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in body.as_bytes().chunks(977) {
        text.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        text.extend_from_slice(part);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    vec![Step::Write(text)]
}

fn until_close(body: &str) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    vec![Step::Write([head, body].concat().into_bytes()), Step::Close]
}

/// [LIM-1]: the cap itself passes, one byte more does not, however the body is framed.
#[tokio::test]
async fn the_cap_is_exact_in_every_framing() {
    let ways: [fn(&str) -> Vec<Step>; 3] = [|body| json("200 OK", body), chunked, until_close];
    for (index, way) in ways.into_iter().enumerate() {
        for (bytes, passes) in [(CAP, true), (CAP + 1, false)] {
            let lab = capped(move |request| modern(request, |request| way(&answer(request, bytes)))).await;
            let outcome = ask(&lab.stateless().await, call()).await;
            if passes {
                assert!(payload(outcome).len() > CAP - 200, "{index}");
            } else {
                let reject = refused(outcome);
                assert_eq!(reject.kind, RejectKind::Limit, "{index}");
                assert!(reject.public.contains("10000") && reject.public.contains("max_response_bytes"));
            }
        }
    }
}

/// [LIM-1]: one event may have the cap, and the stream of one call four times that in sum.
#[tokio::test]
async fn the_sum_of_a_calls_stream_has_a_cap_of_its_own() {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""}}"#;
    let log = log.replace("\"\"", &format!("\"{}\"", "y".repeat(CAP / 2)));
    for (events, passes) in [(7, true), (8, false)] {
        let log = log.clone();
        let lab = capped(move |request| {
            modern(request, |request| {
                let events = format!("data: {log}\n\n").repeat(events);
                vec![stream(&format!("{events}data: {}\n\n", result(request, "1"))), Step::Hang]
            })
        })
        .await;
        let outcome = ask(&lab.stateless().await, call()).await;
        if passes {
            assert_eq!(payload(outcome), "1");
        } else {
            let reject = refused(outcome);
            assert_eq!(reject.kind, RejectKind::Limit);
            assert!(reject.public.contains("4 × 10000 bytes (max_response_bytes)"), "{}", reject.public);
        }
    }
}

/// [LIM-1]: an error's body counts like any other.
#[tokio::test]
async fn an_error_body_has_the_same_cap() {
    let lab = capped(|request| modern(request, |_| response("500 Oops", "", &"x".repeat(CAP + 1)))).await;
    assert_eq!(refused(ask(&lab.stateless().await, call()).await).kind, RejectKind::Limit);
    let lab = capped(|request| modern(request, |_| response("500 Oops", "", &"x".repeat(CAP)))).await;
    assert_eq!(refused(ask(&lab.stateless().await, call()).await).kind, RejectKind::Upstream);
}

/// [LIM-1]: an answer in a coding that was not asked for is refused before it is read, however it is said.
#[tokio::test]
async fn a_compressed_answer_is_refused_unread() {
    for fields in
        ["Content-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Content-Encoding: identity, br\r\n"]
    {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}\r\n");
        let lab = capped(move |request| {
            modern(request, |_| vec![Step::Write(head.clone().into_bytes()), Step::Endless(vec![0x1f; 4096])])
        })
        .await;
        let outcome = ask(&lab.stateless().await, call()).await;
        assert_eq!(refused(outcome).kind, RejectKind::Upstream, "{fields}");
        assert!(lab.server.requests().iter().all(|request| request.header("accept-encoding") == Some("identity")));
    }
}

/// [LIM-1]: on a stream that more than one request lives by, an event over the cap is skipped to its end, and all else
/// goes on.
#[tokio::test]
async fn a_large_event_on_the_session_stream_is_skipped() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let lab = capped(move |request| match (request.kind().as_str(), request.header("last-event-id")) {
        ("GET", None) => {
            let large = format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n\n", "z".repeat(2 * CAP));
            vec![stream(&format!("data: {changed}\n\n{large}data: {changed}\n\n")), Step::Hang]
        }
        _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
    })
    .await;
    let link = lab.legacy().await;
    let changes = link.changes();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    until("two changes", || changes.borrow().of(Kind::Tools) == 2).await;
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "GET").count(), 1, "the stream was never left");
    assert_eq!(payload(ask(&link, list()).await), "1");
}
