//! A client of either era that shows everything it gets, byte for byte.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::Value;
use tokio::net::TcpStream;

use super::side::{Reading, Side};
use super::wire::{Head, Rest, Wire, raw, take_events};
use super::{Era, quoted};

/// `_meta` of every stateless request.
const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"it","version":"1"}"#;

/// A client of one path.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
    path: String,
    key: Option<String>,
    /// What it speaks.
    pub(crate) era: Era,
    session: Option<String>,
    /// The revision of its session.
    version: &'static str,
    /// The capabilities that it declares, an object.
    able: String,
    /// Its stream, if its path is one of HTTP+SSE: every answer comes on it.
    side: Option<Arc<Side>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body of a JSON answer, or the data of each event.
    pub(crate) messages: Vec<String>,
}

/// An open event stream.
pub(crate) struct Events {
    from: From,
    text: String,
    ready: std::collections::VecDeque<String>,
    /// The last id that an event had.
    last: Option<String>,
}

/// Where events come from.
enum From {
    /// A response of their own.
    Wire(Wire, Rest),
    /// The one stream of HTTP+SSE.
    Side(Reading),
}

/// The body of a request; `members` stand in its params, `meta` in their `_meta`, each without braces.
pub(crate) fn body(era: Era, id: &str, method: &str, meta: &str, members: &str) -> String {
    able_body(era, "{}", (id, method), meta, members)
}

/// The same of a client that declares capabilities.
fn able_body(era: Era, able: &str, (id, method): (&str, &str), meta: &str, members: &str) -> String {
    let own = format!(r#"{META},"io.modelcontextprotocol/clientCapabilities":{able}"#);
    let own = if era == Era::Stateless { own } else { String::new() };
    let both = if own.is_empty() || meta.is_empty() { "" } else { "," };
    let meta = format!("{own}{both}{meta}");
    let meta = if meta.is_empty() { String::new() } else { format!("\"_meta\":{{{meta}}}") };
    let both = if meta.is_empty() || members.is_empty() { "" } else { "," };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{meta}{both}{members}}}}}"#)
}

impl Client {
    /// Connects; a legacy client opens its session.
    pub(crate) async fn connect(era: Era, addr: SocketAddr, path: &str, key: Option<&str>) -> Self {
        Self::able(era, addr, path, key, "{}").await
    }

    /// Connects and declares capabilities, an object. A path below `/sse` is one of HTTP+SSE.
    pub(crate) async fn able(era: Era, addr: SocketAddr, path: &str, key: Option<&str>, able: &str) -> Self {
        let (path, key, able) = (path.to_owned(), key.map(str::to_owned), able.to_owned());
        let mut client = Self { addr, path, key, era, session: None, version: "2025-11-25", able, side: None };
        if client.path.starts_with("/sse") {
            let (wire, head) = client.send("GET", &[], "").await;
            client.side = Some(Arc::new(Side::of(wire, &head).await));
        }
        if era == Era::Legacy { client.opened().await } else { client }
    }

    /// Connects as a client of an older revision to `/mcp`, and declares capabilities, an object.
    pub(crate) async fn older(version: &'static str, addr: SocketAddr, able: &str) -> Self {
        let (path, able) = ("/mcp".to_owned(), able.to_owned());
        Self { addr, path, key: None, era: Era::Legacy, session: None, version, able, side: None }.opened().await
    }

