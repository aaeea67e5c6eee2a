//! What a person is told after a wrong turn: a name mistyped, a port mixed up, a secret forgotten [OPS-2].

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::reload::{bundle, listening, principal, start, tables};
use crate::support::{Child, Client, Command, Ended, Era, Gateway, Speaks, TestApp, Upstream};

/// The fields of a line of the log, of which no name may stand twice: most readers keep the last one, and some none.
#[track_caller]
fn fields(line: &str) -> Value {
    let read: Value = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
    let fields = read["fields"].clone();
    for name in fields.as_object().unwrap().keys() {
        assert_eq!(line.matches(&format!("\"{name}\":")).count(), 1, "'{name}' stands twice: {line}");
    }
    fields
}

/// The operator's log says what was refused and why: by name what is hidden, and not what a client has made up [POL-11].
#[tokio::test]
async fn the_log_names_what_was_refused() {
    let up = Upstream::start(Speaks::Both, false, &["echo", "secret"]).await;
    let text = tables(&[("up", up.lines())])
        + &bundle("all", &["up"])
        + &principal("ann", &["ann"], "all", "policy = \"some\"\n")
        + "[policies.some]\nexcluded_tools = [\"up__secret\"]\n";
    let mut gateway = start(&listening(&text)).await;
    let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", Some("ann")).await;
    assert_eq!(client.call_with("up__secret", "{}").await.code(), -32602);
    let said = fields(&gateway.says("\"refused\"").await);
    assert_eq!((&said["code"], &said["rpc_code"]), (&"P303".into(), &(-32602).into()), "{said}");
    assert_eq!((&said["principal"], &said["detail"]), (&"ann".into(), &"up__secret".into()), "{said}");
    assert_eq!(client.call_with("up__made_up", "{}").await.code(), -32602);
    let said = fields(&gateway.says("\"refused\"").await);
    assert_eq!((&said["code"], &said["detail"]), (&"P304".into(), &"Unknown tool".into()), "{said}");
    // What is no name of anything has a code of its own.
    for asked in ["GET / HTTP/1.1", "GET /favicon.ico HTTP/1.1", "DELETE /mcp HTTP/1.1\r\nMcp-Session-Id: gone"] {
        let mut stream = TcpStream::connect(gateway.addr).await.unwrap();
        let head = format!("{asked}\r\nHost: {}\r\nAuthorization: Bearer ann\r\n\r\n", gateway.addr);
        stream.write_all(head.as_bytes()).await.unwrap();
        let said = fields(&gateway.says("\"refused\"").await);
        assert_eq!((&said["code"], &said["status"]), (&"P310".into(), &404.into()), "{asked}: {said}");
    }
    // Whom a listener does not take for its own, and the key that says whom it does.
    for (line, key) in
        [("Host: mcp.example", "allowed_hosts"), ("Host: localhost\r\nOrigin: http://mcp.example", "allowed_origins")]
    {
        let mut stream = TcpStream::connect(gateway.addr).await.unwrap();
        stream.write_all(format!("GET /mcp HTTP/1.1\r\n{line}\r\n\r\n").as_bytes()).await.unwrap();
        let said = fields(&gateway.says("\"refused\"").await);
        let detail = said["detail"].as_str().unwrap();
        assert!(detail.contains("mcp.example") && detail.contains(key), "{said}");
    }
}

/// Only what a new file is refused for is called so, and what was taken back waits for nothing [CFG-4].
#[tokio::test]
async fn a_reload_says_of_each_problem_what_it_is() {
    let poor = "[[mcp.servers]]\nname = \"poor\"\ncommand = \"true\"\nenv = { KEY = \"${env:NOT_SET_ANYWHERE}\" }\n";
    let good = listening(&format!("{poor}{}", principal("ann", &["ann"], "all", ""))) + &bundle("all", &["poor"]);
    let mut gateway = start(&good).await;
    let put = |gateway: &Gateway, text: &str| {
        std::fs::write(gateway.folder().join("new"), text).unwrap();
        std::fs::rename(gateway.folder().join("new"), gateway.folder().join("portcullis.toml")).unwrap();
        gateway.hang_up();
    };
    put(&gateway, &good.replace("command = \"true\"", "comand = \"true\""));
    let mut problems = Vec::new();
    let stays = loop {
        let said = fields(&gateway.says(" configuration ").await);
        if said["message"] == "the configuration of before stays in force" {
            break said;
        }
        problems.push((said["message"].clone(), said["code"].clone()));
    };
    let refused = |code: &str| (Value::from("the new configuration is refused"), Value::from(code));
    assert!(problems.contains(&refused("P102")), "{problems:?}");
    assert!(!problems.contains(&refused("P110")), "{problems:?}");
    let count = problems.iter().filter(|(message, _)| *message == refused("").0).count();
    assert_eq!(stays["problems"], count, "{problems:?}");

    put(&gateway, &good.replacen("127.0.0.1:0", "127.0.0.1:1", 1));
    assert_eq!(fields(&gateway.says("taken at the next start").await)["keys"], "listen.http");
    put(&gateway, &good);
    gateway.says("nothing waits for the next start any more").await;
}

