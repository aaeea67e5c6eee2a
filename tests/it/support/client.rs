//! A client that sends and shows raw bytes.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::Era;

const PATIENCE: Duration = Duration::from_secs(30);
const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;

/// One client: a principal's key, an era, a path, and its session.
#[derive(Clone)]
pub(crate) struct Client {
    http: Hyper<HttpConnector, Full<Bytes>>,
    url: String,
    key: String,
    pub(crate) era: Era,
    session: Option<String>,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// An event stream being read.
pub(crate) struct Stream {
    body: hyper::body::Incoming,
    text: String,
}

impl Client {
    /// Connects; a legacy client opens its session.
    pub(crate) async fn connect(address: SocketAddr, path: &str, key: &str, era: Era) -> Self {
        let http = Hyper::builder(TokioExecutor::new()).build(HttpConnector::new());
        let url = format!("http://{address}{path}");
        let mut client = Self { http, url, key: key.to_owned(), era, session: None };
        if era == Era::Legacy {
            let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
            let answer = client.post(body, "initialize", None).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
            client.session = Some(answer.headers["mcp-session-id"].to_str().unwrap().to_owned());
            let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            assert_eq!(client.post(done, "", None).await.status, StatusCode::ACCEPTED);
        }
        client
    }

    fn request(&self, verb: Method, method: &str, name: Option<&str>) -> http::request::Builder {
        let mut request = Request::builder().method(verb).uri(&self.url).header("x-api-key", &self.key);
        request = request.header("accept", "application/json, text/event-stream");
        request = request.header("content-type", "application/json");
        match (self.era, &self.session) {
            (Era::Stateless, _) => {
                request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
                if let Some(name) = name {
                    request = request.header("mcp-name", name);
                }
            }
            (Era::Legacy, Some(session)) => {
                request = request.header("mcp-protocol-version", "2025-11-25").header("mcp-session-id", session);
            }
            (Era::Legacy, None) => {}
        }
        request
    }

    /// Posts a body as it is.
    pub(crate) async fn post(&self, body: &str, method: &str, name: Option<&str>) -> Answer {
        let request = self.request(Method::POST, method, name).body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = self.http.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Spells a call; `more` are further members of the params, `meta` of `_meta`.
    pub(crate) fn call_body(&self, id: &str, name: &str, arguments: &str, more: &str, meta: &str) -> String {
        let meta = match self.era {
            Era::Legacy if meta.is_empty() => String::new(),
            Era::Legacy => format!(",\"_meta\":{{{meta}}}"),
            Era::Stateless if meta.is_empty() => format!(",\"_meta\":{{{META}}}"),
            Era::Stateless => format!(",\"_meta\":{{{META},{meta}}}"),
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}{more}{meta}}}}}"#
        )
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, name: &str, arguments: &str) -> Answer {
        let body = self.call_body("7", name, arguments, "", "");
        self.post(&body, "tools/call", Some(name)).await
    }

    /// Returns the names listed.
    pub(crate) async fn list(&self) -> Vec<String> {
        let meta = if self.era == Era::Stateless { format!("\"_meta\":{{{META}}}") } else { String::new() };
        let body = format!(r#"{{"jsonrpc":"2.0","id":"l","method":"tools/list","params":{{{meta}}}}}"#);
        let answer = self.post(&body, "tools/list", None).await;
        let tools = answer.json()["result"]["tools"].as_array().unwrap_or_else(|| panic!("{}", answer.body)).clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Opens the stream of list changes: GET, or `subscriptions/listen`.
    pub(crate) async fn listen(&self) -> Stream {
        let (verb, body) = match self.era {
            Era::Legacy => (Method::GET, String::new()),
            Era::Stateless => (
                Method::POST,
                format!(
                    r#"{{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{{META}}}}}}}"#
                ),
            ),
        };
        let request = self.request(verb, "subscriptions/listen", None).body(Full::new(Bytes::from(body))).unwrap();
        let response = self.http.request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut stream = Stream { body: response.into_body(), text: String::new() };
        if self.era == Era::Stateless {
            assert!(stream.next().await.contains("notifications/subscriptions/acknowledged"));
        }
        stream
    }
}

impl Answer {
    /// Returns the answer: the body, or the last event of a stream.
    pub(crate) fn json(&self) -> Value {
        let text = self.body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|err| panic!("{err}: {}", self.body))
    }

    /// Returns the first text block of a tool's result.
    pub(crate) fn text(&self) -> String {
        self.json()["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", self.body)).to_owned()
    }
}

impl Stream {
    /// Waits for the next message.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data: String = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
                self.text = rest.to_owned();
                if data.is_empty() {
                    continue;
                }
                return data;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event in time");
            let frame = frame.expect("the stream goes on").unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Says whether a whole message has arrived that was not read yet, without waiting.
    pub(crate) async fn is_silent(&mut self) -> bool {
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_millis(300), self.body.frame()).await {
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        !self.text.contains("data: ")
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let all = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}
