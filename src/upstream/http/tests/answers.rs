//! Bodies, media types, statuses and caps of answers.

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::{HeaderName, Uri};

use super::kit::{
    Lab, Way, accepted, ask, call, error, error_code, legacy, list, modern, payload, quick, refused, result, settings,
    upstream_call,
};
use crate::exchange::{Answer, Outcome, Reject, RejectKind, Retry};
use crate::id::UpstreamName;
use crate::net::script::{Recorded, Step, json, response, stream, until};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::Transport;
use crate::upstream::http::connector::dialer;
use crate::upstream::http::target::Target;
use crate::upstream::link::{Connector as _, Link, Outgoing, StartError, Want};
use crate::wire::mcp::{Era, ProtocolVersion};

#[tokio::test]
async fn htp_07_any_2xx_acknowledges_a_notification() {
    let acks: [Way; 5] = [
        accepted,
        || response("200 OK", "", ""),
        || vec![Step::Write(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
        || json("200 OK", "null"),
        || response("202 Accepted", "Content-Type: text/plain\r\n", "Accepted"),
    ];
    for ack in acks {
        let lab = Lab::new(move |request| match request.kind().as_str() {
            "notifications/initialized" => ack(),
            _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, list()).await), "1");
    }
    let lab = Lab::new(|request| match request.kind().as_str() {
        "notifications/initialized" => response("500 Oops", "", ""),
        _ => legacy(request, |_| Vec::new()),
    })
    .await;
    let Err(StartError::Failed(why)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    assert!(why.contains("HTTP 500"), "{why}");
}

/// [TRN-6, LIM-1]: a configured header, also User-Agent, replaces ours; no coding but the plain one is asked for.
#[tokio::test]
async fn htp_10_both_types_are_accepted_and_configured_headers_win() {
    let lab = Lab::new(|request| legacy(request, |request| json("200 OK", &result(request, "1")))).await;
    let link = lab.legacy().await;
    ask(&link, list()).await.unwrap();
    for request in lab.server.requests() {
        assert_eq!(request.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("authorization"), Some("Bearer configured"));
        let agents: Vec<&(String, String)> = request.headers.iter().filter(|(name, _)| name == "user-agent").collect();
        assert_eq!(agents.len(), 1);
        assert_eq!(agents[0].1, "mine/1");
    }
    let uri = Uri::from_static("http://h/mcp");
    let tasks = Tasks::new();
    let client = crate::net::HttpClient::new(&tasks, dialer(&settings("http://h/mcp"), &tasks), uri.clone());
    let own = Target::new(UpstreamName::new("srv").unwrap(), &uri, http::HeaderMap::new(), client, 1);
    let own = String::from_utf8(own.head(crate::upstream::http::target::Verb::Post, &[])).unwrap();
    assert!(own.starts_with("POST /mcp HTTP/1.1\r\nhost: h\r\n"), "{own}");
    assert!(own.contains(concat!("\r\nuser-agent: portcullis/", env!("CARGO_PKG_VERSION"), "\r\n")), "{own}");
}

#[tokio::test]
async fn htp_11_media_types_are_compared_without_parameters_and_case() {
    for (media, is_stream) in [
        ("application/json; charset=utf-8", false),
        ("Application/JSON;charset=\"UTF-8\"", false),
        ("text/event-stream;charset=utf-8", true),
        ("Text/Event-Stream", true),
    ] {
        let lab = Lab::new(move |request| {
            legacy(request, |request| {
                let answer = result(request, "1");
                let body = if is_stream { format!("data: {answer}\n\n") } else { answer };
                response("200 OK", &format!("Content-Type: {media}\r\n"), &body)
            })
        })
        .await;
        let link = lab.legacy().await;
        assert_eq!(payload(ask(&link, list()).await), "1", "{media}");
    }
}

/// [R65, R118]
#[tokio::test]
async fn htp_12_errors_are_kept_and_foreign_bodies_are_not() {
    let lab = Lab::new(|request| {
        modern(request, |request| match request.member("method").as_str() {
            "x/error" => json("400 Bad Request", &error(request, -32050)),
            "x/no-id" => json("400 Bad Request", r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"m"}}"#),
            "x/null" => json("500 Oops", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"m"}}"#),
            "x/python" => {
                json("400 Bad", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#)
            }
            "x/html" => {
                let page = format!("<html>\u{1b}[31m{}</html>", "x".repeat(5000));
                response("500 Oops", "Content-Type: text/html\r\n", &page)
            }
            "x/other" => json("200 OK", r#"{"hello":1}"#),
            "x/foreign" => json("200 OK", r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#),
            "x/moved" => response("307 Moved", "Location: http://127.0.0.1:1/\r\n", ""),
            "x/denied" => response("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "secret"),
            _ => Vec::new(),
        })
    })
    .await;
    let link = lab.stateless().await;
    let own = |method| Outgoing::Own { method, members: String::new() };
    for (method, code) in [("x/error", -32050), ("x/no-id", -32602), ("x/null", -32603), ("x/python", -32600)] {
        assert_eq!(error_code(ask(&link, own(method)).await), code, "{method}");
    }
    for (method, public) in [
        ("x/html", "server 'srv' answered HTTP 500"),
        ("x/other", "server 'srv' answered HTTP 200 without a JSON-RPC answer"),
        ("x/foreign", "server 'srv' answered with a foreign id"),
        ("x/moved", "server 'srv' redirects a request to where it cannot be sent"),
        ("x/denied", "server 'srv' refused the gateway's credential"),
    ] {
        let reject = refused(ask(&link, own(method)).await);
        assert_eq!((reject.public.as_ref(), reject.kind), (public, RejectKind::Upstream));
        assert!(!reject.detail.chars().any(char::is_control) && !reject.detail.contains("secret"));
    }
}

#[tokio::test]
async fn htp_12_a_refused_connection_is_safe_to_retry() {
    let tasks = Tasks::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/mcp?key=canary", listener.local_addr().unwrap());
    drop(listener);
    let http = quick(settings(&uri), &tasks);
    let link: Arc<dyn Link> =
        Arc::new(crate::upstream::http::stateless::StatelessLink::new(Arc::clone(&http.target), tasks.clone()));
    let reject = refused(ask(&link, call()).await);
    assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Safe));
    let Err(StartError::Failed(why)) = http.open(Want::any()).await else { panic!("opened") };
    assert!(why.contains("cannot be reached") && !why.contains("canary"), "{why}");
}

#[tokio::test]
async fn lim_1_reading_stops_at_the_cap_and_the_connection_is_dropped() {
    const CAP: usize = 100_000;
    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: ";
    let ways: [Way; 5] = [
        // A body without a length, without an end.
        || {
            let head = format!("{HEAD}application/json\r\n\r\n\"");
            vec![Step::Write(head.into_bytes()), Step::Endless(vec![b'a'; 4096])]
        },
        // A length over the cap is refused before the body.
        || {
            let head = format!("{HEAD}application/json\r\nContent-Length: 100001\r\n\r\n");
            vec![Step::Write(head.into_bytes()), Step::Hang]
        },
        // An error body without an end.
        || {
            let head = "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n";
            vec![Step::Write(head.as_bytes().to_vec()), Step::Endless(vec![b'a'; 4096])]
        },
        // An event without an end.
        || vec![stream("data: \""), Step::Endless(vec![b'a'; 4096])],
        // Small events without an end: their sum counts.
        || vec![stream(""), Step::Endless(b"data: {}\n\n".repeat(100))],
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let lab =
            Lab::with(|settings| settings.max_response_bytes = CAP, move |request| modern(request, |_| way())).await;
        let link = lab.stateless().await;
        let reject = refused(ask(&link, call()).await);
        assert_eq!(reject.kind, RejectKind::Limit, "{index}: {reject:?}");
        assert!(reject.public.contains("100000") && reject.public.contains("max_response_bytes"), "{}", reject.public);
        until("the connection to be dropped", || lab.server.gone() == 1).await;
        // What the two sockets buffer comes on top.
        assert!(lab.server.written() < 4 * CAP + (16 << 20), "{index}: {}", lab.server.written());
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    let lab = Lab::new(|request| {
        modern(request, |request| {
            let encoding = if request.member("method") == "x/gzip" { "gzip" } else { "Identity" };
            let headers = format!("Content-Type: application/json\r\nContent-Encoding: {encoding}\r\n");
            response("200 OK", &headers, &result(request, "1"))
        })
    })
    .await;
    let link = lab.stateless().await;
    let reject = refused(ask(&link, Outgoing::Own { method: "x/gzip", members: String::new() }).await);
    assert_eq!(reject.kind, RejectKind::Upstream);
    assert_eq!(payload(ask(&link, list()).await), "1");
}

#[tokio::test]
async fn settings_that_cannot_be_sent_fail_the_start() {
    let tasks = Tasks::new();
    let mut broken = settings("http://127.0.0.1:1/");
    if let Transport::Http { headers, .. } = &mut broken.transport {
        headers.push((HeaderName::from_static("x-key"), Secret::new("canary\r\nx: y".to_owned())));
    }
    let Err(StartError::Failed(why)) =
        crate::upstream::http::connector::connector(Arc::new(broken), tasks.clone()).open(Want::any()).await
    else {
        panic!("opened")
    };
    assert!(why.contains("x-key") && !why.contains("canary"), "{why}");
}

/// Reads an answer that is passed on unseen to its end.
async fn read_on(outcome: Outcome) -> Result<String, Reject> {
    let Ok(Answer::Unseen(mut unseen)) = outcome else { panic!("it was looked at: {outcome:?}") };
    let mut text = unseen.head.concat();
    while let Some(piece) = unseen.rest.next().await {
        text.extend_from_slice(&piece?);
    }
    assert!(unseen.length.is_none_or(|length| length == text.len() as u64));
    Ok(String::from_utf8(text).unwrap())
}

/// [LIM-1]: `inspect = "off"` passes a large answer on as it comes, with the client's own id, and no other.
#[tokio::test]
async fn lim_1_a_large_answer_is_passed_on_unseen_where_it_may_be() {
    let large = "x".repeat(300_000);
    let answer = {
        let large = large.clone();
        move |request: &Recorded| {
            let id = request.member("id");
            let result = format!(r#"{{"content":[{{"type":"text","text":"{large}"}}]}}"#);
            match request.member("params") {
                how if how.contains("tail") => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
                how if how.contains("foreign") => format!(r#"{{"jsonrpc":"2.0","id":9{id},"result":{result}}}"#),
                how if how.contains("small") => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            }
        }
    };
    let chunked = |text: &str| {
        let chunks: String = ["", ""].map(|_| format!("{:x}\r\n{text}\r\n", text.len())).concat();
        vec![Step::Write(
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
                .into_bytes(),
        )]
    };
    let lab = Lab::with(
        |settings| {
            settings.inspect = false;
            settings.max_response_bytes = 400_000;
        },
        move |request| {
            legacy(request, |request| {
                let text = answer(request);
                if request.member("params").contains("chunks") { chunked(&text) } else { json("200 OK", &text) }
            })
        },
    )
    .await;
    let link = lab.legacy().await;
    let ask_for = |how: &str| {
        let call = upstream_call("", &format!(r#"{{"how":"{how}"}}"#));
        ask(&link, Outgoing::Call(Arc::new(call)))
    };
    let whole = read_on(ask_for("head").await).await.unwrap();
    assert_eq!(
        whole,
        format!(r#"{{"jsonrpc":"2.0","id":"c","result":{{"content":[{{"type":"text","text":"{large}"}}]}}}}"#)
    );
    // What cannot be passed on is read and looked at as ever.
    assert_eq!(payload(ask_for("small").await), "{}");
    assert!(payload(ask_for("tail").await).contains(&large));
    assert!(ask_for("foreign").await.is_err());
    let mut bridged = upstream_call("", "{}");
    bridged.client.version = ProtocolVersion::V2026_07_28;
    assert!(payload(ask(&link, Outgoing::Call(Arc::new(bridged))).await).contains(&large));
    // The cap holds in the middle too; who stops reading has the call cancelled.
    let reject = read_on(ask_for("chunks").await).await.unwrap_err();
    assert!(reject.public.contains("max_response_bytes"), "{}", reject.public);
    until("the cancel", || lab.server.kinds().iter().any(|kind| kind == "notifications/cancelled")).await;
    let before = lab.server.kinds().iter().filter(|kind| *kind == "notifications/cancelled").count();
    drop(ask_for("head").await);
    let now = || lab.server.kinds().iter().filter(|kind| *kind == "notifications/cancelled").count();
    until("the cancel", || now() > before).await;
}
