//! The interface between the engine and the code that it runs.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Cause, Child, Claim, Claimed, Command, Contract, Declared, Inbox, InstanceId, Json, Key, Lane,
    Name, Outcome, Policy, Priority, Refusal, Timestamp,
};
use abide_kernel::OwnTransaction;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Settings;
use crate::workflow::RunHistory;

/// Code for one machine in one version.
pub(crate) trait Runner: Send + Sync + 'static {
    /// The declaration of the machine, and its contract.
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal>;

    /// Returns the same code for an engine that starts. It shares no memory of instances with other engines.
    fn for_engine(self: Arc<Self>, settings: &Settings) -> Arc<dyn Runner>;

    /// Runs a step. Errors and panics are already part of the outcome.
    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran>;

    /// Answers the updates of a task.
    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran>;

    /// Handles the refused outcome of a step or of updates.
    fn refused(self: Arc<Self>, task: Arc<Task>, refusal: Refusal) -> BoxFuture<'static, Ran>;

    /// Answers a query on the state of a run, computed from its history.
    fn query(&self, run: &RunHistory, name: &Name, arguments: &Json) -> Result<Json, String> {
        let _ = (name, arguments);
        Err(format!(
            "{} answers no queries: only workflows do",
            run.machine
        ))
    }

    /// Checks if this code could continue an open run at this step. Returns what is incompatible.
    fn fits(&self, run: &RunHistory, step: &Name) -> Result<(), String>;

    /// Notifies the code if the outcome of a task was committed.
    fn settled(&self, task: &Task, committed: bool) {
        let _ = (task, committed);
    }
}

impl std::fmt::Debug for dyn Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

/// The result of running a step.
pub(crate) struct Ran {
    pub outcome: Outcome,
    /// The error that the outcome handles.
    pub error: Option<String>,
    /// The transaction in which the outcome must be committed.
    pub within: Option<Box<dyn OwnTransaction>>,
}

impl Ran {
    /// The result of a step that this build cannot run and another build must (rule 12.4).
    pub fn blocked(reason: String) -> Self {
        tracing::warn!(%reason, "this build cannot run an instance, which waits for another build");
        Self {
            outcome: Outcome::Block { reason },
            error: None,
            within: None,
        }
    }
}

/// A step to run.
#[derive(Debug)]
pub(crate) struct Task {
    pub id: InstanceId,
    pub key: Option<Key>,
    pub lane: Lane,
    /// The code for the lane.
    pub runner: Arc<dyn Runner>,
    pub step: Name,
    pub step_seq: u32,
    pub attempt: u32,
    pub deaths: u32,
    pub state: Json,
    pub queue: Name,
    pub priority: Priority,
    pub cause: Cause,
    pub timed_out: bool,
    pub children: Vec<Child>,
    /// The signals that the instance waited for.
    pub awaited: Vec<Command>,
    /// The updates to answer before the step runs.
    pub updates: Vec<Command>,
    /// `true` if there is nothing to run except the updates.
    pub aside: bool,
    /// The number of commands in the inbox.
    pub inbox: Inbox,
    /// The generation of the database from which it was claimed.
    pub generation: i64,
    /// The number of ended children that it had been notified of when it was claimed.
    pub children_ended: u64,
    /// The retry policy and limits of this instance, where they differ from those of its machine.
    pub policy: Option<Policy>,
    /// Cancelled when the instance is cancelled.
    pub cancelled: CancellationToken,
    /// Notified when a command arrives while this runs.
    pub command_arrived: Arc<Notify>,
    /// The number of steps that ran before this one without going through the queue, and since when.
    pub chain: u32,
    pub chain_since: Timestamp,
}

impl Task {
    /// Makes the task of a claim, for the code of its lane.
    pub fn of(
        claimed: Claimed,
        runner: Arc<dyn Runner>,
        cancelled: CancellationToken,
        command_arrived: Arc<Notify>,
        now: Timestamp,
    ) -> (Claim, Self) {
        let task = Self {
            id: claimed.claim.id(),
            key: claimed.key,
            lane: Lane {
                machine: claimed.machine,
                version: claimed.version,
            },
            runner,
            step: claimed.step,
            step_seq: claimed.step_seq,
            attempt: claimed.attempt,
            deaths: claimed.deaths,
            state: claimed.state,
            queue: claimed.queue,
            priority: claimed.priority,
            cause: claimed.cause,
            timed_out: claimed.timed_out,
            children: claimed.children,
            awaited: claimed.awaited,
            updates: claimed.updates,
            aside: claimed.aside,
            inbox: claimed.inbox,
            generation: claimed.claim.epoch().generation(),
            children_ended: claimed.children_ended,
            policy: claimed.policy,
            cancelled,
            command_arrived,
            chain: 0,
            chain_since: now,
        };
        (claimed.claim, task)
    }

    /// `true` if the instance was started with a retry policy of its own, which then decides about failures.
    pub fn has_own_retry(&self) -> bool {
        let own = self.policy.as_ref();
        own.is_some_and(|own| own.retry.is_some())
    }

    /// The time limit for the step with which the instance was started (rule 5.4).
    pub fn own_time_limit(&self) -> Option<Duration> {
        let own = self.policy.as_ref()?;
        own.step_timeout_ms.map(Duration::from_millis)
    }

    /// `true` if updates must be answered before anything runs.
    pub fn answers(&self) -> bool {
        self.aside || !self.updates.is_empty()
    }

    /// Returns the task that follows this one under the same claim.
    pub fn followed_by(&self, next: Follow) -> Self {
        let common = Self {
            id: self.id,
            key: self.key.clone(),
            lane: self.lane.clone(),
            runner: self.runner.clone(),
            step: self.step.clone(),
            step_seq: self.step_seq,
            attempt: self.attempt,
            deaths: self.deaths,
            state: self.state.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            cause: self.cause,
            timed_out: self.timed_out,
            children: Vec::new(),
            awaited: Vec::new(),
            updates: Vec::new(),
            aside: false,
            inbox: self.inbox,
            generation: self.generation,
            children_ended: self.children_ended,
            policy: self.policy.clone(),
            cancelled: self.cancelled.clone(),
            command_arrived: self.command_arrived.clone(),
            chain: self.chain.saturating_add(1),
            chain_since: self.chain_since,
        };
        match next {
            Follow::Step { step, state } => Self {
                step,
                step_seq: self.step_seq.saturating_add(1),
                attempt: 0,
                deaths: 0,
                state,
                cause: Cause::Next,
                timed_out: false,
                ..common
            },
            Follow::Same { state } => Self {
                state: state.unwrap_or_else(|| self.state.clone()),
                children: self.children.clone(),
                awaited: self.awaited.clone(),
                ..common
            },
            Follow::Turn { inbox } => Self {
                step_seq: self.step_seq.saturating_add(1),
                attempt: 0,
                deaths: 0,
                cause: Cause::Next,
                timed_out: false,
                inbox,
                ..common
            },
        }
    }

    /// `true` if it continues under a kept claim.
    pub const fn is_kept(&self) -> bool {
        self.chain > 0
    }
}

/// The continuation of a commit that keeps its claim.
#[derive(Debug)]
pub(crate) enum Follow {
    /// Another step.
    Step {
        /// The name of the step.
        step: Name,
        /// Its state.
        state: Json,
    },
    /// The step that the updates preceded.
    Same {
        /// The state after the updates.
        state: Option<Json>,
    },
    /// The next turn of a workflow.
    Turn {
        /// The number of commands in the inbox.
        inbox: Inbox,
    },
}
