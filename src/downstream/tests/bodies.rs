//! How much of large requests is held at once, of all clients and of one [LIM-6].

use serde_json::{Value, json};

use super::support::{Client, Got, House, META, call, legacy_call, modern};
use crate::downstream::DownstreamSettings;

/// A call of a tool with so many bytes of arguments.
fn large(tool: &str, bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{META},"name":"{tool}","arguments":{{"a":"{text}"}}}}}}"#
    )
}

fn house(bodies_bytes_max: usize) -> House {
    House::with(DownstreamSettings { bodies_bytes_max, ..Default::default() })
}

async fn ask(client: &mut Client, who: &str, body: &str) -> Got {
    let tool = if body.contains(r#""gate""#) { "gate" } else { "echo" };
    client.ask("POST", "/mcp", &modern("tools/call", Some(tool)).replace("alice", who), body).await
}

/// Asks until there is room.
async fn ask_until_taken(client: &mut Client, who: &str, body: &str) {
    loop {
        let got = ask(client, who, body).await;
        if got.status == 200 {
            return;
        }
        assert_eq!(got.code(), (503, -31002));
    }
}

/// [LIM-6]: large bodies are counted while they are read and while their calls run: over its share a principal is refused, its
/// connection goes on, and others have room; what ends comes back.
#[tokio::test]
async fn bodies_are_bounded_in_sum() {
    let mut house = house(400_000);
    let (mut running, mut next, mut bob) = (house.connect().await, house.connect().await, house.connect().await);
    let body = large("gate", 150_000);
    running.send("POST", "/mcp", &modern("tools/call", Some("gate")), &body).await;
    house.began("gate").await;
    let got = ask(&mut next, "alice", &large("echo", 150_000)).await;
    assert_eq!((got.code(), got.header("retry-after"), got.header("connection")), ((503, -31002), Some("1"), None));
    let words = "Too many bytes of requests are held at once: this principal may have 200000 (half of what the others leave of \
                 limits.request_body_bytes × 16, or 256 MiB)";
    assert_eq!(got.json()["error"]["message"], words);
    assert_eq!(ask(&mut next, "alice", &call("2", "echo")).await.status, 200, "a small one has room");
    assert_eq!(ask(&mut bob, "bob", &large("echo", 130_000)).await.code(), (503, -31002), "half of what she leaves");
    assert_eq!(ask(&mut bob, "bob", &large("echo", 100_000)).await.status, 200);
    house.hall.gate.notify_one();
    assert_eq!(running.response().await.status, 200);
    ask_until_taken(&mut next, "alice", &large("echo", 150_000)).await;
}

/// [LIM-6]: a body that does not say how long it is counts as it comes; when there is no more room nothing of it is held, the
/// client is told, and its connection goes on.
#[tokio::test]
async fn a_body_without_a_length_counts_as_it_comes() {
    let house = house(400_000);
    let (mut one, mut other) = (house.connect().await, house.connect().await);
    let headers = format!("{}Transfer-Encoding: chunked\r\n\r\n", modern("tools/call", Some("echo")));
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    one.raw(&format!("POST /mcp HTTP/1.1\r\n{headers}{}", chunk.repeat(4))).await;
    // Nothing is left for her while it is read, or it is given up and all is.
    ask_until_taken(&mut other, "alice", &large("echo", 150_000)).await;
    one.raw("0\r\n\r\n").await;
    assert_eq!(one.response().await.code(), (503, -31002));
    assert_eq!(ask(&mut one, "alice", &call("2", "echo")).await.status, 200);
}

/// [LIM-6]: what a client has sent of a body that it never ends comes back with its connection.
#[tokio::test]
async fn a_body_that_breaks_off_gives_its_room_back() {
    let house = house(400_000);
    for _ in 0..3 {
        let mut broken = house.connect().await;
        let headers = modern("tools/call", Some("echo"));
        broken.raw(&format!("POST /mcp HTTP/1.1\r\n{headers}Content-Length: 190000\r\n\r\n")).await;
        broken.raw(&" ".repeat(180_000)).await;
    }
    ask_until_taken(&mut house.connect().await, "alice", &large("echo", 190_000)).await;
}

/// [LIM-6]: small bodies cost nothing, and need no room.
#[tokio::test]
async fn small_bodies_are_not_counted() {
    let house = house(0);
    let mut client = house.connect().await;
    assert_eq!(ask(&mut client, "alice", &large("echo", 60_000)).await.status, 200);
    assert_eq!(ask(&mut client, "alice", &large("echo", 70_000)).await.code(), (503, -31002));
    assert_eq!(ask(&mut client, "alice", &large("echo", 60_000)).await.status, 200);
}

/// [LIM-6]: a line for which there is no room is refused by its id; an answer is not answered, and the conversation goes on.
#[tokio::test]
async fn lines_of_a_pipe_count_too() {
    let house = house(100_000);
    let mut talk = super::stdio::Talk::session(&house, "2025-06-18").await;
    let long =
        |id: &str| legacy_call(id, "echo").replace(r#""name""#, &format!(r#""x":"{}","name""#, "x".repeat(120_000)));
    let answer = talk.ask(&long("7")).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-31002)));
    talk.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}}}}"#, "x".repeat(120_000))).await;
    let answer: Value = talk.ask(&legacy_call("8", "echo")).await;
    assert_eq!((&answer["id"], answer.get("error")), (&json!(8), None));
}