    /// Opens its session.
    async fn opened(mut self) -> Self {
        let (able, version) = (&self.able, self.version);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{able},"clientInfo":{{"name":"it","version":"1"}}}}}}"#
        );
        if self.side.is_some() {
            let answer = self.post(&[], &body).await;
            assert!(answer.is_result(), "{answer:?}");
        } else {
            let (mut wire, head) = self.send("POST", &[], &body).await;
            let answer = wire.body(head.rest(false)).await;
            assert!(head.line.contains(" 200 ") && answer.contains(version), "{} {answer}", head.line);
            self.session = Some(head.field("mcp-session-id").unwrap().to_owned());
        }
        let answer = self.post(&[], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(answer.status, 202);
        self
    }

    async fn send(&self, verb: &str, more: &[(&str, String)], body: &str) -> (Wire, Head) {
        self.sends(verb, more, body).await.expect("no response")
    }

    async fn sends(&self, verb: &str, more: &[(&str, String)], body: &str) -> Option<(Wire, Head)> {
        let mut wire = self.writes(verb, more, body).await;
        let head = wire.head().await?;
        Some((wire, head))
    }

    async fn writes(&self, verb: &str, more: &[(&str, String)], body: &str) -> Wire {
        let mut wire = Wire::new(TcpStream::connect(self.addr).await.unwrap());
        let path = self.side.as_ref().map_or(&self.path, |side| &side.to);
        let mut text = format!("{verb} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.addr);
        let mut field = |name: &str, value: &str| text.push_str(&format!("{name}: {value}\r\n"));
        if verb == "POST" {
            field("Content-Type", "application/json");
            field("Content-Length", &body.len().to_string());
        }
        field("Accept", if verb == "POST" { "application/json, text/event-stream" } else { "text/event-stream" });
        if let Some(key) = &self.key {
            field("Authorization", &format!("Bearer {key}"));
        }
        if let Some(session) = &self.session {
            field("Mcp-Session-Id", session);
            field("MCP-Protocol-Version", self.version);
        }
        for (name, value) in more {
            field(name, value);
        }
        text.push_str("\r\n");
        text.push_str(body);
        assert!(wire.write(text.as_bytes()).await);
        wire
    }

    /// Asks for a call and reads nothing; whoever drops what comes back has gone.
    pub(crate) async fn asks(&self, id: &str, name: &str, members: &str) -> Wire {
        self.asks_with(id, name, "", members).await
    }

    /// The same with `_meta`.
    pub(crate) async fn asks_with(&self, id: &str, name: &str, meta: &str, members: &str) -> Wire {
        let members = format!(r#""name":{},{members}"#, quoted(name));
        self.writes("POST", &self.fields("tools/call", Some(name)), &self.body(id, "tools/call", meta, &members)).await
    }

    /// Posts a body.
    pub(crate) async fn post(&self, more: &[(&str, String)], body: &str) -> Answer {
        let reading = self.reading(body);
        let (wire, head) = self.send("POST", more, body).await;
        let answer = answer(wire, &head).await;
        match reading {
            Some(reading) if answer.status == 202 => Answer { status: 200, messages: reading.all().await },
            Some(_) | None => answer,
        }
    }

    /// Reads what is said of a request, if that comes on the one stream.
    fn reading(&self, body: &str) -> Option<Reading> {
        let (side, id) = (self.side.as_ref()?, raw(body, "id")?);
        raw(body, "method")?;
        Some(side.reading(Some(id)))
    }

    /// Ends its session.
    pub(crate) async fn leave(self) {
        let (_, head) = self.send("DELETE", &[], "").await;
        assert!(head.line.contains(" 204 ") || head.line.contains(" 200 "), "{}", head.line);
    }

    /// The body of a request, as [`body`] of this era.
    pub(crate) fn body(&self, id: &str, method: &str, meta: &str, members: &str) -> String {
        able_body(self.era, &self.able, (id, method), meta, members)
    }

    fn fields(&self, method: &str, name: Option<&str>) -> Vec<(&'static str, String)> {
        if self.era == Era::Legacy {
            return Vec::new();
        }
        let mut fields = vec![("MCP-Protocol-Version", "2026-07-28".to_owned()), ("Mcp-Method", method.to_owned())];
        if let Some(name) = name {
            let plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.starts_with("=?");
            let coded = || format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(name));
            fields.push(("Mcp-Name", if plain { name.to_owned() } else { coded() }));
        }
        fields
    }

    /// Calls a tool; `members` is what stands beside its name, e.g. `"arguments":{}`.
    pub(crate) async fn call(&self, id: &str, name: &str, meta: &str, members: &str) -> Answer {
        let comma = if members.is_empty() { "" } else { "," };
        let members = format!(r#""name":{}{comma}{members}"#, quoted(name));
        self.post(&self.fields("tools/call", Some(name)), &self.body(id, "tools/call", meta, &members)).await
    }

    /// Calls a tool with arguments and returns the answer.
    pub(crate) async fn call_with(&self, name: &str, arguments: &str) -> Answer {
        self.call("1", name, "", &format!(r#""arguments":{arguments}"#)).await
    }

    /// Calls a tool and returns the stream of its answer, which may be one JSON text too.
    pub(crate) async fn opens(&self, id: &str, name: &str, arguments: &str) -> Events {
        let members = format!(r#""name":{},"arguments":{arguments}"#, quoted(name));
        let body = self.body(id, "tools/call", "", &members);
        let reading = self.reading(&body);
        let (mut wire, head) = self.send("POST", &self.fields("tools/call", Some(name)), &body).await;
        if let Some(reading) = reading {
            assert!(head.line.contains(" 202 "), "{head:?}");
            return Events::from(From::Side(reading), Default::default());
        }
        let stream = head.field("content-type").is_some_and(|media| media.starts_with("text/event-stream"));
        let mut rest = head.rest(false);
        let mut ready = std::collections::VecDeque::new();
        if !stream {
            ready.push_back(wire.body(rest).await);
            rest = Rest::Over;
        }
        Events::from(From::Wire(wire, rest), ready)
    }

    /// Calls a tool; `None` if the connection ends without an answer.
    pub(crate) async fn tries(&self, name: &str) -> Option<Answer> {
        if self.side.is_some() {
            return Some(self.call_with(name, "{}").await);
        }
        let members = format!(r#""name":{},"arguments":{{}}"#, quoted(name));
        let (wire, head) = self
            .sends("POST", &self.fields("tools/call", Some(name)), &self.body("1", "tools/call", "", &members))
            .await?;
        Some(answer(wire, &head).await)
    }

    /// Asks for anything; `target` is what the params name, repeated in the header of a stateless request.
    pub(crate) async fn request(&self, method: &str, target: Option<&str>, meta: &str, members: &str) -> Answer {
        self.post(&self.fields(method, target), &self.body("1", method, meta, members)).await
    }

    /// Reads a resource.
    pub(crate) async fn read(&self, uri: &str) -> Answer {
        let members = format!(r#""uri":{}"#, quoted(uri));
        let fields = self.fields("resources/read", Some(uri));
        self.post(&fields, &self.body("\"r\"", "resources/read", "", &members)).await
    }

    /// Lists the tools, as definitions.
    pub(crate) async fn list(&self) -> Vec<Value> {
        self.list_of("tools/list", "tools").await
    }

    /// Lists what a method lists in a member of its result.
    pub(crate) async fn list_of(&self, method: &str, member: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let body = self.body("\"l\"", method, "", &cursor);
            let answer = self.post(&self.fields(method, None), &body).await;
            let result = answer.value()["result"].clone();
            items.extend(result[member].as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().cloned());
            match result["nextCursor"].as_str() {
                Some(next) => cursor = format!(r#""cursor":{}"#, quoted(next)),
                None => return items,
            }
        }
    }

    /// Lists the names of the tools.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Asks anything that names no target in a header; `members` stand in its params.
    pub(crate) async fn ask(&self, method: &str, members: &str) -> Answer {
        self.post(&self.fields(method, None), &self.body("\"ask\"", method, "", members)).await
    }

    /// Sends a request whose answer is a stream, with the id `"open"`.
    pub(crate) async fn open(&self, method: &str, name: Option<&str>, meta: &str, members: &str) -> Events {
        let body = self.body("\"open\"", method, meta, members);
        let (wire, head) = self.send("POST", &self.fields(method, name), &body).await;
        Events::of(wire, &head)
    }

    /// Comes back for the stream of an event.
    pub(crate) async fn come_back(&self, last_id: &str) -> Events {
        let (wire, head) = self.send("GET", &[("Last-Event-ID", last_id.to_owned())], "").await;
        Events::of(wire, &head)
    }

    /// Watches resources, and opens the stream on which their updates are told. Returns it with those that are watched.
    pub(crate) async fn watch(&self, uris: &[&str]) -> (Events, Vec<String>) {
        let mut watched = Vec::new();
        if self.era == Era::Legacy {
            for uri in uris {
                if self.ask("resources/subscribe", &format!(r#""uri":{}"#, quoted(uri))).await.is_result() {
                    watched.push((*uri).to_owned());
                }
            }
            return (self.listen().await, watched);
        }
        let list: Vec<String> = uris.iter().map(|uri| quoted(uri)).collect();
        let members = format!(r#""notifications":{{"resourceSubscriptions":[{}]}}"#, list.join(","));
        let body = self.body("\"watch\"", "subscriptions/listen", "", &members);
        let (wire, head) = self.send("POST", &self.fields("subscriptions/listen", None), &body).await;
        let mut events = Events::of(wire, &head);
        let first = events.next().await.unwrap();
        assert!(first.contains("notifications/subscriptions/acknowledged"), "{first}");
        let first: Value = serde_json::from_str(&first).unwrap();
        let honoured =
            first["params"]["notifications"]["resourceSubscriptions"].as_array().cloned().unwrap_or_default();
        watched.extend(honoured.iter().map(|uri| uri.as_str().unwrap().to_owned()));
        (events, watched)
    }

    /// Opens the stream on which list changes are told, and waits until it is open.
    pub(crate) async fn listen(&self) -> Events {
        if let (Some(side), Era::Legacy) = (&self.side, self.era) {
            return Events::from(From::Side(side.reading(None)), Default::default());
        }
        let (wire, head) = match self.era {
            Era::Legacy => self.send("GET", &[], "").await,
            Era::Stateless => {
                let members = r#""notifications":{"toolsListChanged":true}"#;
                let body = self.body("\"listen\"", "subscriptions/listen", "", members);
                self.send("POST", &self.fields("subscriptions/listen", None), &body).await
            }
        };
        let mut events = Events::of(wire, &head);
        if self.era == Era::Stateless {
            let first = events.next().await.unwrap();
            assert!(first.contains("notifications/subscriptions/acknowledged"), "{first}");
        }
        events
    }
}

async fn answer(mut wire: Wire, head: &Head) -> Answer {
    let status = head.line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = wire.body(head.rest(false)).await;
    let stream = head.field("content-type").is_some_and(|media| media.starts_with("text/event-stream"));
    let messages = if stream { take_events(&mut body) } else { vec![body] };
    Answer { status, messages }
}

impl Answer {
    /// The last message, which is the answer.
    pub(crate) fn text(&self) -> &str {
        self.messages.last().map_or("", String::as_str)
    }

    /// The same, parsed.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_else(|err| panic!("{err}: {self:?}"))
    }

    /// A member of the answer, as it is spelled.
    pub(crate) fn raw(&self, path: &str) -> String {
        raw(self.text(), path).unwrap_or_else(|| panic!("no {path}: {self:?}"))
    }

    /// Says whether it is a result.
    pub(crate) fn is_result(&self) -> bool {
        raw(self.text(), "result").is_some()
    }

    /// The error's code.
    pub(crate) fn code(&self) -> i64 {
        self.raw("error.code").parse().unwrap()
    }
}

impl Events {
    fn of(wire: Wire, head: &Head) -> Self {
        assert!(head.line.contains(" 200 "), "{head:?}");
        Self::from(From::Wire(wire, head.rest(false)), Default::default())
    }

    fn from(from: From, ready: std::collections::VecDeque<String>) -> Self {
        Self { from, text: String::new(), ready, last: None }
    }

    /// Waits for the next event's data; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let part = match &mut self.from {
                From::Wire(wire, rest) => wire.part(rest).await?,
                From::Side(reading) => return reading.next().await,
            };
            self.text.push_str(&String::from_utf8(part).unwrap());
            let whole = self.text.rfind("\n\n").map_or("", |at| self.text.get(..at).unwrap());
            self.last = whole
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("id: "))
                .map(str::to_owned)
                .or_else(|| self.last.take());
            self.ready.extend(take_events(&mut self.text));
        }
    }

    /// The id of the last event that has come.
    pub(crate) fn last_id(&self) -> Option<String> {
        self.last.clone()
    }

    /// Counts the list changes up to the end of the stream.
    pub(crate) async fn changes_to_the_end(mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.next().await {
            count += usize::from(event.contains("notifications/tools/list_changed"));
        }
        count
    }
}
