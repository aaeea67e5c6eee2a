//! HTTP/2: many requests on one connection, each with its own end.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{House, Noticed, call};
use crate::downstream::DownstreamSettings;
use crate::runtime::Tasks;

/// Keeps the client's tasks together, so that the socket goes with them.
#[derive(Clone)]
struct InTasks(Tasks);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for InTasks {
    fn execute(&self, future: F) {
        self.0.spawn("HTTP/2 connection", future);
    }
}

/// Opens a connection, driven by tasks.
async fn connect(house: &House, tasks: &Tasks) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(house.address).await.unwrap();
    let (sender, connection) = http2::handshake(InTasks(tasks.clone()), TokioIo::new(stream)).await.unwrap();
    tasks.spawn("HTTP/2 connection", async move { drop(connection.await) });
    sender
}

fn request(tool: &str) -> Request<Full<Bytes>> {
    Request::post("http://localhost/mcp")
        .header("x-api-key", "alice")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Full::new(Bytes::from(call("1", tool))))
        .unwrap()
}

/// A client that resets a request ends that call, whether it has been answered in part or not at all, and no other.
#[tokio::test]
async fn a_reset_ends_its_own_call() {
    let (mut house, tasks) = (House::open(), Tasks::new());
    let mut sender = connect(&house, &tasks).await;
    let other = sender.send_request(request("gate"));
    house.began("gate").await;
    let silent = sender.send_request(request("hang"));
    house.began("hang").await;
    drop(silent);
    house.gone("hang").await;
    let mut begun = sender.send_request(request("chatty")).await.unwrap();
    house.began("chatty").await;
    let first = begun.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"event: message"), "{first:?}");
    drop(begun);
    house.gone("chatty").await;
    house.hall.gate.notify_waiters();
    let answer = other.await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(answer.ends_with(b"}"), "{answer:?}");
    house.gone("gate").await;

    let last = sender.send_request(request("hang"));
    house.began("hang").await;
    // The whole connection goes.
    tasks.cancel();
    house.gone("hang").await;
    assert!(last.await.is_err());
}

/// One connection has so many requests open and no more; the next one waits for a place.
#[tokio::test]
async fn open_requests_are_bounded() {
    let (mut house, tasks) = (House::open(), Tasks::new());
    let mut sender = connect(&house, &tasks).await;
    // The first answer proves that the client has seen what the door allows.
    sender.send_request(request("echo")).await.unwrap();
    house.began("echo").await;
    house.gone("echo").await;
    let mut open: Vec<_> = (0..150).map(|_| sender.send_request(request("hang"))).collect();
    for _ in 0..100 {
        house.began("hang").await;
    }
    assert!(house.noticed.try_recv().is_err());
    drop(open.swap_remove(0));
    let next = [house.noticed.recv().await.unwrap(), house.noticed.recv().await.unwrap()];
    assert_eq!(next, [Noticed::Gone("hang".to_owned()), Noticed::Began("hang".to_owned())]);
    assert!(open.into_iter().all(|waiting| waiting.now_or_never().is_none()));
    tasks.cancel();
}

/// Bodies beyond what may be under way without the door's leave: each leave that is due is given.
#[tokio::test]
async fn large_bodies_come_whole() {
    let (mut house, tasks) = (House::open(), Tasks::new());
    let mut sender = connect(&house, &tasks).await;
    for size in [100 << 10, 300 << 10, 3 << 20, 3 << 20, 3 << 20] {
        let body =
            request("echo").map(|_| Full::new(Bytes::from(format!("{}{}", call("1", "echo"), " ".repeat(size)))));
        assert_eq!(sender.send_request(body).await.unwrap().status(), 200, "{size}");
        house.began("echo").await;
        house.gone("echo").await;
    }
    tasks.cancel();
}

/// One that asks nothing is told to go, and when it stays silent it is gone: in front of the preface, after it, and after
/// a request.
#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_is_asked_ends() {
    let house = House::open();
    for start in [
        "",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut stream = TcpStream::connect(house.address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        // However it ends: with a reset, or after a farewell.
        stream.read_to_end(&mut Vec::new()).await.unwrap_or_default();
    }
}

/// [LIM-4, LIM-6]: a client that opens no window for its answer is given up, though its connection lives.
#[tokio::test]
async fn a_client_that_opens_no_window_is_given_up() {
    let write_timeout = std::time::Duration::from_millis(200);
    let (mut house, tasks) = (House::with(DownstreamSettings { write_timeout, ..Default::default() }), Tasks::new());
    let mut sender = connect(&house, &tasks).await;
    let unread = sender.send_request(request("large")).await.unwrap();
    house.began("large").await;
    house.gone("large").await;
    drop(unread);
    tasks.cancel();
}

/// [LIM-6]: a connection over a principal's share ends with its answer; requests that were open on it are answered.
#[tokio::test]
async fn a_connection_over_the_share_ends() {
    let (house, tasks) = (House::with(DownstreamSettings { connections_max: 2, ..Default::default() }), Tasks::new());
    let mut first = connect(&house, &tasks).await;
    assert_eq!(first.send_request(request("echo")).await.unwrap().status(), 200);
    let mut second = connect(&house, &tasks).await;
    let refused = second.send_request(request("echo")).await.unwrap();
    assert_eq!((refused.status(), refused.headers().get("connection")), (503.try_into().unwrap(), None));
    assert!(refused.into_body().collect().await.is_ok());
    while second.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(first.send_request(request("echo")).await.unwrap().status(), 200);
    tasks.cancel();
}
