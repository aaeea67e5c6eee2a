//! Rates and calls at once through a gateway that is a process of its own [LIM-5].

use std::fs;
use std::pin::pin;

use futures_util::future::{Either, select};

use serde_json::json;

use crate::support::quiz::{ABLE, Quiz, form, willing};
use crate::support::{Answer, Client, ERAS, Era, Gateway, Speaks, TestApp, Upstream, folder, until, within_deadline};

fn text(upstream: &Upstream, limits: &str, more: &str) -> String {
    text_of(upstream.lines(), limits, more)
}

/// The configuration of a server by its lines.
fn text_of(server: String, limits: &str, more: &str) -> String {
    let (tables, names) = TestApp::servers(&[("up", server)]);
    let principals: String = ["ann", "bob"]
        .map(|name| format!("[principals.{name}]\nmcp_bundles = [\"all\"]\npolicy = \"p\"\n{}", TestApp::key(name)))
        .concat();
    format!(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n{tables}[mcp_bundles.all]\nservers = \
         [{names}]\n{principals}[policies.p]\n{more}{limits}"
    )
}

async fn start(text: &str) -> Gateway {
    let folder = folder();
    fs::write(folder.join("portcullis.toml"), text).unwrap();
    Gateway::try_start_at(&[], folder).await.unwrap_or_else(|ended| panic!("{ended:?}"))
}

fn refusal(answer: &Answer) -> (String, String) {
    assert_eq!((answer.status, answer.raw("result.isError").as_str()), (200, "true"), "{answer:?}");
    let meta = answer.raw("result._meta");
    let refusal = crate::support::raw(&meta, "portcullis/refusal").unwrap();
    (crate::support::raw(&refusal, "code").unwrap(), crate::support::raw(&refusal, "reason").unwrap())
}

/// [LIM-5, POL-11]: over a tool's rate a call never reaches its server and says so; another principal's goes on; a reload
/// that leaves the rate as it is keeps what was used of it, and one that takes it out ends it [CFG-4].
#[tokio::test]
async fn a_rate_holds_across_a_reload() {
    let upstream = Upstream::start(Speaks::Both, false, &["echo", "other"]).await;
    let rate = "[limits.rates]\ntool = \"2/h\"\n";
    let mut gateway = start(&text(&upstream, rate, "")).await;
    for era in ERAS {
        let key = if era == Era::Legacy { "ann" } else { "bob" };
        let client = Client::connect(era, gateway.addr, "/mcp", Some(key)).await;
        let before = upstream.calls().len();
        for _ in 0..2 {
            assert!(client.call_with("up__echo", "{}").await.is_result());
        }
        let refused = client.call_with("up__echo", "{}").await;
        assert_eq!(refusal(&refused), ("\"P308\"".to_owned(), "\"rate_limited\"".to_owned()));
        assert!(refused.raw("result.content").contains("at most 2/h"), "{refused:?}");
        assert_eq!(upstream.calls().len(), before + 2);
        assert_eq!(client.call_with("up__other", "{}").await.raw("result.isError"), "false");
    }
    for (limits, passes) in [(rate, false), ("", true)] {
        let more = if passes { "" } else { "excluded_tools = [\"up__other\"]\n" };
        fs::write(gateway.folder().join("new"), text(&upstream, limits, more)).unwrap();
        fs::rename(gateway.folder().join("new"), gateway.folder().join("portcullis.toml")).unwrap();
        gateway.hang_up();
        gateway.says("the new configuration is in force").await;
        let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", Some("bob")).await;
        assert_eq!(client.call_with("up__echo", "{}").await.raw("result.isError") == "false", passes);
    }
}

/// [LIM-5]: a principal over its rate is refused with 429, whatever it asks, and another is not.
#[tokio::test]
async fn a_principal_over_its_rate_gets_429() {
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let gateway = start(&text(&upstream, "", "rate = \"3/h\"\n")).await;
    let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", Some("ann")).await;
    for _ in 0..3 {
        assert!(client.call_with("up__echo", "{}").await.is_result());
    }
    let answer = client.call_with("up__echo", "{}").await;
    assert_eq!((answer.status, answer.raw("error.code")), (429, "-31001".to_owned()));
    assert_eq!(upstream.calls().len(), 3);
    let other = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("bob")).await;
    assert!(other.call_with("up__echo", "{}").await.is_result());
}