/// A grant that is missing is named with its own code, also where the server could not be used anyway [POL-14].
#[tokio::test]
async fn the_code_is_that_of_the_line_which_decides() {
    let command = Command::new(
        "[[mcp.servers]]\nname = \"poor\"\ncommand = \"true\"\nenv = { KEY = \"${env:NOT_SET_ANYWHERE}\" }\n\
         [mcp_bundles.all]\nservers = [\"poor\"]\n[mcp_bundles.\"but one\"]\nexclude = [\"poor\"]\n\
         [principals.local]\nmcp_bundles = [\"all\", \"but one\"]\n",
    );
    let said = command.run(&["explain", "poor__x"]).await.code(0).stdout;
    assert!(said.contains("[P301]") && said.contains("[mcp_bundles.\"but one\"]"), "{said}");
    assert!(said.contains("portcullis.toml:8"), "{said}");
    // Nothing is shown, and that is said.
    let said = command.run(&["ls", "tools"]).await.code(0).stderr;
    assert!(said.contains("portcullis explain --as 'local'"), "{said}");
}

/// A cause is never cut where it matters: its last words are the help.
#[tokio::test]
async fn a_long_cause_is_told_whole() {
    let words = format!("{} set CACHE_DIR", "no room for the cache; ".repeat(8));
    let command = Command::new(&format!(
        "[[mcp.servers]]\nname = \"full\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo '{words}' >&2; exit 7\"]\n\
         [mcp_bundles.all]\nservers = [\"full\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n"
    ));
    let listed = command.run(&["ls", "servers"]).await.code(4);
    assert!(listed.stderr.contains(&words) && listed.stdout.contains('…'), "{listed:#?}");
    let called = command.run(&["call", "full__x"]).await.code(4);
    assert!(called.stderr.contains(&words), "{called:#?}");
    let explained = command.run(&["explain", "full__x"]).await.code(0);
    assert!(explained.stdout.contains(&words), "{explained:#?}");
}

/// The words of a call that its server did not survive stand once [TRN-4].
#[tokio::test]
async fn the_end_of_a_server_is_told_once() {
    let child = Child::new(Era::Legacy, &["die"]);
    let text =
        tables(&[("up", child.lines())]) + &bundle("all", &["up"]) + "[principals.local]\nmcp_bundles = [\"all\"]\n";
    let called = Command::new(&text).run(&["call", "up__die"]).await;
    assert_ne!(called.code, Some(0), "{called:#?}");
    assert_eq!(called.stderr.matches("server 'up'").count(), 1, "{called:#?}");
}

/// The address without `/mcp`, or of another path, is what is wrong, and not a server [OPS-2].
#[tokio::test]
async fn a_wrong_path_is_told_as_one() {
    let up = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let text = tables(&[("up", up.lines())]) + &bundle("all", &["up"]) + &principal("ann", &["ann"], "all", "");
    let app = TestApp::start("keys", &text).await;
    let command = Command::new("");
    for path in ["", "/mpc", "/mcp/nowhere"] {
        let mut process = command.process(&["call", "--url", &format!("http://{}{path}", app.addr), "up__echo"]);
        process.env("PORTCULLIS_API_KEY", "ann");
        let ended = Ended::of(process).await.code(1);
        assert!(ended.stderr.contains("error[P603]") && ended.stderr.contains("/mcp/SERVER"), "{ended:#?}");
    }
    app.stop().await;
}

