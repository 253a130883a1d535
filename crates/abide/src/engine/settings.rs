//! The settings of an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Name;
use abide_core::rules::leases;

use super::{Retention, Task};

/// The settings of an engine.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The worker's name.
    pub name: Name,
    /// The name of the build. If `None`, it is derived from this program.
    pub build: Option<Name>,
    /// The queues that it serves, and how many steps of each may run at a time.
    pub queues: BTreeMap<Name, usize>,
    /// The time after its last heartbeat for which it is considered alive.
    pub lease: Duration,
    /// The interval at which it polls for work when no notification arrives.
    pub poll: Duration,
    /// The interval between checks for work that no live worker can run.
    pub watch: Duration,
    /// The time that a shutdown waits for running steps.
    pub grace: Duration,
    /// The retention period of finished instances.
    pub retention: Retention,
    /// The maximum number of outcomes, and of claims, in one transaction.
    pub batch: usize,
    /// The maximum number of steps of one instance that follow each other without going through the queue.
    pub chain_steps: u32,
    /// The maximum time for these steps.
    pub chain_time: Duration,
    /// The maximum number of workflows whose code is kept in memory.
    pub workflows_kept: usize,
    /// The point at which this worker dies, in a test.
    pub crash: Option<CrashPoint>,
}

/// Returns `true` if the worker dies at this point of this task.
pub(crate) type CrashPoint = Arc<dyn Fn(&Task, Crash) -> bool + Send + Sync>;

/// A point at which a test can make a worker die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The step has run, and its outcome is not committed.
    BeforeCommit,
    /// The outcome is committed, and the worker does not know it.
    AfterCommit,
}

impl Settings {
    pub fn new() -> Self {
        let tag = fastrand::u32(..);
        Self {
            name: Name::stored(format!("worker-{}-{tag:08x}", std::process::id())),
            build: None,
            queues: BTreeMap::new(),
            lease: leases::ENGINE,
            poll: Duration::from_secs(5),
            watch: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            retention: Retention::default(),
            batch: 500,
            chain_steps: 100,
            chain_time: Duration::from_secs(1),
            workflows_kept: 1_000,
            crash: None,
        }
    }

    /// The name of the build that it runs.
    pub fn build(&self) -> Name {
        self.build
            .clone()
            .unwrap_or_else(super::build::of_this_program)
    }

    /// The default number of steps of a queue that run at a time.
    pub const CONCURRENCY: usize = 64;
}
