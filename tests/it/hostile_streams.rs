//! What a server may do to hurt on a stream that belongs to no one call: the one of an HTTP+SSE session, on which all
//! answers come, and those on which a server of Streamable HTTP says what it says beside its calls; and what it may say on a
//! pipe when nobody asks [LIM-1, LIM-4, LIM-6, TRN-7, TRN-10].

use futures_util::future::{join, join_all};

use crate::hostile::{ALL, LITTLE, SMALL, fails_by_the_cap, filler, notification, then_good};
use crate::support::{Framing, Hostile, Siege, Step, raw, until};

/// What a debug build may hold before a hundred servers, in MiB.
const MANY: u64 = 128;

/// [TRN-7, FC-TMO-03] A stream that requests share dies at every byte of an answer: each of them has one answer, which names
/// the server, and none is asked again.
#[tokio::test]
async fn death_at_every_byte_of_a_shared_stream_is_one_answer_to_each() {
    let good = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    let whole = Framing::Events.message(good).len();
    // The last two have all of it.
    let siege = Siege::of_streams(whole + 2, "").await;
    for (place, bad) in siege.bad.iter().enumerate() {
        bad.meets("silent", Vec::new());
        bad.meets("cut", vec![Step::Cut(place)]);
        let calls = bad.calls();
        let dying = async {
            until("the other call", || bad.calls() > calls).await;
            siege.call(bad, "cut").await
        };
        let (silent, cut) = join(siege.call(bad, "silent"), dying).await;
        assert_eq!(cut.is_result(), place >= whole, "at {place}: {cut:?}");
        for answer in [Some(silent), Some(cut).filter(|_| place < whole)].into_iter().flatten() {
            let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("at {place}: {answer:?}"));
            assert!(words.contains(&bad.name) && words.contains("event stream"), "at {place}: {words}");
        }
        assert_eq!(bad.calls(), calls + 2, "at {place}: it was asked again");
    }
    siege.end(MANY).await;
}

/// [FC-TMO-03] The same of what a message's POST is answered with: its call fails, alone and once, and its session goes on.
#[tokio::test]
async fn death_at_every_byte_of_a_posts_answer_is_its_own_calls() {
    let siege = Siege::begin(&[Framing::Events], "").await;
    let taken = "HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\nfine";
    for bad in &siege.bad {
        let mut calls = bad.calls();
        for place in 0..taken.len() {
            bad.responds("cut", vec![Step::say(taken.get(..place).unwrap())]);
            let answer = siege.call(bad, "cut").await;
            calls += 1;
            assert_eq!(bad.calls(), calls, "at {place}: it was asked again");
            let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("at {place}: {answer:?}"));
            assert!(words.contains(&bad.name), "at {place}: {words}");
            // On the same session, and at once: nothing was lost with it.
            assert!(siege.call(bad, "nothing").await.is_result(), "at {place}");
            calls += 1;
        }
    }
    siege.end(LITTLE).await;
}

