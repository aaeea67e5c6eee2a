//! Connections that exist in memory, for tests; and servers of them, for those of the hall: each has a list and writes down
//! what it was called for.

use std::future::Future as _;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::clock::Clock;
use crate::exchange::{Answer, Event, Reply};
use crate::id::UpstreamName;
use crate::runtime::{Ready, Tasks};
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Capabilities, Era, Kind, LogMessage};
use bytes::Bytes;
use futures_util::stream;

use super::link::{BoxFuture, Connector, Link, LinkState, Outgoing, StartError, Started, Want};
use super::means::Means;
use super::server::Server;
use super::set::TargetSet;
use super::{Grants, ServerSettings, Transport};

/// What was called: server and original name.
pub(crate) type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// The server of this name has resources, of which it lists none.
pub(crate) const LIBRARY: &str = "library";

/// What a connection answers.
type Answers = Box<dyn Fn(&LinkState, Outgoing) -> BoxFuture<Reply> + Send + Sync>;

/// A connection that exists in memory: a channel without questions, that answers as its test wants.
pub(super) struct FakeLink {
    era: Era,
    pub(super) state: LinkState,
    answers: Answers,
}

/// A server of a hall's test, that opens such connections.
#[derive(Debug)]
struct Fake {
    name: UpstreamName,
    tools: String,
    calls: Calls,
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
            let tools = format!("{{\"tools\":[{}]}}", tools.join(","));
            let fake = Fake { name: name.clone(), tools, calls: Arc::clone(&calls) };
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
    result(Era::Legacy, r#"{"content":[]}"#)
}

/// A result as a server of this era has sent it.
pub(super) fn result(era: Era, result: &str) -> Answer {
    let response = Box::new(Response::with_result(&RequestId::number(1), result.as_bytes()));
    Answer::Upstream { response, era }
}

/// The same, as a reply that is there at once.
pub(super) fn at_once(answer: Answer) -> BoxFuture<Reply> {
    Box::pin(std::future::ready(Reply::once(Ok(answer))))
}

// === impl FakeLink ===

impl FakeLink {
    /// Makes a connection that answers so.
    pub(super) fn new(
        era: Era,
        answers: impl Fn(&LinkState, Outgoing) -> BoxFuture<Reply> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { era, state: LinkState::default(), answers: Box::new(answers) })
    }
}

impl std::fmt::Debug for FakeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeLink")
    }
}

impl Link for FakeLink {
    fn era(&self) -> Era {
        self.era
    }

    fn state(&self) -> &LinkState {
        &self.state
    }

    fn is_channel(&self) -> bool {
        true
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        (self.answers)(&self.state, outgoing)
    }
}

// === impl Fake ===

impl Fake {
    fn answer(&self, outgoing: &Outgoing) -> BoxFuture<Reply> {
        let text = match outgoing {
            Outgoing::Call(call) => {
                if call.original.starts_with("hang") {
                    return Box::pin(hang(call.original.to_string(), Hung(Some(Arc::clone(&self.calls)))));
                }
                let called = (self.name.as_str().to_owned(), call.original.to_string());
                self.calls.lock().unwrap().push(called);
                return at_once(empty());
            }
            Outgoing::Own { method: "resources/list", .. } => r#"{"resources":[]}"#,
            Outgoing::Own { method: "resources/templates/list", .. } => r#"{"resourceTemplates":[]}"#,
            Outgoing::Own { .. } => &self.tools,
        };
        at_once(result(Era::Legacy, text))
    }
}

impl Connector for Fake {
    fn open(self: Arc<Self>, want: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(async move {
            match want.era {
                None | Some(Era::Legacy) => {
                    let mut can = Capabilities::ASSUMED;
                    if self.name.as_str() == LIBRARY {
                        can.lists = can.lists.with(Kind::Resources);
                    }
                    let link = FakeLink::new(Era::Legacy, move |_, outgoing| self.answer(&outgoing));
                    Ok(Started { link, can })
                }
                Some(Era::Stateless) => Err(StartError::Era(Era::Stateless, "it is a fake".to_owned())),
            }
        })
    }
}
