//! Servers that list their asking tools to those clients alone that can be asked: every client is shown them, and what is
//! asked while lists are read is refused at once [TRN-4, TRN-10, R75, R100].

use serde_json::json;

use crate::support::quiz::{ABLE, Quiz, form, willing};
use crate::support::{Client, ERAS, Era, TestApp, until, within_deadline};

const ALL: [&str; 4] = ["up__quiz", "up__plain", "up__hold", "up__asking"];

/// What a client is shown, without a tool that is another test's.
async fn shown(client: &Client) -> Vec<String> {
    client.names().await.into_iter().filter(|name| name != "up__visit").collect()
}

/// Whoever declared what is asked can use such a tool; to whoever did not it is the server that says no, as it would without
/// a gateway, and nobody is asked [R75].
#[tokio::test(flavor = "multi_thread")]
async fn asking_tools_are_shown_and_called_in_every_mixture() {
    for client_era in ERAS {
        for (server, stdio) in
            [(Era::Legacy, false), (Era::Legacy, true), (Era::Stateless, false), (Era::Stateless, true)]
        {
            let context = format!("client {client_era:?}, server {server:?}, stdio {stdio}");
            let quiz = Quiz::start(server, stdio).await;
            let app = TestApp::open(&[("up", quiz.lines())]).await;
            let rounds = json!([[form("?")]]);

            let able = Client::able(client_era, app.addr, "/mcp", None, ABLE).await;
            assert_eq!(shown(&able).await, ALL, "{context}");
            let told = within_deadline(&context, able.quiz("up__asking", rounds.clone(), willing)).await;
            assert_eq!(told.answers()[0][0]["action"], "accept", "{context}: {told:?}");

            let plain = Client::able(client_era, app.addr, "/mcp", None, "{}").await;
            assert_eq!(shown(&plain).await, ALL, "{context}: lists do not vary by connection");
            let told = within_deadline(&context, plain.quiz("up__asking", rounds, willing)).await;
            assert_eq!(told.answer["error"]["message"], "no such tool for you", "{context}: {told:?}");
            assert!(told.asked.is_empty(), "{context}: {told:?}");
            app.stop().await;
        }
    }
}

/// A child that asks before it is asked anything: there is nobody, its lists are read all the same, and calls go on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_while_lists_are_read_is_refused_at_once() {
    let quiz = Quiz::start(Era::Legacy, true).await;
    let app = TestApp::open(&[("up", quiz.lines_of_early())]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    assert_eq!(client.names().await, ALL);
    for id in ["roots-1", "early-2"] {
        until("a refusal", || quiz.count(&[id, "-32601"]) == 1).await;
    }
    assert!(client.call_with("up__plain", "{}").await.is_result());
    app.stop().await;
}