/// [LIM-1] What a message's POST is answered with is bounded like an answer, also where the answer itself has come meanwhile.
#[tokio::test]
async fn an_endless_answer_to_a_post_ends_at_the_cap() {
    let siege = Siege::begin(&[Framing::Events], SMALL).await;
    let endless = |start: &str| vec![Step::Say(format!("{}{start}", Framing::Json.begin())), Step::Forever(filler())];
    for bad in &siege.bad {
        for (how, start) in [("named", r#"{"jsonrpc":"2.0","id":@ID@,"result":{"x":""#), ("unnamed", "")] {
            bad.responds(how, endless(start));
            fails_by_the_cap(&siege.call(bad, how).await, bad);
            // The answer comes on the stream, whatever the POST is answered with.
            bad.meets(how, vec![Step::Say(bad.framing.message("@GOOD@"))]);
            siege.call(bad, how).await;
            assert!(siege.call(bad, "nothing").await.is_result(), "{how}");
        }
        // A stream of its own is none that was asked for.
        bad.responds("a stream", vec![Step::say(Framing::Sse.begin()), Step::Forever(": x\n".to_owned())]);
        assert!(!siege.call(bad, "a stream").await.is_result());
    }
    siege.end(LITTLE).await;
}

/// [LIM-1, LIM-4, TRN-7] A stream of HTTP+SSE that does not begin as one should: the call that opens it is told in time, within
/// the same bounds, and the next one is served once the server is well again.
#[tokio::test]
async fn a_stream_that_does_not_begin_ends_at_its_bounds() {
    let begin = Framing::Sse.begin();
    let forever = |start: &str, text: &str| vec![Step::say(start), Step::Forever(text.to_owned())];
    let event = |data: &str| vec![Step::Say(format!("{begin}event: endpoint\ndata: {data}\n\n")), Step::Hold];
    let zipped = begin.replace("Connection: close", "Content-Encoding: gzip\r\nConnection: close");
    let ways = [
        ("no head", vec![Step::Hold]),
        ("fields", forever("HTTP/1.1 200 OK\r\n", "X-Field: y\r\n")),
        ("a reason", forever("HTTP/1.1 200 ", &filler())),
        ("continues", forever("", "HTTP/1.1 100 Continue\r\n\r\n")),
        ("compressed", forever(&zipped, "\u{1}\u{2}\u{3}")),
        ("a body that is no stream", forever(Framing::Json.begin(), &filler())),
        ("nothing", vec![Step::say(begin), Step::Hold]),
        ("comments", forever(begin, &format!(": {}\n", filler()))),
        ("small comments", forever(begin, ":\n\n")),
        ("ids", forever(begin, "id: 1\n\n")),
        ("another event", forever(begin, "data: {}\n\n")),
        ("an endpoint without an end", forever(&format!("{begin}event: endpoint\ndata: "), &filler())),
        ("a long endpoint", event(&format!("/{}", "x".repeat(1 << 20)))),
        ("a foreign endpoint", event("http://127.0.0.2:9/say")),
        ("no endpoint", event("http://[")),
        ("an endpoint that nobody serves", event("/nobody")),
        ("endpoints", forever(begin, "event: endpoint\ndata: /nobody\n\n")),
        ("it ends", vec![Step::say(begin)]),
        ("slow", vec![Step::Slow(format!("{begin}event: endpoint\ndata: /say?s=1\n\n"), 500)]),
    ];
    let siege = Siege::of_streams(ways.len(), &format!("{SMALL}start_timeout_secs = 2\n")).await;
    let meets = async |bad: &Hostile, how: &str, steps: &[Step]| {
        let before = bad.streamed();
        bad.streams(Some(steps.to_vec()));
        let answer = siege.call(bad, "nothing").await;
        let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("{how}: {answer:?}"));
        assert!(words.contains(&bad.name), "{how}: {words}");
        until(&format!("{how} is over"), || bad.streamed() > before).await;
        bad.streams(None);
        siege.recovers(bad).await;
    };
    join_all(ways.iter().zip(&siege.bad).map(|((how, steps), bad)| meets(bad, how, steps))).await;
    siege.end(LITTLE + 32).await;
}

