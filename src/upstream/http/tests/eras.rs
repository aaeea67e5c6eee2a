//! Which era a server speaks, and the headers of the stateless one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::kit::{Lab, Script, ask, discovered, error, legacy, list, modern, result, upstream_call};
use crate::exchange::ServerCall;
use crate::net::script::{Recorded, Step, json, response};
use crate::upstream::EraChoice;
use crate::upstream::link::{Outgoing, StartError, Want};
use crate::wire::mcp::{Era, HeaderParam, Kind};

/// [R47, R48, R49, R50]
#[tokio::test]
async fn stateless_requests_mirror_their_body_in_headers() {
    let lab = Lab::new(|request| modern(request, |request| json("200 OK", &result(request, "1")))).await;
    let link = lab.stateless().await;
    let mut call = upstream_call("", r#"{"region":"Zürich","deep":{"n":42.0},"gone":null,"list":[1]}"#);
    let param = |header: &str, path: &[&str]| HeaderParam {
        header: header.to_owned(),
        path: path.iter().map(|&name| name.to_owned()).collect(),
    };
    call.original = Arc::from("tööl");
    call.original_spelled = Bytes::from("\"tööl\"");
    call.header_params = Arc::from([
        param("Region", &["region"]),
        param("N", &["deep", "n"]),
        param("Gone", &["gone"]),
        param("List", &["list"]),
    ]);
    let mut tool_call = ServerCall::clone(&call.call);
    tool_call.param_headers = Some(
        [("region", "spoofed"), ("other", "as is"), ("bad name", "x"), ("bad", "a\r\nb: c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
    );
    call.call = Arc::new(tool_call);
    ask(&link, Outgoing::Call(Arc::new(call))).await.unwrap();
    ask(&link, list()).await.unwrap();
    let [discover, called, listed] = &lab.server.requests()[..] else { panic!("three requests") };
    for (request, method) in [(discover, "server/discover"), (called, "tools/call"), (listed, "tools/list")] {
        assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(request.header("mcp-method"), Some(method));
        assert_eq!(request.header("mcp-session-id"), None);
    }
    assert_eq!(called.header("mcp-name"), Some("=?base64?dMO2w7Zs?="));
    assert_eq!(listed.header("mcp-name"), None);
    let mut params: Vec<String> = called
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("mcp-param-"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    params.sort();
    assert_eq!(params, ["mcp-param-n=42", "mcp-param-other=as is", "mcp-param-region==?base64?WsO8cmljaA==?="]);
}

/// [R54]
#[tokio::test]
async fn the_probe_finds_the_era() {
    let unsupported = |request: &Recorded, versions: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32022,"message":"m","data":{{"supported":{versions}}}}}}}"#,
            request.member("id")
        )
    };
    let cases: Vec<(&str, Era, Script)> = vec![
        ("a result", Era::Stateless, Box::new(discovered)),
        ("-32020", Era::Stateless, Box::new(|request| json("400 Bad", &error(request, -32020)))),
        ("-32021", Era::Stateless, Box::new(|request| json("400 Bad", &error(request, -32021)))),
        (
            "-32022 with ours",
            Era::Stateless,
            Box::new(move |request| json("400 Bad", &unsupported(request, r#"["2026-07-28"]"#))),
        ),
        (
            "-32022 without",
            Era::Legacy,
            Box::new(move |request| json("400 Bad", &unsupported(request, r#"["2025-11-25"]"#))),
        ),
        ("-32601 on 200", Era::Legacy, Box::new(|request| json("200 OK", &error(request, -32601)))),
        ("-32601 on 404", Era::Legacy, Box::new(|request| json("404 Not Found", &error(request, -32601)))),
        ("-32000", Era::Legacy, Box::new(|request| json("400 Bad", &error(request, -32000)))),
        (
            "Python 1.x, with a session id that must not be taken over",
            Era::Legacy,
            Box::new(|_| {
                response(
                    "400 Bad",
                    "Content-Type: application/json\r\nMcp-Session-Id: stray\r\n",
                    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#,
                )
            }),
        ),
        ("an empty 404", Era::Legacy, Box::new(|_| response("404 Not Found", "", ""))),
        ("a page", Era::Legacy, Box::new(|_| response("200 OK", "Content-Type: text/html\r\n", "<html>"))),
        ("no 2026", Era::Legacy, Box::new(|request| json("200 OK", &result(request, r#"{"supportedVersions":[]}"#)))),
        ("silence", Era::Legacy, Box::new(|_| vec![Step::Hang])),
    ];
    for (what, era, probe) in cases {
        let lab = Lab::with(
            |settings| {
                if what == "silence" {
                    settings.probe_timeout = Duration::from_millis(20);
                }
            },
            move |request| match request.kind().as_str() {
                "server/discover" => probe(request),
                _ => legacy(request, |request| json("200 OK", &result(request, "1"))),
            },
        )
        .await;
        let started = lab.open(Want::any()).await.unwrap_or_else(|err| panic!("{what}: {err}"));
        assert_eq!(started.link.era(), era, "{what}");
        assert!(started.can.lists.contains(Kind::Tools), "{what}");
        ask(&started.link, list()).await.unwrap();
        let session = lab.server.requests().pop().unwrap().header("mcp-session-id").map(str::to_owned);
        assert_eq!(session.as_deref(), (era == Era::Legacy).then_some("s-1"), "{what}");
    }
}

#[tokio::test]
async fn failures_are_no_finding() {
    for (status, words) in [("401 No", "needs a credential"), ("403 No", "needs a credential"), ("502 No", "HTTP 502")]
    {
        let lab = Lab::new(move |_| response(status, "", "")).await;
        let Err(StartError::Failed(why)) = lab.open(Want::any()).await else { panic!("{status}") };
        assert!(why.contains(words), "{why}");
        assert_eq!(lab.server.kinds().len(), 1);
    }
    let lab = Lab::new(|_| response("404 Not Found", "", "nothing here")).await;
    let Err(StartError::Failed(why)) = lab.open(Want::any()).await else { panic!("opened") };
    assert!(why.contains("nothing here"), "{why}");
}

/// [TRN-1]: a revision that is named skips the probe.
#[tokio::test]
async fn an_era_that_is_wanted_or_configured_is_not_probed_for() {
    let lab = Lab::new(|request| legacy(request, |_| Vec::new())).await;
    lab.legacy().await;
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized"]);

    let answers: [fn(&Recorded) -> Vec<Step>; 3] = [
        |request| json("200 OK", &result(request, r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#)),
        |request| json("404 Not Found", &error(request, -32601)),
        |_| response("405 Method Not Allowed", "", ""),
    ];
    for answer in answers {
        let lab = Lab::new(answer).await;
        let Err(StartError::Era(Era::Legacy, _)) = lab.open(Want::of(Era::Legacy)).await else { panic!("opened") };
    }

    let lab = Lab::with(|settings| settings.era = EraChoice::Legacy, |request| legacy(request, |_| Vec::new())).await;
    assert_eq!(lab.open(Want::any()).await.unwrap().link.era(), Era::Legacy);
    assert_eq!(lab.server.kinds(), ["initialize", "notifications/initialized"]);
    assert!(matches!(lab.open(Want::of(Era::Stateless)).await, Err(StartError::Era(Era::Stateless, _))));

    let lab = Lab::with(|settings| settings.era = EraChoice::Stateless, |_| response("404 Not Found", "", "")).await;
    assert_eq!(lab.open(Want::any()).await.unwrap().link.era(), Era::Stateless);
    assert!(matches!(lab.open(Want::of(Era::Legacy)).await, Err(StartError::Era(Era::Legacy, _))));
}
