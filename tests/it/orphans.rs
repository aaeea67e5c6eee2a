//! No process stays behind, whatever happens to the gateway [TRN-4].

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Child, Client, Era, Gateway, Piped, folder, lives, quoted, until, within_deadline};

/// One line of the process table.
struct Process {
    parent: u32,
    session: u32,
    arguments: Vec<String>,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        Some(Self {
            parent: fields[1].parse().unwrap(),
            session: fields[3].parse().unwrap(),
            arguments: arguments.split('\0').map(str::to_owned).collect(),
        })
    }
}

/// The processes of the machine.
fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The guardian of a gateway, once it leads its own session.
async fn guardian_of(gateway: u32, other_than: Option<u32>) -> u32 {
    let mut found = None;
    let find = || {
        found = all().into_iter().find(|pid| {
            Some(*pid) != other_than
                && lives(*pid)
                && Process::read(*pid).is_some_and(|process| {
                    process.parent == gateway
                        && process.session == *pid
                        && process.arguments.get(1).is_some_and(|argument| argument == "guardian")
                })
        });
        found.is_some()
    };
    until("the guardian", find).await;
    found.unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// A server that starts a process of its own, which neither it nor TERM ends; its id goes to a file.
fn with_descendant(child: &Child, file: &Path) -> String {
    let lines = child.lines();
    let (_, args) = lines.split_once("args = [").unwrap();
    let start = format!("trap '' TERM HUP; sleep 86400 & echo $! >> {}; exec python3 \"$@\"", file.display());
    format!("command = \"sh\"\nargs = [\"-c\", {}, \"sh\", {args}", quoted(&start))
}

/// Those that live; the one that the list was read over may have given way already.
fn living(pids: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    pids.filter(|pid| lives(*pid)).collect()
}

fn pids(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// [TRN-4], FC-STD-06: `kill -9` of the gateway ends every server with all its descendants, those that do not hear TERM
/// and the end of their input too, and the guardian itself.
#[tokio::test]
async fn kill_9_of_the_gateway_leaves_no_process() {
    let child = Child::new(Era::Legacy, &["echo", "stubborn"]);
    let file = folder().join("descendants");
    let gateway = Gateway::start(&[("up", with_descendant(&child, &file))]).await;
    let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
    assert!(client.call_with("up__stubborn", "{}").await.is_result());
    let guardian = guardian_of(gateway.pid(), None).await;
    let left = living(child.pids().into_iter().chain(pids(&file)).chain([guardian]));
    assert!(left.len() >= 3, "{left:?}");
    gateway.kill().await;
    until("every process has ended", || !left.iter().any(|pid| lives(*pid))).await;
}

/// A server that starts a process which leaves its group and its session, and does not hear TERM; its id goes to a file.
fn with_daemon(child: &Child, file: &Path) -> String {
    let lines = child.lines();
    let (_, args) = lines.split_once("args = [").unwrap();
    let daemon = "import os, signal, sys, time; os.setsid(); [signal.signal(s, signal.SIG_IGN) for s in (1, 15)]; \
                  open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(86400)";
    let start = format!("python3 -c \"{daemon}\" {} </dev/null >/dev/null 2>&1 & exec python3 \"$@\"", file.display());
    format!("command = \"sh\"\nargs = [\"-c\", {}, \"sh\", {args}", quoted(&start))
}

/// [TRN-3, TRN-4]: a descendant that has left the group of its server ends with it all the same: when the gateway is killed,
/// when it stops in order, and when the server alone ends.
#[tokio::test]
async fn a_descendant_that_leaves_its_group_ends_too() {
    for how in ["killed", "stopped", "alone"] {
        let child = Child::new(Era::Legacy, &["echo"]);
        let file = folder().join("daemons");
        let gateway = Gateway::start(&[("up", with_daemon(&child, &file))]).await;
        let client = Client::connect(Era::Legacy, gateway.addr, "/mcp", None).await;
        assert!(client.call_with("up__echo", "{}").await.is_result());
        until("the daemon", || !pids(&file).is_empty()).await;
        let daemon = pids(&file)[0];
        assert!(lives(daemon), "{how}");
        match how {
            "killed" => gateway.kill().await,
            "stopped" => {
                gateway.terminate();
                assert_eq!(gateway.ended().await, Some(0));
            }
            _ => {
                child.pids().into_iter().filter(|pid| lives(*pid)).for_each(|pid| signal(pid, Signal::KILL));
                until("it ends with its server", || !lives(daemon)).await;
                gateway.terminate();
                assert_eq!(gateway.ended().await, Some(0));
            }
        }
        until(how, || !lives(daemon)).await;
    }
}

/// [TRN-4]: a child that the guardian was not told of, because the gateway was killed while it started it, ends too; another
/// gateway's does not.
#[tokio::test]
async fn a_child_that_was_just_being_started_ends_too() {
    let start = |mark: &str| {
        let mut command = tokio::process::Command::new("sleep");
        command.arg("86400").env("PORTCULLIS_CHILD", mark).process_group(0).kill_on_drop(true);
        command.spawn().unwrap()
    };
    let mark = format!("it-{}", std::process::id());
    let mut guardian = tokio::process::Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("guardian")
        .env_clear()
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = guardian.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut pipe, format!("={mark}\n").as_bytes()).await.unwrap();
    let (mut own, mut other) = (start(&format!("{mark}.7")), start(&format!("{mark}0.7")));
    drop(pipe);
    let status = within_deadline("its end", own.wait()).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::TERM.as_raw()));
    assert!(within_deadline("the guardian's end", guardian.wait()).await.unwrap().success());
    assert!(other.try_wait().unwrap().is_none(), "another gateway's child lives");
}

