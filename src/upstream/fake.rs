//! Servers that exist in memory, for tests of the hall: each has a list and writes down what it was called for.

use std::future::Future as _;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::exchange::{Answer, Event, Reply};
use crate::id::UpstreamName;
use crate::runtime::{Ready, Tasks};
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Capabilities, Era, Kind, Kinds, LogMessage};

use super::heard::Heard;
use super::link::{BoxFuture, Changes, Connector, Link, Outgoing, StartError, Started, Want};
use super::loudness::Loudness;
use super::means::Means;
use super::server::Server;
use super::set::TargetSet;
use super::{Grants, ServerSettings, Transport};

/// What was called: server and original name.
pub(crate) type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// The server of this name has resources, of which it lists none.
pub(crate) const LIBRARY: &str = "library";

#[derive(Debug)]
struct Fake {
    name: UpstreamName,
    tools: String,
    calls: Calls,
    closed: CancellationToken,
    changes: watch::Sender<Changes>,
    loudness: Loudness,
    heard: Arc<Heard>,
}

/// Makes a set of servers whose tools are given as definitions, and starts them.
pub(crate) fn targets(servers: &[(UpstreamName, Vec<String>)], tasks: &Tasks) -> (Arc<TargetSet>, Calls) {
    let calls = Calls::default();
    let means = Means::new(tasks.clone(), Clock::manual());
    let servers = servers
        .iter()
        .map(|(name, tools)| {
            let transport = Transport::Stdio {
                command: String::new(),
                args: Vec::new(),
                env: Vec::new(),
                inherit_env: Vec::new(),
                cwd: None,
            };
            let settings = Arc::new(ServerSettings::new(name.clone(), transport));
            let fake = Fake::new(name.clone(), format!("{{\"tools\":[{}]}}", tools.join(",")), Arc::clone(&calls));
            Server::new(settings, Arc::new(fake), &means)
        })
        .collect();
    let set = Arc::new(TargetSet::of(servers, means));
    set.start(|_| Grants::Several, &Ready::new());
    (set, calls)
}

/// Writes down that a call was cancelled: its future, or its events, were dropped.
struct Hung(Option<Calls>);

impl Hung {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        if let Some(calls) = &self.0 {
            calls.lock().unwrap().push(("cancelled".to_owned(), String::new()));
        }
    }
}

/// Never answers; `hang_progress` tells of progress once a second, `hang_logs` of something else, and `hang_briefly` of
/// progress for so long as it is asked, until it has its answer after five seconds.
async fn hang(tool: String, hung: Hung) -> Reply {
    if tool == "hang" {
        std::future::pending::<()>().await;
    }
    let progress = || Event::Progress(Bytes::from_static(b"{}"));
    if tool == "hang_briefly" {
        let mut answer = Box::pin(tokio::time::sleep(Duration::from_secs(5)));
        let mut hung = Some(hung);
        let mut begun = false;
        return Reply::events(Box::pin(stream::poll_fn(move |cx| {
            if !std::mem::replace(&mut begun, true) {
                return Poll::Ready(Some(progress()));
            }
            std::task::ready!(answer.as_mut().poll(cx));
            Poll::Ready(hung.take().map(|hung| {
                hung.answered();
                Event::Done(Ok(empty()))
            }))
        })));
    }
    Reply::events(Box::pin(stream::unfold(hung, move |hung| {
        let talk =
            if tool == "hang_logs" { Event::Log(LogMessage::text(Bytes::from_static(b"{}"))) } else { progress() };
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((talk, hung))
        }
    })))
}

fn empty() -> Answer {
    let response = Box::new(Response::with_result(&RequestId::number(1), br#"{"content":[]}"#));
    Answer::Upstream { response, era: Era::Legacy }
}

impl Fake {
    fn new(name: UpstreamName, tools: String, calls: Calls) -> Self {
        Self {
            name,
            tools,
            calls,
            closed: CancellationToken::new(),
            changes: watch::Sender::new(Changes::default()),
            loudness: Loudness::default(),
            heard: Arc::default(),
        }
    }

    /// Another connection to the same server.
    fn another(&self) -> Self {
        Self::new(self.name.clone(), self.tools.clone(), Arc::clone(&self.calls))
    }
}

impl Connector for Fake {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        let link = Arc::new(self.another());
        Box::pin(async move {
            match want.era {
                None | Some(Era::Legacy) => {
                    let mut can = Capabilities::ASSUMED;
                    if self.name.as_str() == LIBRARY {
                        can.lists = can.lists.with(Kind::Resources);
                    }
                    Ok(Started { link, can })
                }
                Some(Era::Stateless) => Err(StartError::Era(Era::Stateless, "it is a fake".to_owned())),
            }
        })
    }
}

impl Link for Fake {
    fn era(&self) -> Era {
        Era::Legacy
    }

    fn is_channel(&self) -> bool {
        true
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        let result = match &outgoing {
            Outgoing::Call(call) => {
                let called = (self.name.as_str().to_owned(), call.original.to_string());
                if call.original.starts_with("hang") {
                    return Box::pin(hang(call.original.to_string(), Hung(Some(Arc::clone(&self.calls)))));
                }
                self.calls.lock().unwrap().push(called);
                r#"{"content":[]}"#.to_owned()
            }
            Outgoing::Own { method: "resources/list", .. } => r#"{"resources":[]}"#.to_owned(),
            Outgoing::Own { method: "resources/templates/list", .. } => r#"{"resourceTemplates":[]}"#.to_owned(),
            Outgoing::Own { .. } => self.tools.clone(),
        };
        Box::pin(async move {
            let response = Box::new(Response::with_result(&RequestId::number(1), &Bytes::from(result)));
            Reply::once(Ok(Answer::Upstream { response, era: Era::Legacy }))
        })
    }

    fn watch(self: Arc<Self>, _: Kinds) {}

    fn changes(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }

    fn relist(&self) {
        Changes::all(&self.changes);
    }

    fn loudness(&self) -> &Loudness {
        &self.loudness
    }

    fn heard(&self) -> &Arc<Heard> {
        &self.heard
    }

    fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    fn close(&self) {
        self.closed.cancel();
    }

    fn ended(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn last_words(&self) -> Option<String> {
        None
    }
}
