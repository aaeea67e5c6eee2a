//! Clients of HTTP+SSE (2024-11-05) through the whole gateway: each mixture with servers, limits, questions, reload and stop
//! [TRN-1].

use std::fs;

use serde_json::{Value, json};

use crate::support::quiz::{ABLE, Quiz, form, roots, sampling, willing};
use crate::support::{
    Child, Client, ERAS, Era, Events, Gateway, Speaks, TestApp, Upstream, folder, until, within_deadline,
};

const ON: &str = "http_sse = true\n";

/// A gateway with the transport switched on, whose principals `ann` and `bob` have keys and are granted these servers.
async fn open(servers: &[(&str, String)], more: &str) -> TestApp {
    let (tables, names) = TestApp::servers(servers);
    let (ann, bob) = (TestApp::key("ann"), TestApp::key("bob"));
    let grants = format!("[mcp_bundles.all]\nservers = [{names}]\n");
    let principals =
        format!("[principals.ann]\nmcp_bundles = [\"all\"]\n{ann}[principals.bob]\nmcp_bundles = [\"all\"]\n{bob}");
    TestApp::start("keys", &format!("{ON}{tables}{grants}{principals}{more}")).await
}

async fn client(era: Era, app: &TestApp) -> Client {
    Client::connect(era, app.addr, "/sse", Some("ann")).await
}

/// [TRN-1, TRN-2]: lists and calls with servers of both eras over both transports, by clients of both; `/sse/<server>` shows
/// one server under its own names [NAM-5].
#[tokio::test(flavor = "multi_thread")]
async fn any_server_is_served() {
    let (old, new) = (
        Upstream::start(Speaks::Legacy, true, &["echo"]).await,
        Upstream::start(Speaks::Stateless, false, &["echo"]).await,
    );
    let children = ERAS.map(|era| Child::new(era, &["echo"]));
    let servers = [("old", old.lines()), ("new", new.lines()), ("a", children[0].lines()), ("b", children[1].lines())];
    let app = open(&servers, "").await;
    for era in ERAS {
        let client = client(era, &app).await;
        let names = within_deadline("the list", client.names()).await;
        assert_eq!(names, ["old__echo", "new__echo", "a__echo", "b__echo"], "{era:?}");
        for name in names {
            let answer = client.call_with(&name, r#"{"k":1.10}"#).await;
            assert!(answer.is_result(), "{name}, {era:?}: {answer:?}");
        }
        assert_eq!(client.call_with("old__none", "{}").await.code(), -32602, "{era:?}");
        let one = Client::connect(era, app.addr, "/sse/old", Some("ann")).await;
        assert_eq!(one.names().await, ["echo"], "{era:?}");
    }
    assert!(app.stop().await);
}

/// [LIM-1, TRN-7]: an answer of a MiB comes whole among others; one over the server's cap fails alone.
#[tokio::test(flavor = "multi_thread")]
async fn large_answers_come_whole_and_too_large_ones_fail_alone() {
    let up = Upstream::start(Speaks::Both, false, &["echo", "large", "larger"]).await;
    let answer = |bytes: usize| json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] }).to_string();
    // Twice what may wait for a client.
    up.answer_with("large", &answer(2 << 20));
    up.answer_with("larger", &answer(4 << 20));
    let app = open(&[("up", format!("{}\nmax_response_bytes = {}", up.lines(), 3 << 20))], "").await;
    let client = client(Era::Legacy, &app).await;
    let calls = async {
        futures_util::future::join3(
            client.call("1", "up__large", "", ""),
            client.call("2", "up__larger", "", ""),
            client.call("3", "up__large", "", ""),
        )
        .await
    };
    let (one, two, three) = within_deadline("three answers", calls).await;
    for answer in [one, three] {
        assert_eq!(answer.value()["result"]["content"][0]["text"].as_str().unwrap().len(), 2 << 20);
    }
    assert!(two.raw("error.message").contains("max_response_bytes"), "{two:?}");
    assert!(client.call_with("up__echo", "{}").await.is_result());
    assert!(app.stop().await);
}

