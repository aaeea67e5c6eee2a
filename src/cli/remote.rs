//! A running gateway, asked over HTTP: what `call --url` and `status` need.
//!
//! Not for: being a general client. Invariant: the key goes to the address that was named and nowhere else; no redirect is
//! followed.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode, Uri};

use crate::codes::Code;
use crate::config;
use crate::net::{BodyError, ClientTls, Demand, Dialer, HttpClient, ResponseBody, SendError};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::wire::jsonrpc::{self, Decoded, ErrorObject, Limits, Message, code, decode};
use crate::wire::mcp::{Definition, ParamValue, STATELESS_LATEST, encode_value, name};
use crate::wire::sse::{self, Decoder};

use super::args::Call;
use super::call::{definitions, members, progress_words, request, show};
use super::open::{interrupted, interruption};
use super::output::{data, line, one_line, sentence};
use super::spinner::Label;
use super::trouble::{Exit, Trouble};

/// Where the key comes from: not from the arguments, which everybody on the machine can read.
const KEY_VARIABLE: &str = "PORTCULLIS_API_KEY";
/// The largest answer, in bytes.
const ANSWER_MAX: usize = 64 << 20;
/// What to write where the admin address is wanted.
pub(super) const ADMIN: &str = "name the address of [listen] admin, as http://127.0.0.1:7801, not that of /mcp";
const TRUST: &str = "start it with portcullis serve, or name its address with --url; SSL_CERT_FILE names the file of an \
                     authority that this machine does not know";
const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// One gateway.
struct Remote {
    uri: Uri,
    /// The address as it may be shown.
    url: String,
    key: Option<HeaderValue>,
    client: HttpClient,
}

