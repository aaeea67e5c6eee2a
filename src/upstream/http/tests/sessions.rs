//! Sessions of legacy servers: begun, lost, renewed, ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::kit::{
    Lab, Way, accepted, ask, call, error, error_code, initialized, legacy, list, payload, refused, result, sse,
};
use crate::net::script::{Recorded, Step, json, response, until};
use crate::upstream::link::Want;
use crate::wire::jsonrpc::code;
use crate::wire::mcp::{Era, Kind, Kinds};

#[tokio::test]
async fn htp_17_the_answer_to_delete_does_not_matter() {
    let ways: [Way; 5] = [
        || response("200 OK", "", ""),
        || response("405 Method Not Allowed", "", ""),
        || response("500 Oops", "", "oops"),
        || vec![Step::Close],
        || vec![Step::Hang],
    ];
    for way in ways {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "DELETE" => way(),
            _ => legacy(request, |_| Vec::new()),
        })
        .await;
        let link = lab.legacy().await;
        link.close();
        link.close();
        assert!(link.closed().is_cancelled());
        until("a DELETE", || lab.server.kinds().contains(&"DELETE".to_owned())).await;
        let deletes: Vec<Recorded> =
            lab.server.requests().into_iter().filter(|request| request.method == "DELETE").collect();
        assert_eq!(deletes.len(), 1);
        assert_eq!(deletes[0].header("mcp-session-id"), Some("s-1"));
        assert_eq!(deletes[0].header("mcp-protocol-version"), Some("2025-06-18"));
    }
}

/// A server that forgets its session once; `lost` is what it says then.
async fn forgetful(lost: fn(&Recorded) -> Vec<Step>) -> Lab {
    let sessions = Arc::new(AtomicUsize::new(0));
    Lab::new(move |request| match request.kind().as_str() {
        "initialize" => {
            let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let headers = format!("Content-Type: application/json\r\nMcp-Session-Id: s-{number}\r\n");
            response("200 OK", &headers, &initialized(request))
        }
        _ => legacy(request, |request| match request.header("mcp-session-id") {
            Some("s-2") => json("200 OK", &result(request, "1")),
            _ => lost(request),
        }),
    })
    .await
}

/// [R58]
#[tokio::test]
async fn ses_01_one_renewal_for_all_and_each_call_once_more() {
    let ways: [fn(&Recorded) -> Vec<Step>; 6] = [
        |_| response("404 Not Found", "", ""),
        |_| response("404 Not Found", "Content-Type: text/plain\r\n", "Session not found"),
        |request| json("404 Not Found", &error(request, -32001)),
        |request| json("400 Bad Request", &error(request, -32000)),
        |_| json("400 Bad", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#),
        |_| response("400 Bad Request", "", "no session"),
    ];
    for way in ways {
        let lab = forgetful(way).await;
        let link = lab.legacy().await;
        let outcomes = futures_util::future::join_all((0..10).map(|_| ask(&link, call()))).await;
        for outcome in outcomes {
            assert_eq!(payload(outcome), "1");
        }
        let requests = lab.server.requests();
        let handshakes: Vec<&Recorded> = requests.iter().filter(|request| request.kind() == "initialize").collect();
        assert_eq!(handshakes.len(), 2);
        assert!(handshakes.iter().all(|request| request.header("mcp-session-id").is_none()));
        let served = requests
            .iter()
            .filter(|request| request.kind() == "tools/call" && request.header("mcp-session-id") == Some("s-2"));
        assert_eq!(served.count(), 10);
        assert!(!link.closed().is_cancelled());
    }
}

/// [R58]
#[tokio::test]
async fn ses_01_an_unknown_method_is_no_lost_session_and_there_is_no_loop() {
    let lab = Lab::new(|request| legacy(request, |request| json("404 Not Found", &error(request, -32601)))).await;
    let link = lab.legacy().await;
    assert_eq!(error_code(ask(&link, call()).await), code::METHOD_NOT_FOUND.0);
    assert_eq!(lab.calls(), 1);

    let lab = Lab::new(|request| legacy(request, |request| json("404 Not Found", &error(request, -32001)))).await;
    let link = lab.legacy().await;
    assert_eq!(error_code(ask(&link, call()).await), -32001);
    assert_eq!(lab.calls(), 2);
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "initialize").count(), 2);
}