/// [TRN-10, R97, R99]: what a server asks comes on the stream and names it; another client can neither see nor answer it.
#[tokio::test(flavor = "multi_thread")]
async fn questions_reach_their_client_on_its_stream() {
    for (server, stdio) in ERAS.into_iter().flat_map(|era| [(era, false), (era, true)]) {
        let context = format!("server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = open(&[("up", quiz.lines())], "").await;
        let able = |key: &'static str| Client::able(Era::Legacy, app.addr, "/sse", Some(key), ABLE);
        let (ann, bob) = (able("ann").await, able("bob").await);
        let mut beside = bob.listen().await;
        let rounds = json!([[form("Your name?"), roots()], [sampling("Capital?")]]);
        let told = within_deadline(&context, ann.quiz("up__quiz", rounds, willing)).await;
        assert_eq!(told.answers().as_array().map(Vec::len), Some(2), "{context}: {told:?}");
        assert_eq!(told.asked.len(), 3, "{context}: {told:?}");
        for (_, params) in &told.asked {
            assert_eq!(params["_meta"]["portcullis/server"], "up", "{context}: {params}");
        }
        // Bob's next word is of his own call.
        let answer = within_deadline(&context, bob.quiz("up__quiz", json!([[form("And yours?")]]), willing)).await;
        let first: Value = serde_json::from_str(&beside.next().await.unwrap()).unwrap();
        assert!(
            first["params"]["message"].as_str().is_some_and(|text| text.ends_with("And yours?")),
            "{context}: {first}"
        );
        assert_eq!(answer.asked.len(), 1, "{context}: {answer:?}");
        app.stop().await;
    }
}

/// [TRN-1, R106]: whoever loses its stream has its calls cancelled at their servers, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_cancels_its_calls() {
    for era in ERAS {
        let quiz = Quiz::start(era, true).await;
        let app = open(&[("up", quiz.lines())], "").await;
        let client = client(Era::Legacy, &app).await;
        let gone = client.opens("7", "up__hold", "{}").await;
        until("the call", || quiz.count(&["tools/call", "hold"]) == 1).await;
        drop((gone, client));
        until("the cancel", || quiz.count(&["notifications/cancelled"]) == 1).await;
        assert!(app.stop().await, "nothing is left that a stop would wait for");
    }
}

/// What a client is told until its stream ends.
async fn rest(mut events: Events) -> Vec<String> {
    let mut rest = Vec::new();
    while let Some(event) = within_deadline("the end of the stream", events.next()).await {
        rest.push(event);
    }
    rest
}

/// [CFG-4, POL-10, OPS-5]: a changed policy is told on the stream, a principal that is taken away loses it, others do not; a stop
/// ends all.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_is_told_and_takes_away() {
    let up = Upstream::start(Speaks::Both, false, &["echo", "other"]).await;
    let (tables, _) = TestApp::servers(&[("up", up.lines())]);
    let text = |policy: &str, bob: bool| {
        let listen = format!("[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n{ON}");
        let grant = "mcp_bundles = [\"all\"]\npolicy = \"p\"\n";
        let ann = format!("[principals.ann]\n{grant}{}", TestApp::key("ann"));
        let bob = if bob { format!("[principals.bob]\n{grant}{}", TestApp::key("bob")) } else { String::new() };
        format!("{listen}{tables}[mcp_bundles.all]\nservers = [\"up\"]\n{ann}{bob}[policies.p]\n{policy}\n")
    };
    let home = folder();
    fs::write(home.join("portcullis.toml"), text("", true)).unwrap();
    let mut gateway = Gateway::try_start_at(&[], home.clone()).await.unwrap();
    let said = gateway.said.clone();
    let address = format!("http://{}/sse", gateway.addr);
    assert!(said.contains("HTTP+SSE") && said.contains(&address), "{said}");
    let connect = |key: &'static str| Client::connect(Era::Legacy, gateway.addr, "/sse", Some(key));
    let (ann, bob) = (connect("ann").await, connect("bob").await);
    let (mut anns, bobs) = (ann.listen().await, bob.listen().await);
    assert_eq!(ann.names().await, ["up__echo", "up__other"]);
    assert!(bob.call_with("up__echo", "{}").await.is_result());

    fs::write(home.join("portcullis.toml"), text("excluded_tools = [\"up__other\"]", false)).unwrap();
    gateway.hang_up();
    gateway.says("the new configuration is in force").await;
    let told = within_deadline("the change", anns.next()).await.unwrap();
    assert!(told.contains("notifications/tools/list_changed"), "{told}");
    assert_eq!(ann.names().await, ["up__echo"]);
    rest(bobs).await;
    assert_eq!(bob.ask("ping", "").await.status, 401);
    gateway.terminate();
    assert!(rest(anns).await.is_empty());
    assert_eq!(gateway.ended().await, Some(0));
}
