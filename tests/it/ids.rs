//! Many clients that all use the same ids and progress tokens: nobody gets another's answer [IDS-1, R86].

use futures_util::future::join_all;

use crate::support::{Child, Client, ERAS, Era, Speaks, TestApp, Upstream, raw, within_deadline};

const CLIENTS: usize = 64;
const TOOLS: [&str; 2] = ["echo", "together"];

/// One client's calls: a marker of its own under everybody's id and token.
async fn call(client: &Client, marker: usize, tool: &str, progress: usize, context: &str) {
    let arguments = format!(r#"{{"marker":"m-{marker}"}}"#);
    let members = format!(r#""arguments":{arguments}"#);
    let answer = client.call("\"same\"", tool, r#""progressToken":"token""#, &members).await;
    let context = format!("{context}: {marker}: {answer:?}");
    assert_eq!(answer.status, 200, "{context}");
    assert_eq!(answer.raw("id"), "\"same\"", "{context}");
    assert_eq!(answer.raw("result.echo"), arguments, "{context}");
    let (_, before) = answer.messages.split_last().unwrap();
    assert_eq!(before.len(), progress, "{context}");
    for (step, message) in before.iter().enumerate() {
        assert_eq!(raw(message, "params.progressToken").unwrap(), "\"token\"", "{context}");
        assert_eq!(raw(message, "params.progress").unwrap(), (step + 1).to_string(), "{context}");
        let marked: String = serde_json::from_str(&raw(message, "params.message").unwrap()).unwrap();
        assert_eq!(marked, arguments, "{context}");
    }
}

async fn crowd(lines: String, context: &str) {
    let app = TestApp::open(&[("up", lines)]).await;
    let clients = (0..CLIENTS).map(|at| async move {
        let era = ERAS[at % 2];
        Client::connect(era, app.addr, if at % 4 < 2 { "/mcp" } else { "/mcp/up" }, None).await
    });
    let clients = join_all(clients).await;
    for round in 0..3 {
        let calls = clients.iter().enumerate().map(|(at, client)| async move {
            let tool = if at % 4 < 2 { "up__together" } else { "together" };
            call(client, round * CLIENTS + at, tool, 2, context).await;
        });
        join_all(calls).await;
    }
    app.stop().await;
}

/// One child for all, which answers in random order [FC-IDS-01].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_stdio_everybody_gets_his_own() {
    for era in ERAS {
        let child = Child::new(era, &TOOLS);
        child.set(&TOOLS, CLIENTS);
        within_deadline("a crowd", crowd(child.lines(), &format!("stdio {era:?}"))).await;
        let ids: Vec<String> = child.calls().iter().map(|call| raw(call, "id").unwrap()).collect();
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!((ids.len(), distinct.len()), (3 * CLIENTS, 3 * CLIENTS), "one connection, one id each");
    }
}

/// A session for each client, and one connection set for all [FC-IDS-01].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_everybody_gets_his_own() {
    for (speaks, era) in [(Speaks::Legacy, Era::Legacy), (Speaks::Stateless, Era::Stateless)] {
        let upstream = Upstream::start(speaks, true, &TOOLS).await;
        upstream.gather(CLIENTS);
        within_deadline("a crowd", crowd(upstream.lines(), &format!("http {era:?}"))).await;
        assert_eq!(upstream.calls().len(), 3 * CLIENTS);
    }
}

/// One session may have many calls under way; ids keep their type, `1` is not `"1"` [FC-IDS-04, R86].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_one_session_keep_their_spelling() {
    const IDS: [&str; 6] = ["1", "\"1\"", "0", "-7", "\"\"", "\"\\u00e9\""];
    let child = Child::new(Era::Legacy, &TOOLS);
    child.set(&TOOLS, IDS.len());
    let app = TestApp::open(&[("up", child.lines())]).await;
    for era in ERAS {
        let client = Client::connect(era, app.addr, "/mcp", None).await;
        let calls = IDS.map(|id| {
            let client = client.clone();
            async move {
                let members = format!(r#""arguments":{{"id":{id}}}"#);
                let answer = client.call(id, "up__together", "", &members).await;
                assert_eq!(answer.raw("id"), id, "{answer:?}");
                assert_eq!(answer.raw("result.echo"), format!(r#"{{"id":{id}}}"#));
            }
        });
        within_deadline("calls of one session", join_all(calls)).await;
    }
    app.stop().await;
}
