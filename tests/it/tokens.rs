//! What a client presents to the gateway stays there [TRN-6, TRN-9, FC-AUT-06].

use crate::support::{Client, ERAS, Era, Gateway, Speaks, TestApp, Upstream};

/// No header of a client, and least of all its key, is in any request to a server; the configured ones are.
#[tokio::test]
async fn no_header_of_a_client_reaches_a_server() {
    for speaks in [Speaks::Legacy, Speaks::Stateless] {
        let up = Upstream::start(speaks, false, &["echo"]).await;
        let lines = format!("{}\nheaders = {{ Authorization = \"Bearer own\" }}", up.lines());
        let (tables, _) = TestApp::servers(&[("up", lines)]);
        let principal = format!("[principals.ann]\nmcp_bundles = [\"all\"]\n{}", TestApp::key("ann"));
        let rest = format!("{tables}[mcp_bundles.all]\nservers = [\"up\"]\n{principal}");
        let gateway =
            Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
        for era in ERAS {
            let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
            let mut more = vec![
                ("Cookie", "session=ann".to_owned()),
                ("X-Api-Key", "ann".to_owned()),
                ("X-Forwarded-For", "203.0.113.7".to_owned()),
                ("User-Agent", "a-client/1".to_owned()),
                ("X-Own", "ann".to_owned()),
            ];
            if era == Era::Stateless {
                for (name, value) in
                    [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__echo")]
                {
                    more.push((name, value.to_owned()));
                }
            }
            let before = up.calls().len();
            let body = client.body("1", "tools/call", "", r#""name":"up__echo","arguments":{}"#);
            // Two credentials may be refused; then the key alone.
            let mut answer = client.post(&more, &body).await;
            if answer.status != 200 {
                more.retain(|(name, _)| *name != "X-Api-Key");
                answer = client.post(&more, &body).await;
            }
            assert!(answer.is_result(), "{era:?}: {answer:?}");
            assert_eq!(up.calls().len(), before + 1);
        }
        for method in ["tools/call", "tools/list"] {
            for field in ["cookie", "x-api-key", "x-forwarded-for", "x-own", "x-forwarded-host", "forwarded"] {
                assert!(up.fields(method, field).iter().all(Option::is_none), "{method} {field}");
            }
            let keys = up.fields(method, "authorization");
            assert!(!keys.is_empty() && keys.iter().all(|key| key.as_deref() == Some("Bearer own")), "{keys:?}");
            let agents = up.fields(method, "user-agent");
            assert!(agents.iter().flatten().all(|agent| agent.starts_with("portcullis/")), "{agents:?}");
        }
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
    }
}
