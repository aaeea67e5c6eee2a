//! Reaps what nobody else waits for, where orphans of others become our children: as process 1 of a container [TRN-3].
//!
//! Not for: children of our own. Invariant: a child that somebody here waits for is never reaped from under them, for it is
//! known before it can end.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};
use tokio::signal::unix::{SignalKind, signal};

use super::Tasks;

/// Orphans that end together are reaped together.
const COALESCE: Duration = Duration::from_millis(50);

/// The children that somebody here waits for; there is one table, as there is one process.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Keeps the reaper away from a child; to be dropped when the child is reaped.
#[derive(Debug)]
pub struct Own(Option<u32>);

/// Starts a child of our own. The reaper looks at nothing meanwhile.
///
/// # Errors
/// Those of the start.
pub fn start_own<C>(start: impl FnOnce() -> io::Result<C>, id: impl FnOnce(&C) -> Option<u32>) -> io::Result<(C, Own)> {
    let mut own = own();
    let child = start()?;
    let id = id(&child);
    own.extend(id);
    drop(own);
    Ok((child, Own(id)))
}

/// Reaps orphans as long as the tasks live, where they come to this process at all; needs a runtime.
pub fn reap_orphans(tasks: &Tasks) {
    if !adopts_orphans() {
        return;
    }
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    let work = tasks.clone();
    tasks.spawn("reap orphans", async move {
        loop {
            if work.blocking(reap).await.is_err() {
                return;
            }
            if ended.recv().await.is_none() {
                return;
            }
            tokio::time::sleep(COALESCE).await;
        }
    });
}

/// Says whether orphans of our descendants become our children.
fn adopts_orphans() -> bool {
    #[cfg(target_os = "linux")]
    let adopted = rustix::process::child_subreaper().is_ok_and(|set| set.is_some());
    #[cfg(not(target_os = "linux"))]
    let adopted = false;
    adopted || getpid().is_init()
}

fn reap() {
    // Costs one call where nobody is dead.
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, peek), Ok(Some(_))) {
        return;
    }
    let dead = dead_children();
    let own = own();
    for id in dead.into_iter().filter(|id| !own.contains(id)) {
        let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { continue };
        if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
            tracing::debug!(pid = id, "an orphan was reaped");
        }
    }
}

/// The ids of our children that are dead and not reaped, as Linux tells them.
fn dead_children() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let us = std::process::id();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let dead = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // A name may hold anything, brackets and spaces too.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        fields.next() == Some("Z") && fields.next().and_then(|parent| parent.parse().ok()) == Some(us)
    };
    ids.filter(dead).collect()
}

fn own() -> MutexGuard<'static, BTreeSet<u32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            own().remove(&id);
        }
    }
}