/// Calls a tool of a running gateway.
pub(super) async fn call(url: &str, call: &Call) -> Result<Exit, Trouble> {
    let tasks = Tasks::new();
    let uri = address(url, "write http://HOST:PORT/mcp")?;
    let url = shown(&uri);
    let label = Label::new(&format!("waiting for {url}"));
    let remote = Remote { client: client(&uri, &tasks), uri, url, key: key()? };
    let work = async {
        let tool = remote.tool(&call.tool, &label).await?;
        let members = members(call, tool.as_ref())?;
        let arguments = members.split_once("\"arguments\":").map(|(_, arguments)| Bytes::from(arguments.to_owned()));
        let mut headers = vec![(name::NAME, text(&encode_value(&call.tool))?)];
        let params = tool.as_ref().and_then(|tool| tool.header_params.as_deref().ok()).unwrap_or_default();
        for param in params {
            if let ParamValue::Text(value) = param.value(arguments.as_ref()) {
                let header = format!("{}{}", name::PARAM_PREFIX, param.header);
                let value = text(&encode_value(&value))?;
                headers.extend(HeaderName::from_bytes(header.as_bytes()).map(|header| (header, value)));
            }
        }
        let request = request("tools/call", &members);
        remote.ask("tools/call", request, &headers, &label, &call.tool).await
    };
    let answer = tokio::select! {
        biased;
        () = interrupted() => Err(interruption()),
        answer = label.spin(work) => answer,
    };
    tasks.cancel();
    tasks.wait().await;
    let response = answer?;
    match response.error().map(|error| ErrorObject::read(&error)) {
        Some(error) => {
            if call.json {
                data(&[br#"{"error":"#, &one_line(&response.error().unwrap_or_default())[..], b"}\n"].concat())?;
            }
            Err(refused(&error, call))
        }
        None => show(call, &response),
    }
}

/// Asks a probe below an address; returns status and text.
pub(super) async fn probe(base: &str, path: &str) -> Result<(StatusCode, String), Trouble> {
    let uri = address(&format!("{}{path}", base.trim_end_matches('/')), ADMIN)?;
    let url = &shown(&uri);
    let tasks = Tasks::new();
    let client = client(&uri, &tasks);
    let answer = async {
        let sent = client.send(head("GET", &uri, &[]).expose(), &Bytes::new()).await;
        let response = sent.map_err(|err| unsent(&uri, &err))?;
        let text = response.body.collect(ANSWER_MAX).await.map_err(|err| unreadable(url, &err))?;
        Ok((response.status, String::from_utf8_lossy(&text).into_owned()))
    };
    let answer = tokio::select! {
        biased;
        () = interrupted() => Err(interruption()),
        answer = answer => answer,
    };
    tasks.cancel();
    tasks.wait().await;
    answer
}

// === impl Remote ===

impl Remote {
    /// Finds a tool's definition in the list, page by page.
    async fn tool(&self, tool: &str, label: &Label) -> Result<Option<Definition>, Trouble> {
        let mut cursor = String::new();
        loop {
            let response = self.ask("tools/list", request("tools/list", &cursor), &[], label, tool).await?;
            let Some(result) = response.result() else { return Ok(None) };
            if let Some(found) = definitions(&result).into_iter().find(|one| *one.name == *tool) {
                return Ok(Some(found));
            }
            let read: serde_json::Value = serde_json::from_slice(&result).unwrap_or_default();
            match read.get("nextCursor") {
                Some(next) if next.is_string() => cursor = format!("\"cursor\":{next}"),
                Some(_) | None => return Ok(None),
            }
        }
    }

    /// Sends one request of the newest revision and reads its answer, plain or as events.
    async fn ask(
        &self,
        method: &str,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
        label: &Label,
        tool: &str,
    ) -> Result<jsonrpc::Response, Trouble> {
        let mut all = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (name::PROTOCOL_VERSION, HeaderValue::from_static(STATELESS_LATEST.as_str())),
            (name::METHOD, text(method)?),
        ];
        all.extend_from_slice(headers);
        all.extend(self.key.clone().map(|key| (AUTHORIZATION, key)));
        let sent = self.client.send(head("POST", &self.uri, &all).expose(), &body).await;
        let response = sent.map_err(|err| unsent(&self.uri, &err))?;
        let status = response.status;
        if status == StatusCode::NOT_FOUND {
            let words = "there is no endpoint of this name, or its server is not granted to this key";
            return Err(unreachable(&self.url, words)
                .fix("name an endpoint: http://HOST:PORT/mcp or http://HOST:PORT/mcp/SERVER"));
        }
        let events = response.headers.get("content-type").is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let answer = if events {
            self.events(response.body, label, tool).await?
        } else {
            answer(&response.body.collect(ANSWER_MAX).await.map_err(|err| unreadable(&self.url, &err))?)
        };
        answer.ok_or_else(|| {
            let words = format!("answered HTTP {} without an MCP message", status.as_u16());
            unreachable(&self.url, &words).fix("name the endpoint of a gateway, as http://127.0.0.1:7800/mcp")
        })
    }

    async fn events(
        &self,
        mut body: ResponseBody,
        label: &Label,
        tool: &str,
    ) -> Result<Option<jsonrpc::Response>, Trouble> {
        let limits = sse::Limits { event_bytes_max: ANSWER_MAX, stream_bytes_max: usize::MAX };
        let mut decoder = Decoder::new(limits);
        while let Some(chunk) = body.data().await.map_err(|err| unreadable(&self.url, &err))? {
            decoder.push(chunk).map_err(|err| unreachable(&self.url, &err.to_string()))?;
            while let Some(event) = decoder.next_event().map_err(|err| unreachable(&self.url, &err.to_string()))? {
                let Some(text) = event.data else { continue };
                match decode(&text, &Limits::UPSTREAM) {
                    Ok(Decoded::One(Message::Response(response))) => return Ok(Some(*response)),
                    Ok(Decoded::One(Message::Notification(told))) if told.method == "notifications/progress" => {
                        label.set(&progress_words(tool, &told.raw));
                    }
                    Ok(Decoded::One(Message::Notification(_) | Message::Request(_)) | Decoded::Batch(_)) | Err(_) => {}
                }
            }
        }
        Ok(None)
    }
}

/// Reads an address that a person has named; `fix` says what to write instead.
pub(super) fn address(url: &str, fix: &str) -> Result<Uri, Trouble> {
    let bad = |why: &str| {
        let words = format!("this is no address of a gateway: {why}");
        Trouble::new(Exit::Usage, Code::Usage, words).fix(fix)
    };
    let uri: Uri = url.parse().map_err(|err: http::uri::InvalidUri| bad(&err.to_string()))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err(bad(&format!("it holds a user name or a password; a key comes from {KEY_VARIABLE}")))
        }
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(bad("it does not begin with http:// or https:// and a host")),
    }
}