/// [TRN-4]: `kill -9` of the gateway of one client leaves no process either.
#[tokio::test]
async fn kill_9_of_a_piped_gateway_leaves_no_process() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let file = folder().join("descendants");
    let mut client = Piped::start(&Piped::configuration(&[("up", with_descendant(&child, &file))]), &[]);
    client.hello(Era::Legacy).await;
    client.call(Era::Legacy, "1", "up__echo", "{}").await;
    client.answer("1").await;
    let guardian = guardian_of(client.pid(), None).await;
    let left = living(child.pids().into_iter().chain(pids(&file)).chain([guardian]));
    assert!(left.len() >= 3, "{left:?}");
    signal(client.pid(), Signal::KILL);
    until("every process has ended", || !left.iter().any(|pid| lives(*pid))).await;
}

/// The guardian holds its pipe alone, hears no signal of the gateway's group, and has ended when the gateway has.
#[tokio::test]
async fn the_guardian_holds_nothing_and_goes_with_the_gateway() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let gateway = Gateway::start(&[("up", child.lines())]).await;
    let guardian = guardian_of(gateway.pid(), None).await;
    let held = |pid: &str, number: &str| std::fs::read_link(format!("/proc/{pid}/fd/{number}")).ok();
    for entry in std::fs::read_dir(format!("/proc/{guardian}/fd")).unwrap() {
        let number = entry.unwrap().file_name().into_string().unwrap();
        // What this test passes on to every process that it starts is not the gateway's.
        let passed_on = held(&guardian.to_string(), &number) == held("self", &number);
        assert!(["0", "1", "2"].contains(&&*number) || passed_on, "the guardian holds descriptor {number}");
    }
    assert_eq!(std::fs::read(format!("/proc/{guardian}/environ")).unwrap(), b"", "an environment without anything");
    gateway.terminate();
    assert_eq!(gateway.ended().await, Some(0));
    assert!(!lives(guardian), "the guardian has outlived an orderly stop");
    assert!(!child.pids().into_iter().any(lives));
}

/// A guardian that is killed is reaped, and the next one knows the same groups.
#[tokio::test]
async fn a_guardian_that_dies_is_replaced() {
    let child = Child::new(Era::Legacy, &["echo"]);
    let file = folder().join("descendants");
    let gateway = Gateway::start(&[("up", with_descendant(&child, &file))]).await;
    let first = guardian_of(gateway.pid(), None).await;
    signal(first, Signal::KILL);
    let second = guardian_of(gateway.pid(), Some(first)).await;
    until("the first one is reaped", || Process::read(first).is_none()).await;
    let left = living(child.pids().into_iter().chain(pids(&file)).chain([second]));
    assert!(left.len() >= 3, "{left:?}");
    gateway.kill().await;
    until("every process has ended", || !left.iter().any(|pid| lives(*pid))).await;
}
