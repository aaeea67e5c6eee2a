//! A stream beside the calls that floods [LIM-6].

use std::pin::pin;
use std::sync::Arc;

use futures_util::poll;
use http::{HeaderMap, Uri};

use super::{Try, stateless_once};
use crate::id::UpstreamName;
use crate::net::script::{ScriptedServer, Step, stream};
use crate::net::{ClientTls, Demand, Dialer, HttpClient};
use crate::runtime::Tasks;
use crate::upstream::http::stateless::StatelessLink;
use crate::upstream::http::target::Target;
use crate::upstream::link::Link as _;
use crate::wire::mcp::{Kind, Kinds};

/// How many changes are told of at once.
const FLOOD: u64 = 4_000;
/// How many of them a reader may take before it lets others have its thread; tokio gives a task 128 turns.
const TURNS: u64 = 200;

/// [LIM-6]: whoever reads a flood lets others run, however much of it is there at once; and nothing of it is lost.
#[tokio::test]
async fn a_flood_of_changes_lets_others_run() {
    let tasks = Tasks::new();
    let server = ScriptedServer::start(&tasks, |_| {
        let change = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
        vec![stream(&change.repeat(usize::try_from(FLOOD).unwrap())), Step::Close]
    })
    .await;
    let uri: Uri = format!("http://{}/mcp", server.addr).parse().unwrap();
    let client = HttpClient::new(&tasks, Dialer::new(ClientTls::new(None), Demand::Scheme, &tasks), uri.clone());
    let target = Target::new(UpstreamName::new("srv").unwrap(), &uri, HeaderMap::new(), client, 1 << 20);
    let link = Arc::new(StatelessLink::new(Arc::new(target), tasks.clone()));
    let changes = link.changes();
    let told = || changes.borrow().of(Kind::Tools);

    let mut reading = pin!(stateless_once(&link, Kinds::NONE.with(Kind::Tools), false));
    let mut most = 0;
    let went = loop {
        let before = told();
        let polled = poll!(reading.as_mut());
        most = most.max(told() - before);
        if let std::task::Poll::Ready(went) = polled {
            break went;
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(went, Try::Lived));
    assert_eq!(told(), FLOOD);
    assert!(most <= TURNS, "{most} at once");
    tasks.cancel();
}
