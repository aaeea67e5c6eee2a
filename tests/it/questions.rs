//! What servers ask on the way reaches the client whose call caused it, and nobody else: in all four mixtures of eras, over
//! both transports [TRN-10, R90-R100, TRN-4].

use serde_json::{Value, json};

use crate::support::quiz::{ABLE, Quiz, Told, form, roots, sampling, visit, willing};
use crate::support::{Client, ERAS, Era, Piped, TestApp, raw, until, within_deadline};

/// Every mixture: the client's era, the server's, and whether the server is a child.
pub(crate) fn mixtures() -> impl Iterator<Item = (Era, Era, bool)> {
    ERAS.into_iter().flat_map(|client| {
        ERAS.into_iter().flat_map(move |server| [false, true].map(move |stdio| (client, server, stdio)))
    })
}

async fn able(era: Era, app: &TestApp) -> Client {
    Client::able(era, app.addr, "/mcp", None, ABLE).await
}

/// All kinds, several at once, several rounds: each arrives with its server named, each answer where it was asked for
/// [TRN-10, R91, R93, R97, R99, R73].
#[tokio::test(flavor = "multi_thread")]
async fn every_question_reaches_its_client_in_every_mixture() {
    for (client, server, stdio) in mixtures() {
        let context = format!("client {client:?}, server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = able(client, &app).await;
        let rounds = json!([[form("Your name?"), roots()], [sampling("Capital?")], [visit(server)]]);
        let told = within_deadline(&context, client.quiz("up__quiz", rounds, willing)).await;

        let expected = json!([
            [{ "action": "accept", "content": { "a": "b" } }, { "roots": [{ "uri": "file:///x" }] }],
            [willing("sampling/createMessage", &Value::Null)],
            [{ "action": "accept", "content": { "a": "b" } }],
        ]);
        assert_eq!(*told.answers(), expected, "{context}: {told:?}");
        assert_eq!(told.asked.len(), 4, "{context}: {told:?}");
        for (method, params) in &told.asked {
            assert_eq!(params["_meta"]["portcullis/server"], "up", "{context}: {params}");
            match method.as_str() {
                "elicitation/create" => {
                    let message = params["message"].as_str().unwrap();
                    assert!(message.starts_with("Server 'up' asks: "), "{context}: {message}");
                    // Visits of the older era have an id, those of the newer have none.
                    let id = params["mode"] == "url" && client.era == Era::Legacy;
                    assert_eq!(params["elicitationId"].is_string(), id, "{context}: {params}");
                }
                "sampling/createMessage" => {
                    assert!(params["systemPrompt"].as_str().unwrap().contains("'up'"), "{context}: {params}");
                }
                _ => {}
            }
        }
        assert_eq!(told.taken_back, 0, "{context}");
        app.stop().await;
    }
}

/// A client may say no, and its error is one [R97].
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_an_answer() {
    for (client_era, server, stdio) in mixtures() {
        let context = format!("client {client_era:?}, server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = able(client_era, &app).await;
        for action in ["decline", "cancel"] {
            let told = client.quiz("up__quiz", json!([[form("?")]]), |_, _| json!({ "action": action })).await;
            assert_eq!(*told.answers(), json!([[{ "action": action }]]), "{context}: {told:?}");
        }
        if client_era == Era::Legacy {
            let refuses = |_: &str, _: &Value| json!({ "code": -1, "message": "no" });
            let told = client.quiz("up__quiz", json!([[form("?")]]), refuses).await;
            let sampled = client.quiz("up__quiz", json!([[sampling("?")]]), refuses).await;
            if server == Era::Legacy {
                assert_eq!(told.answers()[0][0]["code"], -1, "{context}: {told:?}");
                assert_eq!(sampled.answers()[0][0]["code"], -1, "{context}: {sampled:?}");
            } else {
                // The newer era knows no error there.
                assert_eq!(*told.answers(), json!([[{ "action": "decline" }]]), "{context}: {told:?}");
                assert_eq!(sampled.answer["error"]["code"], -32603, "{context}: {sampled:?}");
            }
        }
        app.stop().await;
    }
}

/// What a client did not declare it is not asked [R91, R98].
#[tokio::test(flavor = "multi_thread")]
async fn an_undeclared_question_reaches_nobody() {
    for (client_era, server, stdio) in mixtures() {
        let context = format!("client {client_era:?}, server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        for (declared, rounds, code) in [
            ("{}", json!([[form("?")]]), -32601),
            (r#"{"roots":{}}"#, json!([[sampling("?")]]), -32601),
            (r#"{"elicitation":{}}"#, json!([[visit(server)]]), -32602),
        ] {
            let client = Client::able(client_era, app.addr, "/mcp", None, declared).await;
            let told: Told = client.quiz("up__quiz", rounds, willing).await;
            if server == Era::Legacy {
                assert_eq!(told.answers()[0][0]["code"], code, "{context} {declared}: {told:?}");
                assert!(told.asked.is_empty(), "{context} {declared}: {told:?}");
            } else {
                // This server asks whom it may not ask.
                assert_eq!(told.answer["error"]["code"], -32603, "{context} {declared}: {told:?}");
                assert!(told.asked.is_empty(), "{context} {declared}: {told:?}");
            }
            // What each hop is told of the client is what the client declared.
            if server == Era::Legacy && declared == "{}" {
                assert_eq!(quiz.count(&["\"initialize\"", "\"capabilities\":{}"]), 1, "{context}");
            }
        }
        app.stop().await;
    }
}

/// A server may take its question back: its client hears of it, and the call goes on (protocol §4.2).
#[tokio::test(flavor = "multi_thread")]
async fn a_question_can_be_taken_back() {
    for stdio in [false, true] {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = able(Era::Legacy, &app).await;
        let mut taken = form("?");
        taken["withdraw"] = json!(true);
        let silent = |_: &str, _: &Value| Value::Null;
        let told = within_deadline("the answer", client.quiz("up__quiz", json!([[taken]]), silent)).await;
        assert_eq!(*told.answers(), json!([["withdrawn"]]), "{told:?}");
        assert!(told.taken_back == told.asked.len(), "{told:?}");
        assert_eq!(quiz.count(&["The client did not answer"]), 0);
        app.stop().await;
    }
}

/// A question beside its call's stream belongs to the only call in flight [R100].
#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_the_sessions_stream_belongs_to_the_only_call() {
    for client_era in ERAS {
        let quiz = Quiz::start(Era::Legacy, false).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = able(client_era, &app).await;
        let mut question = form("?");
        question["beside"] = json!(true);
        let rounds = json!([[question]]);
        let told = within_deadline("the answer", client.quiz("up__quiz", rounds.clone(), willing)).await;
        assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");

        // With two in flight nobody knows: it is refused, never guessed.
        let asking = async {
            until("a second call", || quiz.count(&["tools/call", "\"hold\""]) == 1).await;
            let told = within_deadline("the answer", client.quiz("up__quiz", rounds, willing)).await;
            assert_eq!(told.answers()[0][0]["code"], -32601, "{told:?}");
            assert!(told.asked.is_empty(), "{told:?}");
        };
        tokio::select! {
            held = client.tries("up__hold") => panic!("{held:?}"),
            () = asking => {}
        }
        app.stop().await;
    }
}

/// What principals share asks on a call's own stream alone: a pipe has none, and beside the calls it would be a guess, also
/// with one call in flight [TRN-4, TRN-10, R100].
#[tokio::test(flavor = "multi_thread")]
async fn what_is_shared_asks_where_it_is_known_who_is_meant() {
    for (client_era, stdio) in ERAS.into_iter().flat_map(|era| [(era, false), (era, true)]) {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::open(&[("up", format!("{}\nisolation = \"shared\"", quiz.lines()))]).await;
        let client = able(client_era, &app).await;
        let mut beside = form("?");
        beside["beside"] = json!(true);
        for (question, known) in [(form("?"), !stdio), (beside, false)] {
            let context = format!("client {client_era:?}, stdio {stdio}: {question}");
            let told = within_deadline(&context, client.quiz("up__quiz", json!([[question]]), willing)).await;
            if known {
                assert_eq!(told.answers()[0][0]["action"], "accept", "{context}: {told:?}");
            } else {
                assert_eq!(told.answers()[0][0]["code"], -32601, "{context}: {told:?}");
                assert!(told.asked.is_empty(), "{context}: {told:?}");
            }
        }
        app.stop().await;
    }
}

fn two_principals(quiz: &Quiz, limits: &str) -> String {
    let (tables, _) = TestApp::servers(&[("up", quiz.lines())]);
    let mut rest = format!("{tables}[limits]\n{limits}\n[mcp_bundles.all]\nservers = [\"up\"]\n");
    for name in ["ann", "ben"] {
        rest.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(name)));
    }
    rest
}

fn retry(state: &str, answer: &str) -> String {
    format!(
        r#""arguments":{{"rounds":{}}},"inputResponses":{{"q1":{answer}}},"requestState":{state}"#,
        json!([[form("?")]])
    )
}

fn accepted() -> Value {
    json!([[{ "action": "accept", "content": { "a": "b" } }]])
}

const ACCEPT: &str = r#"{"action":"accept","content":{"a":"b"}}"#;

/// A parked call is its principal's and this very call's; whoever brings its handle twice hears the same, and the server is
/// answered once [R92, R94, R95, R96, R120].
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_is_joined_by_its_own_client_alone() {
    for stdio in [false, true] {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::start("keys", &two_principals(&quiz, "")).await;
        let ann = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), ABLE).await;
        let ben = Client::able(Era::Stateless, app.addr, "/mcp", Some("ben"), ABLE).await;
        let first = format!(r#""arguments":{{"rounds":{}}}"#, json!([[form("?")]]));
        let asked = ann.call("1", "up__quiz", "", &first).await;
        assert_eq!(asked.raw("result.resultType"), "\"input_required\"", "{asked:?}");
        let state = asked.raw("result.requestState");

        let mut tampered = state.clone().into_bytes();
        let middle = tampered.len() / 2;
        tampered[middle] = if tampered[middle] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(tampered).unwrap();
        let other_arguments = format!(r#""arguments":{{"rounds":[]}},"requestState":{state}"#);
        for (why, answer) in [
            ("tampered", ann.call("2", "up__quiz", "", &retry(&tampered, ACCEPT)).await),
            ("made up", ann.call("2", "up__quiz", "", &retry("\"mine\"", ACCEPT)).await),
            ("another principal's", ben.call("2", "up__quiz", "", &retry(&state, ACCEPT)).await),
            ("another call's", ann.call("2", "up__quiz", "", &other_arguments).await),
            ("another tool's", ann.call("2", "up__plain", "", &retry(&state, ACCEPT)).await),
        ] {
            assert_eq!((answer.status, answer.code()), (200, -32602), "{why}: {answer:?}");
        }
        assert_eq!(quiz.count(&["\"action\""]), 0, "nobody has answered");

        // What is no answer is asked for again, under a new handle.
        let again = ann.call("2", "up__quiz", "", &retry(&state, r#"{"action":"perhaps"}"#)).await;
        assert_eq!(again.raw("result.resultType"), "\"input_required\"", "{again:?}");
        let newer = again.raw("result.requestState");
        assert_ne!(newer, state);
        assert_eq!(ann.call("2", "up__quiz", "", &retry(&state, ACCEPT)).await.raw("result.requestState"), newer);

        let members = retry(&newer, ACCEPT);
        let (one, two) = tokio::join!(ann.call("3", "up__quiz", "", &members), ann.call("4", "up__quiz", "", &members));
        let late = ann.call("5", "up__quiz", "", &members).await;
        for answer in [&one, &two, &late] {
            assert_eq!(answer.value()["result"]["answers"], accepted(), "{answer:?}");
        }
        assert_eq!([one.raw("id"), two.raw("id"), late.raw("id")], ["3", "4", "5"]);
        assert_eq!(quiz.count(&["\"action\""]), 1, "the server is answered once");
        assert_eq!(quiz.count(&["tools/call", "\"quiz\""]), 1, "and called once");
        app.stop().await;
    }
}

/// A client that never comes back: the call is cancelled at its server, and the handle is good for nothing any more [R96].
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_comes_back_is_not_waited_for() {
    for stdio in [false, true] {
        let quiz = Quiz::start(Era::Legacy, stdio).await;
        let app = TestApp::start("keys", &two_principals(&quiz, "question_secs = 1")).await;
        let ann = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), ABLE).await;
        let first = format!(r#""arguments":{{"rounds":{}}}"#, json!([[form("?")]]));
        let asked = ann.call("1", "up__quiz", "", &first).await;
        let state = asked.raw("result.requestState");
        until("the cancel", || quiz.count(&["notifications/cancelled"]) == 1).await;
        until("the refusal", || quiz.count(&["The client did not answer"]) == 1).await;
        let order: Vec<bool> = quiz.log().iter().map(|line| line.contains("notifications/cancelled")).collect();
        let refusal = quiz.log().iter().position(|line| line.contains("The client did not answer"));
        assert!(order.iter().position(|cancel| *cancel) < refusal || !stdio, "the server hears of the end first");
        let answer = ann.call("2", "up__quiz", "", &retry(&state, ACCEPT)).await;
        assert_eq!((answer.status, answer.code()), (200, -32602), "{answer:?}");
        // Its connection is free again.
        let told = within_deadline("another", ann.quiz("up__quiz", json!([[form("?")]]), willing)).await;
        assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
        app.stop().await;
    }
}

/// The number of parked calls has a bound; over it the call is refused and cancelled [R96, LIM-6].
#[tokio::test(flavor = "multi_thread")]
async fn parked_calls_are_bounded_per_principal() {
    let quiz = Quiz::start(Era::Legacy, false).await;
    let app = TestApp::start("keys", &two_principals(&quiz, "parked_calls_per_principal = 1")).await;
    let ann = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), ABLE).await;
    let ben = Client::able(Era::Stateless, app.addr, "/mcp", Some("ben"), ABLE).await;
    let first = format!(r#""arguments":{{"rounds":{}}}"#, json!([[form("?")]]));
    let parked = ann.call("1", "up__quiz", "", &first).await;
    let over = ann.call("2", "up__quiz", "", &first).await;
    assert_eq!(over.code(), -31002, "{over:?}");
    until("the cancel", || quiz.count(&["notifications/cancelled"]) == 1).await;
    // It is nobody else's bound, and the one that is parked goes on.
    let told = within_deadline("ben", ben.quiz("up__quiz", json!([[form("?")]]), willing)).await;
    assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
    let state = parked.raw("result.requestState");
    assert!(ann.call("3", "up__quiz", "", &retry(&state, ACCEPT)).await.is_result());
    app.stop().await;
}

/// A call that has its answer, and is only kept for a client that may have lost it, gives way to the next one that asks: a
/// person who answers many is not refused [R96, LIM-6].
#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_gives_way() {
    let quiz = Quiz::start(Era::Legacy, false).await;
    let limits = "parked_calls_per_principal = 1\nparked_calls = 2";
    let app = TestApp::start("keys", &two_principals(&quiz, limits)).await;
    let ann = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), ABLE).await;
    let ben = Client::able(Era::Stateless, app.addr, "/mcp", Some("ben"), ABLE).await;
    for client in [&ann, &ann, &ann, &ben, &ben, &ann] {
        let told = within_deadline("an answer", client.quiz("up__quiz", json!([[form("?")]]), willing)).await;
        assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
    }
    // Who waits for an answer does not give way: neither to the same principal's, nor to another's.
    let first = format!(r#""arguments":{{"rounds":{}}}"#, json!([[form("?")]]));
    let parked = ann.call("1", "up__quiz", "", &first).await;
    assert_eq!(ann.call("2", "up__quiz", "", &first).await.code(), -31002);
    let told = within_deadline("ben", ben.quiz("up__quiz", json!([[form("?")]]), willing)).await;
    assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
    let state = parked.raw("result.requestState");
    assert!(ann.call("3", "up__quiz", "", &retry(&state, ACCEPT)).await.is_result());
    app.stop().await;
}

