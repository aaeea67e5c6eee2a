//! Servers that never stop sending: they are cut off at the cap, and nobody else notices [LIM-1, TRN-7].

use crate::support::{Child, Client, ERAS, Era, Gateway, Speaks, Upstream, peak_memory_kib, within_deadline};

const CAP: u64 = 1 << 20;
/// What may come on top of the cap: the peak of one more connection, its buffers, and a debug build's stacks.
const SLACK_KIB: u64 = 6 << 10;

async fn cut_off(lines: String, context: &str) {
    let good = Upstream::start(Speaks::Both, false, &["echo", "hold"]).await;
    let lines = format!("{lines}\nmax_response_bytes = {CAP}");
    let gateway = Gateway::start(&[("bad", lines), ("good", good.lines())]).await;
    let mut clients = Vec::new();
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", None).await;
        // Every path is warm before memory is looked at.
        for name in ["bad__echo", "good__echo"] {
            let answer = client.call_with(name, "{}").await;
            assert!(answer.is_result(), "{context}: {answer:?}");
        }
        clients.push(client);
    }
    for client in &clients {
        let before = peak_memory_kib(gateway.pid());
        let held = client.call("\"held\"", "good__hold", "", "");
        let bad = async {
            let answer = client.call_with("bad__endless", "{}").await;
            // The call that was under way before goes on after.
            let other = client.call_with("good__echo", r#"{"k":1}"#).await;
            good.release();
            (answer, other)
        };
        let (held, (answer, other)) =
            within_deadline("the cap", async { futures_util::future::join(held, bad).await }).await;
        let context = format!("{context}, {:?}: {answer:?}", client.era);
        assert!(held.is_result() && other.is_result(), "{context}");
        assert_eq!(answer.status, 200, "{context}");
        let words = answer.raw("error.message");
        for part in ["'bad'", &CAP.to_string(), "max_response_bytes"] {
            assert!(words.contains(part), "{context}: no {part}");
        }
        assert!(!words.contains("127.0.0.1"), "{context}");
        let grown = peak_memory_kib(gateway.pid()) - before;
        assert!(grown <= CAP / 1024 + SLACK_KIB, "{context}: grew by {grown} KiB");
    }
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0), "{context}");
}

/// [LIM-1]
#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let bad = Upstream::start(Speaks::Both, false, &["echo", "endless"]).await;
    cut_off(bad.lines(), "body").await;
}

/// [LIM-1]
#[tokio::test]
async fn an_endless_event_is_cut_off() {
    let bad = Upstream::start(Speaks::Both, true, &["echo", "endless"]).await;
    cut_off(bad.lines(), "event").await;
}

/// [LIM-1, FC-STD-08]
#[tokio::test]
async fn an_endless_line_is_cut_off() {
    for era in [Era::Legacy, Era::Stateless] {
        let bad = Child::new(era, &["echo", "endless"]);
        cut_off(bad.lines(), &format!("line, {era:?}")).await;
    }
}
