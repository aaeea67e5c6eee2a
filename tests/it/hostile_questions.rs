//! Servers that ask too much: too many questions, or too large ones, in every mixture [LIM-6, TRN-10, R100].

use serde_json::json;

use crate::support::quiz::{ABLE, Quiz, form, sampling, willing};
use crate::support::{Client, ERAS, Era, Framing, Siege, Step, TestApp, raw, until, within_deadline};

/// What the questions of one call may have together, in bytes.
const MOST: usize = 4 << 20;

/// A large question: what its server is told says how much it may ask; those for which there is room are answered, and so is
/// what comes after.
#[tokio::test(flavor = "multi_thread")]
async fn questions_over_their_bound_are_refused_with_words() {
    let large = |mib: usize| sampling(&"x".repeat(mib << 20));
    for (client, server, stdio) in crate::questions::mixtures() {
        let context = format!("client {client:?}, server {server:?}, stdio {stdio}");
        let quiz = Quiz::start(server, stdio).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = Client::able(client, app.addr, "/mcp", None, ABLE).await;
        let rounds = json!([[large(5), form("?")]]);
        let told = within_deadline(&context, client.quiz("up__quiz", rounds, willing)).await;
        if server == Era::Legacy {
            let (refused, words) = (
                &told.answers()[0][0],
                "Too large: questions that are not answered yet may have 4194304 bytes together",
            );
            assert_eq!(
                (told.asked.len(), &refused["code"], &refused["message"]),
                (1, &json!(-32603), &json!(words)),
                "{context}"
            );
            assert_eq!(told.answers()[0][1]["action"], "accept", "{context}");
        } else {
            let error = &told.answer["error"];
            assert_eq!((told.asked.len(), error["code"].as_i64()), (0, Some(-32603)), "{context}");
            let words = error["message"].as_str().unwrap();
            assert!(words.contains("'up' asks for too much") && words.contains("4194304 bytes"), "{context}: {words}");
        }
        let told = within_deadline(&context, client.quiz("up__quiz", json!([[large(3), form("?")]]), willing)).await;
        assert_eq!((told.asked.len(), told.answers()[0][0]["model"].as_str()), (2, Some("m")), "{context}");
        app.stop().await;
    }
}

/// Floods of questions, small, large and larger than any may be: what a client is asked stays within the bound, the rest is
/// refused, and the call is answered.
#[tokio::test]
async fn floods_of_questions_are_bounded() {
    // A process or a session of such a client's own goes when it is not used.
    let own = "idle_stop_secs = 5\n";
    for (framing, lines) in [(Framing::Line, own), (Framing::Sse, ""), (Framing::Events, own)] {
        let siege = Siege::begin(&[framing], lines).await;
        flood(&siege).await;
        siege.end(180).await;
    }
}

async fn flood(siege: &Siege) {
    for client_era in ERAS {
        let client = Client::able(client_era, siege.gateway.addr, "/mcp", None, ABLE).await;
        for (how, bytes, count) in [("small", 1, 2_000), ("large", 1 << 20, 16), ("huge", 6 << 20, 4)] {
            let question = format!(
                r#"{{"jsonrpc":"2.0","id":"q@N@","method":"sampling/createMessage","params":{{"messages":[],"maxTokens":9,"x":"{}"}}}}"#,
                "x".repeat(bytes)
            );
            for bad in siege.bad.iter().filter(|bad| bad.era == Era::Legacy) {
                let before = bad.told().len();
                let begin = Step::say(bad.framing.begin());
                let flood = Step::Number(bad.framing.message(&question), count);
                bad.meets(how, vec![begin, flood, Step::Say(bad.framing.message("@GOOD@"))]);
                let answer = siege.calls_as(&client, bad, how, "").await;
                let context = format!("{client_era:?} {} {how}", bad.name);
                let asked: usize =
                    answer.messages.iter().map(|text| text.matches("sampling/createMessage").count()).sum();
                assert!(asked <= 64 && asked * bytes <= MOST, "{context}: {asked} questions");
                // A client that is asked by its answer has not heard of what comes after.
                let asks = raw(answer.text(), "result.resultType").as_deref() == Some("\"input_required\"");
                assert!(answer.is_result(), "{context}: {:.500}", answer.text());
                assert_eq!(asks, client_era == Era::Stateless && asked > 0, "{context}: {:.500}", answer.text());
                // What was not asked was refused, and what nobody answers is in the end.
                if bad.framing == Framing::Sse {
                    until(&format!("{context}: refusals"), || bad.told().len() > before).await;
                    assert!(bad.told()[before..].iter().all(|told| told.contains("\"error\"")), "{context}");
                }
            }
            // The newer era asks by its answer.
            let many: Vec<String> = (0..count.min(200))
                .map(|at| {
                    format!(r#""q{at}":{{"method":"sampling/createMessage","params":{{"x":"{}"}}}}"#, "x".repeat(bytes))
                })
                .take((12 << 20) / bytes)
                .collect();
            let asks = format!(
                r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"resultType":"input_required","inputRequests":{{{}}}}}}}"#,
                many.join(",")
            );
            for bad in siege.bad.iter().filter(|bad| bad.era == Era::Stateless) {
                bad.meets(how, vec![Step::say(bad.framing.begin()), Step::Say(bad.framing.message(&asks))]);
                let answer = siege.calls_as(&client, bad, how, "").await;
                let words = raw(answer.text(), "error.message").unwrap_or_default();
                assert!(words.contains("asks for too much at once"), "{} {how}: {:.500}", bad.name, answer.text());
            }
        }
        if client_era == Era::Legacy {
            client.leave().await;
        }
    }
}