/// Two clients of one principal at once: each is asked what its own call asks [TRN-4, TRN-10].
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_of_one_principal_are_told_apart() {
    for (client_era, server, stdio) in mixtures() {
        let context = format!("client {client_era:?}, server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let (one, two) = (able(client_era, &app).await, able(client_era, &app).await);
        let ask = async |client: &Client, who: &str| {
            let rounds = json!([[form(who)], [form(who)]]);
            let told = client.quiz(
                "up__quiz",
                rounds,
                |_, params| json!({ "action": "accept", "content": { "a": params["message"] } }),
            );
            let told = within_deadline(&context, told).await;
            let content = json!({ "action": "accept", "content": { "a": format!("Server 'up' asks: {who}") } });
            assert_eq!(*told.answers(), json!([[content], [content]]), "{context} {who}: {told:?}");
        };
        tokio::join!(ask(&one, "one"), ask(&two, "two"));
        app.stop().await;
    }
}

/// A server that never has enough is stopped [R97].
#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_bounded() {
    let quiz = Quiz::start(Era::Stateless, false).await;
    let app = TestApp::open(&[("up", quiz.lines())]).await;
    let client = able(Era::Legacy, &app).await;
    let rounds: Vec<Value> = (0..20).map(|_| json!([roots()])).collect();
    let told = within_deadline("the end", client.quiz("up__quiz", json!(rounds), willing)).await;
    assert_eq!(told.answer["error"]["code"], -32603, "{told:?}");
    assert_eq!(told.asked.len(), 10, "{told:?}");
    app.stop().await;
}

