//! `portcullis stdio` takes a changed configuration while its client talks, as `serve` does [CFG-4, OPS-11].

use std::path::Path;

use rustix::process::Signal;

use crate::support::{Child, ERAS, Era, Piped, Speaks, Upstream, lives, raw, until};

/// Writes a configuration whole, as a careful editor does.
fn put(folder: &Path, text: &str) {
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join("portcullis.toml")).unwrap();
}

fn tables(servers: &[(&str, String)]) -> String {
    servers.iter().map(|(name, lines)| format!("[[mcp.servers]]\nname = \"{name}\"\n{lines}\n")).collect()
}

/// The rest of a configuration: one bundle of these servers for `local`.
fn grants(servers: &str, policy: &str) -> String {
    format!(
        "[mcp_bundles.all]\nservers = [{servers}]\n[principals.local]\nmcp_bundles = [\"all\"]\npolicy = \
         \"p\"\n[policies.p]\n{policy}\n"
    )
}

impl Piped {
    /// Opens what list changes come on.
    async fn listens(&mut self, era: Era) {
        self.hello(era).await;
        if era == Era::Stateless {
            let wanted = r#""notifications":{"toolsListChanged":true}"#;
            self.request(era, "\"l\"", "subscriptions/listen", "", wanted).await;
            assert!(self.next().await.contains("notifications/subscriptions/acknowledged"));
        }
    }

    /// Waits until the list is this one; each change of it is told.
    async fn comes_to_show(&mut self, era: Era, names: &[&str]) {
        while self.names(era).await != names {
            while !self.next().await.contains("notifications/tools/list_changed") {}
        }
    }
}

/// A policy, a server that comes and one that goes, with a signal and without; an unchanged child is the same process, a
/// call under way goes on.
#[tokio::test]
async fn a_change_is_taken_while_the_client_talks() {
    for era in ERAS {
        let upstream = Upstream::start(Speaks::Both, false, &["a", "hold"]).await;
        let [one, two] = [Era::Legacy, Era::Stateless].map(|speaks| Child::new(speaks, &["echo"]));
        let (up, one_table) = (("up", upstream.lines()), ("one", one.lines()));
        let before = tables(&[up.clone(), one_table.clone()]);
        let mut client = Piped::start(&(before.clone() + &grants("\"up\", \"one\"", "")), &[]);
        client.listens(era).await;
        client.comes_to_show(era, &["up__a", "up__hold", "one__echo"]).await;
        client.call(era, "\"e\"", "one__echo", "{}").await;
        assert!(raw(&client.answer("\"e\"").await, "result").is_some());
        client.call(era, "\"h\"", "up__hold", "{}").await;
        until("the call is under way", || upstream.calls().len() == 1).await;
        let first = one.pids();

        put(&client.folder, &(before + &grants("\"up\", \"one\"", "excluded_tools = [\"up__a\"]")));
        client.signal(Signal::HUP);
        client.comes_to_show(era, &["up__hold", "one__echo"]).await;
        client.call(era, "\"a\"", "up__a", "{}").await;
        assert_eq!(raw(&client.answer("\"a\"").await, "error.code").as_deref(), Some("-32602"), "visible is callable");

        // Without a signal.
        let more = tables(&[up.clone(), one_table, ("two", two.lines())]);
        put(&client.folder, &(more + &grants("\"up\", \"one\", \"two\"", "")));
        client.comes_to_show(era, &["up__a", "up__hold", "one__echo", "two__echo"]).await;
        client.call(era, "\"t\"", "two__echo", "{}").await;
        assert!(raw(&client.answer("\"t\"").await, "result").is_some());
        assert_eq!(one.pids(), first, "an unchanged server was started again");

        put(&client.folder, &(tables(&[up, ("two", two.lines())]) + &grants("\"up\", \"two\"", "")));
        client.comes_to_show(era, &["up__a", "up__hold", "two__echo"]).await;
        until("the child that was taken away ends", || !one.pids().into_iter().any(lives)).await;
        upstream.release();
        assert!(raw(&client.answer("\"h\"").await, "result").is_some(), "a call was lost");
        client.close();
        assert_eq!(client.ended().await.code, Some(0));
        until("the other child ends too", || !two.pids().into_iter().any(lives)).await;
    }
}

