//! How connections over TLS end when the gateway stops: with `close_notify`, whatever was going on [OPS-5].

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Authority, Gateway, Secured, connect_tls, folder, within_deadline};

/// Reads to the end, which a connection that was merely dropped does not have.
async fn leaves(mut stream: Secured, what: &str) {
    let mut rest = Vec::new();
    let read = within_deadline(what, stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "{what}: {read:?}");
}

/// A connection that was never used, one that is idle after a request, one whose head is half there, and HTTP/2.
#[tokio::test]
async fn idle_tls_connections_are_told_of_the_end() {
    let (authority, folder) = (Authority::new(), folder());
    let (cert, key) = authority.leaf(&["localhost"]).write(&folder);
    let lines = format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n[principals.local]\n", cert.display(), key.display());
    let gateway = Gateway::try_start("127.0.0.1:0", &lines).await.unwrap();
    let mut open = Vec::new();
    for (what, protocols, said) in [
        ("unused", vec![b"http/1.1".as_slice()], ""),
        ("unused, no protocol named", vec![], ""),
        ("half a head", vec![b"http/1.1".as_slice()], "GET /mcp HT"),
        ("half a head, no protocol named", vec![], "GET /mcp HT"),
        ("used", vec![b"http/1.1".as_slice()], "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("HTTP/2, unused", vec![b"h2".as_slice()], ""),
        ("HTTP/2, greeted", vec![b"h2".as_slice()], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let mut stream = connect_tls(gateway.addr, &authority.pem, &protocols).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        if what == "used" {
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            assert_eq!(&start, b"HTTP/1.1 404");
        }
        open.push((what, stream));
    }
    gateway.terminate();
    for (what, stream) in open {
        leaves(stream, what).await;
    }
    assert_eq!(gateway.ended().await, Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}
