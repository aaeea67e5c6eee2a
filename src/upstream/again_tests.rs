//! A server that refuses every call for its headers [R51, LIM-6].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::FRESH;
use crate::clock::Clock;
use crate::exchange::{Answer, ClientFacts, Owner, Reply, ServerCall, UpstreamCall};
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::Tasks;
use crate::upstream::fake::{FakeLink, result};
use crate::upstream::link::{BoxFuture, Connector, Link, Outgoing, StartError, Started, Want};
use crate::upstream::means::Means;
use crate::upstream::server::Server;
use crate::upstream::{ServerSettings, Transport};
use crate::wire::jsonrpc::{Decoded, Limits, Message, RequestId, Response, decode};
use crate::wire::mcp::{CallParams, Era, HeaderParam, Method, ProtocolVersion, RequestMeta};

/// A list of one tool, that wants a header.
const LIST: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}"#;

/// Counts what it is asked; a list waits for the gate, a call is refused as before.
#[derive(Debug)]
struct Picky {
    calls: AtomicUsize,
    lists: AtomicUsize,
    gate: Semaphore,
}

impl Connector for Picky {
    fn open(self: Arc<Self>, _: Want) -> BoxFuture<Result<Started, StartError>> {
        Box::pin(std::future::ready(Err(StartError::Failed("it is there".to_owned()))))
    }
}

impl Picky {
    async fn answer(self: Arc<Self>, outgoing: Outgoing) -> Reply {
        Reply::once(Ok(match outgoing {
            Outgoing::Call(_) => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                let refusal = br#"{"code":-32020,"message":"header"}"#;
                let response = Box::new(Response::with_error(Some(&RequestId::number(1)), refusal));
                Answer::Upstream { response, era: Era::Stateless }
            }
            Outgoing::Own { .. } => {
                self.lists.fetch_add(1, Ordering::SeqCst);
                self.gate.acquire().await.unwrap().forget();
                result(Era::Stateless, LIST)
            }
        }))
    }
}

fn call(header_params: Arc<[HeaderParam]>) -> UpstreamCall {
    let raw = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#);
    let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else { panic!("{raw:?}") };
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::read(request.params.as_deref()).unwrap();
    let principal = PrincipalId::new("ann");
    UpstreamCall {
        call: Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }),
        original: Arc::from("t"),
        original_spelled: Bytes::from_static(b"\"t\""),
        header_params,
        client: ClientFacts::new(ProtocolVersion::V2026_07_28, None, Bytes::from_static(b"{}")),
        owner: Owner::principal(principal.clone()),
        principal,
        request_state: None,
        trace: None,
    }
}

/// [R51, LIM-6]: of many calls that are refused together one reads the list, whoever goes away meanwhile; it is not read again
/// before a while; and a call that has the headers already that are wanted is not sent again.
#[tokio::test]
async fn a_list_is_read_by_one_call_for_all_and_not_again_at_once() {
    let picky = Arc::new(Picky { calls: AtomicUsize::new(0), lists: AtomicUsize::new(0), gate: Semaphore::new(0) });
    let counts = || (picky.lists.load(Ordering::SeqCst), picky.calls.load(Ordering::SeqCst));
    let url = "http://127.0.0.1:1/".to_owned();
    let transport =
        Transport::Http { uri: url.parse().unwrap(), url: crate::secret::Secret::new(url), headers: Vec::new() };
    let settings = Arc::new(ServerSettings::new(UpstreamName::new("up").unwrap(), transport));
    let clock = Clock::manual();
    let server =
        Server::new(settings, Arc::clone(&picky) as Arc<dyn Connector>, &Means::new(Tasks::new(), clock.clone()));
    let asked = Arc::clone(&picky);
    let link: Arc<dyn Link> =
        FakeLink::new(Era::Stateless, move |_, outgoing| Box::pin(Arc::clone(&asked).answer(outgoing)));
    let (old, new) =
        (call(Arc::from([])), call(Arc::from([HeaderParam { header: "A".to_owned(), path: vec!["a".to_owned()] }])));

    // The one that reads goes away: the next one reads.
    let mut first = Box::pin(server.again(&link, &old));
    let mut all = Box::pin(join_all((0..100).map(|_| server.again(&link, &old))));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending() && all.as_mut().poll(&mut context).is_pending());
    assert_eq!(counts(), (1, 0));
    drop(first);
    assert!(all.as_mut().poll(&mut context).is_pending());
    assert_eq!(counts(), (2, 0));
    picky.gate.add_permits(100);
    assert!(all.await.iter().all(Option::is_some));
    assert_eq!(counts(), (2, 100), "each is sent once more");

    assert!(server.again(&link, &new).await.is_none(), "it has the headers that are wanted");
    clock.advance(FRESH - Duration::from_millis(1));
    assert!(server.again(&link, &old).await.is_some());
    assert_eq!(counts(), (2, 101));
    clock.advance(Duration::from_millis(1));
    assert!(server.again(&link, &new).await.is_none());
    assert_eq!(counts(), (3, 101));
}
