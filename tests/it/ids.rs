//! Many clients with the same ids and tokens: nobody ever gets another's answer [FC-IDS-04, TRN-10].

use futures_util::future::join_all;

use crate::support::{Client, Era, HttpUpstream, TestApp, server_toml};

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_with_equal_ids_get_their_own_answers() {
    let (legacy, stateless) = (HttpUpstream::start(Era::Legacy), HttpUpstream::start(Era::Stateless));
    let access = r#"
[mcp_bundles.all]
servers = ["pipe", "pipe2", "old", "new"]
[principals.alice]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90" }]
"#;
    let toml = server_toml("pipe", Era::Legacy, "") + &server_toml("pipe2", Era::Stateless, "");
    let app = TestApp::start(&(toml + &legacy.toml("old", "") + &stateless.toml("new", "") + access));
    let address = app.address;
    let clients = (0..64).map(|number| async move {
        let era = Era::ALL[number % 2];
        let client = Client::connect(address, "/mcp", "alice", era).await;
        for round in 0..4 {
            for server in ["pipe", "pipe2", "old", "new"] {
                let (name, mark) = (format!("{server}__mark"), format!("client {number} round {round} at {server}"));
                let arguments = format!(r#"{{"mark":"{mark}"}}"#);
                let meta = format!(r#""progressToken":"{}""#, number % 4);
                let body = client.call_body("0", &name, &arguments, "", &meta);
                let answer = client.post(&body, "tools/call", Some(&name)).await;
                assert_eq!(answer.text(), mark, "{}", answer.body);
                assert_eq!(answer.json()["id"], 0);
                for line in answer.body.lines().filter(|line| line.contains("notifications/progress")) {
                    assert!(line.contains(&format!("\"message\": \"{mark}\"")), "{line}");
                    assert!(line.contains(&format!("\"progressToken\": \"{}\"", number % 4)), "{line}");
                }
                assert!(answer.body.contains("notifications/progress"), "{}", answer.body);
            }
        }
    });
    join_all(clients).await;
    app.stop().await;
}
