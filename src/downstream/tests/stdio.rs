//! The door of pipes: both eras, in flight side by side, and every end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::support::{House, META, call, initialize, legacy_call};
use crate::downstream::{DownstreamSettings, Parted, PipeClient, Terms};
use crate::exchange::Endpoint;
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::Credential;
use crate::secret::Lent;

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// Longer than any test: a test whose grace ends has failed.
const GRACE: Duration = Duration::from_secs(600);

/// The client's ends of the pipes.
pub(super) struct Talk {
    to: Option<DuplexStream>,
    from: BufReader<DuplexStream>,
    cut: CancellationToken,
    parted: oneshot::Receiver<Parted>,
}

fn client() -> PipeClient {
    PipeClient { credential: Credential::Local(PrincipalId::new("alice")), endpoint: Endpoint::All }
}

impl Talk {
    fn with(house: &House, client: PipeClient, grace: Duration, pipe_bytes: usize) -> Self {
        let (to, input) = duplex(pipe_bytes);
        let (output, from) = duplex(pipe_bytes);
        let (told, parted) = oneshot::channel();
        let (door, cut) = (house.door.clone(), CancellationToken::new());
        let terms = Terms { cut: cut.clone(), grace };
        house.tasks.spawn("converse", async move {
            told.send(door.converse(client, input, output, terms).await).unwrap_or_default();
        });
        Self { to: Some(to), from: BufReader::new(from), cut, parted }
    }

    fn open(house: &House) -> Self {
        Self::with(house, client(), GRACE, 64 << 10)
    }

    /// Opens a session of that version.
    pub(super) async fn session(house: &House, version: &str) -> Self {
        let mut talk = Self::open(house);
        let answer = talk.ask(&initialize(&format!("\"{version}\""))).await;
        assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!("i"), &json!(version)));
        talk
    }

    pub(super) async fn send(&mut self, line: &str) {
        self.to.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.from.read_line(&mut line).await.unwrap();
        let text = line.strip_suffix('\n')?;
        Some(serde_json::from_str(text).unwrap_or_else(|err| panic!("{err}: {text}")))
    }

    pub(super) async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.next().await.unwrap()
    }

    async fn code(&mut self, line: &str) -> (Value, i64) {
        let answer = self.ask(line).await;
        (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}")))
    }

    /// Ends the input.
    fn close(&mut self) {
        self.to = None;
    }
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

fn listen(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{META},"notifications":{{"toolsListChanged":true}}}}}}"#
    )
}

/// [LIM-5, POL-11]: a pipe has no status; a call is told by its result, another request by an error, a notification not
/// at all, and each element of a batch counts.
#[tokio::test]
async fn a_line_over_its_rate_is_refused() {
    let house = House::open();
    let busy = PipeClient { credential: Credential::Local(PrincipalId::new("busy")), endpoint: Endpoint::All };
    let mut talk = Talk::with(&house, busy, GRACE, 64 << 10);
    talk.send(INITIALIZED).await;
    assert_eq!(talk.code(&initialize("\"2025-06-18\"")).await, (json!("i"), -31001));
    let refusal = json!({ "code": "P308", "reason": "rate_limited", "retry_after": 3 });
    let answer = talk.ask(&call("1", "ok")).await;
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert_eq!(answer["result"]["_meta"]["portcullis/refusal"], refusal);
    let answer = talk.ask(&legacy_call("2", "ok")).await;
    assert_eq!((&answer["id"], answer["result"].get("resultType")), (&json!(2), None));
    assert_eq!(answer["result"]["_meta"]["portcullis/refusal"], refusal);
}