/// What a server may say beside its calls, and whether it can go on after it. A message that is too long, and what has no end,
/// stand apart.
fn beside(framing: Framing) -> Vec<(&'static str, Vec<Step>)> {
    let flood = |text: &str, count: usize| vec![Step::Number(framing.message(text), count)];
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let question =
        r#"{"jsonrpc":"2.0","id":"q@N@","method":"sampling/createMessage","params":{"messages":[],"maxTokens":9}}"#;
    let stray = r#"{"jsonrpc":"2.0","id":100000@N@,"result":{"content":[{"type":"text","text":"stray"}]}}"#;
    vec![
        ("log", flood(&notification("message", r#""level":"info","data":"@N@""#), 20_000)),
        ("progress", flood(&notification("progress", r#""progressToken":@N@,"progress":@N@"#), 20_000)),
        ("changes", flood(&notification("tools/list_changed", ""), 20_000)),
        ("updates", flood(&notification("resources/updated", r#""uri":"a:@N@""#), 20_000)),
        ("withdrawals", flood(&notification("cancelled", r#""requestId":"q@N@""#), 20_000)),
        ("unknown", flood(&notification("nonsense/@N@", r#""@N@":@N@"#), 20_000)),
        ("answers", flood(stray, 20_000)),
        ("questions", flood(question, 2_000)),
        ("pings", flood(r#"{"jsonrpc":"2.0","id":"p@N@","method":"ping"}"#, 2_000)),
        ("depth", flood(&notification("message", &format!(r#""level":"info","data":{deep}"#)), 3)),
        ("long", flood(&notification("message", &format!(r#""level":"info","data":"{}""#, "x".repeat(300_000))), 3)),
        ("noise", vec![Step::Number("\u{0}noise\n".to_owned(), 20_000)]),
    ]
}

/// [LIM-1, LIM-6, POL-10] What a server says beside its calls, in any amount, hurts no call: not on a pipe or the stream of an
/// HTTP+SSE session behind an answer, nor on the stream of its own that Streamable HTTP has for it.
#[tokio::test]
async fn what_is_said_beside_calls_is_bounded() {
    let siege = Siege::begin(&ALL, SMALL).await;
    join_all(siege.bad.iter().map(|bad| async {
        // The streams of Streamable HTTP are event streams, whatever its answers are.
        let framing = if bad.framing == Framing::Json { Framing::Sse } else { bad.framing };
        for (how, steps) in beside(framing) {
            if bad.framing.is_shared() {
                bad.meets(how, [then_good(framing, Vec::new()), steps].concat());
                assert!(siege.call(bad, how).await.is_result(), "{} {how}", bad.name);
                // It is read in order: all of that has been borne before this one's answer.
                let next = siege.call(bad, "nothing").await;
                assert!(next.is_result() && !next.text().contains("stray"), "{} {how}: {next:?}", bad.name);
            } else {
                streams(&siege, bad, how, vec![Step::say(framing.begin())], steps).await;
            }
        }
        let endless = vec![Step::say(framing.around().0), Step::Forever(filler())];
        if bad.framing.is_shared() {
            bad.meets("endless", [then_good(framing, Vec::new()), endless].concat());
            siege.call(bad, "endless").await;
        } else {
            let zipped = framing.begin().replace("Connection: close", "Content-Encoding: gzip\r\nConnection: close");
            let fields = Step::Forever("X-Field: y\r\n".to_owned());
            for (how, begin, steps) in [
                ("endless", framing.begin(), endless),
                ("comments", framing.begin(), vec![Step::Forever(format!(": {}", filler()))]),
                ("no stream", Framing::Json.begin(), vec![Step::Forever(filler())]),
                ("compressed", &zipped, vec![Step::Forever("\u{1}\u{2}\u{3}".to_owned())]),
                ("fields", "HTTP/1.1 200 OK\r\n", vec![fields]),
            ] {
                streams(&siege, bad, how, vec![Step::say(begin)], steps).await;
            }
            bad.streams(None);
        }
        siege.recovers(bad).await;
    }))
    .await;
    siege.end(LITTLE + 32).await;
}

/// Has the stream beside the calls meet something to its end, while calls go on.
async fn streams(siege: &Siege, bad: &Hostile, how: &str, begin: Vec<Step>, steps: Vec<Step>) {
    let before = bad.streamed();
    bad.streams(Some([begin, steps].concat()));
    assert!(siege.call(bad, "nothing").await.is_result(), "{} {how}", bad.name);
    until(&format!("{how} on a stream of {} is over", bad.name), || bad.streamed() > before).await;
    assert!(siege.call(bad, "nothing").await.is_result(), "{} {how}", bad.name);
}
