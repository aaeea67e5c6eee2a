//! Ids, cancellation and progress.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::kit::{Lab, ask, call, drain, legacy, modern, payload, result, upstream_call};
use crate::exchange::ReplyBody;
use crate::net::script::{Step, json, stream, until};
use crate::upstream::link::{Outgoing, StartError, Want};
use crate::wire::mcp::Era;

#[tokio::test]
async fn ids_06_a_dropped_call_is_cancelled_by_its_own_id() {
    for as_stream in [false, true] {
        let lab = Lab::new(move |request| {
            legacy(request, |_| {
                let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
                if as_stream { vec![stream(&format!("data: {log}\n\n")), Step::Hang] } else { vec![Step::Hang] }
            })
        })
        .await;
        let link = lab.legacy().await;
        let request = Arc::clone(&link).request(call());
        if as_stream {
            drop(request.await);
        } else {
            let called = until("the call", || lab.calls() == 1);
            tokio::select! { _ = request => panic!("answered"), () = called => {} }
        }
        until("a cancel", || lab.server.kinds().contains(&"notifications/cancelled".to_owned())).await;
        let requests = lab.server.requests();
        let id = requests.iter().find(|request| request.kind() == "tools/call").unwrap().member("id");
        let cancel = requests.iter().find(|request| request.kind() == "notifications/cancelled").unwrap();
        assert!(cancel.body.contains(&format!("\"requestId\":{id}}}")), "{}", cancel.body);
        assert_eq!(cancel.member("id"), "");
    }
}

#[tokio::test]
async fn ids_06_initialize_is_never_cancelled() {
    let lab = Lab::with(
        |settings| settings.start_timeout = Duration::from_millis(50),
        |request| legacy(request, |_| Vec::new()).into_iter().map(|_| Step::Hang).collect(),
    )
    .await;
    let Err(StartError::Failed(_)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    until("the connection to be closed", || lab.server.gone() == 1).await;
    assert_eq!(lab.server.kinds(), ["initialize"]);
}

/// [R106]
#[tokio::test]
async fn a_stateless_call_is_cancelled_by_closing_its_response() {
    let lab = Lab::new(|request| {
        modern(request, |_| {
            let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
            vec![stream(&format!("data: {log}\n\n")), Step::Hang]
        })
    })
    .await;
    let link = lab.stateless().await;
    let reply = Arc::clone(&link).request(call()).await;
    assert!(matches!(reply.body, ReplyBody::Events(_)));
    drop(reply);
    until("the response to be closed", || lab.server.gone() == 1).await;
    assert_eq!(lab.server.kinds(), ["server/discover", "tools/call"]);
}

/// [R108, R109]
#[tokio::test]
async fn ids_07_only_our_own_growing_progress_passes() {
    let lab = Lab::new(|request| {
        modern(request, |request| {
            let id = request.member("id");
            let mut body = String::new();
            for (token, value) in
                [("\"made-up\"", "1"), (&id, "1"), (&id, "1"), (&id, "0.5"), (&id, "2"), ("999", "3"), (&id, "\"x\"")]
            {
                write!(body, "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":{value}}}}}\n\n").unwrap();
            }
            write!(body, "data: {}\n\n", result(request, "1")).unwrap();
            write!(body, "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{id},\"progress\":9}}}}\n\n").unwrap();
            vec![stream(&body), Step::Close]
        })
    })
    .await;
    let link = lab.stateless().await;
    let (seen, outcome) = drain(Arc::clone(&link).request(call()).await).await;
    assert_eq!(payload(outcome), "1");
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|event| event.contains("\"progressToken\":\"tok\"")), "{seen:?}");
    let without = Outgoing::Call(Arc::new(upstream_call("", "{}")));
    assert!(drain(Arc::clone(&link).request(without).await).await.0.is_empty());
}

#[tokio::test]
async fn ids_08_numbers_keep_their_digits() {
    const NUMBERS: &str = "[9007199254740993,1915883588174806058,18446744073709551616,1.10,1e400,-0.0]";
    let lab = Lab::new(|request| legacy(request, |request| json("200 OK", &result(request, NUMBERS)))).await;
    let link = lab.legacy().await;
    let outgoing = Outgoing::Call(Arc::new(upstream_call("", &format!("{{\"n\":{NUMBERS}}}"))));
    assert_eq!(payload(ask(&link, outgoing).await), NUMBERS);
    assert!(lab.server.requests().pop().unwrap().body.contains(NUMBERS));
}
