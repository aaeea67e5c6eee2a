//! Calls to a child: ids, cancellation, progress.

use futures_util::StreamExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kit::{ask, call, done, open, opened, python, script, text_of, within};
use crate::exchange::{Event, ReplyBody};
use crate::wire::mcp::{Era, Kind};

/// [FC-IDS-04, FC-CON-02]: two clients with the same ids, answers in random order, large arguments, few places in the
/// queue.
#[tokio::test]
async fn every_answer_reaches_its_caller() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
seen, waiting = set(), []
lock = threading.Lock()
def reader():
    while True:
        request = read()
        assert request["id"] not in seen
        seen.add(request["id"])
        with lock: waiting.append(request)
threading.Thread(target=reader, daemon=True).start()
done = 0
while done < 1000:
    with lock:
        batch, waiting = waiting, []
    random.shuffle(batch)
    for request in batch: answer(request, arguments(request)["x"][:20])
    done += len(batch)
signal.pause()
"#,
    ))
    .await;
    let calls = (0..1000).map(|number| {
        let connection = Arc::clone(&connection);
        async move {
            let marker = format!("{}-{:017}", number % 2, number);
            let padding = "p".repeat(if number % 20 == 0 { 200_000 } else { 20 });
            let sent = call(&format!("\"{marker} {padding}\""), None);
            let got = text_of(done(connection.request(sent, Era::Legacy).await));
            assert_eq!(got.trim(), marker);
        }
    });
    within(futures_util::future::join_all(calls)).await;
    assert_eq!(connection.table.len(), 0);
    connection.stop();
}

/// [FC-IDS-06, R107]: an abandoned call is cancelled under our id; its late answer is dropped.
#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
first = read()
send(dict(method="notifications/progress", params=dict(progressToken=first["params"]["_meta"]["progressToken"], progress=1)))
cancelled = read()
answer(first, "late")
second = read()
answer(second, json.dumps([cancelled, first["id"]]))
read()
"#,
    ))
    .await;
    let first = within(Arc::clone(&connection).request(call("1", Some("\"tok\"")), Era::Legacy)).await;
    assert!(matches!(first.body, ReplyBody::Events(_)));
    drop(first);
    let second = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(
        text_of(done(second)),
        r#"[{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}, 2]"#
    );
    assert_eq!(connection.counts.answers.load(Ordering::Relaxed), 1);
    connection.stop();
}

/// [FC-IDS-07, R109]
#[tokio::test]
async fn progress_of_live_tokens_alone_reaches_a_client() {
    if !python() {
        return;
    }
    let (connection, _tasks) = opened(script(
        r#"
init()
def progress(token, value): send(dict(method="notifications/progress", params=dict(progressToken=token, progress=value, message="m")))
first = read()
token = first["params"]["_meta"]["progressToken"]
progress("made-up", 1); progress(999, 1)
progress(token, 1); progress(token, 1); progress(token, 0.5); progress(token, 2.5)
answer(first, "ok")
progress(token, 3)
second = read()
progress(second["id"], 1)
answer(second, "ok")
read()
"#,
    ))
    .await;
    let first = within(Arc::clone(&connection).request(call("1", Some("\"tok\"")), Era::Legacy)).await;
    let ReplyBody::Events(events) = first.into_parts().0 else { panic!("no events") };
    let mut values = Vec::new();
    let mut outcomes = 0;
    for event in within(events.collect::<Vec<_>>()).await {
        match event {
            Event::Progress(raw) => {
                let value: serde_json::Value = serde_json::from_slice(&raw).unwrap();
                assert_eq!(value["params"]["progressToken"], "tok");
                values.push(value["params"]["progress"].as_f64().unwrap());
            }
            Event::Done(outcome) => {
                outcomes += 1;
                assert_eq!(text_of(outcome), "ok");
            }
            Event::Ask(_) | Event::Changed(_) | Event::Log(_) | Event::Paused | Event::Said(_) | Event::Watch(_) => {
                panic!("unexpected")
            }
        }
    }
    assert_eq!((values, outcomes), (vec![1.0, 2.5], 1));
    let second = within(Arc::clone(&connection).request(call("1", None), Era::Legacy)).await;
    assert_eq!(text_of(done(second)), "ok");
    assert_eq!(connection.counts.progress.load(Ordering::Relaxed), 6);
    connection.stop();
}

/// [FC-IDS-08]
#[tokio::test]
async fn digits_pass_as_they_are() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
init()
line = sys.stdin.buffer.readline().decode()
answer(json.loads(line), line[line.index('"x":') + 4:].rstrip("}\n"))
read()
"#,
    ))
    .await;
    let digits = "[9007199254740993,18446744073709551616,1.10,1e400,-0.0]";
    assert_eq!(ask(&started.link, digits).await, digits);
}

/// [FC-IDS-10, R46]; other requests of a legacy server are refused, list changes are counted.
#[tokio::test]
async fn ping_is_answered_at_once_and_others_are_refused() {
    if !python() {
        return;
    }
    let (started, _tasks) = open(script(
        r#"
request = read()
send(dict(id="early", method="ping"))
early = read()
accept(request)
call = read()
send(dict(method="notifications/tools/list_changed"))
send(dict(id=call["id"], method="ping"))
send(dict(id="r", method="roots/list"))
answers = [early, read(), read()]
answer(call, json.dumps(answers))
read()
"#,
    ))
    .await;
    assert!(started.can.lists.contains(Kind::Tools) && started.can.tells.contains(Kind::Tools));
    let changes = started.link.changes();
    let answers: serde_json::Value = serde_json::from_str(&ask(&started.link, "0").await).unwrap();
    assert_eq!(
        answers,
        serde_json::json!([
            {"jsonrpc": "2.0", "id": "early", "result": {}},
            {"jsonrpc": "2.0", "id": 2, "result": {}},
            {"jsonrpc": "2.0", "id": "r", "error": {"code": -32601, "message": "Method not found"}},
        ])
    );
    assert_eq!(changes.borrow().of(Kind::Tools), 1);
}
