//! Either end sees the other's leave, and not a connection that broke off.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::super::dial::{Demand, Dialer};
use super::super::super::listen::Listener;
use super::super::super::scratch::Scratch;
use super::super::super::slots::Slots;
use super::super::certs::Authority;
use super::super::{ClientTls, ServerTls, TlsFiles};
use crate::runtime::Tasks;

/// RFC 8446 §6.1: an end without `close_notify` would be an error of the read.
#[tokio::test]
async fn what_is_dropped_takes_its_leave_once() {
    let (authority, folder, tasks) = (Authority::new(), Scratch::new(), Tasks::new());
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let (cert, key) = authority.leaf(&["localhost"]).write(&folder);
    let tls = ServerTls::load(TlsFiles { cert, key }).unwrap();
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(8)).unwrap().with_tls(Some(tls));
    let url = format!("https://localhost:{}/", listener.address().unwrap().port()).parse().unwrap();
    let dialer = Dialer::new(ClientTls::new(Some(ca)), Demand::Tls, &tasks);
    for (client_goes, in_order) in [(true, false), (false, false), (true, true), (false, true)] {
        let accepted = async { listener.accept().await.open(Duration::from_secs(60)).await.unwrap() };
        let (server, client) = futures_util::future::join(accepted, dialer.dial(&url)).await;
        let ((mut server, _, _slot), mut client) = (server, client.unwrap());
        client.write_all(b"one").await.unwrap();
        server.write_all(b"two").await.unwrap();
        let mut rest = Vec::new();
        if client_goes {
            if in_order {
                client.shutdown().await.unwrap();
            }
            // What it was sent is read, for a socket that closes over unread bytes is reset.
            client.read_exact(&mut [0; 3]).await.unwrap();
            drop(client);
            server.read_to_end(&mut rest).await.unwrap();
        } else {
            if in_order {
                server.shutdown().await.unwrap();
            }
            server.read_exact(&mut [0; 3]).await.unwrap();
            drop(server);
            client.read_to_end(&mut rest).await.unwrap();
        }
        assert_eq!(rest, if client_goes { b"one" } else { b"two" });
    }
}
