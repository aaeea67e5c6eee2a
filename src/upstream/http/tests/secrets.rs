//! What a server repeats of its own secrets is not repeated by us [CFG-3].

use super::kit::{Lab, ask, discovered, list};
use crate::net::script::{Recorded, json, response};
use crate::upstream::link::{StartError, Want};

/// Everything a request holds that is secret, as an angry server says it.
fn complaint(request: &Recorded) -> String {
    let said = request.header("authorization").unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32000,"message":"{said} /mcp?key=canary"}}}}"#,
        request.member("id")
    )
}

/// [CFG-3] In the cause of a start that failed, whether it is an answer or none.
#[tokio::test]
async fn the_cause_of_a_failed_start_holds_no_secret() {
    for status in ["200 OK", "400 Bad Request", "500 Broken"] {
        for plain in [false, true] {
            let lab = Lab::new(move |request| match plain {
                _ if request.kind() == "GET" => response("405 Method Not Allowed", "", ""),
                true => response(status, "Content-Type: text/plain\r\n", &complaint(request)),
                false => json(status, &complaint(request)),
            })
            .await;
            let Err(err) = lab.open(Want::any()).await else { panic!("{status}: opened") };
            let words = match &err {
                StartError::Era(_, words) | StartError::Failed(words) => words.as_str(),
                StartError::Full(_) => panic!("{err}"),
            };
            assert!(words.contains("[secret:authorization] /mcp?[secret:url]"), "{status} {plain}: {words}");
            assert!(!words.contains("configured\"") && !words.contains("canary"), "{status} {plain}: {words}");
        }
    }
}

/// [CFG-3] In what the log holds of a call that failed.
#[tokio::test]
async fn the_detail_of_a_failed_call_holds_no_secret() {
    let lab = Lab::new(|request| match request.kind().as_str() {
        "server/discover" => discovered(request),
        _ => response("502 Bad Gateway", "Content-Type: text/html\r\n", &format!("<p>{}", complaint(request))),
    })
    .await;
    let link = lab.stateless().await;
    let reject = ask(&link, list()).await.unwrap_err();
    assert!(reject.detail.contains("[secret:authorization] /mcp?[secret:url]"), "{reject:?}");
    assert!(!format!("{reject:?}").contains("canary"), "{reject:?}");
}
