//! A small MCP server of both eras, over stdio and HTTP.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::runtime::Tasks;
use crate::wire::mcp::{ProtocolVersion, SERVER_INFO_KEY, VERSION_KEY};

const BODY_MAX: usize = 1 << 20;

/// Answers one message; `None` for what wants no answer.
fn answer(message: &Value, clock: &Clock) -> Option<Value> {
    let id = message.get("id")?.clone();
    let method = message.get("method")?.as_str()?;
    let params = message.get("params").cloned().unwrap_or_default();
    let stateless = params.pointer("/_meta").is_some_and(|meta| meta.get(VERSION_KEY).is_some());
    let capabilities = json!({ "tools": {} });
    let result = match method {
        "initialize" => Ok(json!({
            "protocolVersion": ProtocolVersion::negotiate(params.get("protocolVersion").and_then(Value::as_str)).as_str(),
            "capabilities": capabilities,
            "serverInfo": info(),
        })),
        "ping" => Ok(json!({})),
        "server/discover" => Ok(json!({
            "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
        })),
        "tools/list" => {
            let mut list = json!({ "tools": tools() });
            if let (true, Some(list)) = (stateless, list.as_object_mut()) {
                list.insert("ttlMs".to_owned(), json!(0));
                list.insert("cacheScope".to_owned(), json!("public"));
            }
            Ok(list)
        }
        "tools/call" => call(&params, clock),
        _ => Err(json!({ "code": -32601, "message": "Method not found" })),
    };
    Some(match result {
        Ok(mut result) => {
            if let (true, Some(result)) = (stateless, result.as_object_mut()) {
                result.insert("resultType".to_owned(), json!("complete"));
                result.insert("_meta".to_owned(), json!({ SERVER_INFO_KEY: info() }));
            }
            json!({ "jsonrpc": "2.0", "id": id, "result": result })
        }
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    })
}

fn info() -> Value {
    json!({ "name": "portcullis-demo", "version": env!("CARGO_PKG_VERSION") })
}

fn tools() -> Value {
    let none = json!({ "type": "object", "properties": {} });
    let read = json!({ "readOnlyHint": true });
    json!([
        {
            "name": "add", "description": "Adds two numbers.", "annotations": read,
            "inputSchema": {
                "type": "object", "required": ["a", "b"],
                "properties": { "a": { "type": "number" }, "b": { "type": "number" } },
            },
        },
        {
            "name": "echo", "description": "Says what you say.", "annotations": read,
            "inputSchema": {
                "type": "object", "required": ["text"], "properties": { "text": { "type": "string" } },
            },
        },
        { "name": "time", "description": "Says the time in seconds since 1970.", "annotations": read, "inputSchema": none },
        { "name": "secret_note", "description": "Shows a note that not everybody may read.", "inputSchema": none },
        { "name": "big", "description": "Answers with 64 KiB of text.", "annotations": read, "inputSchema": none },
    ])
}

fn call(params: &Value, clock: &Clock) -> Result<Value, Value> {
    let arguments = &params["arguments"];
    let text = match params["name"].as_str() {
        Some("add") => match (&arguments["a"], &arguments["b"]) {
            (Value::Number(a), Value::Number(b)) => sum(a, b),
            _ => {
                return Ok(
                    json!({ "content": [{ "type": "text", "text": "a and b must be numbers" }], "isError": true }),
                );
            }
        },
        Some("echo") => arguments["text"].as_str().unwrap_or_default().to_owned(),
        Some("time") => clock.unix_secs().to_string(),
        Some("secret_note") => "the spare key is under the third flower pot".to_owned(),
        Some("big") => "portcullis ".repeat(64 * 1024 / 11),
        Some(_) | None => return Err(json!({ "code": -32602, "message": "Unknown tool" })),
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn sum(a: &serde_json::Number, b: &serde_json::Number) -> String {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.saturating_add(b).to_string(),
        _ => (a.as_f64().unwrap_or_default() + b.as_f64().unwrap_or_default()).to_string(),
    }
}

/// Serves stdin and stdout until stdin ends.
///
/// # Errors
/// A pipe broke.
pub async fn serve_stdio(clock: Clock) -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    while let Some(line) = lines.next_line().await? {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(answer) = answer(&message, &clock) {
            out.write_all(format!("{answer}\n").as_bytes()).await?;
            out.flush().await?;
        }
    }
    Ok(())
}

/// Serves HTTP on an address, says its URL on stdout, and ends when stdin does: then its parent has gone.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve_http(address: SocketAddr, clock: Clock, tasks: Tasks) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let mut out = tokio::io::stdout();
    out.write_all(format!("http://{}/mcp\n", listener.local_addr()?).as_bytes()).await?;
    out.flush().await?;
    let mut parent = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let stream = tokio::select! {
            line = parent.next_line() => match line {
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return Ok(()),
            },
            accepted = listener.accept() => accepted?.0,
        };
        let clock = clock.clone();
        tasks.spawn("demo connection", async move {
            let service = service_fn(move |request| respond(request, clock.clone()));
            if let Err(err) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%err, "demo connection");
            }
        });
    }
}

async fn respond<B>(request: Request<B>, clock: Clock) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: hyper::body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if request.method() != http::Method::POST {
        return Ok(bare(StatusCode::METHOD_NOT_ALLOWED));
    }
    let Ok(body) = Limited::new(request.into_body(), BODY_MAX).collect().await else {
        return Ok(bare(StatusCode::BAD_REQUEST));
    };
    let Ok(message) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        return Ok(bare(StatusCode::BAD_REQUEST));
    };
    let Some(answer) = answer(&message, &clock) else { return Ok(bare(StatusCode::ACCEPTED)) };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn bare(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}
