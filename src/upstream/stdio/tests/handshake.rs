//! Which era a child speaks.

use std::sync::Arc;
use std::time::Duration;

use super::kit::{ask, call, connector, done, ended, open, python, refused, reply, script, text_of, within};
use crate::exchange::Answer;
use crate::runtime::Tasks;
use crate::upstream::link::{Connector as _, StartError, Want};
use crate::upstream::{EraChoice, ServerSettings};
use crate::wire::mcp::{Era, Kind, Kinds};

fn auto(body: &str) -> ServerSettings {
    let mut settings = script(body);
    settings.era = EraChoice::Auto;
    settings
}

const STATELESS: &str = r#"
request = read()
assert request["method"] == "server/discover" and "_meta" in request["params"]
modern(request)
"#;

/// [protocol §2.8] [R68]
#[tokio::test]
async fn a_stateless_server_is_found_and_listened_to() {
    if !python() {
        return;
    }
    let body = format!(
        r#"{STATELESS}
listen = read()
assert listen["method"] == "subscriptions/listen" and listen["params"]["notifications"] == dict(toolsListChanged=True)
send(dict(id="x", method="ping"))
send(dict(method="notifications/tools/list_changed", params=dict(_meta={{"io.modelcontextprotocol/subscriptionId": listen["id"]}})))
request = read()
answer(request, json.dumps(sorted(request["params"]["_meta"])))
read()
"#
    );
    let (started, tasks) = open(auto(&body)).await;
    assert_eq!(started.link.era(), Era::Stateless);
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    let mut changes = started.link.changes();
    Arc::clone(&started.link).watch(Kinds::NONE.with(Kind::Tools));
    within(changes.wait_for(|count| count.of(Kind::Tools) == 1)).await.unwrap();
    // The ping was not answered: the next line the child reads is the call.
    let outcome = done(reply(&started.link, call("1", None)).await);
    assert!(matches!(&outcome, Ok(Answer::Upstream { era: Era::Stateless, .. })));
    assert!(text_of(outcome).contains("io.modelcontextprotocol/protocolVersion"));
    ended(&started.link, &tasks).await;
}

/// [R55]: any error, an answer without the revision, and silence lead to `initialize` on the same child.
#[tokio::test]
async fn a_probe_falls_back_on_the_same_child() {
    if !python() {
        return;
    }
    for refusal in [
        "error(probe, -32601)",
        "error(probe, 1)",
        "error(probe, -32022, data=dict(supported=['2099-01-01']))",
        "send(dict(id=probe['id'], result=dict(supportedVersions=['2025-11-25'])))",
        "late = True",
    ] {
        let mut settings = auto(&format!(
            r#"
late = False
probe = read()
{refusal}
request = read()
assert request["method"] == "initialize", request
if late: modern(probe)
accept(request, version="2024-11-05")
answer(read(), "ok")
read()
"#
        ));
        if refusal == "late = True" {
            settings.probe_timeout = Duration::from_millis(50);
        }
        let (started, _tasks) = open(settings).await;
        assert_eq!(started.link.era(), Era::Legacy, "{refusal}");
        assert_eq!(ask(&started.link, "0").await, "ok", "{refusal}");
    }
}

/// A stateless server that was slow to start refuses the `initialize` that came after the silence [R55].
#[tokio::test]
async fn a_slow_stateless_server_is_not_taken_for_legacy() {
    if !python() {
        return;
    }
    let mut settings = auto(
        r#"
probe, request = read(), read()
modern(probe); error(request, -32601)
answer(read(), "ok")
read()
"#,
    );
    settings.probe_timeout = Duration::from_millis(50);
    let (started, _tasks) = open(settings).await;
    assert_eq!(started.link.era(), Era::Stateless);
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// A child that ends at the probe is started once more, with `initialize` first.
#[tokio::test]
async fn a_child_that_ends_at_the_probe_is_started_again() {
    if !python() {
        return;
    }
    let body = r#"
request = read()
if request["method"] != "initialize": sys.exit(1)
accept(request)
answer(read(), "ok")
read()
"#;
    let (started, _tasks) = open(auto(body)).await;
    assert_eq!(started.link.era(), Era::Legacy);
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// [R56]
#[tokio::test]
async fn the_wanted_era_is_kept_to() {
    if !python() {
        return;
    }
    let stateless = || Want::of(Era::Stateless);
    let tasks = Tasks::new();
    let open = |settings, want| within(connector(settings, &tasks).open(want));
    let legacy = open(auto("error(read(), -32601); read()"), stateless()).await;
    assert!(matches!(legacy, Err(StartError::Era(Era::Stateless, _))));
    let started = open(auto(&format!("{STATELESS}\nread()")), stateless()).await.unwrap();
    assert_eq!(started.link.era(), Era::Stateless);
    let modern = open(auto("error(read(), -32022); read()"), Want::of(Era::Legacy)).await;
    assert!(matches!(modern, Err(StartError::Era(Era::Legacy, _))));
    let started = open(auto("init(); read()"), Want::of(Era::Legacy)).await.unwrap();
    assert_eq!(started.link.era(), Era::Legacy);
    let mut configured = auto("error(read(), -32601); read()");
    configured.era = EraChoice::Stateless;
    let started = open(configured, Want::any()).await.unwrap();
    assert_eq!(started.link.era(), Era::Stateless);
    assert!(matches!(open(script(""), stateless()).await, Err(StartError::Era(Era::Stateless, _))));
}

#[tokio::test]
async fn an_unknown_version_is_named() {
    if !python() {
        return;
    }
    let words = refused(script("init(version='1999-01-01')"), Want::any()).await;
    assert_eq!(words, "server 'srv' answers initialize with the unknown protocol version '1999-01-01'");
}

#[tokio::test]
async fn a_start_has_a_limit_and_tells_the_last_output() {
    if !python() {
        return;
    }
    let mut settings = script("read(); sys.stderr.write('still busy\\n'); sys.stderr.flush(); signal.pause()");
    settings.start_timeout = Duration::from_millis(1500);
    let words = refused(settings, Want::any()).await;
    assert_eq!(words, "server 'srv' did not start within 1.5 s; last output: still busy");
}
