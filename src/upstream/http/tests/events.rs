//! Answers in events: framing, ids and names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kit::{Lab, accepted, ask, call, drain, legacy, payload, refused, result, sse};
use crate::exchange::RejectKind;
use crate::net::script::{Step, stream, until};
use crate::upstream::link::Outgoing;
use crate::wire::mcp::Kind;

#[tokio::test]
async fn htp_01_every_line_end_is_read() {
    for ends in [["\n", "\n"], ["\r\n", "\r\n"], ["\r", "\r"], ["\r\n", "\n"], ["\n", "\r"]] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let [one, two] = ends;
                vec![stream(&format!("event: message{one}data: {}{two}{two}", result(request, "1"))), Step::Close]
            })
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, call()).await), "1", "{ends:?}");
    }
}

#[tokio::test]
async fn htp_02_data_lines_are_joined_wherever_the_body_is_cut() {
    let text = |id: &str| {
        format!("data: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\ndata: \"result\":\ndata: \"a😀b\"\ndata: }}\n\n")
    };
    let place = Arc::new(AtomicUsize::new(1));
    let length = text("1").len();
    let at = Arc::clone(&place);
    let lab = Lab::new(move |request| {
        legacy(request, |request| {
            let text = text(&request.member("id")).into_bytes();
            let at = at.load(Ordering::SeqCst).min(text.len());
            let mut steps = vec![stream("")];
            steps.extend(text.chunks(at).map(|part| Step::Write(part.to_vec())));
            steps.push(Step::Close);
            steps
        })
    })
    .await;
    let link = lab.legacy().await;
    for at in 1..length {
        place.store(at, Ordering::SeqCst);
        assert_eq!(payload(ask(&link, call()).await), "\"a😀b\"", "cut every {at} bytes");
    }
}

#[tokio::test]
async fn htp_03_long_data_lines_up_to_the_cap() {
    let lab = Lab::with(
        |settings| settings.max_response_bytes = 6 << 20,
        |request| {
            legacy(request, |request| {
                let length: usize = request.member("method").strip_prefix("x/").map_or(0, |text| text.parse().unwrap());
                sse(&[&result(request, &format!("\"{}\"", "a".repeat(length)))])
            })
        },
    )
    .await;
    let link = lab.legacy().await;
    let own = |method| Outgoing::Own { method, members: String::new() };
    assert_eq!(payload(ask(&link, own("x/119808")).await).len(), 119_808 + 2);
    assert_eq!(payload(ask(&link, own("x/5242880")).await).len(), 5_242_880 + 2);
    let reject = refused(ask(&link, own("x/7340032")).await);
    assert_eq!(reject.kind, RejectKind::Limit);
    assert!(reject.public.contains("6291456") && reject.public.contains("max_response_bytes"), "{}", reject.public);
    assert_eq!(payload(ask(&link, own("x/1")).await), "\"a\"", "the link is still good");
}

#[tokio::test]
async fn htp_04_the_answer_is_chosen_by_id() {
    let lab = Lab::new(|request| {
        legacy(request, |request| match request.member("method").as_str() {
            "tools/call" => {
                let id = request.member("id");
                let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#);
                sse(&[
                    &progress,
                    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.10}}"#,
                    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                    r#"{"jsonrpc":"2.0","id":77,"method":"roots/list"}"#,
                    r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
                    r#"{"jsonrpc":"2.0","id":4711,"result":"foreign"}"#,
                    &result(request, "\"ours\""),
                ])
            }
            _ => accepted(),
        })
    })
    .await;
    let link = lab.legacy().await;
    let (seen, outcome) = drain(Arc::clone(&link).request(call()).await).await;
    assert_eq!(payload(outcome), "\"ours\"");
    assert_eq!(
        seen,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.10}}"#,
        ]
    );
    assert_eq!(link.changes().borrow().of(Kind::Tools), 1);
    let posted = |id: &str, what: &str| {
        lab.server.requests().iter().any(|request| {
            request.member("id") == id && request.body.contains(what) && request.header("mcp-session-id") == Some("s-1")
        })
    };
    until("a refusal of roots/list", || posted("77", "-32601")).await;
    until("an answer to ping", || posted("p", "\"result\":{}")).await;
    assert!(!lab.server.kinds().contains(&"notifications/cancelled".to_owned()));
}

#[tokio::test]
async fn htp_05_unnamed_events_count_and_unknown_ones_do_not() {
    let lab = Lab::new(|request| {
        legacy(request, |request| {
            let answer = result(request, "1");
            let wrong = result(request, "2");
            vec![
                stream(&format!(
                    ": hello\n\nretry: 5\n\nid: e\ndata:\n\nevent: other\ndata: {wrong}\n\nfoo: bar\ndata: {answer}\n\n"
                )),
                Step::Close,
            ]
        })
    })
    .await;
    let link = lab.legacy().await;
    assert_eq!(payload(ask(&link, call()).await), "1");
}
