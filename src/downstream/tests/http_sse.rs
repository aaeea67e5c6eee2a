//! HTTP+SSE of 2024-11-05: one stream for all that is said, and every way in which it ends.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::{Client, Got, House, LEGACY, Noticed, call, can, initialize, legacy_call};
use crate::downstream::{DownstreamSettings, HttpSse};

const LIST: &str = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn on() -> DownstreamSettings {
    DownstreamSettings { http_sse: HttpSse::On, ..Default::default() }
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// A client's open stream.
struct Stream {
    get: Client,
    text: String,
    /// Where its messages go.
    to: String,
    headers: String,
}

impl Stream {
    /// Opens a stream; its first event says where messages go.
    async fn open(house: &House, path: &str, headers: &str) -> Self {
        let mut get = house.connect().await;
        get.send("GET", path, headers, "").await;
        let (status, fields) = get.head().await;
        assert_eq!(status, 200);
        assert!(fields.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{fields:?}");
        let mut stream = Self { get, text: String::new(), to: String::new(), headers: headers.to_owned() };
        let (kind, to) = stream.event().await.unwrap();
        assert_eq!(kind, "endpoint");
        Self { to, ..stream }
    }

    /// Opens a stream and a session on it.
    async fn session(house: &House, version: &str) -> Self {
        let mut stream = Self::open(house, "/sse", LEGACY).await;
        let answer = stream.ask(house, &initialize(&format!("\"{version}\""))).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        stream
    }

    async fn post(&self, house: &House, body: &str) -> Got {
        house.ask("POST", &self.to, &self.headers, body).await
    }

    /// Posts what is taken without a word.
    async fn tell(&self, house: &House, body: &str) {
        let got = self.post(house, body).await;
        assert_eq!((got.status, got.body.as_str(), got.header("content-type")), (202, "", None), "{body}");
    }

    /// Posts a request and returns the next message.
    async fn ask(&mut self, house: &House, body: &str) -> Value {
        self.tell(house, body).await;
        self.message().await
    }

    async fn message(&mut self) -> Value {
        let (kind, data) = self.event().await.expect("the stream has ended");
        assert_eq!(kind, "message");
        serde_json::from_str(&data).unwrap()
    }

    /// The next event's name and data, comments left out; `None` at the end of the stream.
    async fn event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if block.starts_with(':') {
                    continue;
                }
                let (kind, data) = block.split_once('\n').unwrap();
                let data: Vec<_> = data.lines().map(|line| line.strip_prefix("data: ").unwrap()).collect();
                return Some((kind.strip_prefix("event: ").unwrap().to_owned(), data.join("\n")));
            }
            let more = self.get.chunk().await?;
            self.text.push_str(&more);
        }
    }

    /// Reads to the end; nothing more may be said.
    async fn ended(mut self) {
        assert_eq!(self.event().await, None);
    }
}

/// Waits until nothing is left of what was open.
async fn base_line(house: &House) {
    let streams = || house.door.door().streams.len();
    while (house.door.sessions(), streams()) != (0, 0) {
        tokio::task::yield_now().await;
    }
}

/// [TRN-1, R24]: nothing is there unless it is switched on, with or without a credential.
#[tokio::test]
async fn it_is_off_by_default() {
    let house = House::open();
    for (verb, headers) in [("GET", LEGACY), ("POST", LEGACY), ("GET", "Host: localhost\r\n")] {
        for path in ["/sse", "/sse/s", "/sse?sessionId=x"] {
            let got = house.ask(verb, path, headers, "").await;
            assert_eq!(got.code(), (404, -32600), "{verb} {path}");
            assert_eq!(got.body, house.ask(verb, "/none", headers, "").await.body);
        }
    }
}