/// A client on pipes is asked there, in either era; its answer is a line [TRN-1, TRN-10].
#[tokio::test(flavor = "multi_thread")]
async fn a_client_on_pipes_is_asked_there() {
    for server in ERAS {
        let quiz = Quiz::start(server, true).await;
        let mut client = Piped::start(&Piped::configuration(&[("up", quiz.lines())]), &[]);
        let hello = format!(
            r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{ABLE},"clientInfo":{{"name":"it","version":"1"}}}}}}"#
        );
        client.send(&hello).await;
        client.answer("\"hello\"").await;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        let rounds = json!({ "rounds": [[form("?")]] }).to_string();
        client.call(Era::Legacy, "7", "up__quiz", &rounds).await;
        let question = loop {
            let message = client.next().await;
            if raw(&message, "method").as_deref() == Some("\"elicitation/create\"") {
                break message;
            }
        };
        let id = raw(&question, "id").unwrap();
        client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ACCEPT}}}"#)).await;
        let answer = client.answer("7").await;
        let answers: Value = serde_json::from_str(&raw(&answer, "result.answers").unwrap()).unwrap();
        assert_eq!(answers, accepted(), "{answer}");
        client.close();
        assert_eq!(client.ended().await.code, Some(0));
    }
}

/// A client that goes away cancels its call; what was asked dies with it [R106].
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_takes_its_questions_along() {
    let quiz = Quiz::start(Era::Legacy, true).await;
    let app = TestApp::open(&[("up", quiz.lines())]).await;
    let client = able(Era::Legacy, &app).await;
    let arguments = json!({ "rounds": [[form("?")]] }).to_string();
    let mut events = client.opens("\"c\"", "up__quiz", &arguments).await;
    let question = within_deadline("a question", events.next()).await.unwrap();
    assert!(question.contains("elicitation/create"), "{question}");
    client.post(&[], r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#).await;
    until("the cancel", || quiz.count(&["notifications/cancelled"]) == 1).await;
    let id = raw(&question, "id").unwrap();
    client.post(&[], &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ACCEPT}}}"#)).await;
    let told = within_deadline("another", client.quiz("up__quiz", json!([[form("?")]]), willing)).await;
    assert_eq!(told.answers()[0][0]["action"], "accept", "{told:?}");
    app.stop().await;
}