#[tokio::test]
async fn ses_01_a_session_that_cannot_be_renewed_ends_the_link() {
    let opened = Arc::new(AtomicBool::new(false));
    let lab = Lab::new(move |request| match request.kind().as_str() {
        "initialize" if opened.swap(true, Ordering::SeqCst) => response("503 Later", "", ""),
        _ => legacy(request, |_| response("404 Not Found", "", "")),
    })
    .await;
    let link = lab.legacy().await;
    let outcomes = futures_util::future::join_all((0..10).map(|_| ask(&link, call()))).await;
    for outcome in outcomes {
        assert_eq!(refused(outcome).public, "server 'srv' answered HTTP 404");
    }
    assert_eq!(lab.server.kinds().iter().filter(|kind| *kind == "initialize").count(), 2);
    assert!(link.closed().is_cancelled());
    assert!(link.last_words().unwrap().contains("HTTP 503"));
}

/// [R57]
#[tokio::test]
async fn ses_07_both_headers_on_each_later_request_and_never_on_initialize() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "tools/call" => vec![Step::Hang],
        _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
    })
    .await;
    let link = lab.legacy().await;
    ask(&link, list()).await.unwrap();
    Arc::clone(&link).watch(Kinds::NONE.with(Kind::Tools));
    let waiting = Arc::clone(&link).request(call());
    let called = until("the call", || lab.calls() == 1);
    tokio::select! { _ = waiting => panic!("answered"), () = called => {} }
    link.close();
    let kinds = ["notifications/initialized", "tools/list", "tools/call", "GET", "notifications/cancelled", "DELETE"];
    until("all kinds", || kinds.iter().all(|kind| lab.server.kinds().contains(&(*kind).to_owned()))).await;
    for request in lab.server.requests() {
        let both = (request.header("mcp-session-id"), request.header("mcp-protocol-version"));
        let wanted = if request.kind() == "initialize" { (None, None) } else { (Some("s-1"), Some("2025-06-18")) };
        assert_eq!(both, wanted, "{}", request.kind());
        assert!(request.header("mcp-method").is_none());
    }
}

#[tokio::test]
async fn ses_08_no_request_before_the_acknowledgement() {
    let release = Arc::new(Notify::new());
    let gate = Arc::clone(&release);
    let lab = Lab::new(move |request| match request.kind().as_str() {
        "notifications/initialized" => [vec![Step::Wait(Arc::clone(&gate))], accepted()].concat(),
        _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
    })
    .await;
    let mut opening = Box::pin(lab.open(Want::of(Era::Legacy)));
    let posted = until("initialized", || lab.server.kinds().contains(&"notifications/initialized".to_owned()));
    tokio::select! { _ = &mut opening => panic!("opened before the acknowledgement"), () = posted => {} }
    release.notify_one();
    let link = opening.await.unwrap().link;
    ask(&link, list()).await.unwrap();
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized", "tools/list"]);
}

#[tokio::test]
async fn a_session_without_an_id_works_and_is_not_deleted() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "initialize" => {
            sse(&[r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#, &initialized(request)])
        }
        _ => legacy(request, |_| response("404 Not Found", "", "")),
    })
    .await;
    let started = lab.open(Want::of(Era::Legacy)).await.unwrap();
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    assert_eq!(refused(ask(&started.link, call()).await).public, "server 'srv' answered HTTP 404");
    started.link.close();
    lab.tasks.cancel();
    lab.tasks.wait().await;
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized", "tools/call"]);
}
