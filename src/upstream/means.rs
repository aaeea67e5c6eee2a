//! What all servers of a set share, and those of the sets that follow it.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;
use crate::runtime::Tasks;

use super::kept::Kept;
use super::place::Census;

/// How many servers start at once (product §9).
const STARTS_MAX: usize = 4;

/// What servers are made with. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Means {
    pub(super) tasks: Tasks,
    pub(super) clock: Clock,
    /// Held by a start that no call waits for.
    pub(super) starts: Arc<Semaphore>,
    /// Counts what has happened to any server.
    pub(super) news: watch::Sender<u64>,
    pub(super) kept: Kept,
    pub(super) census: Arc<Census>,
}

impl Means {
    pub(super) fn new(tasks: Tasks, clock: Clock) -> Self {
        let (starts, news) = (Arc::new(Semaphore::new(STARTS_MAX)), watch::Sender::new(0));
        Self { tasks, clock, starts, news, kept: Kept::default(), census: Census::new() }
    }
}
