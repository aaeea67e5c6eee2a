//! The listener over TLS, HTTP/2 and local sockets [TRN-1, AUT-1].

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portcullis::config::process_env;
use portcullis::runtime::Tasks;
use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::support::{
    Answer, Authority, Client, ERAS, Ended, Era, Gateway, Leaf, Secured, Speaks, TestApp, Tunnel, Upstream,
    connect_tls, folder, until, within_deadline,
};

/// A certificate's folder, in which it is replaced as a mounted Secret is: by a swapped link.
struct Mounted {
    folder: PathBuf,
    versions: AtomicUsize,
}

impl Mounted {
    fn new(leaf: &Leaf) -> Self {
        let mounted = Self { folder: folder(), versions: AtomicUsize::new(0) };
        mounted.swap(leaf);
        mounted
    }

    fn swap(&self, leaf: &Leaf) {
        let version = format!("v{}", self.versions.fetch_add(1, Ordering::SeqCst));
        std::fs::create_dir(self.folder.join(&version)).unwrap();
        leaf.write(&self.folder.join(&version));
        std::os::unix::fs::symlink(version, self.folder.join("new")).unwrap();
        std::fs::rename(self.folder.join("new"), self.folder.join("data")).unwrap();
    }

    /// The lines of `[listen]`.
    fn lines(&self) -> String {
        let at = |name: &str| self.folder.join("data").join(name).display().to_string();
        format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n", at("cert.pem"), at("key.pem"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

/// The rest of a configuration: these lines of `[listen]`, and one server that `local` is granted.
fn rest(listen: &str, upstream: &Upstream) -> String {
    let (tables, names) = TestApp::servers(&[("up", upstream.lines())]);
    format!("{listen}{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles = [\"all\"]\n")
}

/// A gateway of its own process, without keys, whose configuration goes on so after `[listen]`.
async fn serve(rest: &str) -> Gateway {
    Gateway::try_start("127.0.0.1:0", rest).await.unwrap_or_else(|ended| panic!("{ended:?}"))
}

/// Lists, calls and is told of a change: one more tool.
async fn converses(upstream: &Upstream, client: &Client, tools: &[&str]) {
    let shown = |tools: &[&str]| tools.iter().map(|tool| format!("up__{tool}")).collect::<Vec<_>>();
    let (_, before) = tools.split_last().unwrap();
    assert_eq!(client.names().await, shown(before));
    assert_eq!(client.call_with("up__echo", r#"{"k":1.10}"#).await.raw("result.echo"), r#"{"k":1.10}"#);
    let mut stream = client.listen().await;
    upstream.change(tools);
    let event = within_deadline("a list change", stream.next()).await.unwrap();
    assert!(event.contains("notifications/tools/list_changed"), "{event}");
    assert_eq!(client.names().await, shown(tools));
}

#[tokio::test]
async fn http1_over_tls_is_as_without() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let app = TestApp::start("none", &rest(&mounted.lines(), &upstream)).await;
    until("the gateway's own stream", || upstream.streams() > 0).await;
    let tunnel = Tunnel::to_tls(app.addr, &authority.pem).await;
    for (era, tools) in ERAS.into_iter().zip([["echo", "b"].as_slice(), &["echo", "b", "c"]]) {
        let client = Client::connect(era, tunnel.addr, "/mcp", None).await;
        converses(&upstream, &client, tools).await;
    }
    // A client that names no protocol is HTTP/1.1 by its first bytes; one that names another gets no connection.
    let mut plain = connect_tls(app.addr, &authority.pem, &[]).await.unwrap();
    plain.write_all(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    plain.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 404");
    assert!(connect_tls(app.addr, &authority.pem, &[b"spdy/3"]).await.is_err());
    app.stop().await;
}

/// An HTTP/2 connection, driven by a task.
async fn speak_http2(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, tasks: &Tasks) -> Http2 {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tasks.spawn("HTTP/2 connection", async move { drop(connection.await) });
    Http2(sender)
}

#[derive(Clone)]
struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    async fn post(&mut self, uri: &str, fields: &[(&str, &str)], body: String) -> (StatusCode, String) {
        let mut request = Request::post(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn call(&mut self, tool: &str, arguments: &str) -> Answer {
        const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{META}}}}}"#
        );
        let fields = [("mcp-method", "tools/call"), ("mcp-name", tool)];
        let (status, text) = self.post("http://localhost/mcp", &fields, body).await;
        Answer { status: status.as_u16(), messages: vec![text] }
    }
}