/// A file that cannot be used changes nothing, and the log says what is wrong with it.
#[tokio::test]
async fn a_bad_file_changes_nothing() {
    let upstream = Upstream::start(Speaks::Both, false, &["a"]).await;
    let good = tables(&[("up", upstream.lines())]) + &grants("\"up\"", "");
    let mut client = Piped::start(&good, &[]);
    client.hello(Era::Legacy).await;
    client.comes_to_show(Era::Legacy, &["up__a"]).await;
    put(&client.folder, &format!("nonsense = 1\n{good}"));
    client.says("the configuration of before stays in force").await;
    assert_eq!(client.names(Era::Legacy).await, ["up__a"]);
    put(&client.folder, &good.replace("[policies.p]", "[policies.p]\nexcluded_tools = [\"up__a\"]"));
    client.comes_to_show(Era::Legacy, &[]).await;
    client.close();
    assert_eq!(client.ended().await.code, Some(0));
}

/// A reload that takes away who the client is, or the one server it is shown, ends the conversation with the words and the
/// code of a start [OPS-1]; its calls and children end too.
#[tokio::test]
async fn what_is_taken_away_ends_the_conversation() {
    let upstream = Upstream::start(Speaks::Both, false, &["hold"]).await;
    let child = Child::new(Era::Legacy, &["echo"]);
    let servers = tables(&[("up", upstream.lines()), ("one", child.lines())]);
    let good = format!("[listen]\nauth = \"keys\"\n{servers}{}", grants("\"up\", \"one\"", ""));
    let cases = [
        (&[][..], good.replace("principals.local", "principals.other"), 2, "P601"),
        (&[][..], good.split("[principals.local]").next().unwrap().to_owned(), 2, "P601"),
        (&["--server", "up"][..], good.replace("servers = [\"up\", ", "servers = ["), 5, "P301"),
    ];
    for (at, (args, text, code, words)) in cases.into_iter().enumerate() {
        let mut args = args.to_vec();
        args.extend(["--as", "local"]);
        let mut client = Piped::start(&good, &args);
        client.hello(Era::Legacy).await;
        let name = if args.len() > 2 { "hold" } else { "up__hold" };
        client.call(Era::Legacy, "1", name, "{}").await;
        until("the call is under way", || upstream.calls().len() > at).await;
        put(&client.folder, &text);
        client.signal(Signal::HUP);
        let ended = client.ended().await;
        assert_eq!(ended.code, Some(code), "{}", ended.said);
        assert!(ended.said.contains(words), "{words}: {}", ended.said);
        assert!(!ended.answers().contains(&"1".to_owned()), "{:?}", ended.rest);
        until("the child ends", || !child.pids().into_iter().any(lives)).await;
    }
}

/// [LIM-1] On a pipe an answer is a line, whole or not at all, also where nobody looks into it: `inspect = "off"` passes it
/// byte for byte, and the cap holds.
#[tokio::test]
async fn an_unseen_answer_of_a_child_is_a_line_under_its_cap() {
    for (server, era) in [(Era::Legacy, Era::Legacy), (Era::Stateless, Era::Stateless), (Era::Legacy, Era::Stateless)] {
        let child = Child::new(server, &["echo", "together"]);
        let lines = format!("inspect = \"off\"\nmax_response_bytes = 300000\n{}", child.lines());
        let mut client = Piped::start(&Piped::configuration(&[("up", lines)]), &[]);
        client.hello(era).await;
        for (id, size, passes) in [("\"fits\"", 290_000, true), ("\"over\"", 300_000, false), ("\"small\"", 1, true)] {
            let arguments = format!(r#"{{"k":1.10,"t":"{}"}}"#, "\\u00e9".repeat(size / 6 + 1));
            client.call(era, id, "up__echo", &arguments).await;
            let answer = client.answer(id).await;
            assert_eq!(raw(&answer, "result.echo").as_deref() == Some(&arguments), passes, "{era:?} {id}");
            let words = raw(&answer, "error.message").unwrap_or_default();
            assert_eq!(words.contains("max_response_bytes"), !passes, "{era:?} {id}: {words}");
        }
        // An older one has a child for its list too.
        let children = if server == Era::Legacy { 2 } else { 1 };
        assert_eq!(child.pids().len(), children, "an answer over the cap costs that call alone");
        client.close();
        assert_eq!(client.ended().await.code, Some(0));
    }
}
