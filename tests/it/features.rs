//! Prompts, resources, templates, completion, logs and traces, in all four mixtures of old and new.

use serde_json::{Value, json};

use crate::support::{Answer, Client, ERAS, Era, Speaks, TestApp, Upstream, quoted, within_deadline};

const SPEAKS: [Speaks; 2] = [Speaks::Legacy, Speaks::Stateless];

/// A client of each era at a gateway before a server of each.
async fn mixtures(sse: bool, tools: &[&str], path: &str) -> Vec<(String, Upstream, TestApp, Client)> {
    let mut all = Vec::new();
    for speaks in SPEAKS {
        for era in ERAS {
            let upstream = Upstream::rich(speaks, sse, tools).await;
            let app = TestApp::open(&[("up.1", upstream.lines())]).await;
            let client = Client::connect(era, app.addr, path, None).await;
            all.push((format!("{era:?} client, {speaks:?} server"), upstream, app, client));
        }
    }
    all
}

async fn read(client: &Client, uri: &str) -> Answer {
    client.request("resources/read", Some(uri), "", &format!(r#""uri":{}"#, quoted(uri))).await
}

async fn get(client: &Client, name: &str) -> Answer {
    client
        .request("prompts/get", Some(name), "", &format!(r#""name":{},"arguments":{{"who":"x"}}"#, quoted(name)))
        .await
}

fn texts(items: &[Value], key: &str) -> Vec<String> {
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

/// [NAM-4, NAM-5, POL-15, R88]: what is listed can be got and read under the name it has there, and names its server on
/// `/mcp` alone; all else of a definition passes.
#[tokio::test]
async fn every_kind_is_listed_got_and_read() {
    for (path, own) in [("/mcp", false), ("/mcp/up.1", true)] {
        for (context, upstream, app, client) in mixtures(false, &["links"], path).await {
            let prompts = client.list_of("prompts/list", "prompts").await;
            let names = texts(&prompts, "name");
            let wanted = if own { ["greet", "pro.mpt"] } else { ["up_1__greet", &names[1]] };
            assert_eq!(names, wanted, "{context}");
            assert!(own || (names[1].starts_with("up_1__pro_mpt_") && names[1].len() == 22), "{names:?}");
            assert_eq!(prompts[0]["arguments"], json!([{"name": "who"}]), "{context}");
            for (name, original) in names.iter().zip(["greet", "pro.mpt"]) {
                let answer = get(&client, name).await;
                assert_eq!(
                    (answer.raw("result.description"), answer.raw("result.n")),
                    (quoted(original), "1.10".into())
                );
                let uri = answer.value()["result"]["messages"][0]["content"]["resource"]["uri"].clone();
                assert_eq!(uri, if own { "test://in/prompt" } else { "up-1+test://in/prompt" }, "{context}");
                assert!(read(&client, uri.as_str().unwrap()).await.is_result(), "{context}");
            }
            let uris = texts(&client.list_of("resources/list", "resources").await, "uri");
            let originals = ["test://a/b?c=d", "not a uri", "ui://app/x.html", "file:///secret/s"];
            let shown =
                ["up-1+test://a/b?c=d", "up-1+raw:bm90IGEgdXJp", "ui://up-1/app/x.html", "up-1+file:///secret/s"];
            assert_eq!(uris, if own { originals } else { shown }, "{context}");
            let templates =
                texts(&client.list_of("resources/templates/list", "resourceTemplates").await, "uriTemplate");
            assert_eq!(templates, [if own { "test://t/{id}" } else { "up-1+test://t/{id}" }]);
            let expanded = templates[0].replace("{id}", "7%20x");
            for (uri, original) in
                uris.iter().map(String::as_str).zip(originals).chain([(&*expanded, "test://t/7%20x")])
            {
                let contents = read(&client, uri).await.value()["result"]["contents"].clone();
                assert_eq!(contents, json!([{"uri": uri, "text": "read"}]), "{context}");
                let asked = upstream.asked("resources/read").pop().unwrap();
                assert!(asked.contains(&format!(r#""uri":{}"#, quoted(original))), "{context}: {asked}");
            }
            app.stop().await;
        }
    }
}

/// [NAM-4, R86, R88]: a URI that a server makes up in a result is shown so that it can be read, wherever it stands in the
/// inventory; what is not in it is left alone.
#[tokio::test]
async fn uris_in_results_can_be_read_back() {
    for (context, _upstream, app, client) in mixtures(false, &["links"], "/mcp").await {
        let answer = client.call_with("up_1__links", "{}").await;
        let result = answer.value()["result"].clone();
        let found = [
            &result["content"][0]["uri"],
            &result["content"][1]["resource"]["uri"],
            &result["_meta"]["ui"]["resourceUri"],
        ];
        assert_eq!(found, ["up-1+test://link", "up-1+raw:bWFkZSB1cA", "ui://up-1/app/x.html"], "{context}");
        for uri in found {
            let contents = read(&client, uri.as_str().unwrap()).await.value()["result"]["contents"].clone();
            assert_eq!(contents, json!([{"uri": uri, "text": "read"}]), "{context}");
        }
        assert_eq!(result["content"][2]["text"], "test://text");
        assert_eq!(result["structuredContent"], json!({"uri": "test://structured"}));
        app.stop().await;
    }
}

/// [R61, R63, R76, R77]: what is not there has the code and the URI of the client's own era; what is there may be kept by
/// its principal alone.
#[tokio::test]
async fn missing_resources_and_cache_hints_are_of_the_clients_era() {
    for (context, _upstream, app, client) in mixtures(false, &[], "/mcp").await {
        let uri = "up-1+test://missing";
        let answer = read(&client, uri).await;
        let stateless = client.era == Era::Stateless;
        assert_eq!(answer.status, 200, "{context}");
        assert!(
            if stateless { answer.code() == -32602 } else { [-32002, -32602].contains(&answer.code()) },
            "{context}"
        );
        if answer.code() == -32002 || context.contains("Legacy server") {
            assert_eq!(answer.value()["error"]["data"], json!({"uri": uri}), "{context}");
        }
        let result = read(&client, "up-1+test://a/b?c=d").await.value()["result"].clone();
        let ttl = if context.contains("Legacy server") { 0 } else { 60_000 };
        let hints = if stateless { [json!(ttl), json!("private")] } else { [Value::Null, Value::Null] };
        assert_eq!([result["ttlMs"].clone(), result["cacheScope"].clone()], hints, "{context}");
        app.stop().await;
    }
}

/// [R16, R32, POL-15]: completion by ref, with names mapped back; capabilities are true.
#[tokio::test]
async fn completion_reaches_the_server_that_is_meant() {
    for (context, upstream, app, client) in mixtures(false, &[], "/mcp").await {
        let argument = r#""argument":{"name":"n","value":"v"},"context":{"arguments":{"a":"b"}}"#;
        for (reference, own) in [
            (r#"{"type":"ref/prompt","name":"up_1__greet"}"#, r#"{"type":"ref/prompt","name":"greet"}"#),
            (
                r#"{"type":"ref/resource","uri":"up-1+test://t/{id}"}"#,
                r#"{"type":"ref/resource","uri":"test://t/{id}"}"#,
            ),
            (
                r#"{"type":"ref/resource","uri":"up-1+test://a/b?c=d"}"#,
                r#"{"type":"ref/resource","uri":"test://a/b?c=d"}"#,
            ),
        ] {
            let members = format!(r#""ref":{reference},{argument}"#);
            let answer = client.request("completion/complete", None, "", &members).await;
            assert_eq!(answer.value()["result"]["completion"]["values"], json!([own]), "{context}");
            let asked = upstream.asked("completion/complete").pop().unwrap();
            assert!(asked.contains(r#""context":{"arguments":{"a":"b"}}"#), "{context}: {asked}");
        }
        let before = upstream.asked("completion/complete").len();
        for reference in [
            r#"{"type":"ref/prompt","name":"greet"}"#,
            r#"{"type":"ref/prompt","name":"up_1__none"}"#,
            r#"{"type":"ref/resource","uri":"none+x:y"}"#,
            // A template that is not listed is none of the server's.
            r#"{"type":"ref/resource","uri":"up-1+test://{id}"}"#,
            r#"{"type":"ref/resource","uri":"up-1+test://t/%7bid%7d"}"#,
        ] {
            let members = format!(r#""ref":{reference},{argument}"#);
            let answer = client.request("completion/complete", None, "", &members).await;
            assert_eq!((answer.status, answer.code()), (200, -32602), "{context}: {reference}");
        }
        assert_eq!(upstream.asked("completion/complete").len(), before);
        app.stop().await;
    }
}

/// [R16, R32, R103]: what no server has is not declared: a stateless client gets -32601, a session an empty list.
#[tokio::test]
async fn what_no_server_has_is_not_offered() {
    let upstream = Upstream::start(Speaks::Both, false, &["t"]).await;
    let app = TestApp::open(&[("up", upstream.lines())]).await;
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let answer = client.request("server/discover", None, "", "").await;
    assert_eq!(answer.value()["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        let answer = client.request(method, None, "", "").await;
        assert_eq!((answer.status, answer.code()), (404, -32601), "{method}");
    }
    for (method, target, members) in [
        ("prompts/get", Some("up__p"), r#""name":"up__p""#),
        ("resources/read", Some("up+x:y"), r#""uri":"up+x:y""#),
        ("completion/complete", None, r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":""}"#),
    ] {
        let answer = client.request(method, target, "", members).await;
        assert_eq!((answer.status, answer.code()), (404, -32601), "{method}");
        assert!(upstream.asked(method).is_empty());
    }
    let session = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    assert!(session.list_of("prompts/list", "prompts").await.is_empty());
    assert!(session.list_of("resources/list", "resources").await.is_empty());
    app.stop().await;
    let rich = Upstream::rich(Speaks::Both, false, &["t"]).await;
    let app = TestApp::open(&[("up", upstream.lines()), ("rich", rich.lines())]).await;
    let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
    let answer = client.request("server/discover", None, "", "").await;
    let told = json!({"listChanged": true});
    let all = json!({"completions": {}, "logging": {}, "prompts": told, "resources": told, "tools": told});
    assert_eq!(answer.value()["result"]["capabilities"], all);
    assert!(upstream.asked("prompts/list").is_empty(), "a server without the capability is not asked");
    app.stop().await;
}

/// A template is completed if it is listed, and else no server hears of it.
async fn completes_what_is_listed(client: &Client, upstream: &Upstream) {
    let template = "rich+test://t/{id}";
    let list = client.request("resources/templates/list", None, "", "").await;
    let listed = list.is_result() && list.value()["result"]["resourceTemplates"].to_string().contains(template);
    let before = upstream.asked("completion/complete").len();
    let members =
        format!(r#""ref":{{"type":"ref/resource","uri":"{template}"}},"argument":{{"name":"n","value":"v"}}"#);
    let answer = client.request("completion/complete", None, "", &members).await;
    assert_eq!(answer.is_result(), listed, "{answer:?}");
    assert_eq!(upstream.asked("completion/complete").len() - before, usize::from(listed));
}

/// [POL-11, POL-15, promise 1]: for each policy, what the lists show is exactly what is got and read, and what is hidden
/// looks as if it were not there and reaches no server.
#[tokio::test]
async fn listed_is_readable_under_every_policy() {
    let uris = ["rich+test://a/b?c=d", "rich+raw:bm90IGEgdXJp", "ui://rich/app/x.html", "rich+file:///secret/s"];
    let prompts = ["rich__greet"];
    let rows: [(&str, &[&str], &[&str]); 10] = [
        ("", &uris, &prompts),
        ("deny_all_tools = true", &[], &[]),
        ("excluded_tools = [\"rich__*\"]", &[], &[]),
        ("excluded_tools = [\"rich__t\"]", &uris, &prompts),
        ("allowed_tools = [\"other__*\"]", &[], &[]),
        ("allowed_tools = [\"rich__none\"]", &uris, &prompts),
        ("excluded_resources = [\"rich__file:///secret/*\"]\nexcluded_prompts = [\"rich__g*\"]", &uris[..3], &[]),
        ("allowed_resources = [\"rich+test:*\", \"ui://rich/*\"]", &[uris[0], uris[2]], &prompts),
        (
            "excluded_resources = [\"rich+test://t/*\", \"rich+%6eot%20a%20uri\"]",
            &[uris[0], uris[2], uris[3]],
            &prompts,
        ),
        ("allowed_prompts = [\"rich__x\"]\nallowed_resources = [\"rich__not a uri\"]", &[uris[1]], &[]),
    ];
    let upstream = Upstream::rich(Speaks::Both, false, &["t"]).await;
    let other = Upstream::rich(Speaks::Both, false, &["t"]).await;
    let (tables, _) = TestApp::servers(&[("rich", upstream.lines()), ("other", other.lines())]);
    let mut text = format!("{tables}[mcp_bundles.b]\nservers = [\"rich\"]\n");
    for (at, (lines, ..)) in rows.iter().enumerate() {
        let key = TestApp::key(&format!("p{at}"));
        text.push_str(&format!(
            "[policies.q{at}]\n{lines}\n[principals.p{at}]\nmcp_bundles = [\"b\"]\npolicy = \"q{at}\"\n{key}"
        ));
    }
    let app = TestApp::start("keys", &text).await;
    for (at, (lines, seen, got)) in rows.iter().enumerate() {
        for era in ERAS {
            let client = Client::connect(era, app.addr, "/mcp", Some(&format!("p{at}"))).await;
            let unknown = read(&client, "nobody+x:y").await;
            if seen.is_empty() && got.is_empty() && era == Era::Stateless {
                assert_eq!((unknown.status, unknown.code()), (404, -32601), "{lines}");
            } else {
                assert_eq!((unknown.status, unknown.code()), (200, -32602), "{lines}");
                let listed = texts(&client.list_of("resources/list", "resources").await, "uri");
                assert_eq!(listed, *seen, "{lines}");
                let listed = texts(&client.list_of("prompts/list", "prompts").await, "name");
                assert_eq!(listed.iter().any(|name| name == "rich__greet"), !got.is_empty(), "{lines}");
            }
            let asked = |method| upstream.asked(method).len() + other.asked(method).len();
            for uri in uris.into_iter().chain(["other+test://a/b?c=d", "rich+FILE:///%73ecret/s"]) {
                let before = asked("resources/read");
                let answer = read(&client, uri).await;
                let open = seen.contains(&uri) || (uri.contains("FILE") && seen.contains(&uris[3]));
                assert_eq!(answer.is_result(), open, "{lines}: {uri}: {answer:?}");
                assert_eq!(asked("resources/read") - before, usize::from(open), "{lines}: {uri}");
                // Hidden and unknown are one answer, byte for byte.
                assert!(open || answer.messages == unknown.messages, "{lines}: {uri}");
            }
            completes_what_is_listed(&client, &upstream).await;
            let before = asked("prompts/get");
            let answer = get(&client, "rich__greet").await;
            assert_eq!(answer.is_result(), !got.is_empty(), "{lines}");
            assert_eq!(asked("prompts/get") - before, got.len(), "{lines}");
            if !answer.is_result() {
                assert_eq!(answer.messages, get(&client, "rich__nothing").await.messages, "{lines}");
            }
        }
    }
    app.stop().await;
}

/// [R111, R112, R124]: a level is kept per session and reaches the server before the call it is for; what comes is filtered
/// and says which server it is of. A stateless client hears nothing without a level.
#[tokio::test]
async fn logs_reach_those_who_want_them() {
    for (context, upstream, app, client) in mixtures(true, &["log"], "/mcp").await {
        let logs = |answer: &Answer| {
            let messages = answer.messages.iter().filter(|text| text.contains("notifications/message"));
            messages.map(|text| serde_json::from_str::<Value>(text).unwrap()["params"].clone()).collect::<Vec<_>>()
        };
        let debug = json!({"level": "debug", "logger": "up.1/db", "data": 1.10});
        let error = json!({"level": "error", "logger": "up.1", "data": {"a": 1.10}});
        let legacy_server = context.contains("Legacy server");
        if client.era == Era::Legacy {
            assert_eq!(logs(&client.call_with("up_1__log", "{}").await), [debug, error.clone()], "{context}");
            let bad = client.request("logging/setLevel", None, "", r#""level":"loud""#).await;
            assert_eq!((bad.status, bad.code()), (200, -32602), "{context}");
            let set = client.request("logging/setLevel", None, "", r#""level":"error""#).await;
            assert_eq!(set.value()["result"], json!({}), "{context}");
            assert_eq!(logs(&client.call_with("up_1__log", "{}").await), [error], "{context}");
            if legacy_server {
                let told = upstream.asked("logging/setLevel");
                assert!(told.len() == 1 && told[0].contains(r#""level":"error""#), "{context}: {told:?}");
            } else {
                let call = upstream.calls().pop().unwrap();
                assert!(call.contains(r#""io.modelcontextprotocol/logLevel":"error""#), "{context}: {call}");
            }
        } else {
            assert!(logs(&client.call_with("up_1__log", "{}").await).is_empty(), "{context}");
            let meta = |level: &str| format!(r#""io.modelcontextprotocol/logLevel":"{level}""#);
            let bad = client.call("1", "up_1__log", &meta("loud"), "").await;
            assert_eq!((bad.status, bad.code()), (200, -32602), "{context}");
            assert_eq!(logs(&client.call("1", "up_1__log", &meta("warning"), "").await), [error], "{context}");
            let set = client.request("logging/setLevel", None, "", r#""level":"error""#).await;
            assert_eq!((set.status, set.code()), (404, -32601), "{context}");
            assert_eq!(upstream.asked("logging/setLevel").len(), usize::from(legacy_server), "{context}");
        }
        app.stop().await;
    }
}

/// [R51]: a server that wants other headers than its list said is listed again, and the call sent once more.
#[tokio::test]
async fn headers_are_made_anew_when_a_server_wants_others() {
    let upstream = Upstream::start(Speaks::Stateless, false, &["guarded"]).await;
    let app = TestApp::open(&[("up", upstream.lines())]).await;
    let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
    upstream.guard("First");
    let answer = within_deadline("the call", client.call_with("up__guarded", r#"{"a":"é"}"#)).await;
    assert!(answer.is_result(), "{answer:?}");
    assert_eq!(upstream.calls().len(), 2, "refused, and sent again");
    let sent = upstream.fields("tools/call", "mcp-param-first");
    assert_eq!(sent, [None, Some("=?base64?w6k=?=".to_owned())]);
    // One that goes on refusing is asked twice, and the client hears of no header that it never sent.
    let stubborn = Upstream::start(Speaks::Stateless, false, &["guarded"]).await;
    let app2 = TestApp::open(&[("up", stubborn.lines())]).await;
    let client = Client::connect(Era::Legacy, app2.addr, "/mcp", None).await;
    stubborn.guard("Wanted");
    let answer = client.call_with("up__guarded", "{}").await;
    assert_eq!((answer.status, answer.code(), stubborn.calls().len()), (200, -32603, 2));
    app.stop().await;
    app2.stop().await;
}

/// [R123, TRN-9]: a trace goes on under a span of the gateway's own, in `_meta` and in headers alike; nothing else of a
/// client's headers does.
#[tokio::test]
async fn a_trace_goes_on() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-";
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (context, upstream, app, client) in mixtures(false, &["t"], "/mcp").await {
        let sent = || {
            let body: Value = serde_json::from_str(&upstream.calls().pop().unwrap()).unwrap();
            let field = |name| upstream.fields("tools/call", name).pop().flatten();
            (body["params"]["_meta"].clone(), field)
        };
        let meta = format!(r#""traceparent":"{PARENT}","tracestate":"v=1","baggage":"u=7","other":1"#);
        assert!(client.call("1", "up_1__t", &meta, "").await.is_result(), "{context}");
        let (meta, field) = sent();
        let parent = meta["traceparent"].as_str().unwrap().to_owned();
        assert!(parent.starts_with(TRACE) && parent.ends_with("-01") && parent != PARENT, "{context}: {parent}");
        assert_eq!([&meta["tracestate"], &meta["baggage"], &meta["other"]], [&json!("v=1"), &json!("u=7"), &json!(1)]);
        assert_eq!(
            [field("traceparent"), field("tracestate"), field("baggage")],
            [Some(parent), Some("v=1".to_owned()), Some("u=7".to_owned())],
            "{context}"
        );
        assert!(client.call("1", "up_1__t", r#""traceparent":"00-x","other":1"#, "").await.is_result(), "{context}");
        let (meta, field) = sent();
        assert_eq!(
            (&meta["traceparent"], &meta["other"], field("traceparent")),
            (&Value::Null, &json!(1), None),
            "{context}"
        );
        assert!(client.call_with("up_1__t", "{}").await.is_result());
        assert_eq!(sent().1("traceparent"), None, "{context}");
        app.stop().await;
    }
}

/// [R79, R80]: no result is kept. Whoever reads again, or another, is answered by the server, though it calls what it has said
/// fresh and public; so is each retry with answers.
#[tokio::test]
async fn no_result_is_kept() {
    let upstream = Upstream::rich(Speaks::Stateless, false, &["ask"]).await;
    let (tables, _) = TestApp::servers(&[("up", upstream.lines())]);
    let grants = ["ann", "bob"]
        .map(|name| format!("[principals.{name}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(name)))
        .concat();
    let app = TestApp::start("keys", &format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n{grants}")).await;
    let mut asked = 0;
    for era in ERAS {
        for name in ["ann", "bob", "ann"] {
            let client = Client::connect(era, app.addr, "/mcp", Some(name)).await;
            assert!(read(&client, "up+test://a/b?c=d").await.is_result());
            asked += 1;
            assert_eq!(upstream.asked("resources/read").len(), asked, "{era:?} {name}");
        }
    }
    let client = Client::able(Era::Stateless, app.addr, "/mcp", Some("ann"), r#"{"elicitation":{}}"#).await;
    let state = client.call_with("up__ask", "{}").await.raw("result.requestState");
    let retry = format!(
        r#""arguments":{{}},"requestState":{state},"inputResponses":{{"q":{{"action":"accept","content":{{}}}}}}"#
    );
    for calls in [2, 3] {
        assert!(client.call("1", "up__ask", "", &retry).await.is_result());
        assert_eq!(upstream.calls().len(), calls);
    }
    app.stop().await;
}
