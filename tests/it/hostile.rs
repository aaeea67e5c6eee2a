//! What an upstream may do to hurt, over every transport: one test for each way [LIM-1, LIM-4, LIM-6, TRN-3, TRN-7].
//!
//! In each, by `Siege`: the gateway, a process, stays up and under a bound of memory; another server's calls keep working
//! meanwhile; every call gets exactly one answer; processes and descriptors return to what they were.

use futures_util::future::join_all;
use portcullis::runtime::Tasks;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{
    Answer, Client, ERAS, Era, Framing, Gateway, Hostile, Siege, Speaks, Step, Upstream, lives, peak_memory_kib, raw,
    until, within_deadline,
};

pub(crate) const ALL: [Framing; 4] = [Framing::Line, Framing::Json, Framing::Sse, Framing::Events];
/// Those on which more than an answer may come.
const TALKATIVE: [Framing; 3] = [Framing::Line, Framing::Sse, Framing::Events];
/// A small cap, so that what is not bounded by it is seen.
pub(crate) const SMALL: &str = "max_response_bytes = 262144\n";
/// What a debug build of the gateway may hold in a siege with the small cap, in MiB.
pub(crate) const LITTLE: u64 = 72;
/// What it may hold while answers of 14 MB go through it.
const LARGE: u64 = 160;

/// Text that would be a part of an answer's result.
pub(crate) fn filler() -> String {
    "x".repeat(4096)
}

#[track_caller]
pub(crate) fn fails_by_the_cap(answer: &Answer, bad: &Hostile) {
    let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("{}: {:.500?}", bad.name, answer.text()));
    assert!(words.contains("max_response_bytes") && words.contains(&bad.name), "{}: {words}", bad.name);
}

/// Sets the same steps, made for each framing, on all servers, and calls each.
async fn each(siege: &Siege, how: &str, steps: impl Fn(Framing) -> Vec<Step>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for bad in &siege.bad {
        bad.meets(how, steps(bad.framing));
        answers.push(siege.call(bad, how).await);
        siege.recovers(bad).await;
    }
    answers
}

/// A notification of a server.
pub(crate) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}}"#)
}

/// The good answer behind other things.
pub(crate) fn then_good(framing: Framing, before: Vec<Step>) -> Vec<Step> {
    let mut steps = vec![Step::say(framing.begin())];
    steps.extend(before);
    steps.push(Step::Say(framing.message("@GOOD@")));
    steps
}

/// [LIM-1] An endless body, event and line, whose id is known, and one that has none.
#[tokio::test]
async fn an_endless_message_ends_at_the_cap() {
    let siege = Siege::begin(&ALL, SMALL).await;
    for (how, start) in [("named", r#"{"jsonrpc":"2.0","id":@ID@,"result":{"x":""#), ("unnamed", r#"{"x":""#)] {
        let answers = each(&siege, how, |framing| {
            let start = format!("{}{}{start}", framing.begin(), framing.around().0);
            vec![Step::Say(start), Step::Forever(filler())]
        });
        for (answer, bad) in answers.await.iter().zip(&siege.bad) {
            fails_by_the_cap(answer, bad);
        }
    }
    siege.end(LITTLE).await;
}

/// [LIM-1] A long message that does end: the call that it is for fails, by the id at its begin or its end, and on a shared
/// channel nothing else.
#[tokio::test]
async fn a_long_message_costs_its_own_call_alone() {
    let siege = Siege::begin(&ALL, SMALL).await;
    let x = "x".repeat(300_000);
    for (how, text) in [
        ("first", format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"x":"{x}"}}}}"#)),
        ("last", format!(r#"{{"jsonrpc":"2.0","result":{{"x":"{x}"}},"id":@ID@}}"#)),
    ] {
        let before = siege.marked();
        let answers = each(&siege, how, |framing| vec![Step::say(framing.begin()), Step::Say(framing.message(&text))]);
        for (answer, bad) in answers.await.iter().zip(&siege.bad) {
            fails_by_the_cap(answer, bad);
        }
        assert_eq!(siege.marked(), before, "a child was started again for a line that ended");
    }
    siege.end(LITTLE).await;
}