/// [LIM-5]: over its rate a principal may still end what it has under way: a cancel passes, in a session of its own, and nothing
/// else does.
#[tokio::test]
async fn a_cancel_passes_over_the_rate() {
    let upstream = Upstream::start(Speaks::Legacy, false, &["echo", "hold"]).await;
    let gateway = start(&text(&upstream, "", "rate = \"3/h\"\n")).await;
    // The handshake takes two.
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    let held = client.asks("\"h\"", "up__hold", r#""arguments":{}"#).await;
    until("the call is there", || upstream.calls().len() == 1).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}"#;
    let large = cancel.replace("\"h\"", &format!("\"h\",\"reason\":\"{}\"", "x".repeat(1 << 20)));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let other = cancel.replace("cancelled", "initialized");
    for (what, body) in [("a call", ping), ("another message", &*other), ("too large", &large), ("no JSON", "{")] {
        let refused = client.post(&[], body).await;
        assert_eq!((refused.status, refused.raw("error.code")), (429, "-31001".to_owned()), "{what}");
    }
    // In a session of nobody, and in none.
    let nowhere = Client::connect(Era::Stateless, gateway.addr, "/mcp", Some("ann")).await;
    assert_eq!(nowhere.post(&[], cancel).await.status, 429);
    assert_eq!(nowhere.post(&[("Mcp-Session-Id", "0".repeat(32))], cancel).await.status, 429);
    assert_eq!(upstream.asked("notifications/cancelled").len(), 0);
    assert_eq!(client.post(&[], cancel).await.status, 202);
    until("its server hears of it", || upstream.asked("notifications/cancelled").len() == 1).await;
    drop(held);
}

/// [LIM-5, TRN-10]: neither does a call wait for a person whose answer is over the rate, over both transports.
#[tokio::test]
async fn an_answer_passes_over_the_rate() {
    // The handshake takes two of it, and opening a stream of one's own another.
    for (path, rate) in [("/mcp", "3/h"), ("/sse", "4/h")] {
        let quiz = Quiz::start(Era::Legacy, false).await;
        let text = text_of(quiz.lines(), "", &format!("rate = \"{rate}\"\n"));
        let gateway = start(&text.replace("[listen]\n", "[listen]\nhttp_sse = true\n")).await;
        let client = Client::able(Era::Legacy, gateway.addr, path, Some("ann"), ABLE).await;
        let rounds = json!([[form("?")], [form("?")]]);
        let told = within_deadline(path, client.quiz("up__quiz", rounds, willing)).await;
        let (asked, action) = (told.asked.len(), told.answers()[1][0]["action"].as_str());
        assert_eq!((asked, action), (2, Some("accept")), "{path}: {told:?}");
        // Nothing else does.
        let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
        assert_eq!(client.post(&[], ping).await.status, 429, "{path}");
    }
}

/// [LIM-5]: one call at a time at a server; the next waits, one more is refused, and a place comes back when its client is
/// gone.
#[tokio::test]
async fn calls_at_once_are_bounded() {
    let upstream = Upstream::start(Speaks::Both, false, &["echo", "hold"]).await;
    let limits = "max_queued_calls = 1\n[limits.concurrency]\nserver = 1\n";
    let gateway = start(&text(&upstream, limits, "")).await;
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
        let before = upstream.calls().len();
        let holds = client.call("\"h\"", "up__hold", "", "");
        let others = async {
            until("the first call is there", || upstream.calls().len() == before + 1).await;
            // Of two more one waits and one is refused; which, they settle among themselves.
            let (second, third) =
                (pin!(client.call("\"2\"", "up__echo", "", "")), pin!(client.call("\"3\"", "up__echo", "", "")));
            let (refused, waits) = match select(second, third).await {
                Either::Left(both) | Either::Right(both) => both,
            };
            assert_eq!(refusal(&refused).1, "\"too_many_calls\"");
            assert_eq!(upstream.calls().len(), before + 1, "nothing else reaches the server meanwhile");
            upstream.release();
            waits.await
        };
        let (held, waited) =
            within_deadline("the calls", async { futures_util::future::join(holds, others).await }).await;
        assert_eq!((held.raw("result.isError"), waited.raw("result.isError")), ("false".into(), "false".into()));
    }
}
