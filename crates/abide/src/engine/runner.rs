//! What the engine knows of the code it runs.

use std::sync::Arc;

use abide_core::model::{
    Cause, Child, Claim, Claimed, Command, Contract, Declared, Inbox, InstanceId, Json, Key, Lane,
    Name, Outcome, Priority, Refusal, Timestamp,
};
use abide_kernel::OwnTransaction;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Settings;
use crate::workflow::RunHistory;

/// Code for one machine in one version.
pub(crate) trait Runner: Send + Sync + 'static {
    /// How it is declared.
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal>;

    /// The same code for an engine that starts: what it remembers of its instances it does not share with others.
    fn for_engine(self: Arc<Self>, settings: &Settings) -> Arc<dyn Runner>;

    /// Runs a step. Errors and panics have been answered for.
    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran>;

    /// Answers the updates that a task came with.
    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran>;

    /// Answers for a step, or for updates, whose outcome was refused.
    fn refused(self: Arc<Self>, task: Arc<Task>, refusal: Refusal) -> BoxFuture<'static, Ran>;

    /// Answers a query on the state of a run, as its history tells it.
    fn query(&self, run: &RunHistory, name: &Name, arguments: &Json) -> Result<Json, String> {
        let _ = (name, arguments);
        Err(format!(
            "{} answers no queries: only workflows do",
            run.machine
        ))
    }

    /// Hears whether what a task came to was committed.
    fn settled(&self, task: &Task, committed: bool) {
        let _ = (task, committed);
    }
}

/// What a step came to.
pub(crate) struct Ran {
    pub outcome: Outcome,
    /// The error that the outcome answers for.
    pub error: Option<String>,
    /// The transaction that it is to be committed in.
    pub within: Option<Box<dyn OwnTransaction>>,
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
    /// The signals that it waited for.
    pub awaited: Vec<Command>,
    /// The updates to answer before the step runs.
    pub updates: Vec<Command>,
    /// Whether there is nothing to run but the updates.
    pub aside: bool,
    /// What is in the inbox, counted.
    pub inbox: Inbox,
    /// The generation of the database that it was claimed from.
    pub generation: i64,
    /// How many ends of children it had been told of when it was claimed.
    pub children_ended: u64,
    /// Cancelled when the instance is.
    pub cancelled: CancellationToken,
    /// Told when a message comes while this runs.
    pub mail: Arc<Notify>,
    /// How many steps ran before this one without going through the queue, and since when.
    pub chain: u32,
    pub chain_since: Timestamp,
}

impl Task {
    /// What a claim asks to run.
    pub fn of(
        claimed: Claimed,
        cancelled: CancellationToken,
        mail: Arc<Notify>,
        now: Timestamp,
    ) -> (Claim, Self) {
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
            awaited: claimed.awaited,
            updates: claimed.updates,
            aside: claimed.aside,
            inbox: claimed.inbox,
            generation: claimed.claim.epoch().generation(),
            children_ended: claimed.children_ended,
            cancelled,
            mail,
            chain: 0,
            chain_since: now,
        };
        (claimed.claim, task)
    }

    /// Whether updates are to be answered before anything runs.
    pub fn answers(&self) -> bool {
        self.aside || !self.updates.is_empty()
    }

    /// What follows this under the same claim.
    pub fn followed_by(&self, next: Follow) -> Self {
        let common = Self {
            id: self.id,
            key: self.key.clone(),
            lane: self.lane.clone(),
            step: self.step.clone(),
            step_seq: self.step_seq,
            attempt: self.attempt,
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
            cancelled: self.cancelled.clone(),
            mail: self.mail.clone(),
            chain: self.chain.saturating_add(1),
            chain_since: self.chain_since,
        };
        match next {
            Follow::Step { step, state } => Self {
                step,
                step_seq: self.step_seq.saturating_add(1),
                attempt: 0,
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
                cause: Cause::Next,
                timed_out: false,
                inbox,
                ..common
            },
        }
    }

    /// Whether it goes on under a claim that was kept.
    pub const fn is_kept(&self) -> bool {
        self.chain > 0
    }
}

/// What follows a commit that keeps its claim.
#[derive(Debug)]
pub(crate) enum Follow {
    /// Another step.
    Step {
        /// Which.
        step: Name,
        /// What it runs on.
        state: Json,
    },
    /// The step that the updates went before.
    Same {
        /// What they have made of its state.
        state: Option<Json>,
    },
    /// The next turn of a workflow.
    Turn {
        /// What is in the inbox.
        inbox: Inbox,
    },
}
