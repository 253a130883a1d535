//! What the engine knows of the code it runs.

use std::sync::Arc;

use abide_core::model::{
    Cause, Child, Claim, Claimed, Declared, InstanceId, Json, Key, Lane, Name, Outcome, Priority,
    Refusal, Timestamp,
};
use futures_util::future::BoxFuture;

/// Code for one machine in one version.
pub(crate) trait Runner: Send + Sync + 'static {
    /// How it is declared.
    fn declared(&self) -> Result<Declared, Refusal>;

    /// Runs a step. Errors and panics have been answered for.
    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran>;

    /// Answers for a step whose outcome was refused.
    fn refused(self: Arc<Self>, task: Arc<Task>, why: String) -> BoxFuture<'static, Ran>;
}

/// What a step came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub outcome: Outcome,
    /// The error that the outcome answers for.
    pub error: Option<String>,
}

/// One step to run.
#[derive(Debug)]
pub(crate) struct Task {
    pub id: InstanceId,
    pub key: Option<Key>,
    pub lane: Lane,
    pub step: Name,
    pub step_seq: u32,
    pub attempt: u32,
    pub state: Json,
    pub queue: Name,
    pub priority: Priority,
    pub cause: Cause,
    pub timed_out: bool,
    pub children: Vec<Child>,
    /// How many steps ran before this one without going through the queue, and since when.
    pub chain: u32,
    pub chain_since: Timestamp,
}

impl Task {
    /// What a claim asks to run.
    pub fn of(claimed: Claimed, now: Timestamp) -> (Claim, Self) {
        let task = Self {
            id: claimed.claim.id(),
            key: claimed.key,
            lane: Lane {
                machine: claimed.machine,
                version: claimed.version,
            },
            step: claimed.step,
            step_seq: claimed.step_seq,
            attempt: claimed.attempt,
            state: claimed.state,
            queue: claimed.queue,
            priority: claimed.priority,
            cause: claimed.cause,
            timed_out: claimed.timed_out,
            children: claimed.children,
            chain: 0,
            chain_since: now,
        };
        (claimed.claim, task)
    }

    /// The step that follows this one under the same claim.
    pub fn followed_by(&self, step: Name, state: Json) -> Self {
        Self {
            id: self.id,
            key: self.key.clone(),
            lane: self.lane.clone(),
            step,
            step_seq: self.step_seq.saturating_add(1),
            attempt: 0,
            state,
            queue: self.queue.clone(),
            priority: self.priority,
            cause: Cause::Next,
            timed_out: false,
            children: Vec::new(),
            chain: self.chain.saturating_add(1),
            chain_since: self.chain_since,
        }
    }
}