/// [OPS-11, protocol §2.8]: the era goes by the message, ids come back as they were spelled.
#[tokio::test]
async fn both_eras_share_a_pipe() {
    let mut house = House::open();
    let mut talk = Talk::open(&house);
    let discover = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{{{META}}}}}"#);
    assert_eq!(talk.ask(&discover).await["result"]["supportedVersions"], json!(["2026-07-28"]));
    let answer = talk.ask(&call("\"a\\/1\"", "ok")).await;
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!("a/1"), &json!("complete")));
    house.began("ok").await;
    assert_eq!(*house.hall.last.lock().unwrap().as_ref().map(|facts| &facts.2).unwrap(), None);

    let opened = talk.ask(&initialize("\"2025-06-18\"")).await;
    assert_eq!(opened["result"]["protocolVersion"], json!("2025-06-18"));
    talk.send(INITIALIZED).await;
    let answer = talk.ask(&legacy_call("1.50", "ok")).await;
    assert_eq!((&answer["id"], answer["result"].get("resultType")), (&json!(1.50), None));
    assert_eq!(talk.ask(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await["result"], json!({}));
    let list = talk.ask(&format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{{{META}}}}}"#)).await;
    assert_eq!(list["result"]["cacheScope"], json!("private"));
    talk.close();
    assert_eq!(talk.next().await, None);
    assert_eq!(talk.parted.await.unwrap(), Parted::Ended);
    assert_eq!(house.door.sessions(), 0);
}

#[tokio::test]
async fn a_client_that_says_nothing_of_itself_is_told_how() {
    let house = House::open();
    let mut talk = Talk::open(&house);
    assert_eq!(talk.ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await["result"], json!({}));
    let answer = talk.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    assert_eq!(answer["error"]["code"], json!(-32600));
    assert!(answer["error"]["message"].as_str().unwrap().contains("'initialize' comes first"), "{answer}");
    let probe = r#"{"jsonrpc":"2.0","id":3,"method":"server/discover"}"#;
    assert_eq!(talk.code(probe).await, (json!(3), -32602));
    let meta = META.replace("2026-07-28", "2031-01-01");
    let newer = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{{{meta}}}}}"#);
    let answer = talk.ask(&newer).await;
    assert_eq!(answer["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2031-01-01"}));
}

