//! What a step is given.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Cause, Child, InstanceId, Join, Key, Start};
use abide_core::rules::retry::Retry;
use abide_kernel::{OwnTransaction, Store};

use super::outcome::Kind;
use super::{Fault, Machine, Move, Outcome, Step, retry_in, stop};
use crate::Error;
use crate::engine::Task;

/// What a step is given: its instance's state, and how it came to run.
pub struct Context<M: Machine> {
    pub(super) task: Arc<Task>,
    pub(super) state: M::State,
    pub(super) store: Arc<dyn Store>,
    /// The step's time limit.
    pub(super) limit: Option<Duration>,
}

impl<M: Machine> Context<M> {
    /// The state.
    pub fn state(&self) -> &M::State {
        &self.state
    }

    /// The state, to change: stored as the step leaves it, unless it fails.
    pub fn state_mut(&mut self) -> &mut M::State {
        &mut self.state
    }

    /// The instance.
    pub fn id(&self) -> InstanceId {
        self.task.id
    }

    /// The instance's key.
    pub fn key(&self) -> Option<&Key> {
        self.task.key.as_ref()
    }

    /// The step that this is about: the one that runs; in [`on_error`](Machine::on_error) the one that failed; in
    /// [`on_update`](Machine::on_update) the one that comes next, or that the instance waits for. None when the machine
    /// has no step of that name any more.
    pub fn step(&self) -> Option<M::Step> {
        M::Step::parse(self.task.step.as_str())
    }

    /// The machine's name, as the instance has it.
    pub fn machine(&self) -> &str {
        self.task.lane.machine.as_str()
    }

    /// The machine's version that the instance was started under.
    pub fn version(&self) -> u32 {
        self.task.lane.version
    }

    /// How often this step was begun before: 0 the first time.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// A token for the outside world: the same whenever this very step of this very instance is run again, and never
    /// the same for another. Hand it to whoever can tell a repeated request by it.
    pub fn token(&self) -> String {
        format!("abide-{}-{}", self.task.id, self.task.step_seq)
    }

    /// What made the step run.
    pub fn cause(&self) -> Cause {
        self.task.cause
    }

    /// Whether what the instance waited for did not come in time.
    pub fn timed_out(&self) -> bool {
        self.task.timed_out
    }

    /// Waits until the instance is cancelled: whatever the step answers then is dropped, so it may as well stop.
    pub async fn cancelled(&self) {
        self.task.cancelled.cancelled().await;
    }

    /// Whether the instance was cancelled while this step runs.
    pub fn is_cancelled(&self) -> bool {
        self.task.cancelled.is_cancelled()
    }

    /// The children of the barrier that this step joins, by id: how each ended, or that it has not, when the barrier
    /// opened before all had.
    pub fn children(&self) -> &[Child] {
        &self.task.children
    }

    /// Those of them that have not ended.
    pub fn missing(&self) -> impl Iterator<Item = &Child> {
        self.task
            .children
            .iter()
            .filter(|child| !child.status.is_terminal())
    }

    /// Waits for nothing but time: `ctx.sleep(days(3)).then(At::Remind)`.
    pub fn sleep(&self, time: Duration) -> Sleep<M> {
        Sleep {
            time,
            machine: PhantomData,
        }
    }

    /// Starts children, and goes on when they have ended: `ctx.spawn(children).then(At::Join)`.
    ///
    /// The children exist when this step's outcome is committed, and not before. One whose key is taken is left out.
    pub fn spawn<C: Into<Result<Start, Error>>>(
        &self,
        children: impl IntoIterator<Item = C>,
    ) -> Spawn<M> {
        let children = children.into_iter().map(Into::into).collect();
        Spawn {
            children,
            join: Join::default(),
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Opens a transaction of the store's database, to write your own rows in and commit them together with the outcome:
    /// for those rows the step is exactly once. If the claim was lost meanwhile, nothing of it is committed.
    ///
    /// The type says which database: `abide::sqlite::StepTransaction` or `abide::postgres::StepTransaction`. Finish it
    /// with [`commit_with`](Self::commit_with); dropped before, it is rolled back.
    pub async fn transaction<T: OwnTransaction>(&self) -> Result<T, Error> {
        let opened: Box<dyn Any> = self.store.begin(self.limit).await?;
        opened
            .downcast()
            .map(|opened| *opened)
            .map_err(|_| Error::Mismatch {
                what: "the transaction",
                problem: format!("the store is not the one of {}", std::any::type_name::<T>()),
            })
    }

    /// The outcome, to be committed in that transaction, with all that was written in it:
    /// `ctx.commit_with(transaction, done(receipt))`.
    pub fn commit_with(&self, transaction: impl OwnTransaction, outcome: Outcome<M>) -> Outcome<M> {
        Ok(Move {
            within: Some(Box::new(transaction)),
            ..outcome?
        })
    }

    /// What a retry policy makes of an error: the step again after a delay, or, when the attempts are spent, a stop with
    /// the error.
    pub fn retry_or_stop(&self, policy: &Retry, fault: &Fault) -> Outcome<M> {
        match policy.delay(self.attempt(), fastrand::f64()) {
            Some(delay) => retry_in(delay),
            None => stop(fault),
        }
    }
}

/// A wait for time, to be finished with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct Sleep<M> {
    time: Duration,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Sleep<M> {
    /// The step to run then.
    pub fn then(self, next: M::Step) -> Outcome<M> {
        Ok(Move::of(Kind::Sleep {
            time: self.time,
            next,
        }))
    }
}

/// Children to start, to be finished with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct Spawn<M> {
    children: Result<Vec<Start>, Error>,
    join: Join,
    timeout: Option<Duration>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Spawn<M> {
    /// Goes on when that many have ended; the others run on.
    pub fn at_least(mut self, count: u32) -> Self {
        self.join = Join {
            at_least: Some(count),
        };
        self
    }

    /// Goes on after that time at the latest; [`Context::timed_out`] is true then, and [`Context::missing`] tells who
    /// has not ended.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The step to run then.
    pub fn then(self, next: M::Step) -> Outcome<M> {
        let Self {
            children,
            join,
            timeout,
            ..
        } = self;
        Ok(Move::of(Kind::Spawn {
            children: children?,
            join,
            timeout,
            next,
        }))
    }
}
