//! A scripted server's pages: all of them, within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ITEMS_MAX, PAGES_MAX, read};
use crate::id::UpstreamName;
use crate::upstream::fake::{FakeLink, at_once, result};
use crate::upstream::link::{Link, Outgoing};
use crate::upstream::{ServerSettings, Transport};
use crate::wire::mcp::{Era, Kind};

use super::Listing;

/// Reads the list of a server that answers by a function of the cursor; says how often it was asked.
async fn listing(page: impl Fn(&str) -> String + Send + Sync + 'static) -> (Result<Listing, String>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let link: Arc<dyn Link> = FakeLink::new(Era::Legacy, move |_, outgoing| {
        let Outgoing::Own { members, .. } = outgoing else { panic!("a call") };
        count.fetch_add(1, Ordering::Relaxed);
        at_once(result(Era::Legacy, &page(&members)))
    });
    let transport = Transport::Stdio {
        command: String::new(),
        args: Vec::new(),
        env: Vec::new(),
        inherit_env: Vec::new(),
        cwd: None,
    };
    let settings = ServerSettings::new(UpstreamName::new("s").unwrap(), transport);
    let read = read(&link, Kind::Tools, &settings).await;
    (read, asked.load(Ordering::Relaxed))
}

fn tools(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!(r#"{{"name":"t{number}"}}"#)).collect::<Vec<_>>().join(",")
}

/// [FC-LST-01, FC-LST-03]: cursors are handed on as they are, the empty one too, and every tool comes once.
#[tokio::test]
async fn all_pages_are_read_once() {
    let (read, asked) = listing(|members| match members {
        "" => format!(r#"{{"tools":[{}],"nextCursor":""}}"#, tools(0..8)),
        r#""cursor":"""# => format!(r#"{{"tools":[{}],"nextCursor":"8\u00e9"}}"#, tools(8..12)),
        r#""cursor":"8\u00e9""# => format!(r#"{{"tools":[{}]}}"#, tools(12..14)),
        other => panic!("{other}"),
    })
    .await;
    let read = read.unwrap();
    let names: Vec<_> = read.items.iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, (0..14).map(|number| format!("t{number}")).collect::<Vec<_>>());
    assert!(read.warnings.is_empty() && asked == 3);
}

/// [FC-LST-02]: a cursor that never advances, and pages without end, stop with what was read and a warning.
#[tokio::test]
async fn endless_lists_have_an_end() {
    let (read, asked) = listing(|_| format!(r#"{{"tools":[{}],"nextCursor":"same"}}"#, tools(0..1))).await;
    let read = read.unwrap();
    assert_eq!((read.items.len(), read.warnings.len(), asked), (2, 1, 2));
    let count = AtomicUsize::new(0);
    let (read, asked) = listing(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        format!(r#"{{"tools":[],"nextCursor":"{number}"}}"#)
    })
    .await;
    assert_eq!((read.unwrap().warnings.len(), asked), (1, PAGES_MAX));
    let count = AtomicUsize::new(0);
    let (read, asked) = listing(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        format!(r#"{{"tools":[{}],"nextCursor":"{number}"}}"#, tools(number * 1_000..(number + 1) * 1_000))
    })
    .await;
    let read = read.unwrap();
    assert_eq!((read.items.len(), read.warnings.len(), asked), (ITEMS_MAX, 1, ITEMS_MAX / 1_000));
}

/// One tool that cannot be read costs that tool alone; a result that is no list is an error.
#[tokio::test]
async fn bad_entries_are_left_out() {
    let (read, _) = listing(|_| r#"{"tools":[{"name":1},{"name":"good"},7]}"#.to_owned()).await;
    let read = read.unwrap();
    assert_eq!((read.items.len(), read.warnings.len()), (1, 2));
    for bad in [r#"{"tools":{}}"#, "{}", "[]"] {
        assert!(listing(move |_| bad.to_owned()).await.0.is_err(), "{bad}");
    }
}
