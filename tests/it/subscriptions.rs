//! Watched resources through the whole gateway, in all mixtures of eras and transports [POL-10, POL-15, R101-R104].

use serde_json::{Value, json};

use crate::support::watched::{How, Watched};
use crate::support::{Client, ERAS, Era, Events, Gateway, TestApp, folder, within_deadline};

/// What the server is subscribed to, each as often as it is.
async fn subs(client: &Client) -> Vec<String> {
    let answer = client.call_with("up__subs", "{}").await;
    let subs = &answer.value()["result"]["structuredContent"]["subs"];
    subs.as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().map(|uri| uri.as_str().unwrap().to_owned()).collect()
}

async fn until_subs(client: &Client, wanted: &[&str]) {
    let polling = async {
        while subs(client).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within_deadline(&format!("subscribed to {wanted:?}"), polling).await;
}

async fn touch(client: &Client, uri: &str) {
    assert!(client.call_with("up__touch", &format!(r#"{{"uri":"{uri}"}}"#)).await.is_result());
}

/// The URI of the next update; a session's stream tells of lists too.
async fn updated(stream: &mut Events) -> String {
    loop {
        let event = within_deadline("an update", stream.next()).await.expect("the stream has ended");
        let event: Value = serde_json::from_str(&event).unwrap();
        if event["method"] == json!("notifications/resources/updated") {
            return event["params"]["uri"].as_str().unwrap().to_owned();
        }
        assert!(event["method"].as_str().unwrap().ends_with("/list_changed"), "{event}");
    }
}

/// Reads until one is told of. What was told before may come again: where a subscription moves to another connection,
/// something may have been missed, and for a while both tell.
async fn updated_to(stream: &mut Events, uri: &str, before: &str) {
    let mut told = updated(stream).await;
    while told == before && told != uri {
        told = updated(stream).await;
    }
    assert_eq!(told, uri);
}

/// Stops watching: by a request, or by closing the stream.
async fn leave(client: &Client, stream: Events, uri: &str) {
    if client.era == Era::Legacy {
        assert!(client.ask("resources/unsubscribe", &format!(r#""uri":"{uri}""#)).await.is_result());
    }
    drop(stream);
}

async fn shared(server: Era, how: How) {
    const A: &str = "up+file:///a";
    let upstream = Watched::start(server, how).await;
    let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
    let mut watchers = Vec::new();
    for era in ERAS {
        let client = Client::connect(era, app.addr, "/mcp", None).await;
        let (stream, watched) = client.watch(&[A, "up+file:///refused", "other+file:///a", "file:///a"]).await;
        assert_eq!(watched, [A], "{era:?}: what cannot be watched is not");
        watchers.push((client, stream));
    }
    // Two who watch are one subscription at the server.
    until_subs(&watchers[0].0, &["file:///a"]).await;
    for uri in ["file:///a", "file:///a/below"] {
        touch(&watchers[0].0, uri).await;
        for (_, stream) in &mut watchers {
            updated_to(stream, &format!("up+{uri}"), A).await;
        }
    }
    touch(&watchers[0].0, "file:///b").await;
    if how == How::Http {
        // The server loses all it knows of us: it is asked again, and something may have been missed.
        assert!(watchers[1].0.call_with("up__forget", "{}").await.is_result());
        for (_, stream) in &mut watchers {
            assert_eq!(updated(stream).await, A);
        }
        until_subs(&watchers[1].0, &["file:///a"]).await;
    }
    let (client, stream) = watchers.pop().unwrap();
    leave(&client, stream, A).await;
    let (last, mut stream) = watchers.pop().unwrap();
    touch(&last, "file:///a").await;
    updated_to(&mut stream, A, "up+file:///a/below").await;
    assert_eq!(subs(&last).await, ["file:///a"]);
    leave(&last, stream, A).await;
    until_subs(&last, &[]).await;
    app.stop().await;
}

/// `matrix!` of watched resources: both clients at once, each server, each transport; one subscription, counted.
#[tokio::test]
async fn one_subscription_for_all_who_watch() {
    for server in ERAS {
        for how in [How::Http, How::Stdio] {
            within_deadline(&format!("{server:?} {how:?}"), shared(server, how)).await;
        }
    }
}

/// [POL-15, R104]: who may not read a resource cannot watch it, and it looks like one that is not there.
#[tokio::test]
async fn only_who_may_read_may_watch() {
    let upstream = Watched::start(Era::Stateless, How::Http).await;
    let (tables, _) = TestApp::servers(&[("up", upstream.lines.clone())]);
    let mut rest =
        format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n[policies.none]\nexcluded_tools = [\"up__*\"]\n");
    for name in ["ann", "eve"] {
        let policy = if name == "eve" { "policy = \"none\"\n" } else { "" };
        rest.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{policy}{}", TestApp::key(name)));
    }
    let app = TestApp::start("keys", &rest).await;
    for era in ERAS {
        let eve = Client::connect(era, app.addr, "/mcp", Some("eve")).await;
        let (_, watched) = eve.watch(&["up+file:///a", "up+file:///none"]).await;
        assert!(watched.is_empty(), "{watched:?}");
        if era == Era::Legacy {
            let hidden = eve.ask("resources/subscribe", r#""uri":"up+file:///a""#).await;
            let unknown = eve.ask("resources/subscribe", r#""uri":"nothing+file:///a""#).await;
            assert_eq!(hidden.text(), unknown.text());
        }
        let ann = Client::connect(era, app.addr, "/mcp", Some("ann")).await;
        let (mut stream, watched) = ann.watch(&["up+file:///a"]).await;
        assert_eq!(watched, ["up+file:///a"]);
        touch(&ann, "file:///a").await;
        assert_eq!(updated(&mut stream).await, "up+file:///a");
    }
    app.stop().await;
}

/// [CFG-4, POL-15]: who loses the right to read hears nothing more of it, and hears again when it comes back; a server that a
/// reload replaces is subscribed to anew, and everybody is told once, for something may have been missed.
#[tokio::test]
async fn a_reload_takes_watches_along() {
    const A: &str = "up+file:///a";
    let upstream = Watched::start(Era::Legacy, How::Http).await;
    let text = |policy: &str, timeout: u32| {
        let (tables, _) = TestApp::servers(&[("up", format!("{}\ntool_timeout_secs = {timeout}", upstream.lines))]);
        let mut text = format!(
            "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n{tables}[mcp_bundles.all]\n\
             servers = [\"up\"]\n[policies.all]\n[policies.none]\nexcluded_tools = [\"up__*\"]\n"
        );
        for (name, policy) in [("ann", "all"), ("eve", policy)] {
            text +=
                &format!("[principals.{name}]\nmcp_bundles = [\"all\"]\npolicy = \"{policy}\"\n{}", TestApp::key(name));
        }
        text
    };
    let folder = folder();
    let put = |text: &str| std::fs::write(folder.join("portcullis.toml"), text).unwrap();
    put(&text("all", 60));
    let mut gateway = Gateway::try_start_at(&[], folder.clone()).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    let ann = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    let (mut hers, _) = ann.watch(&[A]).await;
    let mut eves = Vec::new();
    for era in ERAS {
        let eve = Client::connect(era, gateway.addr, "/mcp", Some("eve")).await;
        let (stream, watched) = eve.watch(&[A]).await;
        assert_eq!(watched, [A]);
        eves.push(stream);
    }
    let mut reload = async |new: &str| {
        put(new);
        gateway.hang_up();
        gateway.says("the new configuration is in force").await;
    };
    reload(&text("none", 60)).await;
    touch(&ann, "file:///a/1").await;
    assert_eq!(updated(&mut hers).await, "up+file:///a/1");
    reload(&text("all", 60)).await;
    for stream in &mut eves {
        assert_eq!(updated(stream).await, A, "watched again, and nothing of what came in between");
    }
    touch(&ann, "file:///a/2").await;
    for stream in eves.iter_mut().chain([&mut hers]) {
        assert_eq!(updated(stream).await, "up+file:///a/2");
    }
    reload(&text("all", 61)).await;
    for stream in eves.iter_mut().chain([&mut hers]) {
        assert_eq!(updated(stream).await, A);
    }
    until_subs(&ann, &["file:///a"]).await;
    touch(&ann, "file:///a/3").await;
    for stream in eves.iter_mut().chain([&mut hers]) {
        assert_eq!(updated(stream).await, "up+file:///a/3");
    }
}

/// A server that says it beside a call alone, on a connection that no list is read over: its list is read again [POL-10].
#[tokio::test]
async fn a_change_that_is_told_beside_a_call_is_heard() {
    for server in ERAS {
        let upstream = Watched::start(server, How::Http).await;
        let app = TestApp::open(&[("up", upstream.lines.clone())]).await;
        let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
        let before = client.names().await.len();
        let mut stream = client.listen().await;
        assert!(client.call_with("up__grow", "{}").await.is_result());
        assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("/tools/list_changed"));
        assert_eq!(client.names().await.len(), before + 1, "{server:?}");
        app.stop().await;
    }
}