/// [LIM-8]: one answer for each mistake, none for an answer, and the conversation goes on; what is too long is refused whole.
#[tokio::test]
async fn what_cannot_be_read_is_refused_and_nothing_is_lost() {
    let house = House::with(DownstreamSettings { body_bytes_max: 2000, ..Default::default() });
    let mut talk = Talk::session(&house, "2025-11-25").await;
    let long = "x".repeat(5000);
    let deep = format!(r#"{{"jsonrpc":"2.0","id":"deep","method":"m","params":{}"#, "[".repeat(200));
    for (line, id, code) in [
        ("garbage", json!(null), -32700),
        ("{\"jsonrpc\":", json!(null), -32700),
        ("\u{7}", json!(null), -32700),
        ("7", json!(null), -32600),
        (r#"{"id":5,"method":"tools/list"}"#, json!(5), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, json!(null), -32600),
        (r#"{"jsonrpc":"2.0","id":6,"method":"no/such"}"#, json!(6), -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, json!(7), -32602),
        (r#"[{"jsonrpc":"2.0","id":8,"method":"ping"}]"#, json!(null), -32600),
        ("[]", json!(null), -32600),
        (deep.as_str(), json!("deep"), -32600),
        (&format!(r#"{{"jsonrpc":"2.0","id":"h","method":"{long}"}}"#), json!("h"), -32600),
        (&format!(r#"{{"jsonrpc":"2.0","method":"{long}","id":"t"}}"#), json!("t"), -32600),
        (&long, json!(null), -32600),
        (&long.repeat(4), json!(null), -32600),
    ] {
        assert_eq!(talk.code(line).await, (id, code), "{}", line.get(..100).unwrap_or(line));
    }
    for silent in [
        "",
        "  \r",
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        &format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{long}"}}"#),
        &cancel("77"),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#,
    ] {
        talk.send(silent).await;
    }
    let big = talk.ask(r#"{"jsonrpc":"2.0","id":"big","method":"ping"}"#).await;
    assert_eq!(big, json!({"jsonrpc": "2.0", "id": "big", "result": {}}));
    talk.send(&long.repeat(2)).await;
    let told = talk.next().await.unwrap();
    let words = "The message is over limits.request_body_bytes (2000 bytes)";
    assert_eq!(told["error"]["message"], json!(words));
}

/// An id in flight is refused for as long as it is, in whichever era; what has it is answered.
#[tokio::test]
async fn an_id_is_in_flight_once() {
    let mut house = House::open();
    let mut talk = Talk::session(&house, "2025-11-25").await;
    for (first, second) in [
        (call("1", "gate"), call("1", "ok")),
        (legacy_call("1", "gate"), legacy_call("1", "ok")),
        (legacy_call("1", "gate"), call("1", "ok")),
        (call("1", "gate"), legacy_call("1", "ok")),
    ] {
        talk.send(&first).await;
        house.began("gate").await;
        assert_eq!(talk.code(&second).await, (json!(1), -32600));
        // Another type is another id.
        assert!(talk.ask(&legacy_call("\"1\"", "ok")).await.get("result").is_some());
        house.began("ok").await;
        house.gone("ok").await;
        house.hall.gate.notify_one();
        assert!(talk.next().await.unwrap().get("result").is_some());
        house.gone("gate").await;
    }
}

/// Calls run side by side; progress comes before its answer; a raw line break never reaches the pipe [R69].
#[tokio::test]
async fn calls_run_side_by_side() {
    let mut house = House::open();
    let mut talk = Talk::session(&house, "2025-11-25").await;
    talk.send(&legacy_call("1", "hang")).await;
    house.began("hang").await;
    talk.send(&legacy_call("2", "chatty")).await;
    for kind in ["message", "progress", "message"] {
        let event = talk.next().await.unwrap();
        assert_eq!(event["method"], json!(format!("notifications/{kind}")));
    }
    assert_eq!(talk.ask(&call("3", "ok")).await["id"], json!(3));
    house.hall.gate.notify_one();
    assert_eq!(talk.next().await.unwrap()["id"], json!(2));
    assert_eq!(talk.ask(&call("4", "pretty")).await["result"]["text"], json!("a\nb"));
    assert_eq!(talk.ask(&legacy_call("5", "pretty")).await["result"]["text"], json!("a\nb"));
}

/// What is cancelled ends in the hall and is not answered; its id is free again.
#[tokio::test]
async fn a_cancelled_call_is_silent() {
    let mut house = House::open();
    let mut talk = Talk::session(&house, "2025-11-25").await;
    for (first, after) in [(call("1", "hang"), call("1", "ok")), (legacy_call("1", "hang"), legacy_call("1", "ok"))] {
        talk.send(&first).await;
        house.began("hang").await;
        talk.send(&cancel("\"1\"")).await;
        assert_eq!(talk.code(&call("1", "ok")).await.1, -32600);
        talk.send(&cancel("1")).await;
        house.gone("hang").await;
        assert!(talk.ask(&after).await.get("result").is_some());
        house.began("ok").await;
        house.gone("ok").await;
    }
}

/// [POL-10]: a session hears of changes once it is initialized.
#[tokio::test]
async fn a_session_hears_of_changes() {
    let mut house = House::open();
    let mut talk = Talk::session(&house, "2025-11-25").await;
    // It never is idle, however long it says nothing.
    let reap = |house: &House| {
        house.clock.advance(Duration::from_secs(1_000_000));
        house.door.door().sessions.reap(house.clock.now())
    };
    assert_eq!(reap(&house), 0);
    talk.send(INITIALIZED).await;
    house.began("listen").await;
    assert_eq!(reap(&house), 0);
    talk.send(INITIALIZED).await;
    house.hall.changes.send(()).unwrap();
    let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(talk.next().await.unwrap(), change);
    assert!(talk.ask(&legacy_call("1", "ok")).await.get("result").is_some());
    house.began("ok").await;
    house.gone("ok").await;

    // Who begins anew has a new session, and hears of changes once.
    assert!(talk.ask(&initialize("\"2025-06-18\"")).await.get("result").is_some());
    house.gone("listen").await;
    assert_eq!(house.door.sessions(), 1);
    talk.send(INITIALIZED).await;
    house.began("listen").await;
    house.hall.changes.send(()).unwrap();
    assert_eq!(talk.next().await.unwrap(), change);
    talk.close();
    assert_eq!(talk.next().await, None);
    assert_eq!(talk.parted.await.unwrap(), Parted::Ended);
}

/// [R128]: listens are told apart by their id; one the client ends is silent, one that we end says so.
#[tokio::test]
async fn listens_share_the_pipe() {
    let mut house = House::open();
    let mut talk = Talk::open(&house);
    let meta = |id: &Value| json!({"io.modelcontextprotocol/subscriptionId": id});
    for id in [json!(1), json!("1")] {
        let acknowledged = talk.ask(&listen(&id.to_string())).await;
        let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta(&id)});
        assert_eq!(acknowledged["method"], json!("notifications/subscriptions/acknowledged"));
        assert_eq!(acknowledged["params"], params);
        house.began("listen").await;
    }
    house.hall.changes.send(()).unwrap();
    let mut told = [talk.next().await.unwrap(), talk.next().await.unwrap()].map(|told| told["params"]["_meta"].clone());
    told.sort_by_key(Value::to_string);
    assert_eq!(told, [meta(&json!("1")), meta(&json!(1))]);
    talk.send(&cancel("1")).await;
    house.gone("listen").await;
    house.hall.changes.send(()).unwrap();
    assert_eq!(talk.next().await.unwrap()["params"]["_meta"], meta(&json!("1")));
    talk.close();
    let end = talk.next().await.unwrap();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("1"), &json!("complete")));
    assert_eq!(talk.next().await, None);
    assert_eq!(talk.parted.await.unwrap(), Parted::Ended);
}

/// The end of the input: what runs is finished and answered, also the last line without its newline.
#[tokio::test]
async fn the_end_of_the_input_lets_calls_finish() {
    for line in [call("1", "gate"), legacy_call("1", "gate")] {
        let mut house = House::open();
        let mut talk = Talk::session(&house, "2025-11-25").await;
        talk.to.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
        talk.close();
        house.began("gate").await;
        house.hall.gate.notify_one();
        assert!(talk.next().await.unwrap().get("result").is_some());
        assert_eq!(talk.next().await, None);
        assert_eq!(talk.parted.await.unwrap(), Parted::Ended);
    }
}

#[tokio::test(start_paused = true)]
async fn the_grace_has_an_end() {
    let house = House::open();
    let mut talk = Talk::with(&house, client(), Duration::from_secs(20), 64 << 10);
    talk.send(&call("1", "hang")).await;
    talk.close();
    assert_eq!(talk.parted.await.unwrap(), Parted::Late);
}

/// A cut, and a client that reads no more, end what is in flight.
#[tokio::test]
async fn what_is_in_flight_ends_with_the_conversation() {
    for line in [call("1", "chatty"), legacy_call("1", "chatty")] {
        let mut house = House::open();
        let mut talk = Talk::session(&house, "2025-11-25").await;
        talk.send(&line).await;
        house.began("chatty").await;
        talk.cut.cancel();
        assert_eq!(talk.parted.await.unwrap(), Parted::Cut);
        house.gone("chatty").await;
        assert_eq!(house.door.sessions(), 0);

        let mut talk = Talk::session(&house, "2025-11-25").await;
        talk.send(&line).await;
        house.began("chatty").await;
        drop(talk.from);
        talk.to.as_mut().unwrap().write_all(b"garbage\n").await.unwrap_or_default();
        assert_eq!(talk.parted.await.unwrap(), Parted::Broken);
        house.gone("chatty").await;
        assert_eq!(house.door.sessions(), 0);
    }
}

/// Who does not read is not read from; when he reads, nothing was lost.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from() {
    let house = House::open();
    let mut talk = Talk::with(&house, client(), GRACE, 1000);
    let mut sent = 0_u64;
    loop {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}"#);
        let mut write = Box::pin(talk.send(&line));
        let mut stuck = true;
        // More turns than there are tasks, many times over.
        for _ in 0..1000 {
            if futures_util::poll!(write.as_mut()).is_ready() {
                stuck = false;
                break;
            }
            tokio::task::yield_now().await;
        }
        if stuck {
            break;
        }
        drop(write);
        sent += 1;
        assert!(sent < 10_000, "the gateway reads and reads");
    }
    assert!(sent > 20, "{sent}");
    // The line in the middle of which it stopped is lost with its future: close, and read what came.
    talk.close();
    for id in 0..sent {
        assert_eq!(talk.next().await.unwrap()["id"], json!(id));
    }
}

/// A panic costs one call, and its client hears of it.
#[tokio::test]
async fn a_panic_is_answered() {
    let house = House::open();
    let mut talk = Talk::open(&house);
    assert_eq!(talk.code(&call("1", "panic")).await, (json!(1), -32603));
    assert!(talk.ask(&call("1", "ok")).await.get("result").is_some());
    assert_eq!(house.tasks.panics(), 1);
}

/// [R41]: an array in, an array out, in sessions of 2025-03-26 alone.
#[tokio::test]
async fn batches_are_of_one_revision() {
    let mut house = House::open();
    let mut talk = Talk::session(&house, "2025-03-26").await;
    let batch = format!(
        r#"[{},{{"jsonrpc":"2.0","id":2,"method":"ping"}},{INITIALIZED},{{"jsonrpc":"2.0","id":3}}]"#,
        legacy_call("1", "gate")
    );
    talk.send(&batch).await;
    house.began("gate").await;
    house.hall.gate.notify_one();
    let answers = talk.next().await.unwrap();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!(3)]);
    talk.send(&format!("[{INITIALIZED}]")).await;
    assert_eq!(talk.ask(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#).await["id"], json!(4));
    // Their number is bounded, too.
    for id in 100..116 {
        talk.send(&format!("[{}]", legacy_call(&id.to_string(), "hang"))).await;
    }
    assert_eq!(talk.code(&format!("[{}]", legacy_call("5", "ok"))).await, (json!(null), -31002));
    talk.send(&cancel("100")).await;
    house.gone("gate").await;
    for _ in 100..116 {
        house.began("hang").await;
    }
    house.gone("hang").await;
    while talk.ask(&format!("[{}]", legacy_call("5", "ok"))).await.is_object() {}
}

/// Who is not known, or not connected to what it is shown, is refused with its id.
#[tokio::test]
async fn a_stranger_is_refused() {
    let house = House::open();
    let elsewhere = PipeClient { endpoint: Endpoint::Server(UpstreamName::new("x").unwrap()), ..client() };
    let nobody = PipeClient { credential: Credential::ApiKey(Lent::new("nobody")), ..client() };
    for (client, code) in [(elsewhere, -32600), (nobody, -31005)] {
        let mut talk = Talk::with(&house, client, GRACE, 64 << 10);
        talk.send(INITIALIZED).await;
        assert_eq!(talk.code(&initialize("\"2025-11-25\"")).await, (json!("i"), code));
    }
    let mine = PipeClient { endpoint: Endpoint::Server(UpstreamName::new("s").unwrap()), ..client() };
    let mut talk = Talk::with(&house, mine, GRACE, 64 << 10);
    assert!(talk.ask(&call("1", "ok")).await.get("result").is_some());
}