/// The address of clients where that of probes is wanted: it is a gateway, and the other address helps [OPS-2].
#[tokio::test]
async fn the_wrong_one_of_two_addresses_is_told_as_such() {
    let up = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let text = tables(&[("up", up.lines())]) + &bundle("all", &["up"]) + &principal("ann", &["ann"], "all", "");
    let app = TestApp::start("keys", &text).await;
    let command = Command::new("");
    for url in [format!("http://{}", app.addr), format!("http://{}/mcp", app.addr)] {
        let said = command.run(&["status", "--url", &url]).await.code(1).stderr;
        assert!(
            said.contains("error[P603]") && said.contains("[listen] admin") && !said.contains("Portcullis"),
            "{said}"
        );
    }
    let said = command.run(&["status", "--url", "127.0.0.1:7801"]).await.code(2).stderr;
    assert!(said.contains("[listen] admin"), "{said}");
    app.stop().await;
}

/// A server that is disabled for want of a secret is not up; one that is switched off is not granted [CFG-3, CFG-7, OPS-1].
#[tokio::test]
async fn a_disabled_server_is_not_up() {
    let command = Command::new(
        "[[mcp.servers]]\nname = \"poor\"\ncommand = \"true\"\nenv = { KEY = \"${env:NOT_SET_ANYWHERE}\" }\n\
         [[mcp.servers]]\nname = \"off\"\ncommand = \"true\"\nenabled = false\n\
         [mcp_bundles.all]\nservers = [\"poor\", \"off\"]\n[principals.local]\nmcp_bundles = [\"all\"]\n",
    );
    for (tool, code, words) in [("poor__x", 4, "error[P110]"), ("off__x", 5, "error[P301]")] {
        let called = command.run(&["call", tool]).await.code(code);
        assert!(called.stderr.contains(words), "{called:#?}");
    }
}

/// The line that names the codes of all problems can be typed as it stands [OPS-2].
#[tokio::test]
async fn the_codes_of_several_problems_are_explained_at_once() {
    let command = Command::new("[[mcp.servers]]\nnmae = \"x\"\ncommand = \"x\"\n[[servers]]\n");
    let said = command.run(&["check"]).await.code(3).stderr;
    let line = said.lines().find_map(|line| line.strip_prefix("more: portcullis ")).unwrap();
    let verb: Vec<_> = line.split(' ').collect();
    assert!(verb.len() > 3, "{line}");
    let pages = command.run(&verb).await.code(0).stdout;
    for code in &verb[1..] {
        assert!(pages.contains(&format!("{code}: ")), "{code} in {pages}");
    }
    let listed = command.run(&["explain", "P102", "P111", "--json"]).await.code(0).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["code"], &listed[1]["code"]), (&"P102".into(), &"P111".into()), "{listed}");
    let mixed = command.run(&["explain", "P102", "up__echo"]).await.code(2).stderr;
    assert!(mixed.contains("up__echo"), "{mixed}");
}

/// A file of another kind, and arguments that are none of a tool's [OPS-2].
#[tokio::test]
async fn what_is_no_configuration_is_named() {
    let json = Command::new("{ \"mcpServers\": {} }").run(&["check"]).await.code(3).stderr;
    assert!(json.contains("error[P101]") && json.contains("portcullis import"), "{json}");
    for (verb, words) in [(&["explain", "P999"][..], "P600"), (&["key", "new", ""], "P600")] {
        let said = Command::new("").run(verb).await.code(2).stderr;
        assert!(said.contains(words), "{verb:?}: {said}");
    }
}

/// A refusal that comes as a result is the gateway's, and is told as its own, with its code [POL-11].
#[tokio::test]
async fn a_refused_call_is_not_the_tools_error() {
    let up = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let text = tables(&[("up", up.lines())])
        + &bundle("all", &["up"])
        + &principal("ann", &["ann"], "all", "")
        + "[limits.rates]\ntool = \"1/h\"\n";
    let app = TestApp::start("keys", &text).await;
    let command = Command::new("");
    let call = async || {
        let mut process = command.process(&["call", "--url", &format!("http://{}/mcp", app.addr), "up__echo"]);
        process.env("PORTCULLIS_API_KEY", "ann");
        Ended::of(process).await
    };
    call().await.code(0);
    let refused = call().await.code(1);
    assert!(refused.stderr.contains("error[P308]") && refused.stdout.contains("1/h"), "{refused:#?}");
    app.stop().await;
}
