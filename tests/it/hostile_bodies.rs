//! What a server may do to hurt in the one JSON body of an answer, where elsewhere more than one message fits
//! [LIM-1, LIM-6, TRN-10, R38].

use crate::support::{Framing, Siege, Step};

/// A bound of memory for small answers, in MiB.
const LITTLE: u64 = 72;

/// An answer to something that was never asked, answers that come twice, and floods before the answer: in one body each is one
/// failure or the one answer, and nothing of it reaches another call.
#[tokio::test]
async fn a_body_of_many_messages_is_one_answer() {
    let siege = Siege::begin(&[Framing::Json], "").await;
    let result = |id: &str, text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let notification = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}},"#)
    };
    for bad in &siege.bad {
        for id in ["1000000", "\"x\"", "-1", "1.5", "null", r#"{"id":@ID@}"#, "[@ID@]", "\"@ID@\""] {
            bad.meets("stray", vec![Step::say(bad.framing.begin()), Step::Say(result(id, "stray"))]);
            let answer = siege.call(bad, "stray").await;
            assert!(!answer.is_result() && !answer.text().contains("stray"), "{} {id}: {answer:?}", bad.name);
            bad.meets(
                "both",
                vec![Step::say(bad.framing.begin()), Step::Say(format!("[{},@GOOD@]", result(id, "stray")))],
            );
            let answer = siege.call(bad, "both").await;
            assert!(!answer.text().contains("stray"), "{} {id}: {answer:?}", bad.name);
            siege.recovers(bad).await;
        }
        for (how, body) in [
            ("twice", format!("@GOOD@{}", result("@ID@", "second"))),
            ("twice in lines", format!("@GOOD@\n{}\n", result("@ID@", "second"))),
            ("twice in a list", format!("[@GOOD@,{}]", result("@ID@", "second"))),
        ] {
            bad.meets(how, vec![Step::say(bad.framing.begin()), Step::Say(body)]);
            let answer = siege.call(bad, how).await;
            assert!(!answer.text().contains("second"), "{} {how}: {answer:?}", bad.name);
            siege.recovers(bad).await;
        }
        for (how, text) in [
            ("progress", notification("progress", r#""progressToken":@TOKEN@,"progress":@N@"#)),
            ("log", notification("message", r#""level":"info","data":"@N@""#)),
            ("changes", notification("tools/list_changed", "")),
        ] {
            let flood = Step::Number(text, 20_000);
            bad.meets(how, vec![Step::say(bad.framing.begin()), Step::say("["), flood, Step::say("@GOOD@]")]);
            // More than a batch may have: it fails, or its answer is found; either is one.
            siege.call(bad, how).await;
            siege.recovers(bad).await;
        }
    }
    siege.end(LITTLE).await;
}