/// [LIM-1] A stream of one call is bounded in sum: endless events, each small; and endless nothing: comments, blanks.
#[tokio::test]
async fn an_endless_stream_ends_at_four_times_the_cap() {
    let siege = Siege::begin(&[Framing::Sse], SMALL).await;
    let log = notification("message", &format!(r#""level":"info","data":"{}""#, filler()));
    for (how, text) in [("events", Framing::Sse.message(&log)), ("comments", format!(": {}\n", filler()))] {
        let steps = |framing: Framing| vec![Step::say(framing.begin()), Step::Forever(text.clone())];
        for (answer, bad) in each(&siege, how, steps).await.iter().zip(&siege.bad) {
            fails_by_the_cap(answer, bad);
        }
    }
    siege.end(LITTLE).await;
}

/// [LIM-4] A server that goes on saying nothing: blanks, noise and small messages without an end, and silence. The call ends in
/// its time, or by the cap where the stream is its own.
#[tokio::test]
async fn endless_nothing_ends_in_its_time() {
    let small = notification("message", r#""level":"info","data":"small""#);
    for how in ["blanks", "noise", "messages", "silence"] {
        // A server that never reads again does not recover: each way has servers of its own.
        let siege = Siege::begin(&ALL, &format!("{SMALL}tool_timeout_secs = 2\ntool_max_secs = 2")).await;
        for bad in &siege.bad {
            let step = match how {
                "blanks" => Step::Forever(" \n".to_owned()),
                "noise" => Step::Forever("noise\n".to_owned()),
                "messages" => Step::Forever(bad.framing.message(&small)),
                _ => Step::Hold,
            };
            bad.meets(how, vec![Step::say(bad.framing.begin()), step]);
            let answer = siege.call(bad, how).await;
            assert!(!answer.is_result(), "{} {how}: {answer:?}", bad.name);
        }
        for bad in siege.bad.iter().filter(|bad| !bad.framing.is_shared()) {
            siege.recovers(bad).await;
        }
        siege.end_unrecovered(LITTLE).await;
    }
}

/// [LIM-6, FC-CON-04] Floods of progress, of log and of list changes before the answer: they are dropped or passed on, and the
/// answer comes.
#[tokio::test]
async fn floods_of_notifications_pass() {
    let siege = Siege::begin(&TALKATIVE, "").await;
    for (how, text) in [
        ("progress", notification("progress", r#""progressToken":@TOKEN@,"progress":@N@"#)),
        ("foreign", notification("progress", r#""progressToken":"nobody's @N@","progress":@N@"#)),
        ("log", notification("message", r#""level":"info","data":"@N@""#)),
        ("changes", notification("tools/list_changed", "")),
        ("unknown", notification("nonsense/@N@", r#""@N@":@N@"#)),
    ] {
        let steps = |framing: Framing| then_good(framing, vec![Step::Number(framing.message(&text), 20_000)]);
        for (answer, bad) in each(&siege, how, steps).await.iter().zip(&siege.bad) {
            assert!(answer.is_result(), "{} {how}: {:?}", bad.name, answer.text());
        }
    }
    siege.end(LITTLE + 32).await;
}

/// [TRN-10] Answers to ids that were never asked, of every shape, reach nobody; the call's own answer does.
#[tokio::test]
async fn answers_to_nothing_that_was_asked_reach_nobody() {
    let siege = Siege::begin(&TALKATIVE, "").await;
    for (how, id) in [
        ("numbers", "100000@N@"),
        ("strings", r#""@N@""#),
        ("negative", "-@N@"),
        ("fractions", "1.@N@"),
        ("null", "null"),
        ("objects", r#"{"id":@ID@}"#),
        ("lists", "[@ID@]"),
    ] {
        let stray =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"stray"}}]}}}}"#);
        let steps = |framing: Framing| then_good(framing, vec![Step::Number(framing.message(&stray), 5_000)]);
        for (answer, bad) in each(&siege, how, steps).await.iter().zip(&siege.bad) {
            assert!(!answer.text().contains("stray"), "{} {how}: {:?}", bad.name, answer.text());
            // On a stream of its own a server may be broken off for it; on a shared one the answer still comes.
            assert!(answer.is_result() || bad.framing == Framing::Sse, "{} {how}: {:?}", bad.name, answer.text());
        }
    }
    siege.end(LITTLE).await;
}

/// An answer that comes twice is one: the second reaches neither this call nor the next.
#[tokio::test]
async fn an_answer_that_comes_twice_is_one() {
    let siege = Siege::begin(&TALKATIVE, "").await;
    let second =
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"complete","content":[{"type":"text","text":"second"}]}}"#;
    let error = r#"{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32603,"message":"second"}}"#;
    for turn in 0..8 {
        let steps = |framing: Framing| {
            let mut steps = then_good(framing, Vec::new());
            for text in [second, error, "@GOOD@"] {
                steps.push(Step::Number(framing.message(text), 50));
            }
            steps
        };
        for (answer, bad) in each(&siege, "twice", steps).await.iter().zip(&siege.bad) {
            assert!(answer.is_result() && !answer.text().contains("second"), "{turn} {}: {answer:?}", bad.name);
        }
    }
    siege.end(LITTLE).await;
}

/// [FC-SEC-09] Nesting without an end, in the answer and in what comes before it.
#[tokio::test]
async fn a_depth_bomb_is_refused() {
    let siege = Siege::begin(&ALL, "").await;
    for (how, open, close) in [("lists", "[", "]"), ("objects", r#"{"a":"#, "}")] {
        let depth = 200_000;
        let inner = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let text = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"content":[],"x":{inner}}}}}"#);
        let unclosed = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"x":{}"#, open.repeat(depth));
        for (how, text) in [(how.to_owned(), text), (format!("unclosed {how}"), unclosed)] {
            for bad in &siege.bad {
                // On what requests share, what cannot be read and names nobody is noise.
                let good = if bad.framing.is_shared() { bad.framing.message("@GOOD@") } else { String::new() };
                bad.meets(
                    &how,
                    vec![Step::say(bad.framing.begin()), Step::Say(bad.framing.message(&text)), Step::say(good)],
                );
                let answer = siege.call(bad, &how).await;
                assert!(bad.framing.is_shared() || !answer.is_result(), "{} {how}: {answer:.500?}", bad.name);
                siege.recovers(bad).await;
            }
        }
        if how == "lists" {
            let log = notification("message", &format!(r#""level":"info","data":{inner}"#));
            for bad in siege.bad.iter().filter(|bad| bad.framing.carries_more()) {
                bad.meets("before", then_good(bad.framing, vec![Step::Say(bad.framing.message(&log))]));
                let answer = siege.call(bad, "before").await;
                assert!(answer.is_result() || bad.framing == Framing::Sse, "{}: {answer:.500?}", bad.name);
                siege.recovers(bad).await;
            }
        }
    }
    siege.end(LITTLE).await;
}

/// [LIM-1] A compressed answer is refused, whatever it would become; so are heads without an end. Over HTTP+SSE it is what a
/// message's POST is answered with.
#[tokio::test]
async fn compressed_answers_and_endless_heads_are_refused() {
    let siege = Siege::begin(&[Framing::Json, Framing::Sse, Framing::Events], SMALL).await;
    let with = |field: String| {
        move |framing: Framing| {
            let framing = if framing == Framing::Events { Framing::Json } else { framing };
            let begin = framing.begin().replace("Connection: close", &field);
            vec![Step::Say(begin), Step::Forever("\u{1}\u{2}\u{3}".to_owned())]
        }
    };
    let each = async |how: &str, steps: &dyn Fn(Framing) -> Vec<Step>| {
        let mut answers = Vec::new();
        for bad in &siege.bad {
            bad.responds(how, steps(bad.framing));
            answers.push(siege.call(bad, how).await);
            siege.recovers(bad).await;
        }
        answers
    };
    for coding in ["gzip", "br", "deflate", "x-gzip, identity"] {
        let answers = each(coding, &with(format!("Content-Encoding: {coding}\r\nConnection: close"))).await;
        for (answer, bad) in answers.iter().zip(&siege.bad) {
            let words = raw(answer.text(), "error.message").unwrap_or_default();
            assert!(words.contains("in an encoding that was not asked for"), "{} {coding}: {answer:?}", bad.name);
        }
    }
    let endless: [(&str, &str, String); 6] = [
        ("fields", "HTTP/1.1 200 OK\r\n", "X-Field: y\r\n".to_owned()),
        ("a field", "HTTP/1.1 200 OK\r\nX-Field: ", filler()),
        ("a reason", "HTTP/1.1 200 ", filler()),
        ("continues", "", "HTTP/1.1 100 Continue\r\n\r\n".to_owned()),
        (
            "a chunk's size",
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            "0".to_owned(),
        ),
        (
            "trailers",
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "X-Field: y\r\n".to_owned(),
        ),
    ];
    for (how, begin, text) in endless {
        let answers = each(how, &|_| vec![Step::say(begin), Step::Forever(text.clone())]).await;
        for answer in answers {
            // Not by its time: by how much it is.
            let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("{how}: {answer:?}"));
            assert!(!words.contains("tool_timeout_secs"), "{how}: {words}");
        }
    }
    // Lengths that are none, and more than the length says: nothing of it becomes another call's answer.
    for (how, fields) in [
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6"),
        ("no number", "Content-Length: -1"),
        ("huge", "Content-Length: 99999999999999999999"),
        ("large", "Content-Length: 99999999999"),
        ("both", "Content-Length: 5\r\nTransfer-Encoding: chunked"),
        ("a foreign coding", "Transfer-Encoding: gzip, chunked"),
    ] {
        let begin = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}\r\n\r\n@GOOD@");
        let answers = each(how, &|_| vec![Step::say(begin.clone())]).await;
        assert!(answers.iter().all(|answer| !answer.is_result()), "{how}: {answers:?}");
    }
    siege.end(LITTLE).await;
}

/// [LIM-4] A slow loris upstream: an answer that comes byte by byte ends in its time, over every transport.
#[tokio::test]
async fn a_slow_answer_ends_in_its_time() {
    let siege = Siege::begin(&ALL, "tool_timeout_secs = 1\ntool_max_secs = 2").await;
    for bad in &siege.bad {
        let (before, after) = bad.framing.around();
        bad.meets("slow", vec![Step::Slow(format!("{}{before}@GOOD@{after}", bad.framing.begin()), 500)]);
        bad.responds("slow to take it", vec![Step::Slow(format!("{}@GOOD@", Framing::Json.begin()), 500)]);
    }
    let hows = ["slow", "slow to take it"];
    let calls = siege.bad.iter().map(|bad| async {
        // What elsewhere is an answer is what the POST of HTTP+SSE is answered with.
        let hows = if bad.framing == Framing::Events { &hows[..] } else { &hows[..1] };
        join_all(hows.iter().map(|how| siege.call(bad, how))).await
    });
    let answers = join_all(calls).await;
    for (answer, bad) in answers.iter().zip(&siege.bad).flat_map(|(all, bad)| all.iter().map(move |one| (one, bad))) {
        let words = raw(answer.text(), "error.message").unwrap_or_else(|| panic!("{}: {answer:?}", bad.name));
        assert!(words.contains("in time") || words.contains("tool_timeout_secs"), "{}: {words}", bad.name);
    }
    siege.end_unrecovered(LITTLE).await;
}

/// The other direction: clients that begin and do not go on, and clients that do not read, cost the others nothing, and their
/// descriptors come back when they go [LIM-6].
#[tokio::test]
async fn slow_clients_cost_the_others_nothing() {
    let siege = Siege::begin(&[Framing::Json], "").await;
    let (mut slow, mut deaf) = (Vec::new(), Vec::new());
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", siege.gateway.addr);
    for at in 0..120 {
        let mut stream = TcpStream::connect(siege.gateway.addr).await.unwrap();
        let said = match at % 4 {
            0 => "P".to_owned(),
            1 => head.clone(),
            2 => format!("{head}Content-Length: 1000000\r\n\r\n{{\"jsonrpc\""),
            _ => format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"),
        };
        stream.write_all(said.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // Those ask for megabytes, and read none of it.
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"resultType":"complete","content":[],"x":"{}"}}}}"#,
        "x".repeat(2 << 20)
    );
    for bad in &siege.bad {
        bad.meets("large", vec![Step::say(bad.framing.begin()), Step::Say(large.clone())]);
        for _ in 0..8 {
            let client = Client::connect(Era::Stateless, siege.gateway.addr, "/mcp", None).await;
            let name = format!("{}__attack", bad.name);
            deaf.push(client.asks("\"r\"", &name, r#""arguments":{"how":"large"}"#).await);
        }
        until("the large answers were asked for", || bad.calls() >= 8).await;
        siege.call(bad, "nothing").await;
    }
    for stream in slow.iter_mut().take(4) {
        stream.write_all(b" ").await.unwrap_or_default();
    }
    drop((slow, deaf));
    siege.end(LITTLE + 96).await;
}

/// [LIM-4] A server that does not read what it is sent: the call ends in its time, and others are not held up.
#[tokio::test]
async fn a_server_that_does_not_read_ends_in_its_time() {
    let siege = Siege::begin(&[Framing::Line], "tool_timeout_secs = 2\ntool_max_secs = 2").await;
    let large = format!(r#","large":"{}""#, "x".repeat(4 << 20));
    for bad in &siege.bad {
        bad.meets("deaf", vec![Step::Hold]);
        assert!(!siege.call(bad, "deaf").await.is_result());
        // It reads no more now, and these fill its pipe.
        for _ in 0..2 {
            let answer = siege.calls(bad, "deaf", &large).await;
            assert!(!answer.is_result(), "{answer:?}");
        }
    }
    siege.end_unrecovered(LITTLE + 32).await;
}

/// [LIM-4] The same over HTTP, with a request that is too large for what the kernel takes on the way.
#[tokio::test]
async fn a_server_over_http_that_does_not_read_ends_in_its_time() {
    let lines = "tool_timeout_secs = 2\ntool_max_secs = 2";
    let siege = Siege::begin(&[Framing::Json, Framing::Sse, Framing::Events], lines).await;
    let large = format!(r#","large":"{}""#, "x".repeat(12 << 20));
    for bad in &siege.bad {
        bad.deaf(true);
        for _ in 0..2 {
            let answer = siege.calls(bad, "large", &large).await;
            assert!(!answer.is_result(), "{}: {answer:?}", bad.name);
            // What is small it reads.
            assert!(siege.call(bad, "small").await.is_result(), "{}", bad.name);
        }
        bad.deaf(false);
    }
    siege.end(LARGE).await;
}

/// Death at every byte of an answer: a failure or the answer, once, and never a second call in secret [FC-TMO-03].
#[tokio::test]
async fn death_at_every_byte_is_one_answer() {
    let siege = Siege::begin(&[Framing::Json, Framing::Sse], "").await;
    for bad in &siege.bad {
        let (mut failed, mut calls) = (0, bad.calls());
        for cut in 0..260 {
            bad.meets("cut", vec![Step::Cut(cut)]);
            let answer = siege.call(bad, "cut").await;
            calls += 1;
            assert_eq!(bad.calls(), calls, "{} at {cut}: it was asked again", bad.name);
            assert!(!answer.is_result() || failed > 100, "{} at {cut}: {answer:?}", bad.name);
            failed += usize::from(!answer.is_result());
        }
        // With all of it there is an answer.
        assert!(failed < 250, "{}", bad.name);
    }
    siege.end(LITTLE).await;
}

/// The same of children: each dies at another byte. `hostile_streams` has it of streams that requests share.
#[tokio::test]
async fn death_at_every_byte_of_a_line_is_one_answer() {
    for era in ERAS {
        let deaths = crate::support::Deaths::of_children(era);
        let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
        let mut servers = deaths.servers();
        servers.push(("good".to_owned(), good.lines()));
        let names: Vec<(&str, String)> = servers.iter().map(|(name, lines)| (name.as_str(), lines.clone())).collect();
        let (mut gateway, tasks) = (Gateway::start(&names).await, Tasks::new());
        gateway.overhear(&tasks);
        let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", None).await;
        let good = || client.call_with("good__echo", r#"{"k":1.10}"#);
        assert_eq!(client.names().await.len(), servers.len(), "every child has started");
        assert!(good().await.is_result());
        let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
        let (before, last) = (descriptors(), servers.len() - 1);
        let mut results = 0;
        for (at, (name, _)) in servers.iter().take(last).enumerate() {
            let name = format!("{name}__attack");
            let calling = client.call("\"h\"", &name, "", r#""arguments":{}"#);
            let (answer, other) = within_deadline(&name, futures_util::future::join(calling, good())).await;
            assert_eq!(other.raw("result.echo"), r#"{"k":1.10}"#, "{name}: the good server is hurt");
            assert_eq!(answer.messages.len(), 1, "{name}: {answer:?}");
            assert_eq!(raw(answer.text(), "id").as_deref(), Some("\"h\""));
            results += usize::from(answer.is_result());
            assert!(!answer.is_result() || at + 2 >= last, "{name}: {answer:?}");
        }
        assert!(results > 0, "the whole line is an answer");
        // Whoever has died is started again: there are never more than there were.
        until("the descriptors come back", || descriptors() <= before).await;
        let peak = peak_memory_kib(gateway.pid());
        assert!(peak < LARGE << 10, "it has held {peak} KiB, {LARGE} MiB is the bound");
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
        tasks.cancel();
    }
}

/// [TRN-3, FC-STD-05] stderr without an end to speak of is kept in a ring; the answer comes.
#[tokio::test]
async fn a_flood_of_stderr_is_a_ring() {
    let siege = Siege::begin(&[Framing::Line], "").await;
    for (how, text) in
        [("lines", "out of order\n".repeat(4096)), ("one line", "x".repeat(65536)), ("nul", "\0\u{1b}[2J".repeat(8192))]
    {
        let steps = |framing: Framing| then_good(framing, vec![Step::Stderr(text.clone(), 500)]);
        for answer in each(&siege, how, steps).await {
            assert!(answer.is_result(), "{how}: {answer:?}");
        }
    }
    siege.end(LITTLE).await;
}

/// [TRN-3, FC-STD-06] A tree of children that holds the pipes, of a server that ignores TERM: all gone when the server is, and
/// when it dies first.
#[tokio::test]
async fn a_tree_of_children_ends_with_its_server() {
    let siege = Siege::begin(&[Framing::Line], "").await;
    let before = siege.marked();
    for bad in &siege.bad {
        bad.meets("fork", then_good(bad.framing, vec![Step::Fork(5), Step::Stubborn]));
        assert!(siege.call(bad, "fork").await.is_result());
        until("the tree has grown", || siege.marked().len() >= before.len() + 5 * 3).await;
        bad.meets("die", vec![Step::Fork(5), Step::Cut(10)]);
        assert!(!siege.call(bad, "die").await.is_result());
        siege.recovers(bad).await;
        until("the trees have ended", || siege.marked().len() <= before.len()).await;
    }
    siege.settles(LITTLE).await;
    // Others, that are there when the gateway ends.
    for bad in &siege.bad {
        assert!(siege.call(bad, "fork").await.is_result());
    }
    let marked = siege.marked();
    siege.gateway.terminate();
    until("all of it has ended", || !marked.iter().any(|pid| lives(*pid))).await;
}

/// [LIM-6, FC-LST-02] Lists without an end: pages, a cursor that comes again, a million tools, a tool without an end, a depth
/// bomb. The server's list is cut, or stays as it was; nobody else's is touched.
#[tokio::test]
async fn lists_without_an_end_are_bounded() {
    let siege = Siege::begin(&ALL, "").await;
    let page = |tools: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{tools}]{more}}}}}"#
        )
    };
    let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    let many: String = (0..40_000).map(|at| format!("{},", tool(&format!("t{at}")))).collect();
    let deep = format!(
        r#"{{"name":"deep","inputSchema":{{"type":"object","x":{}1{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for (how, text) in [
        ("endless pages", page(&tool("attack"), r#","nextCursor":"@ID@""#)),
        ("a loop", page(&tool("attack"), r#","nextCursor":"again""#)),
        ("many tools", page(&format!("{many}{}", tool("attack")), "")),
        ("a million tools", page(&format!("@MILLION@{}", tool("attack")), "")),
        ("many tools, again and again", page(&format!("{many}{}", tool("attack")), r#","nextCursor":"@ID@""#)),
        ("depth", page(&format!("{},{deep}", tool("attack")), "")),
        ("one large tool", page(&format!("{},{}", tool("attack"), tool(&"n".repeat(12 << 20))), "")),
    ] {
        for bad in &siege.bad {
            let before = bad.listed();
            let text = bad.framing.message(&text);
            let steps = match text.split_once("@MILLION@") {
                None => vec![Step::Say(text)],
                Some((before, after)) => {
                    let million = Step::Number(format!("{},", tool("t@N@")), 1_000_000);
                    vec![Step::say(before), million, Step::say(after)]
                }
            };
            bad.lists(Some([vec![Step::say(bad.framing.begin())], steps].concat()));
            until(&format!("{how} of {} is asked for", bad.name), || bad.listed() > before).await;
            // Calls of it go on, and so do lists of all.
            siege.recovers(bad).await;
            let names = siege.client.names().await;
            assert!(names.contains(&"good__echo".to_owned()), "{how}: {} tools", names.len());
            assert!(names.len() <= 1 + siege.bad.len() * 5_000, "{how}: {} tools", names.len());
            bad.lists(None);
            siege.call(bad, "nothing").await;
        }
    }
    siege.end(420).await;
}

/// The answer whose content is these items, each made of steps.
fn with_items(framing: Framing, items: Vec<Vec<Step>>) -> Vec<Step> {
    let (before, after) = framing.around();
    let mut steps =
        vec![Step::Say(format!(r#"{}{before}{{"jsonrpc":"2.0","id":@ID@,"result":{{"content":["#, framing.begin()))];
    for (at, item) in items.into_iter().enumerate() {
        steps.extend((at > 0).then(|| Step::say(",")));
        steps.extend(item);
    }
    steps.push(Step::Say(format!("]}}}}{after}")));
    steps
}

/// An image of this declared type.
fn image(mime: &str, data: &str) -> Vec<Step> {
    vec![Step::Say(format!(r#"{{"type":"image","mimeType":"{mime}","data":"{data}"}}"#))]
}

/// A document of so many zero bytes.
fn zeros(bytes: usize) -> Vec<Step> {
    let (groups, tail) = (bytes / 3, ["", "AA==", "AAA="][bytes % 3]);
    vec![
        Step::say(r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"application/pdf","blob":""#),
        Step::Number("AAAA".repeat(1024), groups / 1024),
        Step::Say(format!(r#"{}{tail}"}}}}"#, "AAAA".repeat(groups % 1024))),
    ]
}

const PNG: &str = "iVBORw0KGgo=";
const JPEG: &str = "/9j/4A==";

/// The words that stand for what is not there, how often, and how many links there are.
fn fates(answer: &Answer, why: &str) -> (usize, usize) {
    let text = answer.text();
    assert!(answer.is_result() && !text.contains(r#""blob":"#) && !text.contains(r#""data":"#), "{text:.500}");
    (
        text.matches(&format!("[attachment unavailable: {why}]")).count(),
        text.matches(r#""type":"resource_link""#).count(),
    )
}

/// [LIM-2, LIM-3] Attachments: too many, the largest sum and one byte more, no base64, a type in a strange spelling, and one that
/// the bytes belie.
#[tokio::test]
async fn attachments_are_bounded_and_named_for_what_they_are() {
    let siege = Siege::begin(&ALL, "blobs = \"link\"\n").await;
    let half = 5 << 20;
    let count = "too many attachments in one result";
    let sum = "attachments of one result too large in sum";
    type Items = Vec<Vec<Step>>;
    let cases: [(&str, Items, &str, (usize, usize)); 6] = [
        ("tiny", (0..65).map(|_| image("image/png", PNG)).collect(), count, (65, 0)),
        ("sum", vec![zeros(half), zeros(half)], sum, (0, 2)),
        ("more", vec![zeros(half), zeros(half + 1)], sum, (2, 0)),
        ("base64", vec![image("image/png", "iVBOR*!"), image("image/png", PNG)], "not valid base64", (1, 1)),
        ("spelling", vec![image("image/PNG; charset=x", PNG)], "unsupported image type", (0, 1)),
        ("signature", vec![image("image/png", JPEG)], "unsupported image type", (0, 1)),
    ];
    for (how, items, why, expected) in cases {
        for answer in each(&siege, how, |framing| with_items(framing, items.clone())).await {
            assert_eq!(fates(&answer, why), expected, "{how}: {:.500}", answer.text());
            let kind = if how == "signature" { "image/jpeg" } else { "image/png" };
            let named = answer.text().contains(&format!(r#""mimeType":"{kind}""#));
            assert!(named || matches!(how, "tiny" | "sum" | "more"), "{how}: {:.500}", answer.text());
        }
    }
    siege.end(LARGE).await;
}

/// [LIM-2] Over the cap of one item: that item alone.
#[tokio::test]
async fn an_attachment_over_its_own_cap_is_alone_in_it() {
    let siege = Siege::begin_with(&ALL, "blobs = \"link\"\n", "[limits]\nblob_item_bytes = 1024\n").await;
    let items = || vec![zeros(1024), zeros(1025)];
    for answer in each(&siege, "item", |framing| with_items(framing, items())).await {
        assert_eq!(fates(&answer, "too large"), (1, 1), "{:.500}", answer.text());
    }
    siege.end(LITTLE).await;
}
