//! How an engine behaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Name;

use super::{Retention, Task};

/// How an engine behaves.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The worker's name.
    pub name: Name,
    /// The queues it serves, and how many steps of each may run at once.
    pub queues: BTreeMap<Name, usize>,
    /// For how long it is believed to live after its last heartbeat.
    pub lease: Duration,
    /// How often it looks for work when nobody tells it of any.
    pub poll: Duration,
    /// How long a shutdown waits for the steps that run.
    pub grace: Duration,
    /// How long finished instances are kept.
    pub retention: Retention,
    /// The most outcomes, and the most claims, of one transaction.
    pub batch: usize,
    /// How many steps of one instance may run without going through the queue.
    pub chain_steps: u32,
    /// For how long they may.
    pub chain_time: Duration,
    /// How many workflows' code is kept in memory.
    pub workflows_kept: usize,
    /// Where this worker is to die, in a test.
    pub crash: Option<CrashPoint>,
}

/// Decides whether a worker dies at that moment of that task.
pub(crate) type CrashPoint = Arc<dyn Fn(&Task, Crash) -> bool + Send + Sync>;

/// A moment at which a worker can be made to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The step has run, and its outcome is not committed.
    BeforeCommit,
    /// The outcome is committed, and the worker does not know.
    AfterCommit,
}

impl Settings {
    pub fn new() -> Self {
        let tag = fastrand::u32(..);
        Self {
            name: Name::stored(format!("worker-{}-{tag:08x}", std::process::id())),
            queues: BTreeMap::new(),
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            retention: Retention::default(),
            batch: 500,
            chain_steps: 100,
            chain_time: Duration::from_secs(1),
            workflows_kept: 1_000,
            crash: None,
        }
    }

    /// The steps of a queue that run at once unless the builder says otherwise.
    pub const CONCURRENCY: usize = 64;
}
