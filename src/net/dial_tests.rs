//! Dialling over real sockets: which address answers, and whose certificate is taken [TRN-5].

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::certs::{Authority, Leaf};
use super::super::listen::Listener;
use super::super::scratch::Scratch;
use super::super::slots::Slots;
use super::super::tls::{ClientTls, ServerTls, TlsFiles};
use super::{Demand, DialError, DialedStream, Dialer, in_turns};
use crate::runtime::Tasks;

fn dialer(ca: Option<&Path>, demand: Demand) -> Dialer {
    Dialer::new(ClientTls::new(ca.map(Path::to_owned)), demand, &Tasks::new())
}

fn url(text: &str) -> Uri {
    text.parse().unwrap()
}

/// A TLS server with this certificate, which says hello; returns its port.
fn hello(leaf: &Leaf, tasks: &Tasks) -> u16 {
    let folder = Scratch::new();
    let (cert, key) = leaf.write(&folder);
    let tls = ServerTls::load(TlsFiles { cert, key }).unwrap();
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Slots::new(64)).unwrap().with_tls(Some(tls));
    let port = listener.address().unwrap().port();
    let all = tasks.clone();
    tasks.spawn("hello", async move {
        loop {
            let connection = listener.accept().await;
            all.spawn("hello", async move {
                let Ok((mut stream, _, _slot)) = connection.open(Duration::from_secs(60)).await else { return };
                stream.write_all(b"hello").await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    port
}

async fn said(stream: Result<DialedStream, DialError>) -> Result<String, String> {
    let mut stream = stream.map_err(|err| err.to_string())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

/// [FC-CFG-07]
#[tokio::test]
async fn localhost_is_tried_in_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // A machine without IPv6 has nothing to try.
        let Ok(listener) = TcpListener::bind(address).await else { continue };
        let port = listener.local_addr().unwrap().port();
        let dialled = dialer(None, Demand::Scheme).dial(&url(&format!("http://localhost:{port}/mcp"))).await;
        assert!(matches!(dialled, Ok(DialedStream::Plain(_))), "{address}: {dialled:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_dialled_says_why() {
    let dialer = dialer(None, Demand::Scheme);
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    for (text, words) in [
        (format!("http://127.0.0.1:{port}/"), "it takes no connection"),
        ("http://no-such-name.invalid/".to_owned(), "its name cannot be looked up"),
        ("ftp://127.0.0.1/".to_owned(), "neither http nor https"),
        ("/mcp".to_owned(), "no host"),
    ] {
        let err = dialer.dial(&url(&text)).await.unwrap_err().to_string();
        assert!(err.contains(words) && !err.contains("127.0.0.1"), "{text}: {err}");
    }
}

#[test]
fn families_take_turns() {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
    let found = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
    assert_eq!(in_turns(found), parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
    assert_eq!(in_turns(parse(&["1.1.1.1:1", "[::1]:1"])), parse(&["1.1.1.1:1", "[::1]:1"]));
    assert_eq!(in_turns(vec!["1.1.1.1:1".parse().unwrap(); 99]).len(), 16);
}

/// Chain, expiry and host name, each with its own words [TRN-5, FC-CFG-08].
#[tokio::test]
async fn a_certificate_is_taken_for_good_reasons_alone() {
    let tasks = Tasks::new();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let folder = Scratch::new();
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, &ours.pem).unwrap();
    let names = ["localhost", "127.0.0.1"];
    let good = hello(&ours.leaf(&names), &tasks);
    let cases = [
        ("right", Some(ca.as_path()), good, Ok("hello")),
        ("without the authority", None, good, Err("of no authority that is trusted")),
        ("foreign authority", Some(&ca), hello(&foreign.leaf(&names), &tasks), Err("of no authority that is trusted")),
        ("expired", Some(&ca), hello(&ours.expired(&names), &tasks), Err("has expired")),
        ("other host", Some(&ca), hello(&ours.leaf(&["other.example"]), &tasks), Err("is not for the host of its url")),
    ];
    for (case, ca, port, expected) in cases {
        for host in ["localhost", "localhost.", "127.0.0.1"] {
            let dialer = dialer(ca, Demand::Tls);
            // The second time nothing is resumed, so nothing is trusted from before.
            for _ in 0..2 {
                let got = said(dialer.dial(&url(&format!("https://{host}:{port}/"))).await).await;
                match (&got, expected) {
                    (Ok(text), Ok(words)) => assert_eq!(text, words, "{case}"),
                    (Err(err), Err(words)) => assert!(err.contains(words), "{case}, {host}: {err}"),
                    _ => panic!("{case}, {host}: {got:?}"),
                }
            }
        }
    }
    tasks.cancel();
}

/// The file is read for each connection, and what cannot be used is never fallen back from [TRN-5].
#[tokio::test]
async fn authorities_are_read_again_for_new_connections() {
    let tasks = Tasks::new();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let folder = Scratch::new();
    let ca = folder.join("ca.pem");
    let port = hello(&ours.leaf(&["localhost"]), &tasks);
    let dialer = dialer(Some(&ca), Demand::Tls);
    let url = url(&format!("https://localhost:{port}/"));
    let bundle = format!("{}{}", foreign.pem, ours.pem);
    for (content, words) in [
        (None, Err("tls_ca_cert_path: file")),
        (Some(ours.pem.as_str()), Ok(())),
        (Some(&foreign.pem), Err("of no authority")),
        (Some(&bundle), Ok(())),
        (Some("nothing"), Err("holds no certificate")),
        (Some(&ours.pem), Ok(())),
    ] {
        if let Some(content) = content {
            std::fs::write(&ca, content).unwrap();
        }
        let got = said(dialer.dial(&url).await).await;
        match (&got, words) {
            (Ok(_), Ok(())) => {}
            (Err(err), Err(words)) => assert!(err.contains(words), "{err}"),
            _ => panic!("{content:?}: {got:?}"),
        }
    }
    tasks.cancel();
}

/// A server that names a plain endpoint gets no connection at all [TRN-5].
#[tokio::test]
async fn a_downgrade_is_refused_before_anything_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&format!("http://{}/mcp", listener.local_addr().unwrap()));
    let err = dialer(None, Demand::Tls).dial(&url).await.unwrap_err();
    assert!(matches!(err, DialError::Plain), "{err}");
    assert!(dialer(None, Demand::Scheme).dial(&url).await.is_ok());
    let (mut only, _) = listener.accept().await.unwrap();
    assert!(futures_util::FutureExt::now_or_never(listener.accept()).is_none());
    assert_eq!(only.read(&mut [0; 1]).await.unwrap(), 0, "the other one's, which said nothing");
}

#[tokio::test]
async fn a_plain_server_does_not_speak_tls() {
    let tasks = Tasks::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&format!("https://{}/", listener.local_addr().unwrap()));
    tasks.spawn("plain", async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap_or_default();
    });
    let err = dialer(None, Demand::Tls).dial(&url).await.unwrap_err().to_string();
    assert_eq!(err, "it does not speak TLS");
    tasks.cancel();
}

/// The bound covers the handshake.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_finishes_its_handshake_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url(&format!("https://{}/", listener.local_addr().unwrap()));
    let err = dialer(None, Demand::Tls).dial(&url).await.unwrap_err();
    assert!(matches!(err, DialError::Slow), "{err}");
}
