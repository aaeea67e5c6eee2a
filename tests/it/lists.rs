//! Lists: in a fixed order, and none is hurt by a server that is not there [CTX-6, TRN-7].

use crate::support::{Broken, Child, Client, ERAS, Era, Speaks, TestApp, Upstream, within_deadline};

/// FC-LST-06: a command that does not exist and a refused connection cost the good server nothing; errors do not mix.
/// [R83]
#[tokio::test]
async fn bad_servers_are_nobody_elses_problem() {
    let good = Child::new(Era::Legacy, &["echo"]);
    let servers = [
        ("missing", "command = \"there-is-no-such-program\"".to_owned()),
        ("good", good.lines()),
        ("refused", "url = \"http://127.0.0.1:9/mcp\"".to_owned()),
    ];
    let app = TestApp::open(&servers).await;
    for era in ERAS {
        within_deadline("a list and calls", async {
            let client = Client::connect(era, app.addr, "/mcp", None).await;
            assert_eq!(client.names().await, ["good__echo"]);
            assert!(client.call_with("good__echo", "{}").await.is_result());
            assert_eq!(client.call_with("missing__echo", "{}").await.code(), -32602);
            let alone = Client::connect(era, app.addr, "/mcp/refused", None).await;
            assert!(alone.names().await.is_empty());
        })
        .await;
    }
    app.stop().await;
}

/// [R83]: a kind of a server's lists that fails, or never comes, hides none of the others.
#[tokio::test]
async fn a_list_that_is_broken_hides_no_other() {
    let lists = [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ];
    for (at, (broken, _)) in lists.into_iter().enumerate() {
        for how in [Broken::Fails, Broken::Hangs] {
            let speaks = if at % 2 == 0 { Speaks::Legacy } else { Speaks::Stateless };
            let upstream = Upstream::rich(speaks, false, &["echo"]).await;
            upstream.break_list(broken, how);
            let app = TestApp::open(&[("up", upstream.lines())]).await;
            let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
            for (method, member) in lists {
                let shown = within_deadline(method, client.list_of(method, member)).await;
                assert_eq!(shown.is_empty(), method == broken, "{broken} {how:?}: {method}");
            }
            assert_eq!(client.call_with("up__echo", "{}").await.is_result(), broken != "tools/list");
            app.stop().await;
        }
    }
}

/// FC-LST-08: the order is the configuration's, then each server's own: the same bytes each time, also after a restart.
/// [R74, R75]
#[tokio::test]
async fn the_order_is_fixed() {
    let children = [
        Child::new(Era::Stateless, &["z", "a", "m"]),
        Child::new(Era::Legacy, &["b", "a"]),
        Child::new(Era::Legacy, &["q", "p", "o", "n"]),
    ];
    let servers = [("two", children[0].lines()), ("one", children[1].lines()), ("three", children[2].lines())];
    let mut first = None;
    for _ in 0..2 {
        let app = TestApp::open(&servers).await;
        for _ in 0..5 {
            let client = Client::connect(Era::Stateless, app.addr, "/mcp", None).await;
            let body = client.body("1", "tools/list", "", "");
            let answer = client
                .post(
                    &[("MCP-Protocol-Version", "2026-07-28".to_owned()), ("Mcp-Method", "tools/list".to_owned())],
                    &body,
                )
                .await;
            let tools = answer.raw("result.tools");
            assert_eq!(&tools, first.get_or_insert_with(|| tools.clone()));
        }
        let client = Client::connect(Era::Legacy, app.addr, "/mcp", None).await;
        let wanted = ["two__z", "two__a", "two__m", "one__b", "one__a", "three__q", "three__p", "three__o", "three__n"];
        assert_eq!(client.names().await, wanted);
        app.stop().await;
    }
}
