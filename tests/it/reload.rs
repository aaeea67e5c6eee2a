//! Reload while everything runs: what is taken away ends, all else goes on [CFG-4].
//!
//! The gateway is a process of its own. Nothing sleeps: a reload is over when the log says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis::runtime::Tasks;

use crate::support::{Child, Client, ERAS, Era, Gateway, Speaks, TestApp, Upstream, folder, until, within_deadline};

const IN_FORCE: &str = "the new configuration is in force";

/// Writes a configuration whole, as a careful editor does.
fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(folder.join("new"), text).unwrap();
    fs::rename(folder.join("new"), path).unwrap();
}

pub(crate) fn listening(rest: &str) -> String {
    format!("[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nauth = \"keys\"\n{rest}")
}

/// A principal with the keys of these names.
pub(crate) fn principal(name: &str, keys: &[&str], bundle: &str, more: &str) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|key| TestApp::key(key).trim_end().trim_start_matches("api_keys = [").trim_end_matches(']').to_owned())
        .collect();
    format!("[principals.{name}]\nmcp_bundles = [\"{bundle}\"]\napi_keys = [{}]\n{more}", keys.join(", "))
}

pub(crate) fn bundle(name: &str, servers: &[&str]) -> String {
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    format!("[mcp_bundles.{name}]\nservers = [{}]\n", servers.join(", "))
}

pub(crate) fn tables(servers: &[(&str, String)]) -> String {
    TestApp::servers(servers).0
}

pub(crate) async fn start(text: &str) -> Gateway {
    let folder = folder();
    put(&folder, "portcullis.toml", text);
    start_in(folder).await
}

async fn start_in(folder: PathBuf) -> Gateway {
    Gateway::try_start_at(&[], folder).await.unwrap_or_else(|ended| panic!("{ended:?}"))
}

impl Gateway {
    /// Changes the file, and waits until it is in force; returns what the log says.
    pub(crate) async fn reload(&mut self, text: &str) -> String {
        put(self.folder(), "portcullis.toml", text);
        self.hang_up();
        self.says(IN_FORCE).await
    }
}