/// Over https the gateway's certificate is judged by the machine's authorities, or those of SSL_CERT_FILE.
fn client(uri: &Uri, tasks: &Tasks) -> HttpClient {
    HttpClient::new(tasks, Dialer::new(ClientTls::new(None), Demand::Scheme, tasks), uri.clone())
}

/// Spells the head of a request as it is written to a connection of its server; it may hold the key.
fn head(verb: &str, uri: &Uri, headers: &[(HeaderName, HeaderValue)]) -> Secret<Vec<u8>> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut head = format!("{verb} {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {AGENT}\r\n").into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    Secret::new(head)
}

fn text(value: &str) -> Result<HeaderValue, Trouble> {
    HeaderValue::from_str(value)
        .map_err(|_| Trouble::new(Exit::Usage, Code::BadArgument, "a character that no header may hold"))
}

/// An address as it may be shown: a query may hold a secret.
fn shown(uri: &Uri) -> String {
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |host| host.as_str()));
    format!("{scheme}://{host}{}", uri.path())
}

fn key() -> Result<Option<HeaderValue>, Trouble> {
    let Some(key) = config::process_env(KEY_VARIABLE).map(Secret::new) else { return Ok(None) };
    let bearer = Secret::new(format!("Bearer {}", key.expose()));
    let mut value = HeaderValue::from_str(bearer.expose()).map_err(|_| {
        let words = format!("{KEY_VARIABLE} holds a character that no header may hold");
        Trouble::new(Exit::Usage, Code::Usage, words).fix("set it to the key alone, in one line")
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn answer(text: &Bytes) -> Option<jsonrpc::Response> {
    match decode(text, &Limits::UPSTREAM) {
        Ok(Decoded::One(Message::Response(response))) => Some(*response),
        Ok(Decoded::One(Message::Notification(_) | Message::Request(_)) | Decoded::Batch(_)) | Err(_) => None,
    }
}

/// What a gateway's refusal means; hidden and unknown tools look alike from here [POL-11].
fn refused(error: &ErrorObject, call: &Call) -> Trouble {
    let words = sentence(&error.message);
    let (exit, code) = match error.code {
        code::LIMIT => (Exit::Failure, Code::OverLimit),
        code::DRAINING => (Exit::NotReady, Code::Draining),
        code::RATE => (Exit::Failure, Code::RateLimited),
        code::UNAUTHENTICATED => (Exit::Denied, Code::Unauthenticated),
        code::INVALID_PARAMS if error.message == "Unknown tool" => (Exit::Denied, Code::UnknownTool),
        code::INVALID_PARAMS => (Exit::Failure, Code::BadRequest),
        _ => (Exit::Failure, Code::ServerFailed),
    };
    if code == Code::UnknownTool {
        let words = format!("{words} '{}': it does not exist, or this key may not use it", line(&call.tool));
        return Trouble::new(exit, code, words).fix("ask who runs the gateway: portcullis explain --as NAME TOOL");
    }
    Trouble::new(exit, code, format!("the gateway answered error {}: {words}", error.code.0))
}

fn unreadable(url: &str, err: &BodyError) -> Trouble {
    match err {
        BodyError::Broken(why) => unreachable(url, why),
        BodyError::TooLarge(_) => Trouble::new(Exit::Failure, Code::OverLimit, format!("{}: {err}", line(url))),
    }
}

/// No response came. Without a connection the gateway is not up [OPS-1].
fn unsent(uri: &Uri, err: &SendError) -> Trouble {
    let url = shown(uri);
    match err {
        SendError::Connect(why) => {
            let words = format!("{}: {}", line(&url), sentence(why));
            let trouble = Trouble::new(Exit::NotReady, Code::Unreachable, words);
            if uri.scheme_str() == Some("https") { trouble.fix(TRUST) } else { trouble }
        }
        SendError::Ended(_) => unreachable(&url, &err.to_string()),
    }
}

fn unreachable(url: &str, why: &str) -> Trouble {
    Trouble::new(Exit::Failure, Code::Unreachable, format!("{}: {}", line(url), sentence(why)))
}
