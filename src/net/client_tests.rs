//! The pool over TLS: what the server says to TLS alone costs no connection, and all of a request goes out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::certs::Authority;
use super::super::dial::{Demand, Dialer};
use super::super::listen::Listener;
use super::super::scratch::Scratch;
use super::super::slots::Slots;
use super::super::stream::HttpStream;
use super::super::tls::{ClientTls, ServerTls, TlsFiles};
use super::HttpClient;
use crate::net::script::{ScriptedServer, Step, json};
use crate::runtime::Tasks;

const HEAD: &[u8] = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Answers each request on a connection; one whose body says so is the last.
async fn answer(mut stream: HttpStream, bytes: Arc<AtomicUsize>) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&read[..head]).into_owned();
        let length: usize = text.split("content-length: ").nth(1).unwrap().trim().parse().unwrap();
        while read.len() < head + length {
            stream.read_buf(&mut read).await?;
        }
        bytes.fetch_add(length, Ordering::SeqCst);
        stream.write_all(ANSWER).await?;
        stream.flush().await?;
        if read.ends_with(b"last") {
            return stream.shutdown().await;
        }
        read.clear();
    }
}

/// A server over TLS; returns its port, how many connections it took, and how many bytes of bodies.
fn serve(tls: ServerTls, tasks: &Tasks) -> (u16, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(64)).unwrap().with_tls(Some(tls));
    let port = listener.address().unwrap().port();
    let (taken, bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (all, count, sum) = (tasks.clone(), Arc::clone(&taken), Arc::clone(&bytes));
    tasks.spawn("server", async move {
        loop {
            let connection = listener.accept().await;
            count.fetch_add(1, Ordering::SeqCst);
            let sum = Arc::clone(&sum);
            all.spawn("connection", async move {
                let (stream, _, _slot) = connection.open(Duration::from_secs(60)).await.unwrap();
                answer(stream, sum).await.unwrap();
            });
        }
    });
    (port, taken, bytes)
}

/// A server of TLS 1.3 sends session tickets that nobody asked for: they are no reason to give a connection up. Its
/// farewell is one. [TRN-5]
#[tokio::test]
async fn a_tls_connection_is_used_again_until_the_server_takes_its_leave() {
    let (tasks, authority, folder) = (Tasks::new(), Authority::new(), Scratch::new());
    let (cert, key) = authority.leaf(&["localhost"]).write(&folder);
    let (port, taken, bytes) = serve(ServerTls::load(TlsFiles { cert, key }).unwrap(), &tasks);
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let dialer = Dialer::new(ClientTls::new(Some(ca)), Demand::Tls, &tasks);
    let client = HttpClient::new(&tasks, dialer, format!("https://localhost:{port}/mcp").parse().unwrap());
    let send = async |body: Bytes| {
        let response = client.send(HEAD, &body).await.unwrap();
        response.body.collect(16).await.unwrap()
    };
    // More than the sockets and TLS hold between them.
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    let bodies = [Bytes::from_static(b"one"), large, Bytes::from_static(b"two"), Bytes::from_static(b"last")];
    let total: usize = bodies.iter().map(Bytes::len).sum();
    for body in bodies {
        assert_eq!(send(body).await, "ok");
    }
    assert_eq!((taken.load(Ordering::SeqCst), bytes.load(Ordering::SeqCst)), (1, total));
    // The server is waited for until it has said that it goes: a look at the idle connection finds that.
    let gone = async {
        while client.0.checkout().map(|connection| client.0.idle().push((0, connection))).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    assert_eq!(send(Bytes::from_static(b"three")).await, "ok");
    assert_eq!(taken.load(Ordering::SeqCst), 2);
    tasks.cancel();
}

/// [LIM-6]: of the connections that were busy at once so many are kept for the next requests; the rest is closed.
#[tokio::test]
async fn idle_connections_are_bounded() {
    let (tasks, gate) = (Tasks::new(), Arc::new(tokio::sync::Notify::new()));
    let opens = Arc::clone(&gate);
    let server = ScriptedServer::start(&tasks, move |_| {
        [vec![Step::Wait(Arc::clone(&opens))], json("200 OK", "{}"), vec![Step::Hang]].concat()
    })
    .await;
    let dialer = Dialer::new(ClientTls::new(None), Demand::Scheme, &tasks);
    let client = HttpClient::keeping(2, &tasks, dialer, format!("http://{}/mcp", server.addr).parse().unwrap());
    let send = async || {
        let response = client.send(HEAD, &Bytes::new()).await.unwrap();
        response.body.collect(16).await.unwrap()
    };
    let all = async {
        let answers = futures_util::future::join_all((0..5).map(|_| send())).await;
        assert!(answers.iter().all(|answer| answer == "{}"));
    };
    let open = async {
        crate::net::script::until("five requests", || server.requests().len() == 5).await;
        gate.notify_waiters();
    };
    futures_util::future::join(all, open).await;
    assert_eq!(client.0.idle().len(), 2);
    crate::net::script::until("the rest is closed", || server.gone() >= 3).await;
    tasks.cancel();
}
