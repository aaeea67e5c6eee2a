//! The life of a child: its environment, its start, its end.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;

use super::kit::{
    PRELUDE, PYTHON, ask, base_env, call, connector, done, failure, open, python, refused, script, stdio, within,
};
use crate::exchange::{RejectKind, Retry};
use crate::runtime::Tasks;
use crate::secret::Secret;
use crate::upstream::link::{Connector as _, Want};
use crate::upstream::{EraChoice, Transport};

/// [FC-STD-06, R70]: the socket that the grandchild holds ends with it.
#[tokio::test]
async fn grandchildren_end_with_the_child() {
    if !python() {
        return;
    }
    for wrapper_exits in ["False", "True"] {
        let path = std::env::temp_dir().join(format!("portcullis-{}-{wrapper_exits}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let body = format!(
            r#"
import socket
init()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = socket.socket(socket.AF_UNIX); held.connect({path:?})
    while True: signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if {wrapper_exits}: read(); os._exit(0)
while True: signal.pause()
"#
        );
        let (started, tasks) = open(script(&body)).await;
        let (mut held, _) = within(listener.accept()).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        if wrapper_exits == "True" {
            assert_eq!(failure(&started.link, "0").await.public, "server 'srv' exited with status 0");
        } else {
            started.link.close();
        }
        within(tasks.wait()).await;
        assert_eq!(within(held.read(&mut [0; 1])).await.unwrap(), 0);
        assert!(started.link.closed().is_cancelled());
    }
}

/// The end of all tasks, of the opening future, and of the last link end the child too.
#[tokio::test]
async fn nothing_survives_a_drop() {
    if !python() {
        return;
    }
    for case in ["tasks", "future", "link"] {
        let path = std::env::temp_dir().join(format!("portcullis-{}-{case}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let first = if case == "future" { "pass" } else { "init()" };
        let body = format!(
            "import socket\n{first}\nheld = socket.socket(socket.AF_UNIX); held.connect({path:?})\nwhile True: signal.pause()"
        );
        let tasks = Tasks::new();
        let mut opening = connector(script(&body), &tasks).open(Want::any());
        let (mut held, started) = if case == "future" {
            tokio::select! {
                held = within(listener.accept()) => (held.unwrap().0, None),
                _ = &mut opening => panic!("opened"),
            }
        } else {
            let started = within(&mut opening).await.unwrap();
            (within(listener.accept()).await.unwrap().0, Some(started))
        };
        std::fs::remove_file(&path).unwrap();
        if case == "tasks" {
            let started = started.unwrap();
            let waiting = within(Arc::clone(&started.link).request(call("1", None)));
            tasks.cancel();
            assert_eq!(done(waiting.await).unwrap_err().kind, RejectKind::Upstream);
        } else {
            drop(started);
            drop(opening);
        }
        assert_eq!(within(held.read(&mut [0; 1])).await.unwrap(), 0, "{case}");
        within(tasks.wait()).await;
    }
}

/// [FC-STD-07, FC-STD-13]
#[tokio::test]
async fn the_reason_of_a_failed_start_is_told_without_secrets() {
    if !python() {
        return;
    }
    let body = "sys.stderr.write('no key hunter22 given\\n'); sys.exit(3)";
    for era in [EraChoice::Auto, EraChoice::Legacy, EraChoice::Stateless] {
        let mut settings = script(body);
        settings.era = era;
        let Transport::Stdio { env, .. } = &mut settings.transport else { unreachable!() };
        env.push(("TOKEN".to_owned(), Secret::new("hunter22".to_owned())));
        let words = refused(settings, Want::any()).await;
        assert!(words.contains("server 'srv' exited with status 3"), "{words}");
        assert!(words.contains("no key [secret:TOKEN] given"), "{words}");
    }
}

/// [FC-STD-08, R70]
#[tokio::test]
async fn a_killed_child_fails_its_calls_and_is_not_asked_again() {
    if !python() {
        return;
    }
    let (started, tasks) = open(script("init(); read(); os.kill(os.getpid(), 9)")).await;
    let reject = failure(&started.link, "1").await;
    assert_eq!(reject.public, "server 'srv' was killed by signal 9");
    assert_eq!((reject.kind, reject.retry), (RejectKind::Upstream, Retry::Never));
    within(tasks.wait()).await;
    assert!(started.link.closed().is_cancelled());
    assert_eq!(failure(&started.link, "1").await.retry, Retry::Safe);
}

/// [FC-STD-10]
#[tokio::test]
async fn a_child_that_closes_its_stdin_fails_its_callers_alone() {
    if !python() {
        return;
    }
    for rest in ["sys.exit(0)", "\nwhile True: signal.pause()"] {
        let body = format!("request = read(); os.close(0); send(dict(id=request['id'], result=facts())); {rest}");
        let tasks = Tasks::new();
        match within(connector(script(&body), &tasks).open(Want::any())).await {
            Ok(started) => {
                let reject = failure(&started.link, "1").await;
                assert_eq!(reject.kind, RejectKind::Upstream);
                assert!(reject.public.starts_with("server 'srv' "), "{reject:?}");
            }
            Err(err) => assert!(err.to_string().contains("'srv'"), "{err}"),
        }
        within(tasks.wait()).await;
        assert_eq!(tasks.panics(), 0);
    }
}

/// [FC-STD-11]
#[tokio::test]
async fn a_missing_command_is_named_with_its_path() {
    let words = refused(stdio("no-such-command-here", &[]), Want::any()).await;
    let (_, path) = base_env().own.iter().find(|(name, _)| name == "PATH").cloned().unwrap();
    assert_eq!(
        words,
        format!(
            "server 'srv' cannot start: command 'no-such-command-here' not found in PATH {}",
            path.to_string_lossy()
        )
    );
}

/// [FC-CFG-03, TRN-9]
#[tokio::test]
async fn the_environment_is_the_short_list_and_what_is_named() {
    if !python() {
        return;
    }
    let mut settings =
        script("init(); answer(read(), ' '.join(sorted(os.environ)) + ' ' + os.environ['LC_ALL']); read()");
    let Transport::Stdio { env, inherit_env, .. } = &mut settings.transport else { unreachable!() };
    env.push(("LC_ALL".to_owned(), Secret::new("C".to_owned())));
    inherit_env.push("EXTRA".to_owned());
    let (started, _tasks) = open(settings).await;
    let names = ask(&started.link, "0").await;
    let names: Vec<&str> = names.split(' ').filter(|name| !matches!(*name, "HOME" | "LC_CTYPE")).collect();
    assert_eq!(names, ["EXTRA", "LC_ALL", "PATH", "PORTCULLIS_CHILD", "XDG_DATA_HOME", "C"]);
}

/// [FC-CFG-02]
#[tokio::test]
async fn arguments_are_passed_without_a_shell() {
    if !python() {
        return;
    }
    let exact = ["Authorization: Bearer x", "/a path/b", "\"'", "$HOME", "*", "", "a\nb"];
    let code = format!("{PRELUDE}\ninit(); answer(read(), json.dumps(sys.argv[1:])); read()");
    let mut args = vec!["-c", code.as_str()];
    args.extend(exact);
    let (started, _tasks) = open(stdio(PYTHON.as_deref().unwrap_or("python3"), &args)).await;
    let got: Vec<String> = serde_json::from_str(&ask(&started.link, "0").await).unwrap();
    assert_eq!(got, exact);
}
