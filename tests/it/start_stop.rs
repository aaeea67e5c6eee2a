//! Start and stop: what cannot work fails before the first accept, and nothing is left behind [OPS-5].

use std::net::TcpListener;
use std::path::Path;

use portcullis::app::App;
use portcullis::config;

use crate::support::{Client, Era, TestApp, eventually, server_toml};

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_fails_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for listen in [
        format!("http = \"{address}\"\nadmin = \"127.0.0.1:0\""),
        format!("http = \"127.0.0.1:0\"\nadmin = \"{address}\""),
    ] {
        let text = format!("[listen]\n{listen}\nauth = \"none\"\n");
        let loaded = config::load_text(Path::new("t.toml"), &text, &|_| None).unwrap();
        let err = App::build(loaded.settings, &config::base_env()).unwrap_err().to_string();
        assert!(err.contains(&address.to_string()), "{err}");
    }
}

/// [FC-LST-06]: servers that cannot start cost the others nothing, and calls to them fail at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_finishes_and_bad_servers_are_nobodys_problem() {
    let access = r#"
[[mcp.servers]]
name = "missing"
command = "there-is-no-such-program"
[[mcp.servers]]
name = "refused"
url = "http://127.0.0.1:9/mcp"
[mcp_bundles.all]
servers = ["s", "missing", "refused"]
[principals.alice]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90" }]
"#;
    let app = TestApp::start(&(server_toml("s", Era::Legacy, "") + access));
    let client = Client::connect(app.address, "/mcp", "alice", Era::Stateless).await;
    assert_eq!(client.list().await.len(), 6);
    let refused = client.call("refused__mark", "{}").await;
    assert!(refused.body.contains("-32602"), "{}", refused.body);
    let folder = std::env::temp_dir().join(format!("portcullis-stop-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (started, go) = (folder.join("started"), folder.join("go"));
    let arguments = format!(r#"{{"started":"{}","go":"{}"}}"#, started.display(), go.display());
    let address = app.address;
    let stopped = async {
        eventually("the call runs", || async { started.exists() }).await;
        let free = async {
            eventually("nothing new is accepted", || async { tokio::net::TcpStream::connect(address).await.is_err() })
                .await;
            std::fs::write(&go, "").unwrap();
        };
        tokio::join!(app.stop(), free);
    };
    let (answer, ()) = tokio::join!(client.call("s__wait", &arguments), stopped);
    assert_eq!(answer.text(), "waited");
    std::fs::remove_dir_all(&folder).unwrap();
}
