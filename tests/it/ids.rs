//! Many clients that all use the same ids and progress tokens: nobody gets another's answer; and the ids of a server's events,
//! which nobody gets at all [IDS-1, R86, TRN-10].

use futures_util::future::join_all;

use crate::support::{Child, Client, ERAS, Era, Framing, Siege, Speaks, Step, TestApp, Upstream, raw, within_deadline};

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

/// [TRN-10]: the ids and delays of a server's events are of its own hop. A client's stream has what they say, under the
/// gateway's own ids or none.
#[tokio::test]
async fn the_ids_of_a_servers_events_stay_there() {
    let siege = Siege::begin(&[Framing::Sse, Framing::Events], "").await;
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@TOKEN@,"progress":1}}"#;
    for bad in &siege.bad {
        let event =
            |id: &str, text: &str| Step::Say(format!("id: theirs-{id}\nretry: 86399\n{}", bad.framing.message(text)));
        let steps = vec![Step::say(bad.framing.begin()), event("0", ""), event("1", progress), event("2", "@GOOD@")];
        bad.meets("ids", steps);
        for era in ERAS {
            let context = format!("{} {era:?}", bad.name);
            let client = Client::connect(era, siege.gateway.addr, "/mcp", None).await;
            let name = format!("{}__attack", bad.name);
            let mut wire =
                client.asks_with("\"r\"", &name, r#""progressToken":"p""#, r#""arguments":{"how":"ids"}"#).await;
            let head = within_deadline(&context, wire.head()).await.unwrap();
            let body = within_deadline(&context, wire.body(head.rest(false))).await;
            assert!(body.contains("notifications/progress") && body.contains(r#""ok""#), "{context}: {body}");
            assert!(!body.contains("theirs") && !body.contains("86399"), "{context}: {body}");
            // A session's stream can be resumed: it has ids, which are ours.
            assert_eq!(body.contains("\nid: "), era == Era::Legacy, "{context}: {body}");
            if era == Era::Legacy {
                client.leave().await;
            }
        }
    }
    siege.end(72).await;
}