/// Two hundred reloads while 32 clients call: servers and principals come, go and change; nobody whose own are untouched, or
/// only restarted, loses a call, a session or a stream, and an unchanged child is the same process [CFG-4].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_loses_a_call() {
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let child = Child::new(Era::Legacy, &["echo"]);
    let text = |turn: usize| {
        let moving = format!("{}\ntool_timeout_secs = {}", upstream.lines(), 60 + turn % 2);
        let mut servers = vec![("stay", upstream.lines()), ("child", child.lines()), ("moving", moving)];
        if turn % 3 == 1 {
            servers.push(("extra", upstream.lines()));
        }
        let mut text = listening(&tables(&servers));
        text += &bundle("all", &["stay", "child", "moving", "extra"]);
        text += &bundle("few", &["stay"]);
        text += &principal("ann", &["ann"], "all", "");
        text += &principal("cat", &["cat"], "few", "");
        if turn % 2 == 1 {
            text += &principal("bob", &["bob"], "all", "");
        }
        text
    };
    let mut gateway = start(&text(0)).await;
    let quiet = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("cat")).await;
    assert_eq!(quiet.names().await, ["stay__echo"]);
    let mut stream = quiet.listen().await;

    let (tasks, done) = (Tasks::new(), Arc::new(AtomicBool::new(false)));
    let counts: Vec<Arc<AtomicUsize>> = (0..32).map(|_| Arc::default()).collect();
    for (index, count) in counts.iter().enumerate() {
        let client = Client::connect(ERAS[index % 2], gateway.addr, "/mcp", Some("ann")).await;
        let (done, count) = (Arc::clone(&done), Arc::clone(count));
        tasks.spawn("client", async move {
            while !done.load(Ordering::SeqCst) {
                for name in ["stay__echo", "moving__echo", "child__echo"] {
                    let answer = within_deadline("an answer", client.call_with(name, r#"{"k":1.10}"#)).await;
                    assert!(answer.is_result(), "{name}: {answer:?}");
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    until("every client calls", || counts.iter().all(|count| count.load(Ordering::SeqCst) > 0)).await;
    let before: Vec<usize> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    // The one that was opened for the list has given way to the only principal's own.
    let living = || child.pids().into_iter().filter(|pid| crate::support::lives(*pid)).collect::<Vec<u32>>();
    until("ann's child is the only one", || living().len() == 1 && child.pids().len() == 2).await;
    let (pids, own) = (child.pids(), living());
    for turn in 1..=200 {
        gateway.reload(&text(turn)).await;
    }
    let served =
        |(count, before): (&Arc<AtomicUsize>, &usize)| count.load(Ordering::SeqCst) > *before || tasks.panics() > 0;
    until("every client goes on", || counts.iter().zip(&before).all(served)).await;
    done.store(true, Ordering::SeqCst);
    within_deadline("the clients", tasks.wait()).await;
    assert_eq!(tasks.panics(), 0, "a client has lost a call");
    // While a second principal is granted it, its list is read from a child of its own; ann's is the same all the time.
    let now = child.pids();
    assert!(now.starts_with(&pids), "{now:?}, not {pids:?} first");
    assert!(own.iter().all(|pid| crate::support::lives(*pid)), "an unchanged server was ended");
    until("ann's child and at most one for the list", || living().len() <= 2).await;

    let more = text(200)
        .replace("[mcp_bundles.few]\nservers = [\"stay\"]", "[mcp_bundles.few]\nservers = [\"stay\", \"child\"]");
    gateway.reload(&more).await;
    assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
    gateway.terminate();
    assert_eq!(stream.changes_to_the_end().await, 0, "told without a change");
    assert_eq!(gateway.ended().await, Some(0));
}

/// A file that cannot be used, and a policy that fails its own expectation, change nothing, and the log says file and line
/// [CFG-4, OPS-2].
#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_so() {
    let upstream = Upstream::start(Speaks::Both, false, &["a", "b"]).await;
    let rest = tables(&[("up", upstream.lines())]) + &bundle("all", &["up"]);
    let good = listening(&(rest + &principal("ann", &["ann"], "all", "policy = \"narrow\"\n")));
    let folder = folder();
    put(&folder, "portcullis.toml", &good);
    put(
        &folder,
        "policies/narrow.toml",
        "excluded_tools = [\"up__b\"]\n[[expect]]\ntool = \"up__b\"\nvisible = false\n",
    );
    let mut gateway = start_in(folder).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    assert_eq!(client.names().await, ["up__a"]);

    // Not even by a signal: it is seen by itself.
    put(gateway.folder(), "portcullis.toml", &format!("\n\nnonsense = \"canary\"\n{good}"));
    let said = gateway.says("the new configuration is refused").await;
    assert!(
        said.contains("portcullis.toml")
            && said.contains("\"line\":3")
            && said.contains("nonsense")
            && said.contains("P102"),
        "{said}"
    );
    assert!(!said.contains("canary"), "{said}");
    gateway.says("the configuration of before stays in force").await;
    assert!(client.call_with("up__a", "{}").await.is_result());

    put(gateway.folder(), "portcullis.toml", &good);
    put(gateway.folder(), "policies/narrow.toml", "[[expect]]\ntool = \"up__b\"\nvisible = false\n");
    let said = gateway.says("expected up__b to be hidden").await;
    assert!(said.contains("narrow.toml") && said.contains("\"line\":2"), "{said}");
    assert_eq!(client.names().await, ["up__a"]);
    assert_eq!(client.call_with("up__b", "{}").await.code(), -32602);

    put(gateway.folder(), "policies/narrow.toml", "excluded_tools = [\"up__a\"]\n");
    let said = gateway.says(IN_FORCE).await;
    assert!(said.contains("~ann (policy)"), "{said}");
    assert_eq!(client.names().await, ["up__b"]);
}

/// A policy file that changes hides a tool for list and call alike, in the same session, which is told [CFG-4, POL-10].
#[tokio::test]
async fn a_policy_hides_for_list_and_call_alike() {
    let upstream = Upstream::start(Speaks::Both, false, &["a", "b"]).await;
    let rest = tables(&[("up", upstream.lines())]) + &bundle("all", &["up"]);
    let ann = principal("ann", &["ann"], "all", "policy = \"narrow\"\n");
    let text = listening(&(rest + &ann + &principal("bob", &["bob"], "all", "")));
    let folder = folder();
    put(&folder, "portcullis.toml", &text);
    put(&folder, "policies/narrow.toml", "");
    let mut gateway = start_in(folder).await;
    for (turn, era) in ERAS.into_iter().enumerate() {
        let [ann, bob] = ["ann", "bob"].map(|name| Client::connect(era, gateway.addr, "/mcp", Some(name)));
        let (ann, bob) = (ann.await, bob.await);
        assert_eq!(ann.names().await, ["up__a", "up__b"]);
        assert_eq!(bob.names().await, ["up__a", "up__b"]);
        let mut streams = [ann.listen().await, bob.listen().await];
        put(gateway.folder(), "policies/narrow.toml", &format!("# {turn}\nexcluded_tools = [\"up__b\"]\n"));
        gateway.says(IN_FORCE).await;
        assert!(within_deadline("a list change", streams[0].next()).await.unwrap().contains("list_changed"));
        assert_eq!(ann.names().await, ["up__a"]);
        assert_eq!(ann.call_with("up__b", "{}").await.code(), -32602);
        assert!(bob.call_with("up__b", "{}").await.is_result());
        put(gateway.folder(), "policies/narrow.toml", "");
        gateway.says(IN_FORCE).await;
        assert!(ann.call_with("up__b", "{}").await.is_result());
    }
}

/// A server that is added appears, and the session is told; one that is removed goes, with its child [CFG-4].
#[tokio::test]
async fn servers_come_and_go() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let child = Child::new(Era::Legacy, &["echo"]);
    let text = |servers: &[(&str, String)]| {
        listening(&(tables(servers) + &bundle("all", &["up", "child"]) + &principal("ann", &["ann"], "all", "")))
    };
    let one = text(&[("up", upstream.lines())]);
    let two = text(&[("up", upstream.lines()), ("child", child.lines())]);
    let mut gateway = start(&one).await;
    for era in ERAS {
        let client = Client::connect(era, gateway.addr, "/mcp", Some("ann")).await;
        assert_eq!(client.names().await, ["up__a"]);
        let mut stream = client.listen().await;
        let said = gateway.reload(&two).await;
        assert!(said.contains("+child") && said.contains("~ann (servers)"), "{said}");
        assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
        assert_eq!(client.names().await, ["up__a", "child__echo"]);
        assert!(client.call_with("child__echo", "{}").await.is_result());
        let said = gateway.reload(&one).await;
        assert!(said.contains("-child"), "{said}");
        assert_eq!(client.names().await, ["up__a"]);
        assert_eq!(client.call_with("child__echo", "{}").await.code(), -32602);
        gateway.says("has ended").await;
        for pid in child.pids() {
            until("the child's end", || !crate::support::lives(pid)).await;
        }
    }
}

/// A principal, and a key, that are taken away: 401 from the next request on, its stream and its call end; the others' go on
/// [CFG-4].
#[tokio::test]
async fn what_is_taken_away_ends() {
    for era in ERAS {
        let upstream = Upstream::start(Speaks::Both, false, &["hold"]).await;
        let common = listening(&(tables(&[("up", upstream.lines())]) + &bundle("all", &["up"])));
        let before = principal("ann", &["ann", "old"], "all", "") + &principal("bob", &["bob"], "all", "");
        let mut gateway = start(&(common.clone() + &before)).await;
        let mut clients = Vec::new();
        for key in ["ann", "old", "bob"] {
            let client = Client::connect(era, gateway.addr, "/mcp", Some(key)).await;
            let stream = client.listen().await;
            clients.push((client, stream));
        }
        let [kept, by_key, by_principal] = [0, 1, 2].map(|index: usize| clients[index].0.clone());
        let taking = async {
            until("the calls are under way", || upstream.calls().len() == 3).await;
            let said = gateway.reload(&(common.clone() + &principal("ann", &["ann"], "all", ""))).await;
            assert!(said.contains("~ann (keys)") && said.contains("-bob"), "{said}");
        };
        let lost = async {
            let (one, two, ()) = futures_util::join!(by_key.tries("up__hold"), by_principal.tries("up__hold"), taking);
            // The third is let go when the others have ended; all three wait at the server.
            for _ in 0..3 {
                upstream.release();
            }
            (one, two)
        };
        let (kept, (one, two)) =
            within_deadline("the held calls", futures_util::future::join(kept.call_with("up__hold", "{}"), lost)).await;
        assert!(kept.is_result(), "{era:?} {kept:?}");
        for lost in [one, two].into_iter().flatten() {
            assert!(!lost.is_result(), "{era:?}: a call has outlived what it lived by: {lost:?}");
        }
        let streams = clients.split_off(1);
        for (client, stream) in streams {
            assert_eq!(client.tries("up__hold").await.unwrap().status, 401);
            assert_eq!(within_deadline("the stream's end", stream.changes_to_the_end()).await, 0);
        }
        let (_, mut stream) = clients.remove(0);
        upstream.change(&["hold", "more"]);
        assert!(within_deadline("a list change", stream.next()).await.unwrap().contains("list_changed"));
    }
}

/// A ConfigMap is swapped by its symbolic link: seen without a signal [CFG-4].
#[tokio::test]
async fn a_swapped_config_map_is_seen() {
    let upstream = Upstream::start(Speaks::Both, false, &["a", "b"]).await;
    let text = |policy: &str| {
        let rest = tables(&[("up", upstream.lines())]) + &bundle("all", &["up"]);
        listening(&(rest + &principal("ann", &["ann"], "all", "policy = \"p\"\n") + "[policies.p]\n" + policy))
    };
    let folder = folder();
    put(&folder, "..one/portcullis.toml", &text(""));
    put(&folder, "..two/portcullis.toml", &text("excluded_tools = [\"up__b\"]\n"));
    std::os::unix::fs::symlink("..one", folder.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/portcullis.toml", folder.join("portcullis.toml")).unwrap();
    let mut gateway = start_in(folder).await;
    let client = Client::connect(Era::Stateless, gateway.addr, "/mcp", Some("ann")).await;
    assert_eq!(client.names().await, ["up__a", "up__b"]);
    std::os::unix::fs::symlink("..two", gateway.folder().join("..data_tmp")).unwrap();
    fs::rename(gateway.folder().join("..data_tmp"), gateway.folder().join("..data")).unwrap();
    gateway.says(IN_FORCE).await;
    assert_eq!(client.names().await, ["up__a"]);
}

/// A secret's file that changes restarts its server, and that one alone; the value is in no log [CFG-3, CFG-4].
#[tokio::test]
async fn a_new_secret_restarts_its_server() {
    let (one, two) = (Child::new(Era::Legacy, &["echo"]), Child::new(Era::Legacy, &["echo"]));
    let secret = format!("{}\nenv = {{ KEY = \"${{file:token}}\" }}", one.lines());
    let rest = tables(&[("one", secret), ("two", two.lines())]) + &bundle("all", &["one", "two"]);
    let folder = folder();
    put(&folder, "portcullis.toml", &listening(&(rest + &principal("ann", &["ann"], "all", ""))));
    put(&folder, "token", "canary-1\n");
    let mut gateway = start_in(folder).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    for name in ["one__echo", "two__echo"] {
        assert!(client.call_with(name, "{}").await.is_result());
    }
    let (first, other) = (one.pids(), two.pids());
    put(gateway.folder(), "token", "canary-2\n");
    let said = gateway.says(IN_FORCE).await;
    assert!(said.contains("~one") && !said.contains("~two") && !said.contains("canary"), "{said}");
    assert_eq!(client.names().await, ["one__echo", "two__echo"], "a restart takes no tool away");
    for name in ["one__echo", "two__echo"] {
        assert!(client.call_with(name, "{}").await.is_result());
    }
    assert!(one.pids().len() > first.len());
    assert_eq!(two.pids(), other);
    gateway.says("has ended").await;
    for pid in first {
        until("the old child's end", || !crate::support::lives(pid)).await;
    }
}

/// SIGHUP makes it look at once, also where nothing has changed; what is taken at the start alone is named [CFG-4].
#[tokio::test]
async fn a_signal_makes_it_look() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let rest = tables(&[("up", upstream.lines())]) + &bundle("all", &["up"]) + &principal("ann", &["ann"], "all", "");
    let mut gateway = start(&listening(&rest)).await;
    gateway.hang_up();
    gateway.says("nothing to change").await;
    let moved = listening(&rest).replacen("127.0.0.1:0", "127.0.0.1:9", 1) + "[log]\nformat = \"text\"\n";
    put(gateway.folder(), "portcullis.toml", &moved);
    gateway.hang_up();
    let said = gateway.says("at the next start").await;
    assert!(said.contains("listen.http") && said.contains("log"), "{said}");
    // Nobody is let in without a key at an address that was configured for keys.
    let open = moved.replace("auth = \"keys\"", "auth = \"none\"").replace("[principals.ann]", "[principals.local]");
    put(gateway.folder(), "portcullis.toml", &open);
    gateway.hang_up();
    gateway.says("is refused").await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", Some("ann")).await;
    assert_eq!(client.names().await, ["up__a"]);
}
