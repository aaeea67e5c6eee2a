//! Redirects, against raw bytes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri};

use super::super::target::{Target, Verb};
use super::Redirects;
use crate::exchange::Reject;
use crate::id::UpstreamName;
use crate::net::script::{Recorded, ScriptedServer, Step, json, response};
use crate::net::{ClientTls, Demand, Dialer, HttpClient, Reach};
use crate::runtime::Tasks;

struct Lab {
    server: ScriptedServer,
    target: Target,
    tasks: Tasks,
}

fn redirect(status: &str, to: &str) -> Vec<Step> {
    response(status, &format!("Location: {to}\r\n"), "gone")
}

impl Lab {
    async fn new(
        reach: Reach,
        demand: Demand,
        script: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let tasks = Tasks::new();
        let server = ScriptedServer::start(&tasks, script).await;
        let uri: Uri = format!("http://{}/mcp", server.addr).parse().unwrap();
        let open = Dialer::new(ClientTls::new(None), Demand::Scheme, &tasks);
        let dialer = Dialer::new(ClientTls::new(None), demand, &tasks);
        let mut configured = HeaderMap::new();
        configured.insert("authorization", HeaderValue::from_static("Bearer canary"));
        configured.insert("user-agent", HeaderValue::from_static("mine/1"));
        let client = HttpClient::new(&tasks, open, uri.clone());
        let redirects = Redirects::new(uri.clone(), dialer, reach, tasks.clone());
        let name = UpstreamName::new("srv").unwrap();
        let target = Target::new(name, &uri, configured, client, 1 << 20).with_redirects(redirects);
        Self { server, target, tasks }
    }

