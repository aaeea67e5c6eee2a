//! How long an HTTP/1.1 connection may be silent.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{Client, House, LEGACY, call, modern};
use crate::net::{Listener, Slots};

const SILENCE: Duration = Duration::from_secs(30);

/// A head that does not come, or not to its end, ends the connection after 30 s and not before; so does silence after an
/// answer.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends() {
    let house = House::open();
    let asked = format!("DELETE /mcp HTTP/1.1\r\n{LEGACY}\r\n");
    for start in ["GET /mcp HTTP/1.1\r\n", "GET /mcp HTTP/1.1\r\nHost: localhost\r\n", &asked, &asked.repeat(3)] {
        let mut stream = TcpStream::connect(house.address).await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "tokio's own paused time")]
        let begun = tokio::time::Instant::now();
        stream.write_all(start.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap_or_default();
        assert!(begun.elapsed() >= SILENCE, "{start:?}: {:?}", begun.elapsed());
    }
}

/// A call that takes its time is no silence, however long it takes; nor is the time before the next request, as long as
/// that comes.
#[tokio::test(start_paused = true)]
async fn a_call_under_way_is_no_silence() {
    let mut house = House::open();
    let mut client = house.connect().await;
    let headers = format!("{}Accept: application/json\r\n", modern("tools/call", Some("gate")));
    for _ in 0..2 {
        client.send("POST", "/mcp", &headers, &call("1", "gate")).await;
        house.began("gate").await;
        tokio::time::sleep(SILENCE * 4).await;
        house.hall.gate.notify_one();
        assert_eq!(client.response().await.status, 200);
        house.gone("gate").await;
        tokio::time::sleep(SILENCE / 2).await;
    }
}

/// [LIM-6]: while all connections are taken, those on which nothing was asked give way to new ones; a call under way, and a
/// connection that is kept for the next, stay.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_keeps_nobody_out() {
    let mut house = House::open();
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(4)).unwrap();
    house.address = listener.address().unwrap();
    let door = house.door.clone();
    house.tasks.spawn("accept", async move { door.serve(listener).await });
    let (mut running, mut kept) = (house.connect().await, house.connect().await);
    running.send("POST", "/mcp", &modern("tools/call", Some("gate")), &call("1", "gate")).await;
    house.began("gate").await;
    let ask = async |client: &mut Client| {
        let headers = modern("tools/call", Some("echo"));
        client.ask("POST", "/mcp", &headers, &call("2", "echo")).await.status
    };
    assert_eq!(ask(&mut kept).await, 200);
    let mut silent = Vec::new();
    for start in ["", "GET /mcp HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", "P", ""] {
        let mut client = house.connect().await;
        client.raw(start).await;
        silent.push(client);
    }
    #[expect(clippy::disallowed_methods, reason = "tokio's own paused time")]
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&mut house.connect().await).await, 200);
    assert!(begun.elapsed() < SILENCE, "{:?}: one that was silent went by itself", begun.elapsed());
    assert_eq!(ask(&mut kept).await, 200);
    house.hall.gate.notify_one();
    assert_eq!(running.response().await.status, 200);
    assert!(silent[0].stream.read_to_end(&mut Vec::new()).await.is_ok_and(|read| read == 0));
}
