//! The listener's certificate and its handshakes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::super::scratch::Scratch;
use super::super::certs::{Authority, Leaf};
use super::super::pem;
use super::{Doubts, Reread, ServerTls, TlsFiles};

/// Writes a pair into a folder, which must be kept.
fn files(leaf: &Leaf) -> (Scratch, TlsFiles) {
    let folder = Scratch::new();
    let (cert, key) = leaf.write(&folder);
    (folder, TlsFiles { cert, key })
}

fn served(tls: &ServerTls) -> CertificateDer<'static> {
    tls.0.current.0.load().cert[0].clone()
}

fn der(leaf: &Leaf) -> CertificateDer<'static> {
    pem::certificates(leaf.cert.as_bytes()).unwrap().remove(0)
}

#[test]
fn an_error_names_the_file_and_what_is_wrong() {
    let authority = Authority::new();
    let (one, other) = (authority.leaf(&["localhost"]), authority.leaf(&["localhost"]));
    let (_folder, good) = files(&one);
    let open = |open_to_all| Ok(Doubts { open_to_all, untimely: None });
    assert_eq!(good.check(), open(false));
    fs::set_permissions(&good.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(good.check(), open(true));
    fs::set_permissions(&good.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(good.check(), open(false), "a group may be meant");

    let canary = format!("{}canary\n", one.cert.replace("CERTIFICATE", "CERTIFICATE REQUEST"));
    let encrypted = one.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let large = "x".repeat((1 << 20) + 1);
    let cases = [
        (canary.as_str(), one.key.as_str(), true, "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\ncanary!\n-----END CERTIFICATE-----\n", &one.key, true, "is malformed PEM"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &one.key, true, "cannot be used"),
        (&large, &one.key, true, "is larger than"),
        (&one.cert, &other.key, false, "is not the key of the certificate in"),
        (&one.cert, &encrypted, false, "not encrypted"),
        (&one.cert, "canary", false, "holds no private key"),
    ];
    for (cert, key, blames_cert, words) in cases {
        let (_folder, files) = files(&Leaf { cert: cert.to_owned(), key: key.to_owned() });
        let err = files.check().unwrap_err();
        assert_eq!(err.path, if blames_cert { files.cert } else { files.key }, "{words}");
        let text = err.to_string();
        assert!(text.contains(words) && !text.contains("canary"), "{text}");
    }

    let missing = TlsFiles { cert: good.cert.with_file_name("none.pem"), ..good.clone() };
    assert!(missing.check().unwrap_err().to_string().contains("cannot be read"));
    let a_folder = TlsFiles { key: good.key.with_file_name(""), ..good };
    assert!(a_folder.check().unwrap_err().to_string().contains("is not a regular file"));
}

/// Clients judge by the whole chain; a file that was good once is told by its times.
#[test]
fn what_has_expired_or_not_begun_is_told() {
    let authority = Authority::new();
    let (good, old, new) = (
        authority.leaf(&["localhost"]),
        authority.expired(&["localhost"]),
        authority.of_years(&["localhost"], 3000, 3001),
    );
    let with = |more: &Leaf| Leaf { cert: format!("{}{}", good.cert, more.cert), ..good.clone() };
    for (leaf, words) in [
        (&old, Some("the certificate expired at 2002-01-01T00:00:00Z")),
        (&new, Some("the certificate is not valid before 3000-01-01T00:00:00Z")),
        (&with(&old), Some("certificate 2 of the chain expired at 2002-01-01T00:00:00Z")),
        (&with(&Leaf { cert: authority.pem, ..good.clone() }), None),
    ] {
        let (_folder, files) = files(leaf);
        assert_eq!(files.check().unwrap().untimely.as_deref(), words);
        assert_eq!(ServerTls::load(files).unwrap().untimely().as_deref(), words);
    }
}

/// A pipe that nobody writes to must not be waited for.
#[test]
fn a_pipe_is_not_waited_for() {
    let (_folder, files) = files(&Authority::new().leaf(&["localhost"]));
    fs::remove_file(&files.cert).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &files.cert, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(files.check().unwrap_err().to_string().contains("is not a regular file"));
}

/// The content decides: a touched file is no news, a swapped link is, and what is bad never replaces what is good.
#[test]
fn a_new_certificate_is_taken_and_a_bad_one_is_not() {
    let authority = Authority::new();
    let (one, two) = (authority.leaf(&["localhost"]), authority.leaf(&["localhost"]));
    let base = Scratch::new();
    for (name, leaf) in [("v1", &one), ("v2", &two)] {
        fs::create_dir_all(base.join(name)).unwrap();
        leaf.write(&base.join(name));
    }
    // As a ConfigMap or Secret is mounted: files are links through a link to a folder, which is replaced at once.
    let swap = |to: &str| {
        symlink(to, base.join("data.new")).unwrap();
        fs::rename(base.join("data.new"), base.join("data")).unwrap();
    };
    swap("v1");
    let files = TlsFiles { cert: base.join("data/cert.pem"), key: base.join("data/key.pem") };
    let tls = ServerTls::load(files.clone()).unwrap();
    assert_eq!((tls.reread(), served(&tls)), (Reread::Same, der(&one)));

    one.write(&base.join("v1"));
    assert_eq!(tls.reread(), Reread::Same, "written again, with the same content");
    swap("v2");
    assert_eq!((tls.reread(), served(&tls)), (Reread::New, der(&two)));

    fs::write(&files.key, &one.key).unwrap();
    let Reread::Kept(err) = tls.reread() else { panic!("not kept") };
    assert!(err.to_string().contains("is not the key of the certificate"), "{err}");
    assert_eq!((tls.reread(), served(&tls)), (Reread::Same, der(&two)), "a failure is new once");
    fs::remove_file(&files.cert).unwrap();
    assert!(matches!(tls.reread(), Reread::Kept(_)));
    assert_eq!(served(&tls), der(&two));

    swap("v1");
    assert_eq!((tls.reread(), served(&tls)), (Reread::New, der(&one)));
}

/// One that connects and is silent is given up in time.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_given_up() {
    let (_folder, files) = files(&Authority::new().leaf(&["localhost"]));
    let tls = ServerTls::load(files).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let mut shaking = std::pin::pin!(tls.accept(socket));
    assert!(futures_util::poll!(&mut shaking).is_pending());
    let Err(err) = shaking.await else { panic!("a handshake with nobody") };
    assert_eq!(err.kind(), std::io::ErrorKind::TimedOut);
}

/// Whoever sends plain HTTP to a port of https reads why that does not work, however much it has sent.
#[tokio::test]
async fn plain_http_is_answered_in_plain_http() {
    let (_folder, files) = files(&Authority::new().leaf(&["localhost"]));
    let tls = ServerTls::load(files).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let client = async {
        let mut client = TcpStream::connect(addr).await.unwrap();
        let body = "x".repeat(20_000);
        client.write_all(format!("POST /mcp HTTP/1.1\r\nHost: h\r\n\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let server = async { tls.accept(listener.accept().await.unwrap().0).await.err().unwrap() };
    let (answer, err) = futures_util::future::join(client, server).await;
    assert!(err.to_string().contains("plain http"), "{err}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("https"), "{answer}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{answer}");
}
