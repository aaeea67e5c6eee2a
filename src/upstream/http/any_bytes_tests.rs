//! Whatever a server answers over HTTP, byte for byte and cut anywhere, is one outcome [LIM-1, LIM-6, TRN-10].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderMap, Uri};
use proptest::prelude::*;

use super::stateless::StatelessLink;
use super::target::Target;
use crate::exchange::{Answer, Event, Outcome, ReplyBody};
use crate::id::UpstreamName;
use crate::net::script::{ScriptedServer, Step};
use crate::net::{ClientTls, Demand, Dialer, HttpClient};
use crate::runtime::Tasks;
use crate::upstream::link::{Link as _, Outgoing};

const CAP: usize = 600;

/// Something that stands in an answer; `@` is the id of the request.
fn fragment() -> impl Strategy<Value = String> {
    let known = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 Not Found\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "Content-Type: application/json\r\n",
        "Content-Length: 45\r\n",
        "Content-Length: 7\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\n\n",
        "2d\r\n",
        "0\r\n\r\n",
        "data: ",
        "id: 3\n",
        ": comment\n",
        "[",
        "]",
        ",",
        r#"{"jsonrpc":"2.0","id":@,"result":{"good":1}}"#,
        r#"{"jsonrpc":"2.0","id":999999,"result":{"stray":1}}"#,
        r#"{"jsonrpc":"2.0","id":@,"result":{"x":""#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
    ];
    prop_oneof![
        8 => prop::sample::select(known.map(str::to_owned).to_vec()),
        1 => ".{0,12}",
        1 => (0..1_500_usize).prop_map(|length| "x".repeat(length)),
    ]
}

/// The begin of an answer that may be a good one, or nothing in particular.
fn begin() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".to_owned()),
        Just("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n".to_owned()),
        Just("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        Just(String::new()),
    ]
}

async fn outcomes(link: &Arc<StatelessLink>) -> (Vec<Outcome>, usize) {
    let outgoing = Outgoing::Own { method: "ping", members: String::new() };
    let (mut outcomes, mut others) = (Vec::new(), 0);
    match Arc::clone(link).request(outgoing).await.into_parts().0 {
        ReplyBody::Done(outcome) => outcomes.push(*outcome),
        ReplyBody::Events(mut events) => {
            while let Some(event) = events.next().await {
                if let Event::Done(outcome) = event {
                    outcomes.push(outcome);
                } else {
                    others += 1;
                }
            }
        }
    }
    (outcomes, others)
}

/// A server that says what is put here to whatever it is asked, and closes.
struct Lab {
    said: Arc<Mutex<(String, Vec<usize>)>>,
    link: Arc<StatelessLink>,
    tasks: Tasks,
    _server: ScriptedServer,
}

impl Lab {
    async fn new() -> Self {
        let tasks = Tasks::new();
        let said: Arc<Mutex<(String, Vec<usize>)>> = Arc::default();
        let says = Arc::clone(&said);
        let server = ScriptedServer::start(&tasks, move |request| {
            let (text, pieces) = says.lock().unwrap().clone();
            let text = text.replace('@', &request.member("id")).into_bytes();
            let (mut steps, mut rest) = (Vec::new(), &text[..]);
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                steps.push(Step::Write(now.to_vec()));
                rest = later;
            }
            steps.extend([Step::Write(rest.to_vec()), Step::Close]);
            steps
        })
        .await;
        let uri: Uri = format!("http://{}/mcp", server.addr).parse().unwrap();
        let dialer = Dialer::new(ClientTls::new(None), Demand::Scheme, &tasks);
        let client = HttpClient::new(&tasks, dialer, uri.clone());
        let target = Target::new(UpstreamName::new("srv").unwrap(), &uri, HeaderMap::new(), client, CAP);
        let link = Arc::new(StatelessLink::new(Arc::new(target), tasks.clone()));
        Self { said, link, tasks, _server: server }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    /// [LIM-1, LIM-6, TRN-10]: no panic, no wait without an end, exactly one outcome; a result is the answer to this request, and
    /// no longer than the cap.
    #[test]
    fn any_bytes_are_one_outcome(
        begin in begin(),
        fragments in prop::collection::vec(fragment(), 0..16),
        pieces in prop::collection::vec(1..120_usize, 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (outcomes, others, panics) = runtime.block_on(async {
            let lab = Lab::new().await;
            *lab.said.lock().unwrap() = (begin + &fragments.concat(), pieces);
            let got = tokio::time::timeout(Duration::from_secs(30), outcomes(&lab.link)).await;
            lab.tasks.cancel();
            let (outcomes, others) = got.expect("an end");
            (outcomes, others, lab.tasks.panics())
        });
        prop_assert_eq!((outcomes.len(), panics), (1, 0));
        prop_assert!(others <= 16);
        if let Some(Ok(Answer::Upstream { response, .. })) = outcomes.first() {
            prop_assert!(response.raw.len() <= CAP);
            prop_assert!(!response.raw.windows(5).any(|part| part == b"stray"), "{:?}", response.raw);
        }
    }
}
