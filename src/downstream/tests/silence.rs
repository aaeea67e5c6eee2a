//! How long an HTTP/1.1 connection may be silent.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{House, LEGACY, call, modern};

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
