//! Servers that change: who is told, how often, and what works after [POL-10, FC-LST-04, TRN-8].

use crate::support::{Child, Client, ERAS, Era, Speaks, TestApp, Upstream, until, within_deadline};

async fn crash(server: Era) {
    let child = Child::new(server, &["echo", "die"]);
    let app = TestApp::open(&[("up", child.lines())]).await;
    let legacy = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    let stateless = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let mut streams = Vec::new();
    for client in [&legacy, &stateless] {
        assert_eq!(client.names().await, ["up__echo", "up__die"]);
        assert!(client.call_with("up__echo", "{}").await.is_result());
        streams.push(client.listen().await);
    }
    child.set(&["echo", "later"], 1);
    let died = legacy.call_with("up__die", "{}").await;
    assert_eq!(died.code(), -32603, "{died:?}");
    for stream in &mut streams {
        let event = within_deadline("a list change", stream.next()).await.unwrap();
        assert!(event.contains("notifications/tools/list_changed"), "{event}");
    }
    for client in [&legacy, &stateless] {
        let answer = client.call_with("up__later", r#"{"k":1.10}"#).await;
        assert!(answer.is_result(), "{server:?} {answer:?}");
        assert_eq!(answer.raw("result.echo"), r#"{"k":1.10}"#);
        assert_eq!(client.call_with("up__die", "{}").await.code(), -32602);
        assert_eq!(client.names().await, ["up__echo", "up__later"]);
    }
    app.stop().await;
    for stream in streams {
        assert_eq!(stream.changes_to_the_end().await, 0, "told more than once");
    }
}

/// A child dies and comes back with another tool: the session lives, and is told once [POL-10, TRN-7].
#[tokio::test]
async fn a_server_that_crashes_and_comes_back_otherwise() {
    for server in ERAS {
        within_deadline("a crash", crash(server)).await;
    }
}

async fn grown(speaks: Speaks) {
    let upstream = Upstream::start(speaks, false, &["open"]).await;
    let (tables, _) = TestApp::servers(&[("up", upstream.lines())]);
    let mut rest = format!(
        "{tables}[mcp_bundles.all]\nservers = [\"up\"]\n[policies.narrow]\nexcluded_tools = [\"up__secret\"]\n"
    );
    for name in ["ann", "ben", "eve"] {
        let policy = if name == "eve" { "policy = \"narrow\"\n" } else { "" };
        rest.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{policy}{}", TestApp::key(name)));
    }
    let app = TestApp::start("keys", &rest).await;
    until("the gateway's own stream", || upstream.streams() > 0).await;
    let mut told = Vec::new();
    let mut untold = Vec::new();
    for era in ERAS {
        for name in ["ann", "ben", "eve"] {
            let client = Client::connect(era, app.addr, "/mcp", Some(name)).await;
            assert_eq!(client.names().await, ["up__open"]);
            let stream = client.listen().await;
            if name == "eve" { untold.push((client, stream)) } else { told.push((client, stream)) }
        }
    }
    upstream.change(&["open", "secret"]);
    for (client, stream) in &mut told {
        let event = within_deadline("a list change", stream.next()).await.unwrap();
        assert!(event.contains("notifications/tools/list_changed"), "{event}");
        assert_eq!(client.names().await, ["up__open", "up__secret"]);
        assert!(client.call_with("up__secret", "{}").await.is_result());
    }
    for (client, _) in &untold {
        assert_eq!(client.names().await, ["up__open"]);
        assert_eq!(client.call_with("up__secret", "{}").await.code(), -32602);
    }
    app.stop().await;
    for (_, stream) in told.into_iter().chain(untold) {
        assert_eq!(stream.changes_to_the_end().await, 0, "{speaks:?}: told without a change");
    }
}

/// FC-LST-04: of three principals, those whose own set changed are told, and only they [POL-10, R81, R104].
#[tokio::test]
async fn only_those_whose_set_changed_are_told() {
    for speaks in [Speaks::Legacy, Speaks::Stateless] {
        within_deadline("a change", grown(speaks)).await;
    }
}

/// FC-LST-05: a server that says "changed" without a change is not repeated [POL-10].
#[tokio::test]
async fn a_change_of_nothing_is_not_told() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let app = TestApp::open(&[("up", upstream.lines())]).await;
    until("the gateway's own stream", || upstream.streams() > 0).await;
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let mut stream = client.listen().await;
    let lists = upstream.lists();
    upstream.change(&["a"]);
    until("the list is read again", || upstream.lists() > lists).await;
    upstream.change(&["b"]);
    assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
    assert_eq!(client.names().await, ["up__b"]);
    app.stop().await;
    assert_eq!(stream.changes_to_the_end().await, 0);
}

/// What comes back is told too: nobody's list says to a stateless listener what its client knows [POL-10].
#[tokio::test]
async fn a_change_back_is_told() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let app = TestApp::open(&[("up", upstream.lines())]).await;
    until("the gateway's own stream", || upstream.streams() > 0).await;
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    assert_eq!(client.names().await, ["up__a"]);
    let mut stream = client.listen().await;
    for tools in [["a", "b"].as_slice(), &["a"], &["a", "b"]] {
        upstream.change(tools);
        assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
        assert_eq!(client.names().await.len(), tools.len());
    }
    app.stop().await;
}

/// [POL-10]: who listens before it has ever listed is told of what changes from then on, and of nothing older.
#[tokio::test]
async fn who_has_listed_nothing_has_nothing_old() {
    let upstream = Upstream::start(Speaks::Legacy, false, &["a"]).await;
    let app = TestApp::open(&[("up", upstream.lines())]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    let other = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    assert_eq!(other.names().await, ["up__a"]);
    until("the server's changes are heard", || upstream.streams() > 0).await;
    let sees = async |tools: usize| {
        while other.names().await.len() != tools {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    upstream.change(&["a", "b"]);
    within_deadline("the change", sees(2)).await;
    let mut stream = client.listen().await;
    upstream.change(&["a"]);
    within_deadline("the next change", sees(1)).await;
    assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
    app.stop().await;
    assert_eq!(stream.changes_to_the_end().await, 0, "told of more than the one change");
}
