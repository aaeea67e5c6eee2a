//! A client says that its roots have changed: the servers' connections that are its own alone are told, and no others
//! (protocol §4.2).

use crate::support::quiz::{ABLE, Quiz};
use crate::support::{Client, Era, TestApp, until};

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

/// Over HTTP each session has its own connection, on pipes the principal has, and its one session is all that uses it. The
/// connection of the list is nobody's, and is told nothing.
#[tokio::test(flavor = "multi_thread")]
async fn changed_roots_are_told_to_the_clients_own_connections() {
    for stdio in [false, true] {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let told = |times: usize| {
            let quiz = &quiz;
            until("the servers are told", move || quiz.count(&["notifications/roots/list_changed"]) == times)
        };
        // What is declared to a server is what the client declared.
        let silent = r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#;
        let quiet = Client::able(Era::Legacy, app.addr, "/mcp", None, silent).await;
        assert!(quiet.call_with("up__plain", "{}").await.is_result());
        until("its connection", || quiz.count(&["\"initialize\"", "\"roots\":{}"]) == 1).await;
        let client = Client::able(Era::Legacy, app.addr, "/mcp", None, ABLE).await;
        assert_eq!(client.post(&[], CHANGED).await.status, 202);
        assert!(client.call_with("up__plain", "{}").await.is_result());
        assert_eq!(quiz.count(&["notifications/roots/list_changed"]), 0, "there was no connection yet");

        assert_eq!(quiet.post(&[], CHANGED).await.status, 202);
        assert_eq!(client.post(&[], CHANGED).await.status, 202);
        told(1).await;
        assert_eq!(client.post(&[], CHANGED).await.status, 202);
        told(2).await;
        assert!(client.call_with("up__plain", "{}").await.is_result());
        assert_eq!(quiz.count(&["notifications/roots/list_changed"]), 2, "its own alone, once each");
        app.stop().await;
    }
}

/// A server of the newer era knows no such message, and one that nothing was declared to is told nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_stateless_server_is_told_of_no_roots() {
    let quiz = Quiz::start(Era::Stateless, false).await;
    let app = TestApp::open(&[("up", quiz.lines())]).await;
    let client = Client::able(Era::Legacy, app.addr, "/mcp", None, ABLE).await;
    for _ in 0..3 {
        assert!(client.call_with("up__plain", "{}").await.is_result());
        assert_eq!(client.post(&[], CHANGED).await.status, 202);
    }
    assert!(client.call_with("up__plain", "{}").await.is_result());
    assert_eq!(quiz.count(&["notifications/roots/list_changed"]), 0);
    assert_eq!(quiz.count(&["tools/call", "listChanged"]), 0);
    app.stop().await;
}