/// Many calls at once on one connection, each with its own answer; the caps hold; the drain lets what runs finish.
async fn multiplexes(app: TestApp, upstream: &Upstream, mut one: Http2) {
    upstream.gather(20);
    let calls = (0..20).map(|number| {
        let mut one = one.clone();
        async move { one.call("up__together", &format!(r#"{{"n":{number}}}"#)).await }
    });
    // None of them is answered before the server has all of them.
    let answers = within_deadline("twenty calls at once", futures_util::future::join_all(calls)).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer.raw("result.echo"), format!(r#"{{"n":{number}}}"#));
    }

    let (status, _) = one.post("http://evil.example/mcp", &[], String::new()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = one.post("http://localhost/mcp", &[("host", "evil.example")], String::new()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let many: Vec<(String, &str)> = (0..101).map(|number| (format!("x-{number}"), "v")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let (status, _) = one.post("http://localhost/mcp", &many, String::new()).await;
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "more fields than are allowed");
    let (status, _) = one.post("http://localhost/mcp", &[("x", &"v".repeat(70_000))], String::new()).await;
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "a larger head than is allowed");
    let (status, _) = one.post("http://localhost/mcp", &[("mcp-method", "tools/list")], "x".repeat(2_000)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let again = one.call("up__echo", "{}").await;
    assert!(again.is_result(), "the connection lives on: {again:?}");

    let calls = upstream.calls().len();
    let held = one.call("up__hold", r#"{"k":1}"#);
    let stopped = async {
        until("the call is under way", || upstream.calls().len() > calls).await;
        let stopping = app.stop();
        let released = async { upstream.release() };
        futures_util::future::join(stopping, released).await;
    };
    let (held, ()) = within_deadline("the held call", futures_util::future::join(held, stopped)).await;
    assert_eq!(held.raw("result.echo"), r#"{"k":1}"#);
}

const LIMITS: &str = "[limits]\nrequest_body_bytes = 1000\n";
const TOOLS: [&str; 3] = ["echo", "hold", "together"];

#[tokio::test]
async fn http2_by_alpn() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &TOOLS).await;
    let app = TestApp::start("none", &format!("{}{LIMITS}", rest(&mounted.lines(), &upstream))).await;
    let stream: Secured = connect_tls(app.addr, &authority.pem, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let tasks = Tasks::new();
    let one = speak_http2(stream, &tasks).await;
    multiplexes(app, &upstream, one).await;
    tasks.cancel();
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let upstream = Upstream::start(Speaks::Both, false, &TOOLS).await;
    let app = TestApp::start("none", &format!("{}{LIMITS}", rest("", &upstream))).await;
    let tasks = Tasks::new();
    let one = speak_http2(TcpStream::connect(app.addr).await.unwrap(), &tasks).await;
    multiplexes(app, &upstream, one).await;
    tasks.cancel();
}

/// A client that goes away takes its call with it, and an open connection on which nothing is asked, or that never
/// became one, does not hold up the end [OPS-5].
#[tokio::test]
async fn http2_clients_that_stop_short() {
    let upstream = Upstream::start(Speaks::Both, false, &TOOLS).await;
    let app = TestApp::start("none", &rest("", &upstream)).await;
    let tasks = Tasks::new();
    let mut one = speak_http2(TcpStream::connect(app.addr).await.unwrap(), &tasks).await;
    assert!(one.call("up__echo", "{}").await.is_result());
    let mut silent = Vec::new();
    for start in ["", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST /mcp HT"] {
        let mut stream = TcpStream::connect(app.addr).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    assert!(within_deadline("the end", app.stop()).await, "the grace ended first");
    for mut stream in silent {
        within_deadline("the silent client's end", stream.read_to_end(&mut Vec::new())).await.unwrap_or_default();
    }
    tasks.cancel();
}

/// Clients that stall in their handshake keep nobody out, and do not hold up the end.
#[tokio::test]
async fn stalled_handshakes_hold_up_nobody() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let app = TestApp::start("none", &rest(&mounted.lines(), &upstream)).await;
    let mut stalled = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(app.addr).await.unwrap();
        // Some say nothing, some begin a record that never comes.
        if number % 2 == 0 {
            stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
        }
        stalled.push(stream);
    }
    let mut foreign = TcpStream::connect(app.addr).await.unwrap();
    foreign.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    within_deadline("plain HTTP is turned away", foreign.read_to_end(&mut text)).await.unwrap_or_default();
    assert!(text.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&text));

    let tunnel = Tunnel::to_tls(app.addr, &authority.pem).await;
    for era in ERAS {
        let client = Client::connect(era, tunnel.addr, "/mcp", None).await;
        let answer = within_deadline("a call beside them", client.call_with("up__echo", "{}")).await;
        assert!(answer.is_result(), "{answer:?}");
    }
    assert!(within_deadline("the end", app.stop()).await, "the grace ended first");
}

/// [LIM-6]: where all connections are taken by clients that stall in their handshake, or are silent after it, the longest
/// silent gives way; who has asked for something keeps its own. What a client of plain HTTP did stands in the log.
#[tokio::test]
async fn the_silent_give_way_over_tls() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let mut gateway = serve(&(rest(&mounted.lines(), &upstream) + "[limits]\nconnections = 3\n")).await;
    let ca = &authority.pem;

    let mut foreign = TcpStream::connect(gateway.addr).await.unwrap();
    foreign.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    within_deadline("the log line", gateway.says("speaks plain http to a port of https")).await;
    drop(foreign);

    let mut busy = connect_tls(gateway.addr, ca, &[b"http/1.1"]).await.unwrap();
    let ask = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
    busy.write_all(ask).await.unwrap();
    let mut some = [0; 12];
    busy.read_exact(&mut some).await.unwrap();
    let mut silent = connect_tls(gateway.addr, ca, &[b"http/1.1"]).await.unwrap();
    let mut half = TcpStream::connect(gateway.addr).await.unwrap();
    half.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();

    let mut news = Vec::new();
    for _ in 0..2 {
        let mut new = within_deadline("a place", connect_tls(gateway.addr, ca, &[b"http/1.1"])).await.unwrap();
        new.write_all(ask).await.unwrap();
        within_deadline("an answer", new.read_exact(&mut some)).await.unwrap();
        assert_eq!(&some, b"HTTP/1.1 404");
        if news.is_empty() {
            // By itself the handshake would have ended first, and this connection long after it.
            let (mut of_silent, mut of_half) = (Vec::new(), Vec::new());
            let silent = pin!(silent.read_to_end(&mut of_silent));
            let half = pin!(half.read_to_end(&mut of_half));
            let silent_first = async { matches!(select(silent, half).await, Either::Left(_)) };
            let silent_first = within_deadline("the first to give way", silent_first).await;
            assert!(silent_first, "the longest silent has stayed");
        }
        news.push(new);
    }
    busy.write_all(ask).await.unwrap();
    within_deadline("an answer to who had asked before", busy.read_exact(&mut some)).await.unwrap();
}

/// The certificate that new connections get.
async fn shown(app: &TestApp, authority: &Authority) -> Vec<u8> {
    let stream = connect_tls(app.addr, &authority.pem, &[b"http/1.1"]).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// A certificate that is swapped under load drops nobody: neither calls, each on its own connection, nor streams that
/// were open before.
#[tokio::test]
async fn a_certificate_swapped_under_load_drops_nobody() {
    const CLIENTS: usize = 16;
    const SWAPS: usize = 3;
    let authority = Authority::new();
    let leaf = || authority.leaf(&["localhost"]);
    let mounted = Mounted::new(&leaf());
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let app = TestApp::start("none", &rest(&mounted.lines(), &upstream)).await;
    until("the gateway's own stream", || upstream.streams() > 0).await;
    let tunnel = Tunnel::to_tls(app.addr, &authority.pem).await;
    let over = Arc::new(AtomicBool::new(false));
    let calls = AtomicUsize::new(0);
    let callers = (0..CLIENTS).map(|number| {
        let (over, calls, addr) = (Arc::clone(&over), &calls, tunnel.addr);
        async move {
            let era = if number % 2 == 0 { Era::Legacy } else { Era::Stateless };
            let client = Client::connect(era, addr, "/mcp", None).await;
            let arguments = format!(r#"{{"n":{number}}}"#);
            while !over.load(Ordering::SeqCst) {
                let answer = client.call_with("up__echo", &arguments).await;
                assert_eq!(answer.raw("result.echo"), arguments);
                calls.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let swapping = async {
        let watcher = Client::connect(Era::Stateless, tunnel.addr, "/mcp", None).await;
        let mut stream = watcher.listen().await;
        let mut before = shown(&app, &authority).await;
        for _ in 0..SWAPS {
            mounted.swap(&leaf());
            let (mut now, done) = (before.clone(), calls.load(Ordering::SeqCst));
            while now == before {
                now = shown(&app, &authority).await;
            }
            before = now;
            // Calls go on with the new one.
            until("calls on new connections", || calls.load(Ordering::SeqCst) > done + CLIENTS).await;
        }
        upstream.change(&["echo", "more"]);
        assert!(stream.next().await.unwrap().contains("list_changed"), "a stream from before the swaps");
        over.store(true, Ordering::SeqCst);
    };
    let both = futures_util::future::join(futures_util::future::join_all(callers), swapping);
    within_deadline("the swaps", both).await;
    app.stop().await;
}

/// A bad new certificate keeps the old one and says so; a good one after it is taken.
#[tokio::test]
async fn a_bad_certificate_keeps_the_old_one_and_says_so() {
    let authority = Authority::new();
    let good = authority.leaf(&["localhost"]);
    let mounted = Mounted::new(&good);
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let mut gateway = Gateway::try_start("127.0.0.1:0", &rest(&mounted.lines(), &upstream)).await.unwrap();
    let other = authority.leaf(&["localhost"]);
    mounted.swap(&Leaf { key: other.key, ..good });
    gateway.says("the new certificate cannot be used: the one before stays").await;
    let tunnel = Tunnel::to_tls(gateway.addr, &authority.pem).await;
    let client = Client::connect(Era::Stateless, tunnel.addr, "/mcp", None).await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    mounted.swap(&authority.leaf(&["localhost"]));
    gateway.says("new connections get the new certificate").await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
}

/// Clients refuse a certificate that has expired, and the log says so where one comes to a gateway that runs [CFG].
#[tokio::test]
async fn an_expired_certificate_is_told_of_when_it_comes() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let mut gateway = serve(&rest(&mounted.lines(), &upstream)).await;
    mounted.swap(&authority.expired(&["localhost"]));
    let said = within_deadline("the log line", gateway.says("clients refuse it")).await;
    assert!(said.contains("P113") && said.contains("cert.pem") && said.contains("expired at 2002-01-01T"), "{said}");
}

/// A certificate that cannot be used fails the start, with the key and the file [OPS-1].
#[tokio::test]
async fn a_certificate_that_cannot_be_used_fails_the_start() {
    let mounted = Mounted::new(&Authority::new().leaf(&["localhost"]));
    std::fs::remove_file(mounted.folder.join("data/key.pem")).unwrap();
    let (code, said) = Gateway::try_start("127.0.0.1:0", &mounted.lines()).await.err().unwrap();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("listen.tls_key") && said.contains("data/key.pem"), "{said}");
}

/// A local socket: for its owner alone, one gateway at a time, gone at the end, and no hindrance if a killed one has
/// left it behind [AUT-1, OPS-5].
#[tokio::test]
async fn a_local_socket_is_its_owners_and_goes_with_the_gateway() {
    let folder = folder();
    let path = folder.join("mcp.sock");
    let http = format!("unix:{}", path.display());
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let rest = rest("", &upstream);
    let gateway = Gateway::try_start(&http, &rest).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let tunnel = Tunnel::to_socket(path.clone()).await;
    for era in ERAS {
        let client = Client::connect(era, tunnel.addr, "/mcp", None).await;
        assert!(client.call_with("up__echo", "{}").await.is_result());
    }
    let tasks = Tasks::new();
    let mut two = speak_http2(UnixStream::connect(&path).await.unwrap(), &tasks).await;
    assert!(two.call("up__echo", "{}").await.is_result());

    let (code, said) = Gateway::try_start(&http, &rest).await.err().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another process listens there") && said.contains(&http), "{said}");
    assert!(two.call("up__echo", "{}").await.is_result(), "the first one goes on");

    let pid = Pid::from_raw(i32::try_from(gateway.pid()).unwrap()).unwrap();
    gateway.kill().await;
    assert!(test_kill_process(pid).is_err() && path.exists());
    let gateway = Gateway::try_start(&http, &rest).await.unwrap();
    let client = Client::connect(Era::Stateless, tunnel.addr, "/mcp", None).await;
    assert!(client.call_with("up__echo", "{}").await.is_result());
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
    assert!(!path.exists());
    tasks.cancel();
    remove(&folder);
}

fn remove(folder: &Path) {
    let _removed = std::fs::remove_dir_all(folder).is_ok();
}

/// `call --url` speaks https too, and sends nothing to a gateway whose certificate is not good.
#[tokio::test]
async fn a_call_of_the_command_line_judges_the_certificate() {
    let authority = Authority::new();
    let mounted = Mounted::new(&authority.leaf(&["localhost"]));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let app = TestApp::start("none", &rest(&mounted.lines(), &upstream)).await;
    let command = crate::support::Command::new("");
    command.write("ca.pem", &authority.pem);
    command.write("other.pem", &Authority::new().pem);
    let url = format!("https://localhost:{}/mcp", app.addr.port());
    for (file, code, calls) in [("other.pem", 4, 0), ("ca.pem", 0, 1)] {
        let mut process = command.process(&["call", "--url", &url, "up__echo", "k=v"]);
        process.env("SSL_CERT_FILE", file).env_remove("SSL_CERT_DIR");
        let ended = Ended::of(process).await.code(code);
        assert_eq!(ended.stderr.contains("of no authority that is trusted"), code == 4, "{ended:?}");
        assert_eq!(ended.stderr.contains("SSL_CERT_FILE"), code == 4, "{ended:?}");
        assert_eq!(upstream.calls().len(), calls, "{ended:?}");
    }
    app.stop().await;
}

/// What certs/README.md says: the script's certificate serves, its authority is trusted, its keys are nobody else's.
#[tokio::test]
async fn development_certificates_serve() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/make-dev-certs");
    let folder = folder();
    let make = |names: &[&str]| {
        let made = Command::new(&script).arg("--into").arg(&folder).args(names).output().unwrap();
        let said = String::from_utf8(made.stderr).unwrap();
        (made.status.code(), said)
    };
    match make(&[]) {
        (Some(0), _) => {}
        // The script's own code for a machine that lacks openssl.
        (Some(69), said) => {
            assert_ne!(process_env("CI").as_deref(), Some("true"), "{said}");
            eprintln!("not run: development certificates ({})", said.trim());
            return;
        }
        (code, said) => panic!("{code:?}: {said}"),
    }
    for key in ["ca-key.pem", "key.pem"] {
        assert_eq!(std::fs::metadata(folder.join(key)).unwrap().permissions().mode() & 0o777, 0o600, "{key}");
    }
    let at = |name: &str| folder.join(name).display().to_string();
    let lines = format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n", at("cert.pem"), at("key.pem"));
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let app = TestApp::start("none", &rest(&lines, &upstream)).await;
    let authority = std::fs::read_to_string(folder.join("ca.pem")).unwrap();
    assert!(connect_tls(app.addr, &authority, &[b"h2"]).await.is_ok());
    assert!(connect_tls(app.addr, &Authority::new().pem, &[b"h2"]).await.is_err());
    assert_eq!(make(&["my-host.example", "10.0.0.1"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(folder.join("ca.pem")).unwrap(), authority, "the authority stays");
    assert_eq!(make(&["no host"]).0, Some(2));
    app.stop().await;
    remove(&folder);
}
