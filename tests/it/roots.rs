//! A client says that its roots have changed: the servers' connections that are its own alone are told, and no others
//! (protocol §4.2).

use serde_json::{Value, json};

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

/// [TRN-10, TRN-4]: a child that asks for roots as soon as it is initialized, as file servers do, has them before its client's
/// first call; whoever changes them is asked again before its next call. Whose list was read over it, or not: the child whose
/// question nobody could answer is no client's.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_asks_for_roots_by_itself_has_them_before_the_call() {
    for era in [Era::Legacy, Era::Stateless] {
        let quiz = Quiz::start(Era::Legacy, true).await;
        let app = TestApp::open(&[("up", quiz.lines_of_early())]).await;
        until("the list's child was refused", || quiz.count(&["roots-1", "-32601"]) == 1).await;
        let client = Client::able(era, app.addr, "/mcp", None, ABLE).await;
        let have = |uri: &'static str| {
            move |method: &str, _: &Value| match method {
                "roots/list" => json!({ "roots": [{ "uri": uri }] }),
                // What it asks beside that belongs to the first call, where that has begun; else it is refused.
                _ => json!({ "action": "decline" }),
            }
        };
        let told = client.asked("up__plain", json!({}), have("file:///one")).await;
        assert_eq!(told.answer["result"]["roots"], json!([{ "uri": "file:///one" }]), "{era:?}: {told:?}");
        let told = client.asked("up__plain", json!({}), have("file:///none")).await;
        assert!(told.asked.is_empty(), "{era:?}: {told:?}");
        assert_eq!(told.answer["result"]["roots"], json!([{ "uri": "file:///one" }]), "{era:?}: {told:?}");
        if era == Era::Legacy {
            assert_eq!(client.post(&[], CHANGED).await.status, 202);
            until("the server is told", || quiz.count(&["notifications/roots/list_changed"]) == 1).await;
            let told = client.asked("up__plain", json!({}), have("file:///two")).await;
            assert_eq!(told.asked.len(), 1, "{told:?}");
            // Where the call was on its way before the server asked, the next one knows.
            let told = client.asked("up__plain", json!({}), have("file:///none")).await;
            assert_eq!(told.answer["result"]["roots"], json!([{ "uri": "file:///two" }]), "{told:?}");
        }
        app.stop().await;
    }
}
