//! List changes: told exactly to those whose own set changed, exactly once [POL-10, TRN-7, FC-LST-04].

use crate::support::{Client, Era, TestApp, eventually, server_toml};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_another_tool_is_one_change_for_those_who_see_it() {
    let folder = std::env::temp_dir().join(format!("portcullis-change-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tools = folder.join("tools");
    std::fs::write(&tools, "die mark").unwrap();
    let env = format!("env = {{ TOOLS = \"{}\" }}", tools.display());
    let access = r#"
[mcp_bundles.all]
servers = ["s"]
[principals.alice]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90" }]
[principals.bob]
mcp_bundles = ["all"]
policy = "narrow"
api_keys = [{ sha256 = "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9" }]
[policies.narrow]
allowed_tools = ["s__die", "s__mark"]
"#;
    let app = TestApp::start(&(server_toml("s", Era::Legacy, &env) + access));
    let mut told = Vec::new();
    for (key, era) in [("alice", Era::Legacy), ("alice", Era::Stateless), ("bob", Era::Legacy), ("bob", Era::Stateless)]
    {
        let client = Client::connect(app.address, "/mcp", key, era).await;
        assert_eq!(client.list().await, ["s__die", "s__mark"]);
        let stream = client.listen().await;
        told.push((key, client, stream));
    }
    std::fs::write(&tools, "die mark echo").unwrap();
    let died = told[0].1.call("s__die", "{}").await;
    assert_eq!(died.json()["error"]["code"], -32603, "{}", died.body);
    assert!(died.body.contains("'s' exited with status 3"), "{}", died.body);
    for (key, client, stream) in &mut told {
        if *key == "alice" {
            let message = stream.next().await;
            assert!(message.contains("notifications/tools/list_changed"), "{message}");
            assert_eq!(message.contains("subscriptionId"), client.era == Era::Stateless, "{message}");
            assert_eq!(client.list().await, ["s__die", "s__mark", "s__echo"]);
            assert!(client.call("s__echo", "{}").await.body.contains("content"));
        } else {
            let client = client.clone();
            eventually("the server is back", || async {
                client.call("s__mark", r#"{"mark":"m"}"#).await.body.contains("content")
            })
            .await;
            assert!(client.call("s__echo", "{}").await.body.contains("-32602"));
        }
        assert!(stream.is_silent().await, "{key} was told too much");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    app.stop().await;
}
