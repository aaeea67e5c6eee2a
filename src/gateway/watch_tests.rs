//! Watches are judged anew without holding anybody up [LIM-6, POL-15].

use std::sync::Arc;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{Endpoint, Handler as _, Watching};
use crate::gateway::Gateway;
use crate::gateway::tests::settings;
use crate::id::UpstreamName;
use crate::identity::Credential;
use crate::runtime::Tasks;
use crate::secret::Lent;
use crate::upstream::fake;

/// [LIM-6]: with each snapshot every client's watches are judged anew, one client in each turn: the others' tasks have theirs in
/// between, and who begins to watch meanwhile does not wait. Who has lost the right, or is gone, is forgotten.
#[tokio::test]
async fn judging_many_holds_nobody_up() {
    const CLIENTS: usize = 100;
    let tasks = Tasks::new();
    let name = UpstreamName::new("one").unwrap();
    let (targets, _) = fake::targets(&[(name.clone(), vec![r#"{"name":"t"}"#.to_owned()])], &tasks);
    let granted = (vec![0], None, Vec::new(), false);
    let both = settings(std::slice::from_ref(&name), &[granted.clone(), granted.clone()]);
    let blobs = Blobs::new(None, None, &Clock::manual());
    let gateway = Gateway::new(both.clone(), Arc::clone(&targets), blobs, &tasks, Clock::manual()).unwrap();
    gateway.caught_up(1).await;
    let watching: Vec<Watching> = (0..CLIENTS)
        .map(|client| {
            let key = format!("key{}", client % 2);
            let key = Credential::ApiKey(Lent::new(&key));
            let watching = Watching::default();
            assert!(watching.begin("file:///x").unwrap());
            assert!(watching.hold("file:///x", None).is_none());
            gateway.register(&gateway.identify(&key).unwrap(), &Endpoint::All, &watching);
            watching
        })
        .collect();
    let judged = || {
        let generation = gateway.snapshot().generation();
        let watchers = gateway.watchers.try_lock().expect("nobody holds it between two turns");
        let now = |watcher: &Arc<super::Watcher>| watcher.caller.lock().unwrap().snapshot().generation() == generation;
        watchers.iter().filter(|watcher| now(watcher)).count()
    };
    gateway.replace(Arc::new(both), Arc::clone(&targets));
    let mut turns = 0;
    while judged() < CLIENTS {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns >= CLIENTS, "{turns} turns");

    // The second principal is nobody's any more, and the first client of the other one has gone.
    let mut watching = watching.into_iter();
    drop(watching.next());
    gateway.replace(Arc::new(settings(&[name], &[granted])), targets);
    while gateway.watchers.lock().unwrap().len() > CLIENTS / 2 - 1 {
        tokio::task::yield_now().await;
    }
    for (client, watching) in watching.enumerate() {
        assert_eq!(watching.watched().is_empty(), client % 2 == 0, "who lost the right watches nothing");
    }
    tasks.cancel();
    tasks.wait().await;
}
