//! A server of 2025-11-25 that wants a URL visited before it answers, and says so by an error, -32042 [R63]: each client is
//! told in its own era's way, by the server's name, and calls again by itself. And a server that says that a visit is over:
//! the one session that was asked for it hears of it, on its own stream (protocol §4.2).

use serde_json::{Value, json};

use crate::support::quiz::{ABLE, Quiz, visit, willing};
use crate::support::{Client, ERAS, Era, Events, TestApp, within_deadline};

const NAMED: &str = "Server 'up' asks: Sign in";

async fn world() -> (Quiz, TestApp) {
    let quiz = Quiz::start(Era::Legacy, false).await;
    let app = TestApp::open(&[("up", quiz.lines())]).await;
    (quiz, app)
}

/// A 2025-11-25 client gets the error as it is, but for the name of who asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_reads_the_error_itself() {
    let (quiz, app) = world().await;
    let client = Client::able(Era::Legacy, app.addr, "/mcp", None, ABLE).await;
    let answer = client.call_with("up__visit", r#"{"times":1}"#).await;
    assert_eq!((answer.status, answer.code()), (200, -32042), "{answer:?}");
    let asked = answer.value()["error"]["data"]["elicitations"][0].clone();
    assert_eq!(asked["message"], NAMED, "{answer:?}");
    assert_eq!(asked["_meta"]["portcullis/server"], "up", "{answer:?}");
    assert_eq!((&asked["mode"], &asked["url"]), (&json!("url"), &json!("https://example.com/v")), "{answer:?}");
    // An id of the gateway's own: another server may use the same.
    assert!(asked["elicitationId"].as_str().is_some_and(|id| id != "e-0"), "{answer:?}");
    assert!(client.call_with("up__visit", r#"{"times":1}"#).await.is_result());
    assert_eq!(quiz.count(&["tools/call", "\"visit\""]), 2);
    app.stop().await;
}

/// A 2026-07-28 client never sees the code: it is asked by `input_required` and comes back, as often as the server wants it;
/// the server is told of no answers, which it does not know [R63].
#[tokio::test(flavor = "multi_thread")]
async fn a_stateless_client_is_asked_and_comes_back() {
    let (quiz, app) = world().await;
    let client = Client::able(Era::Stateless, app.addr, "/mcp", None, ABLE).await;
    let arguments = r#""arguments":{"times":2}"#;
    let mut members = arguments.to_owned();
    for round in 1..=2 {
        let asked = within_deadline("a question", client.call("1", "up__visit", "", &members)).await;
        assert_eq!(asked.raw("result.resultType"), "\"input_required\"", "{asked:?}");
        let requests = asked.value()["result"]["inputRequests"].clone();
        let (key, request) = requests.as_object().unwrap().iter().next().unwrap();
        assert_eq!(*key, format!("portcullis-visit-{round}.1"));
        let meta = json!({ "portcullis/server": "up" });
        let params = json!({ "mode": "url", "url": "https://example.com/v", "message": NAMED, "_meta": meta });
        assert_eq!(*request, json!({ "method": "elicitation/create", "params": params }));
        members = format!(r#"{arguments},"inputResponses":{{"{key}":{{"action":"accept"}}}}"#);
    }
    assert!(within_deadline("the answer", client.call("2", "up__visit", "", &members)).await.is_result());
    assert_eq!(quiz.count(&["tools/call", "\"visit\""]), 3);
    assert_eq!(quiz.count(&["inputResponses"]), 0);
    app.stop().await;
}

/// Who does not go is not asked again, and a server that never has enough is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_visit_has_an_end() {
    let (quiz, app) = world().await;
    let client = Client::able(Era::Stateless, app.addr, "/mcp", None, ABLE).await;
    let retry = |key: &str, action: &str| {
        format!(r#""arguments":{{"times":99}},"inputResponses":{{"{key}":{{"action":"{action}"}}}}"#)
    };
    for action in ["decline", "cancel"] {
        let answer = client.call("1", "up__visit", "", &retry("portcullis-visit-1.1", action)).await;
        assert_eq!((answer.status, answer.code()), (200, -32602), "{answer:?}");
    }
    assert_eq!(quiz.count(&["tools/call", "\"visit\""]), 0, "the server is not called");
    let answer = client.call("1", "up__visit", "", &retry("portcullis-visit-10.1", "accept")).await;
    assert_eq!((answer.status, answer.code()), (200, -32603), "{answer:?}");
    assert!(answer.text().contains("again and again"), "{answer:?}");
    app.stop().await;
}

/// A client that cannot be asked, of an older revision or without the capability, is told in words where to go.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_asked_is_told_the_url() {
    let (_quiz, app) = world().await;
    for era in ERAS {
        for declared in ["{}", r#"{"elicitation":{}}"#] {
            let client = Client::able(era, app.addr, "/mcp", None, declared).await;
            let answer = client.call_with("up__visit", r#"{"times":99}"#).await;
            assert_eq!((answer.status, answer.code()), (200, -32603), "{era:?} {declared}: {answer:?}");
            let words: Value = answer.value()["error"]["message"].clone();
            let words = words.as_str().unwrap();
            assert!(words.contains("'up'") && words.contains("https://example.com/v (Sign in)"), "{words}");
        }
    }
    app.stop().await;
}

/// Has a client asked for a visit that is over at once; returns the id that it was asked by.
async fn visited(client: &Client, over: &str) -> Value {
    let mut question = visit(Era::Legacy);
    question["over"] = json!(over);
    let told = within_deadline("the answer", client.quiz("up__quiz", json!([[question]]), willing)).await;
    assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
    told.asked[0].1["elicitationId"].clone()
}

async fn is_told(events: &mut Events, id: &Value) {
    let told = within_deadline("the end of a visit", events.next()).await.unwrap();
    let params = json!({ "elicitationId": id });
    let expected = json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params });
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), expected);
}

/// Two sessions of one principal, and a server that uses one id for all: each hears of its own visit and of no other, whether
/// its stream was open then or is opened later. A stateless client knows no such message.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_asked_is_told_that_a_visit_is_over() {
    for (stdio, over) in [(false, "call"), (false, "beside"), (true, "call")] {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let one = Client::able(Era::Legacy, app.addr, "/mcp", None, ABLE).await;
        let two = Client::able(Era::Legacy, app.addr, "/mcp", None, ABLE).await;
        let mut first = one.listen().await;
        let (ones, twos) = (visited(&one, over).await, visited(&two, over).await);
        assert!(ones.is_string() && ones != twos && ones != "e-1", "{over}: {ones} {twos}");
        is_told(&mut first, &ones).await;
        is_told(&mut two.listen().await, &twos).await;
        // The script speaks beside its calls on the newest session alone.
        if over == "call" {
            let again = visited(&one, over).await;
            is_told(&mut first, &again).await;
        }

        let stateless = Client::able(Era::Stateless, app.addr, "/mcp", None, ABLE).await;
        assert!(visited(&stateless, over).await.is_null(), "it knows no such ids");
        app.stop().await;
    }
}
