//! Servers over https: whose certificate is taken, and that nothing leads away from TLS [TRN-5, FC-CFG-08].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis::runtime::Tasks;
use tokio::net::TcpListener;

use crate::support::{
    Authority, Client, ERAS, Era, Gateway, Leaf, Speaks, TestApp, Tunnel, Upstream, Wire, folder, until,
    within_deadline,
};

/// An authority in a file of its own.
struct Trusted {
    authority: Authority,
    folder: PathBuf,
}

impl Trusted {
    fn new() -> Self {
        let trusted = Self { authority: Authority::new(), folder: folder() };
        trusted.write(&trusted.authority.pem);
        trusted
    }

    fn write(&self, pem: &str) {
        std::fs::write(self.folder.join("new.pem"), pem).unwrap();
        std::fs::rename(self.folder.join("new.pem"), self.folder.join("ca.pem")).unwrap();
    }

    fn leaf(&self) -> Leaf {
        self.authority.leaf(&["localhost"])
    }

    /// The line of a server's table.
    fn line(&self) -> String {
        format!("tls_ca_cert_path = \"{}\"", self.folder.join("ca.pem").display())
    }
}

impl Drop for Trusted {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

fn https(addr: SocketAddr) -> String {
    format!("url = \"https://localhost:{}/mcp\"", addr.port())
}

/// Both eras on both sides, JSON and event streams, a stream of changes: all as without TLS.
#[tokio::test]
async fn a_server_over_https_is_as_without() {
    let trusted = Trusted::new();
    for (speaks, sse) in [(Speaks::Legacy, true), (Speaks::Stateless, false), (Speaks::Both, true)] {
        let upstream = Upstream::start(speaks, sse, &["echo"]).await;
        let front = Tunnel::of_tls(&trusted.leaf(), upstream.addr()).await;
        let app = TestApp::open(&[("up", format!("{}\n{}", https(front.addr), trusted.line()))]).await;
        until("the gateway's own stream", || upstream.streams() > 0).await;
        for (era, tools) in ERAS.into_iter().zip([["echo", "b"].as_slice(), &["echo", "b", "c"]]) {
            let client = Client::connect(era, app.addr, "/mcp", None).await;
            let answer = client.call_with("up__echo", r#"{"k":1.10}"#).await;
            assert_eq!(answer.raw("result.echo"), r#"{"k":1.10}"#, "{speaks:?}, {era:?}");
            assert_eq!(client.names().await.len(), tools.len() - 1);
            let mut stream = client.listen().await;
            upstream.change(tools);
            assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
            assert_eq!(client.names().await.len(), tools.len());
        }
        app.stop().await;
    }
}

/// Each failure says which check failed, costs the other server nothing, and sends the server nothing.
#[tokio::test]
async fn a_certificate_that_is_not_good_keeps_the_server_down() {
    let (trusted, foreign) = (Trusted::new(), Authority::new());
    let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let bad = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let cases = [
        ("expired", trusted.authority.expired(&["localhost"]), trusted.line(), "has expired"),
        ("other host", trusted.authority.leaf(&["other.example"]), trusted.line(), "is not for the host"),
        ("unknown", foreign.leaf(&["localhost"]), trusted.line(), "of no authority that is trusted"),
        ("without the file", trusted.leaf(), String::new(), "of no authority that is trusted"),
    ];
    for (case, leaf, line, words) in cases {
        let front = Tunnel::of_tls(&leaf, bad.addr()).await;
        let requests = bad.lists();
        let app = TestApp::open(&[("bad", format!("{}\n{line}", https(front.addr))), ("good", good.lines())]).await;
        let said = app.said.iter().find(|line| line.starts_with("bad")).unwrap();
        assert!(said.contains("down") && said.contains(words), "{case}: {said}");
        for era in ERAS {
            let client = Client::connect(era, app.addr, "/mcp", None).await;
            assert_eq!(client.names().await, ["good__echo"], "{case}");
            assert!(client.call_with("good__echo", "{}").await.is_result(), "{case}");
        }
        assert_eq!(bad.lists(), requests, "{case}: the server was spoken to");
        app.stop().await;
    }
}

/// A server that takes connections and never finishes its handshake holds up nobody else.
#[tokio::test]
async fn a_server_that_never_finishes_its_handshake_holds_up_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let lines = https(silent.local_addr().unwrap());
    let app = TestApp::open(&[("silent", lines), ("good", good.lines())]).await;
    let (_held, _) = within_deadline("it is dialled", silent.accept()).await.unwrap();
    for era in ERAS {
        let client = Client::connect(era, app.addr, "/mcp", None).await;
        assert!(within_deadline("a call beside it", client.call_with("good__echo", "{}")).await.is_result());
    }
    assert!(within_deadline("the end", app.stop()).await, "the grace ended first");
}

/// The file is read for each new connection: a server comes up when its authority arrives, and an authority that has gone
/// is trusted no more.
#[tokio::test]
async fn an_authority_that_arrives_brings_its_server_up() {
    let (trusted, foreign) = (Trusted::new(), Authority::new());
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let front = Tunnel::of_tls(&trusted.leaf(), upstream.addr()).await;
    trusted.write(&foreign.pem);
    let app = TestApp::open(&[("up", format!("{}\n{}", https(front.addr), trusted.line()))]).await;
    assert!(app.said[0].contains("of no authority that is trusted"), "{:?}", app.said);
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    assert!(!client.call_with("up__echo", "{}").await.is_result());
    trusted.write(&format!("{}{}", foreign.pem, trusted.authority.pem));
    let up = async { while client.names().await.is_empty() {} };
    within_deadline("the server comes up", up).await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    app.stop().await;
}

/// A plain port that counts who comes.
struct Plain {
    addr: SocketAddr,
    visits: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Plain {
    async fn start() -> Self {
        let (tasks, visits) = (Tasks::new(), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let count = Arc::clone(&visits);
        tasks.spawn("plain port", async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { addr, visits, tasks }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// A server that answers everything with these bytes; returns where it is and how often it was asked.
async fn says(answer: String, tasks: &Tasks) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (all, count) = (tasks.clone(), Arc::clone(&asked));
    tasks.spawn("a server of one answer", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, count) = (answer.clone(), Arc::clone(&count));
            all.spawn("one answer", async move {
                let mut wire = Wire::new(stream);
                while let Some(head) = wire.head().await {
                    wire.body(head.rest(true)).await;
                    count.fetch_add(1, Ordering::SeqCst);
                    wire.write(answer.as_bytes()).await;
                }
            });
        }
    });
    (addr, asked)
}

/// A server over https that names a plain endpoint, by a redirect or by the event of HTTP+SSE, is not followed there: no
/// connection, so no header.
#[tokio::test]
async fn a_downgrade_by_the_servers_endpoint_is_not_followed() {
    let trusted = Trusted::new();
    let tasks = Tasks::new();
    for way in ["redirect", "see other", "endpoint event"] {
        let plain = Plain::start().await;
        let there = format!("http://{}/messages", plain.addr);
        let answer = match way {
            "redirect" => format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n"),
            "see other" => format!("HTTP/1.1 303 See Other\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n"),
            _ => {
                let event = format!("event: endpoint\ndata: {there}\n\n");
                let length = event.len();
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{event}")
            }
        };
        let (addr, asked) = says(answer, &tasks).await;
        let front = Tunnel::of_tls(&trusted.leaf(), addr).await;
        let lines =
            format!("{}\n{}\nheaders = {{ Authorization = \"Bearer canary\" }}", https(front.addr), trusted.line());
        let app = TestApp::open(&[("up", lines)]).await;
        assert!(app.said[0].contains("down"), "{way}: {:?}", app.said);
        // The second try has not gone there either.
        let before = asked.load(Ordering::SeqCst);
        until("it is tried again", || asked.load(Ordering::SeqCst) > before).await;
        app.stop().await;
        assert_eq!(plain.visits.load(Ordering::SeqCst), 0, "{way}");
    }
    tasks.cancel();
}

/// [TRN-5]: without `tls_ca_cert_path` the machine's authorities judge, and with it they do so too, for it adds to them; where
/// there are none, the bundled ones, and no others.
#[tokio::test]
async fn the_machines_authorities_judge_and_the_bundled_ones_where_there_are_none() {
    let trusted = Trusted::new();
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let front = Tunnel::of_tls(&trusted.leaf(), upstream.addr()).await;
    let foreign = Trusted::new();
    let with = format!("{}\n{}", https(front.addr), foreign.line());
    let (tables, names) = TestApp::servers(&[("up", https(front.addr)), ("with", with)]);
    let rest = format!("{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n");
    let none = trusted.folder.join("none.pem");
    std::fs::write(&none, "").unwrap();
    let start = async |file: &Path| {
        let env = [("SSL_CERT_FILE", file), ("SSL_CERT_DIR", &trusted.folder.join("nowhere"))];
        Gateway::try_start_in(&env, "127.0.0.1:0", &rest).await.unwrap()
    };

    let gateway = start(&trusted.folder.join("ca.pem")).await;
    let both = |gateway: &Gateway, words: &str| {
        let says = |start: &str| gateway.said.lines().any(|line| line.contains(start) && line.contains(words));
        assert!(says("server   up ") && says("server   with "), "{}", gateway.said);
    };
    both(&gateway, "ready, 1 tools");
    assert!(!gateway.said.contains("bundled"), "{}", gateway.said);
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));

    let gateway = start(&none).await;
    assert!(gateway.said.contains("the bundled ones serve"), "{}", gateway.said);
    both(&gateway, "of no authority that is trusted");
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}