    async fn send(&self, verb: Verb, body: &str) -> Result<u16, Reject> {
        let head = self.target.head(verb, &[]);
        let body = Bytes::from(body.to_owned());
        let sent = self.target.send(&head, &body);
        let sent = tokio::time::timeout(Duration::from_secs(20), sent).await.expect("an answer");
        sent.map(|response| response.status.as_u16())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// [TRN-6, FC-HTP-09]: within its origin a request is sent on with method, body and headers.
#[tokio::test]
async fn the_same_origin_gets_everything() {
    let lab = Lab::new(Reach::Public, Demand::Scheme, |request| match request.path.as_str() {
        "/mcp" => redirect("307 Temporary Redirect", "/mcp/"),
        "/mcp/" => redirect("308 Permanent Redirect", "v2/mcp?x=1"),
        _ => json("200 OK", "{}"),
    })
    .await;
    assert_eq!(lab.send(Verb::Post, "{\"a\":1}").await.unwrap(), 200);
    let requests = lab.server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!((request.method.as_str(), request.body.as_str()), ("POST", "{\"a\":1}"));
        assert_eq!(request.header("authorization"), Some("Bearer canary"));
        assert_eq!(request.header("host"), Some(lab.server.addr.to_string().as_str()));
    }
    assert_eq!(requests[2].path, "/mcp/v2/mcp?x=1");
}

/// [TRN-6]: another origin gets the request without the configured headers, where it may be reached at all.
#[tokio::test]
async fn another_origin_gets_no_header_of_this_one() {
    let other = Lab::new(Reach::Any, Demand::Scheme, |_| json("200 OK", "{}")).await;
    let to = format!("http://{}/elsewhere", other.server.addr);
    for (reach, reached) in [(Reach::Any, true), (Reach::Public, false)] {
        let to = to.clone();
        let lab = Lab::new(reach, Demand::Scheme, move |_| redirect("308 Permanent Redirect", &to)).await;
        let sent = lab.send(Verb::Post, "{}").await;
        if reached {
            assert_eq!(sent.unwrap(), 200);
            let got = &other.server.requests()[0];
            assert_eq!((got.method.as_str(), got.body.as_str()), ("POST", "{}"));
            assert_eq!(got.header("host"), Some(other.server.addr.to_string().as_str()));
            assert_eq!(got.header("content-type"), Some("application/json"));
            for name in ["authorization", "user-agent"] {
                assert_eq!(got.header(name), None, "{name}");
            }
        } else {
            let refused = sent.unwrap_err();
            assert!(refused.public.contains("'srv' redirects"), "{}", refused.public);
            assert!(refused.detail.contains("allow_private_redirects"), "{}", refused.detail);
            assert!(!refused.public.contains("127.0.0.1"), "{}", refused.public);
        }
    }
    assert_eq!(other.server.requests().len(), 1);
}

/// [TRN-6]: whoever has been given the request once does not say where in its origin the configured headers go: one that comes
/// back from elsewhere comes without them, and so does what follows.
#[tokio::test]
async fn what_has_left_its_origin_comes_back_bare() {
    let home = Arc::new(OnceLock::new());
    let back = Arc::clone(&home);
    let other = Lab::new(Reach::Any, Demand::Scheme, move |_| {
        redirect("307 Temporary Redirect", &format!("http://{}/chosen?by=other", back.get().unwrap()))
    })
    .await;
    let to = format!("http://{}/elsewhere", other.server.addr);
    let lab = Lab::new(Reach::Any, Demand::Scheme, move |request| match request.path.as_str() {
        "/mcp" => redirect("308 Permanent Redirect", &to),
        "/chosen?by=other" => redirect("308 Permanent Redirect", "/last"),
        _ => json("200 OK", "{}"),
    })
    .await;
    home.set(lab.server.addr).unwrap();
    for turn in 1..=2 {
        assert_eq!(lab.send(Verb::Post, "{}").await.unwrap(), 200);
        let requests = lab.server.requests();
        assert_eq!((requests.len(), other.server.requests().len()), (3 * turn, turn));
        for request in &requests {
            // The next request begins at home again, with everything.
            let configured = (request.path == "/mcp").then_some("Bearer canary");
            assert_eq!(request.header("authorization"), configured, "{}", request.path);
            assert_eq!(request.header("user-agent"), configured.map(|_| "mine/1"), "{}", request.path);
            assert_eq!(request.header("host"), Some(lab.server.addr.to_string().as_str()));
        }
    }
}

/// [TRN-6]: a name, or an odd spelling, of a private address is no way around; nothing is sent there.
#[tokio::test]
async fn a_private_address_is_not_reached_by_any_spelling() {
    let other = Lab::new(Reach::Any, Demand::Scheme, |_| json("200 OK", "{}")).await;
    let port = other.server.addr.port();
    for host in
        ["localhost", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "127.0.0.1."]
    {
        let to = format!("http://{host}:{port}/");
        let lab = Lab::new(Reach::Public, Demand::Scheme, move |_| redirect("307 Temporary Redirect", &to)).await;
        assert!(lab.send(Verb::Post, "{}").await.is_err(), "{host}");
    }
    assert_eq!(other.server.requests().len(), 0);
}

/// [TRN-6]: what would lose the body of a POST is refused; a GET is sent on.
#[tokio::test]
async fn a_post_is_never_made_a_get() {
    for status in ["301 Moved Permanently", "302 Found", "303 See Other"] {
        let lab = Lab::new(Reach::Public, Demand::Scheme, move |request| {
            if request.path == "/mcp" { redirect(status, "/other") } else { json("200 OK", "{}") }
        })
        .await;
        for verb in [Verb::Post, Verb::Delete] {
            let refused = lab.send(verb, "").await.unwrap_err();
            assert!(refused.public.contains("lose its body"), "{}", refused.public);
        }
        assert_eq!(lab.server.requests().len(), 2);
        assert_eq!(lab.send(Verb::Get, "").await.unwrap(), 200);
        assert_eq!(lab.server.requests().last().unwrap().method, "GET");
    }
}

/// [TRN-5]: who is spoken to over TLS alone is not spoken to over plain http because a redirect says so: no connection is
/// made.
#[tokio::test]
async fn a_redirect_to_plain_http_is_refused() {
    let lab = Lab::new(Reach::Any, Demand::Tls, |_| redirect("308 Permanent Redirect", "/again")).await;
    let refused = lab.send(Verb::Post, "{}").await.unwrap_err();
    assert!(refused.public.contains("plain http"), "{}", refused.public);
    assert_eq!(lab.server.requests().len(), 1);
}

/// [FC-HTP-09]: a loop ends, and what is no URL leads nowhere; without a Location it is an answer like others.
#[tokio::test]
async fn redirects_have_an_end() {
    let lab = Lab::new(Reach::Public, Demand::Scheme, |_| redirect("307 Temporary Redirect", "/mcp")).await;
    let refused = lab.send(Verb::Post, "{}").await.unwrap_err();
    assert!(refused.public.contains("more than 5 times"), "{}", refused.public);
    assert_eq!(lab.server.requests().len(), 6);
    for to in ["ftp://a/", "http://u:p@127.0.0.1/", "//"] {
        let lab = Lab::new(Reach::Any, Demand::Scheme, move |_| redirect("307 Temporary Redirect", to)).await;
        assert!(lab.send(Verb::Post, "{}").await.unwrap_err().public.contains("no http or https URL"), "{to}");
    }
    let lab = Lab::new(Reach::Any, Demand::Scheme, |_| response("307 Temporary Redirect", "", "")).await;
    assert_eq!(lab.send(Verb::Post, "{}").await.unwrap(), 307);
    assert_eq!(lab.server.requests().len(), 1);
}
