//! Lines of a child: what is read, skipped, cut and written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kit::{ECHO, ask, call, call_raw, done, failure, open, opened, python, reply, script, text_of, within};
use crate::clock::Clock;
use crate::exchange::RejectKind;
use crate::net::Ends;
use crate::secret::Secret;
use crate::upstream::Transport;
use crate::upstream::channel::framing::{Whose, in_head, whose};
use crate::upstream::stdio::output::Output;
use crate::wire::mcp::Era;

#[test]
fn the_id_is_found_among_the_outermost_members_alone() {
    assert_eq!(in_head(br#"{"jsonrpc":"2.0", "id" : 12 ,"result":{"a"#), Whose::Ours(12));
    assert_eq!(in_head(br#"{"result":{"id":3},"id":4,"#), Whose::Ours(4));
    assert_eq!(in_head(br#"{"result":{"x":"\"id\":5,","id":3,"#), Whose::Unknown);
    assert_eq!(in_head(br#"{"id":12"#), Whose::Unknown);
    assert_eq!(in_head(br#"{"id":"12","#), Whose::Unknown);
    assert_eq!(in_head(br#"{"method":"x","id":1,"#), Whose::Server);
    let tail = |text: &[u8]| whose(&Ends { head: b"{\"result\":{".to_vec(), tail: text.to_vec() });
    assert_eq!(tail(br#"xxx"}]},"id":7,"jsonrpc":"2.0"}"#), Whose::Ours(7));
    assert_eq!(tail(br#"xxx","id":8}}"#), Whose::Unknown);
    assert_eq!(tail(br#""id":8},"jsonrpc":"2.0"}"#), Whose::Unknown);
}

/// [CFG-3]
#[test]
fn output_is_redacted_escaped_and_bounded() {
    let mut settings = script("");
    let Transport::Stdio { env, .. } = &mut settings.transport else { unreachable!() };
    env.push(("TOKEN".to_owned(), Secret::new("hunter22".to_owned())));
    env.push(("LONGER".to_owned(), Secret::new("hunter22-and-more".to_owned())));
    env.push(("SHORT".to_owned(), Secret::new("abc".to_owned())));
    env.push(("PEM".to_owned(), Secret::new("first line\nsecond line".to_owned())));
    let output = Output::new(&settings, Clock::manual());
    output.stray(b"abc hunter22 hunter22-and-more \x1b[31m second line \xff");
    assert_eq!(output.tail(), "abc [secret:TOKEN] [secret:LONGER] \\u{1b}[31m [secret:PEM] \u{fffd}");
    for _ in 0..100 {
        output.stray(&[b'y'; 8000]);
    }
    assert!(output.tail().len() <= 2000);
    assert_eq!(output.clean(b"abcdef", 3), "abc…");
}

/// [FC-STD-01, R69]
#[tokio::test]
async fn text_on_stdout_is_skipped() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
raw("hello\n[info] x\n{oops\n\n")
init()
request = read()
raw("in the middle\n")
answer(request, "ok")
read()
"#,
    ))
    .await;
    let reply = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(text_of(done(reply)), "ok");
    assert_eq!(connection.counts.noise.load(Ordering::Relaxed), 4);
    assert!(connection.output.tail().contains("in the middle"));
    connection.stop();
}

/// [FC-STD-02]
#[tokio::test]
async fn noise_is_never_answered() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
request = read(); raw("noise\n"); accept(request)
lines = 0
while True:
    request = read(); lines += 1; raw("noise\n")
    answer(request, str(lines))
"#,
    ))
    .await;
    for lines in ["1", "2", "3"] {
        assert_eq!(ask(&started.link, "0").await, lines);
    }
}

/// [FC-STD-03]
#[tokio::test]
async fn utf8_is_exact_whatever_the_reads() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
init()
request = read()
line = json.dumps(dict(jsonrpc="2.0", id=request["id"], result=dict(content=[dict(type="text", text="é€😀")])), ensure_ascii=False) + "\n"
for byte in line.encode(): os.write(1, bytes([byte]))
read()
"#,
    ))
    .await;
    assert_eq!(ask(&started.link, "0").await, "é€😀");
}

/// [FC-STD-04, LIM-1]
#[tokio::test]
async fn one_call_over_the_cap_fails_alone() {
    if !python() {
        return;
    }
    let mut settings = script(
        r#"
init(instructions="i" * 130000)
held = None
while True:
    request = read()
    x = arguments(request)["x"]
    if x == "hold": held = request
    elif x == "tail": raw('{"result":{"content":[{"type":"text","text":"' + "y" * 9000000 + '"}]},"id":%d,"jsonrpc":"2.0"}\n' % request["id"])
    elif x == "both": raw("z" * 9000000 + "\n")
    else: answer(request, "y" * x)
"#,
    );
    settings.max_response_bytes = 8 * 1024 * 1024 + 1000;
    let (started, _tasks) = open(settings).await;
    let link = &started.link;
    assert_eq!(ask(link, "8388608").await.len(), 8_388_608);
    let held = within(Arc::clone(link).request(call("\"hold\"", None)));
    let rest = async {
        let words = "server 'srv' sent a response over max_response_bytes (8389608 bytes)";
        for x in ["9000000", "\"tail\""] {
            let reject = failure(link, x).await;
            assert_eq!((reject.kind, reject.public.as_ref()), (RejectKind::Limit, words));
        }
        assert_eq!(ask(link, "3").await, "yyy");
        assert_eq!(failure(link, "\"both\"").await.kind, RejectKind::Limit);
        assert_eq!(ask(link, "2").await, "yy");
    };
    let (held, ()) = tokio::join!(held, rest);
    assert_eq!(done(held).unwrap_err().kind, RejectKind::Limit);
}

/// [LIM-1, R69]
#[tokio::test]
async fn an_endless_line_ends_the_child() {
    if !python() {
        return;
    }
    let mut settings = script("init(); request = read()\nwhile True: raw('x' * 65536)");
    settings.max_response_bytes = 100_000;
    let (started, tasks) = open(settings).await;
    assert_eq!(failure(&started.link, "1").await.kind, RejectKind::Limit);
    within(tasks.wait()).await;
    assert!(started.link.closed().is_cancelled());
    assert!(started.link.last_words().unwrap().contains("4 × max_response_bytes"));
}

/// [TRN-3, FC-STD-05, R71]
#[tokio::test]
async fn a_flood_on_stderr_is_drained() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
sys.stderr.write("line\n" * 200000); sys.stderr.flush()
init()
request = read()
sys.stderr.write("x" * 1048576); sys.stderr.flush()
answer(request, "ok")
read()
"#,
    ))
    .await;
    assert_eq!(ask(&started.link, "0").await, "ok");
}

/// [R69]
#[tokio::test]
async fn line_breaks_in_params_become_spaces() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(ECHO)).await;
    let pretty = "{\n \"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"tools/call\",\"params\":{\n\"name\":\"srv__t\",\n\"arguments\":{\n\t\"x\":\n\"a\\nb\"}}\n}";
    let reply = reply(&started.link, call_raw(pretty.to_owned())).await;
    assert_eq!(text_of(done(reply)), "a\nb");
}
