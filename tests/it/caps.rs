//! Endless answers: bounded memory, an error that says why, and the others go on [LIM-1].

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, Era, HttpUpstream, eventually, server_toml};

const CAP: u64 = 1 << 20;

struct Gateway {
    child: Child,
    folder: std::path::PathBuf,
}

impl Gateway {
    fn high_water_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_cost_no_more_than_the_cap_and_nobody_else() {
    let http = HttpUpstream::start(Era::Stateless);
    let cap = format!("max_response_bytes = {CAP}");
    let access = r#"
[mcp_bundles.all]
servers = ["web", "pipe", "good"]
[principals.alice]
mcp_bundles = ["all"]
api_keys = [{ sha256 = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90" }]
"#;
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = format!("[listen]\nhttp = \"{free}\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n");
    let servers =
        http.toml("web", &cap) + &server_toml("pipe", Era::Legacy, &cap) + &server_toml("good", Era::Legacy, "");
    let folder = std::env::temp_dir().join(format!("portcullis-caps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("portcullis.toml");
    std::fs::File::create(&config).unwrap().write_all((listen + &servers + access).as_bytes()).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["serve", "--config"])
        .arg(&config)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let gateway = Gateway { child, folder };
    eventually("the gateway listens", || async { tokio::net::TcpStream::connect(free).await.is_ok() }).await;
    let client = Client::connect(free, "/mcp", "alice", Era::Stateless).await;
    assert_eq!(client.list().await.len(), 18);
    assert_eq!(client.call("good__mark", r#"{"mark":"m"}"#).await.text(), "m");
    let before = gateway.high_water_kib();
    for (name, arguments) in [("web__flood", "{}"), ("web__flood", r#"{"sse":true}"#), ("pipe__flood", "{}")] {
        let flood = client.call(name, arguments);
        let others = async {
            for _ in 0..20 {
                assert_eq!(client.call("good__mark", r#"{"mark":"m"}"#).await.text(), "m");
            }
        };
        let (answer, ()) = tokio::join!(flood, others);
        let error = answer.json()["error"].clone();
        let words = error["message"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned();
        let server = name.split("__").next().unwrap();
        assert_eq!(error["code"], -31000, "{words}");
        assert!(words.contains(&format!("'{server}'")) && words.contains("max_response_bytes"), "{words}");
        assert!(words.contains(&CAP.to_string()), "{words}");
    }
    let grown = gateway.high_water_kib() - before;
    // One response up to the cap with its growing buffer (at most twice the cap), and what a few connections need.
    assert!(grown < 2 * CAP / 1024 + 6 * 1024, "{grown} KiB");
}
