//! Cursors of our own lists: whose they are, and for how long [TRN-10].

use std::time::Duration;

use super::{CURSOR_SECS, Kind};
use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{Answer, Call, Endpoint, RejectKind, Told};
use crate::gateway::Gateway;
use crate::gateway::tests::{clients, exchange, outcome, settings};
use crate::id::UpstreamName;
use crate::runtime::Tasks;
use crate::upstream::fake;

/// [TRN-10]: a cursor goes on where it was given: for its principal, its kind of list, its path, and an hour. Elsewhere it is
/// an invalid one, whatever was done to it.
#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_alone() {
    let (tasks, clock) = (Tasks::new(), Clock::manual());
    let names: Vec<UpstreamName> = ["one", "two"].iter().map(|name| UpstreamName::new(name).unwrap()).collect();
    let servers: Vec<_> = names.iter().map(|name| (name.clone(), vec![r#"{"name":"t"}"#.to_owned()])).collect();
    let (targets, _) = fake::targets(&servers, &tasks);
    let granted = (vec![0, 1], None, Vec::new(), false);
    let mut settings = settings(&names, &[granted.clone(), granted]);
    // One tool fills a page.
    settings.list_page_bytes = 1;
    let gateway = Gateway::new(settings, targets, Blobs::new(None, None, &clock), &tasks, clock.clone()).unwrap();
    // A legacy client is not told that a kind is not there.
    let [client, _] = clients();
    let list = async |key: &str, endpoint: &Endpoint, kind: Kind, cursor: Option<&str>| {
        let call = Call::List { kind, cursor: cursor.map(str::to_owned), told: Told::default() };
        match outcome(&gateway, key, exchange(endpoint.clone(), &client, call)).await {
            Ok(Answer::Page(page)) => Ok((String::from_utf8(page.items.to_vec()).unwrap(), page.next_cursor)),
            Err(reject) => Err((reject.kind, reject.public.clone().into_owned())),
            Ok(other) => panic!("{other:?}"),
        }
    };
    let (first, cursor) = list("key0", &Endpoint::All, Kind::Tools, None).await.unwrap();
    let cursor = cursor.expect("another page");
    assert!(first.contains("one__t") && !first.contains("two__t"), "{first}");
    let invalid = Err((RejectKind::InvalidParams, "Invalid cursor".to_owned()));
    let one = Endpoint::Server(names[0].clone());
    for (key, endpoint, kind) in
        [("key1", &Endpoint::All, Kind::Tools), ("key0", &one, Kind::Tools), ("key0", &Endpoint::All, Kind::Prompts)]
    {
        assert_eq!(list(key, endpoint, kind, Some(&cursor)).await, invalid, "{key} {endpoint:?} {kind:?}");
    }
    for broken in ["", "1", cursor.get(1..).unwrap(), &format!("{cursor}A")] {
        assert_eq!(list("key0", &Endpoint::All, Kind::Tools, Some(broken)).await, invalid, "{broken}");
    }
    clock.advance(Duration::from_secs(CURSOR_SECS));
    let (next, end) = list("key0", &Endpoint::All, Kind::Tools, Some(&cursor)).await.unwrap();
    assert!(next.contains("two__t") && !next.contains("one__t") && end.is_none(), "{next}");
    clock.advance(Duration::from_secs(1));
    assert_eq!(list("key0", &Endpoint::All, Kind::Tools, Some(&cursor)).await, invalid, "after an hour");
    tasks.cancel();
    tasks.wait().await;
}