/// [TRN-1, R25, FC-HTP-16]: every answer comes on the stream, and what is posted is answered 202.
#[tokio::test]
async fn everything_is_said_on_one_stream() {
    let house = House::with(on());
    let mut stream = Stream::open(&house, "/sse", LEGACY).await;
    let (path, id) = stream.to.split_once("?sessionId=").unwrap();
    assert_eq!((path, id.len()), ("/sse", 43));
    assert_eq!(stream.ask(&house, PING).await, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    let early = stream.ask(&house, LIST).await;
    assert_eq!((&early["id"], &early["error"]["code"]), (&json!(0), &json!(-32600)), "{early}");
    let hello = stream.ask(&house, &initialize("\"2024-11-05\"")).await;
    assert_eq!((&hello["id"], &hello["result"]["protocolVersion"]), (&json!("i"), &json!("2024-11-05")));
    assert_eq!(hello["result"]["capabilities"], can());
    stream.tell(&house, INITIALIZED).await;
    let list = stream.ask(&house, LIST).await;
    assert_eq!(list["result"], json!({"tools": [{"name": "a", "inputSchema": {}}]}));
    let echo = stream.ask(&house, &legacy_call("7", "echo")).await;
    assert_eq!(
        (&echo["id"], &echo["result"]["content"]),
        (&json!(7), &json!([{ "type": "text", "text": "{\"big\":12345678901234567890}" }]))
    );
    let pretty = stream.ask(&house, &legacy_call("\"7\"", "pretty")).await;
    assert_eq!((&pretty["id"], &pretty["result"]["text"]), (&json!("7"), &json!("a\nb")));
    let unseen = stream.ask(&house, &legacy_call("1", "unseen")).await;
    assert_eq!(unseen["result"]["content"], json!(["x"]));
    for (body, code) in [
        (LIST.replace("tools/list", "none"), -32601),
        (legacy_call("3", "r-unknown"), -32602),
        (format!("[{PING}]"), -32600),
    ] {
        assert_eq!(stream.ask(&house, &body).await["error"]["code"], code, "{body}");
    }
    // A client of both eras speaks the newer one here too.
    let newer = stream.ask(&house, &call("9", "echo")).await;
    assert_eq!((&newer["id"], &newer["result"]["resultType"]), (&json!(9), &json!("complete")));
    assert_eq!((house.door.sessions(), house.door.door().streams.len()), (1, 1));
    drop(stream);
    base_line(&house).await;
}

/// [R109, R111]: what is told on the way comes before the answer, and calls do not hold each other up.
#[tokio::test]
async fn what_is_told_on_the_way_comes_before_the_answer() {
    let mut house = House::with(on());
    let mut stream = Stream::session(&house, "2025-11-25").await;
    stream.tell(&house, &legacy_call("1", "chatty")).await;
    let told = [stream.message().await, stream.message().await, stream.message().await];
    let methods: Vec<_> = told.iter().map(|note| note["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["notifications/message", "notifications/progress", "notifications/message"]);
    house.began("chatty").await;
    assert_eq!(stream.ask(&house, PING).await["id"], "p");
    house.hall.gate.notify_one();
    assert_eq!(stream.message().await["id"], 1);
}

/// [POL-10]: changes are told from `initialized` on.
#[tokio::test]
async fn changes_come_on_the_same_stream() {
    let mut house = House::with(on());
    let mut stream = Stream::session(&house, "2024-11-05").await;
    stream.tell(&house, INITIALIZED).await;
    house.began("listen").await;
    house.hall.changes.send(()).unwrap();
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    assert_eq!(stream.ask(&house, LIST).await["id"], 0);
}

/// [NAM-5]: a server's path has its own stream, which is not found on another.
#[tokio::test]
async fn a_server_has_its_own_path() {
    let house = House::with(on());
    for path in ["/sse/none", "/sse/a%20b", "/sse//"] {
        assert_eq!(house.ask("GET", path, LEGACY, "").await.code(), (404, -32600), "{path}");
    }
    let mut stream = Stream::open(&house, "/sse/s/", LEGACY).await;
    assert!(stream.to.starts_with("/sse/s?sessionId="), "{}", stream.to);
    assert_eq!(stream.ask(&house, PING).await["id"], "p");
    let elsewhere = stream.to.replace("/sse/s", "/sse");
    assert_eq!(house.ask("POST", &elsewhere, LEGACY, PING).await.code(), (404, -32600));
}

/// [NAM-5]: behind another proxy the stream names its place as the client sees it, and is found with that path and without.
#[tokio::test]
async fn a_stream_behind_another_proxy_names_the_public_path() {
    let house = House::with(DownstreamSettings { public_path: "/tools/x".to_owned(), ..on() });
    for get in ["/sse/s", "/tools/x/sse/s"] {
        let mut stream = Stream::open(&house, get, LEGACY).await;
        assert!(stream.to.starts_with("/tools/x/sse/s?sessionId="), "{}", stream.to);
        assert_eq!(stream.ask(&house, PING).await["id"], "p");
        let inside = stream.to.replace("/tools/x", "");
        assert_eq!(house.ask("POST", &inside, LEGACY, PING).await.status, 202);
    }
}

/// [R37, R120, FC-AUT-07, TRN-10]: whoever names a stream must be who opened it, as it stands in the credential.
#[tokio::test]
async fn a_stream_is_its_own_clients() {
    let house = House::with(on());
    let mut stream = Stream::session(&house, "2024-11-05").await;
    let refused = |got: Got| got.code();
    let foreign = LEGACY.replace("alice", "bob");
    assert_eq!(refused(house.ask("POST", &stream.to, &foreign, LIST).await), (404, -32600));
    assert_eq!(refused(house.ask("POST", "/sse?sessionId=x", LEGACY, LIST).await), (404, -32600));
    let anonymous = LEGACY.replace("x-api-key: alice\r\n", "");
    assert_eq!(refused(house.ask("POST", &stream.to, &anonymous, LIST).await), (401, -31005));
    assert_eq!(refused(house.ask("GET", "/sse", &anonymous, "").await), (401, -31005));
    assert_eq!(refused(house.ask("GET", "/sse", &LEGACY.replace("alice", "nobody"), "").await), (403, -31005));
    // Its session is none that a header could name.
    let id = stream.to.rsplit_once('=').unwrap().1;
    let named = format!("{LEGACY}Mcp-Session-Id: {id}\r\n");
    assert_eq!(refused(house.post(&named, LIST).await), (404, -32600));
    assert_eq!(stream.ask(&house, PING).await["id"], "p");
}

/// [R1, R2, TRN-6, LIM-5, LIM-8]: the checks of the other door, before a message is looked at.
#[tokio::test]
async fn what_is_refused_is_refused_as_on_the_other_door() {
    let house = House::with(DownstreamSettings { body_bytes_max: 200, ..on() });
    let stream = Stream::open(&house, "/sse", LEGACY).await;
    for headers in [
        LEGACY.replace("localhost", "evil.example"),
        format!("{LEGACY}Origin: https://evil.example\r\n"),
        format!("{LEGACY}Origin: null\r\n"),
    ] {
        assert_eq!(house.ask("GET", "/sse", &headers, "").await.code(), (403, -32600), "{headers}");
        assert_eq!(house.ask("POST", &stream.to, &headers, PING).await.code(), (403, -32600), "{headers}");
    }
    let json = "Content-Type: application/json";
    let got = house.ask("POST", &stream.to, &LEGACY.replace(json, "Content-Type: text/plain"), PING).await;
    assert_eq!(got.code(), (415, -32600));
    assert_eq!(stream.post(&house, &legacy_call("1", &"x".repeat(200))).await.code(), (413, -32600));
    assert_eq!(stream.post(&house, "{").await.code(), (400, -32700));
    assert_eq!(stream.post(&house, "{\"id\":4}").await.code(), (400, -32600));
    let takes_json = format!("{LEGACY}Accept: application/json\r\n");
    assert_eq!(house.ask("GET", "/sse", &takes_json, "").await.code(), (406, -32600));
    // A client that tries Streamable HTTP first goes on to GET by this.
    for (verb, path, allow) in [
        ("POST", "/sse", "GET"),
        ("POST", "/sse?sessionId=x&sessionId=x", "GET"),
        ("DELETE", stream.to.as_str(), "GET, POST, OPTIONS"),
    ] {
        let got = house.ask(verb, path, LEGACY, &initialize("\"2025-11-25\"")).await;
        assert_eq!((got.code(), got.header("allow")), ((405, -32600), Some(allow)), "{verb} {path}");
    }
    for (verb, path, body) in [("GET", "/sse", ""), ("POST", stream.to.as_str(), PING)] {
        let got = house.ask(verb, path, &LEGACY.replace("alice", "busy"), body).await;
        assert_eq!((got.code(), got.header("retry-after")), ((429, -31001), Some("3")), "{verb}");
    }
}

/// [R108, FC-IDS-01]: cancelled by its exact id; nothing more is said of it.
#[tokio::test]
async fn a_call_is_cancelled_by_its_id() {
    let mut house = House::with(on());
    let mut stream = Stream::session(&house, "2024-11-05").await;
    stream.tell(&house, &legacy_call("4", "hang")).await;
    house.began("hang").await;
    assert_eq!(stream.ask(&house, &legacy_call("4", "echo")).await["error"]["code"], -32600);
    stream.tell(&house, &cancel("\"4\"")).await;
    stream.tell(&house, &cancel("4")).await;
    house.gone("hang").await;
    assert_eq!(stream.ask(&house, &legacy_call("4", "echo")).await["id"], 4);
}

/// [TRN-1]: whoever loses its GET loses its session, with all that is in flight, of both eras.
#[tokio::test]
async fn the_session_ends_with_its_stream() {
    let mut house = House::with(on());
    let stream = Stream::session(&house, "2025-11-25").await;
    stream.tell(&house, INITIALIZED).await;
    house.began("listen").await;
    for body in [legacy_call("1", "hang"), call("2", "hang"), legacy_call("3", "chatty")] {
        stream.tell(&house, &body).await;
        assert!(matches!(house.noticed.recv().await.unwrap(), Noticed::Began(_)));
    }
    let to = stream.to.clone();
    drop(stream);
    for _ in 0..4 {
        assert!(matches!(house.noticed.recv().await.unwrap(), Noticed::Gone(_)));
    }
    base_line(&house).await;
    assert_eq!(house.ask("POST", &to, LEGACY, PING).await.code(), (404, -32600));
}

/// [CFG-4]: what a reload takes away ends its streams, with a session or before; others go on.
#[tokio::test]
async fn a_reload_ends_the_streams_of_who_has_gone() {
    let mut house = House::with(on());
    let alice = Stream::session(&house, "2025-11-25").await;
    let early = Stream::open(&house, "/sse", LEGACY).await;
    let mut bob = Stream::open(&house, "/sse", &LEGACY.replace("alice", "bob")).await;
    alice.tell(&house, &legacy_call("1", "hang")).await;
    house.began("hang").await;
    assert_eq!(house.door.retain_sessions(|principal, _| principal.as_str() != "alice"), 1);
    house.gone("hang").await;
    alice.ended().await;
    early.ended().await;
    assert_eq!(bob.ask(&house, PING).await["id"], "p");
    house.door.close_sessions();
    bob.ended().await;
    base_line(&house).await;
}

/// [CFG-4]: what the hall ends because a key is withdrawn, while its principal stays, ends the stream with all it has: nobody
/// posts to a session that is not there any more.
#[tokio::test]
async fn a_stream_ends_when_the_hall_ends_what_it_is_told() {
    let mut house = House::with(on());
    let stream = Stream::session(&house, "2025-11-25").await;
    stream.tell(&house, INITIALIZED).await;
    house.began("listen").await;
    stream.tell(&house, &legacy_call("1", "hang")).await;
    house.began("hang").await;
    house.hall.lost.notify_one();
    house.gone("listen").await;
    house.gone("hang").await;
    let to = stream.to.clone();
    stream.ended().await;
    base_line(&house).await;
    assert_eq!(house.ask("POST", &to, LEGACY, PING).await.code(), (404, -32600));
}

/// [FC-SES-04, LIM-6]: a stream has a place among the sessions from its GET on, and its session is at that place.
#[tokio::test]
async fn streams_count_as_sessions() {
    let house = House::with(DownstreamSettings { sessions_per_principal_max: 2, sessions_max: 3, ..on() });
    let mut stream = Stream::open(&house, "/sse", LEGACY).await;
    house.session("2025-11-25").await;
    for _ in 0..2 {
        assert_eq!(stream.ask(&house, &initialize("\"2025-11-25\"")).await["id"], "i", "one session after the other");
    }
    assert_eq!(house.door.sessions(), 2);
    assert_eq!(house.ask("GET", "/sse", LEGACY, "").await.code(), (503, -31002));
    assert_eq!(house.post(LEGACY, &initialize("\"2025-11-25\"")).await.code(), (503, -31002));
    let _bob = Stream::open(&house, "/sse", &LEGACY.replace("alice", "bob")).await;
    let carol = LEGACY.replace("alice", "carol");
    assert_eq!(house.ask("GET", "/sse", &carol, "").await.code(), (503, -31002));
    drop(stream);
    while house.door.sessions() > 1 {
        tokio::task::yield_now().await;
    }
    Stream::open(&house, "/sse", &carol).await;
}

/// [LIM-6]: a stream on which nothing begins is idle after `session_idle_secs`, also one whose session has not begun to
/// listen; one whose session has is not.
#[tokio::test]
async fn a_stream_on_which_nothing_begins_ends() {
    let mut house = House::with(DownstreamSettings { session_idle: Duration::from_millis(40), ..on() });
    let mut stream = Stream::session(&house, "2024-11-05").await;
    stream.tell(&house, INITIALIZED).await;
    house.began("listen").await;
    let silent = Stream::open(&house, "/sse", LEGACY).await;
    let unheard = Stream::session(&house, "2024-11-05").await;
    house.clock.advance(Duration::from_secs(3_600));
    silent.ended().await;
    unheard.ended().await;
    assert_eq!(stream.ask(&house, PING).await["id"], "p");
}

/// [FC-HTP-13]: a silent stream has comments.
#[tokio::test]
async fn a_silent_stream_has_comments() {
    let house = House::with(DownstreamSettings { keep_alive: Duration::from_millis(20), ..on() });
    let mut stream = Stream::open(&house, "/sse", LEGACY).await;
    while !stream.get.chunk().await.expect("the stream has ended").starts_with(": ") {}
    assert_eq!(stream.ask(&house, PING).await["id"], "p");
}

/// [OPS-5]: at a stop what runs is answered and nothing begins; then the stream ends.
#[tokio::test]
async fn a_drain_lets_calls_finish() {
    let mut house = House::with(on());
    let mut stream = Stream::session(&house, "2025-11-25").await;
    stream.tell(&house, INITIALIZED).await;
    house.began("listen").await;
    stream.tell(&house, &legacy_call("1", "gate")).await;
    house.began("gate").await;
    let mut late = house.connect().await;
    let half = format!("POST {} HTTP/1.1\r\n{LEGACY}Content-Length: {}\r\n\r\n{{", stream.to, LIST.len());
    late.raw(&half).await;
    // It is being read, and no other connection is left that waits to be accepted.
    stream.tell(&house, &cancel("9")).await;
    house.drain.start();
    house.gone("listen").await;
    late.raw(LIST.strip_prefix("{").unwrap()).await;
    assert_eq!(late.response().await.code(), (503, -31003));
    house.hall.gate.notify_one();
    assert_eq!(stream.message().await["id"], 1);
    stream.ended().await;
    assert!(house.drain.finished(Duration::from_secs(60)).await);
    base_line(&house).await;
}

/// [LIM-6, promise 2]: for a client that does not read, no more waits than the bound, and nothing new is begun; then it is
/// given up with all it has.
#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_given_up() {
    let mut house = House::with(DownstreamSettings { write_timeout: Duration::from_secs(5), ..on() });
    let stream = Stream::session(&house, "2025-11-25").await;
    stream.tell(&house, &legacy_call("1", "large")).await;
    house.began("large").await;
    // The answer is larger than all buffers on the way, so there is soon no room for what begins then.
    while !house.door.door().streams.is_crowded() {
        tokio::task::yield_now().await;
    }
    let mut waiting = house.connect().await;
    waiting.send("POST", &stream.to, LEGACY, &legacy_call("2", "echo")).await;
    // What needs no room comes in.
    stream.tell(&house, &cancel("9")).await;
    house.gone("large").await;
    base_line(&house).await;
    assert_eq!(waiting.response().await.code(), (404, -32600));
    drop(stream);
}
