//! Streams that end early are resumed, and streams beside calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kit::{Lab, Way, accepted, ask, call, drain, legacy, list, modern, payload, refused, result, sse};
use crate::exchange::{RejectKind, Retry};
use crate::net::script::{Recorded, Step, json, response, stream, until};
use crate::wire::mcp::{Kind, Kinds};

/// [R59]
#[tokio::test]
async fn htp_06_a_stream_that_ends_early_is_not_replayed() {
    for end in [Step::Close, Step::Reset] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let id = request.member("id");
                let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#);
                vec![stream(&format!("data: {progress}\n\n")), end.clone()]
            })
        })
        .await;
        let link = lab.legacy().await;
        let (_, outcome) = drain(Arc::clone(&link).request(call()).await).await;
        let reject = refused(outcome);
        assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Never));
        assert!(reject.public.contains("outcome is unknown"), "{}", reject.public);
        assert_eq!(lab.calls(), 1);
    }
}

/// [R59]
#[tokio::test]
async fn htp_06_a_stream_with_an_id_is_resumed() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "GET" if request.header("last-event-id") == Some("e-1") => {
            vec![stream("id: e-2\nretry: 1\ndata:\n\n"), Step::Close]
        }
        "GET" if request.header("last-event-id") == Some("e-2") => {
            sse(&[r#"{"jsonrpc":"2.0","id":2,"result":"late"}"#])
        }
        _ => legacy(request, |_| vec![stream("id: e-1\nretry: 1\ndata:\n\n"), Step::Close]),
    })
    .await;
    let link = lab.legacy().await;
    let (seen, outcome) = drain(Arc::clone(&link).request(call()).await).await;
    assert_eq!((seen, payload(outcome)), (vec!["paused".to_owned(); 2], "\"late\"".to_owned()));
    assert_eq!(lab.calls(), 1);
    let gets: Vec<Recorded> = lab.server.requests().into_iter().filter(|request| request.method == "GET").collect();
    assert_eq!(gets.len(), 2);
    assert_eq!(gets[0].header("mcp-session-id"), Some("s-1"));
    assert_eq!(gets[0].header("accept"), Some("text/event-stream"));
}

#[tokio::test]
async fn htp_06_resuming_has_an_end() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "GET" => response("503 Service Unavailable", "", ""),
        _ => legacy(request, |_| vec![stream("id: e-1\ndata:\n\n"), Step::Close]),
    })
    .await;
    let link = lab.legacy().await;
    assert!(refused(ask(&link, call()).await).public.contains("outcome is unknown"));
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "GET").count(), 3);
}

#[tokio::test]
async fn htp_08_a_server_without_a_stream_is_left_alone() {
    let ways: [(usize, Way); 6] = [
        (1, || response("405 Method Not Allowed", "", "")),
        (4, || response("404 Not Found", "", "")),
        (4, || response("400 Bad Request", "", "")),
        (4, || response("406 Not Acceptable", "", "")),
        (4, || json("200 OK", "{}")),
        (4, || vec![stream(""), Step::Close]),
    ];
    for (tries, way) in ways {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "GET" => way(),
            _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
        })
        .await;
        let link = lab.legacy().await;
        Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
        // The watch holds the link until it gives up.
        until("the watch to give up", || Arc::strong_count(&link) == 1).await;
        assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "GET").count(), tries);
        assert_eq!(payload(ask(&link, list()).await), "1");
    }
}

#[tokio::test]
async fn a_session_stream_tells_of_changes_and_is_resumed() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let lab = Lab::new(move |request| match (request.kind().as_str(), request.header("last-event-id")) {
        ("GET", None) => vec![
            stream(&format!(
                "id: 1\ndata: {changed}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"roots/list\"}}\n\n"
            )),
            Step::Close,
        ],
        ("GET", Some("1")) => vec![stream(&format!("data: {changed}\n\n")), Step::Hang],
        _ => legacy(request, |_| accepted()),
    })
    .await;
    let link = lab.legacy().await;
    let changes = link.changes();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    until("two changes", || changes.borrow().of(Kind::Tools) == 2).await;
    until("a refusal", || lab.server.requests().iter().any(|request| request.body.contains("-32601"))).await;
    link.close();
    until("the stream to be closed", || lab.server.gone() == 1).await;
}

#[tokio::test]
async fn a_subscription_tells_of_changes_and_of_gaps() {
    let opened = Arc::new(AtomicUsize::new(0));
    let lab = Lab::new(move |request| {
        modern(request, |_| {
            let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}"#;
            let body = stream(&format!("data: {changed}\n\n"));
            if opened.fetch_add(1, Ordering::SeqCst) == 0 { vec![body, Step::Close] } else { vec![body, Step::Hang] }
        })
    })
    .await;
    let link = lab.stateless().await;
    let changes = link.changes();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    until("two changes and a gap", || changes.borrow().of(Kind::Tools) == 3).await;
    let listen = lab.server.requests().pop().unwrap();
    assert_eq!(listen.header("mcp-method"), Some("subscriptions/listen"));
    assert!(listen.body.contains(r#""notifications":{"toolsListChanged":true}"#), "{}", listen.body);
    link.close();
    until("the stream to be closed", || lab.server.gone() == 1).await;
}

/// A stream that ends right behind its answer leaves its connection to the next call.
#[tokio::test]
async fn the_connection_of_a_stream_is_used_again() {
    let lab = Lab::new(|request| {
        legacy(request, |request| {
            let event = format!("data: {}\n\n", result(request, "1"));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            vec![Step::Write(format!("{head}{:x}\r\n{event}\r\n0\r\n\r\n", event.len()).into_bytes())]
        })
    })
    .await;
    let link = lab.legacy().await;
    let before = lab.server.connections();
    for _ in 0..8 {
        assert_eq!(payload(ask(&link, list()).await), "1");
    }
    // One may be the session's own stream.
    assert!(lab.server.connections() - before <= 1, "{} more", lab.server.connections() - before);
}
