//! The context of a step.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Cause, Child, InstanceId, Join, Json, Key, Start};
use abide_core::rules::retry::Retry;
use abide_kernel::{OwnTransaction, Store};
use serde::de::DeserializeOwned;

use super::outcome::Kind;
use super::{Fault, Machine, Move, Outcome, Step, retry_in, stop};
use crate::Error;
use crate::engine::Task;

/// The context of a step: the state of its instance, and how the step came to run.
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

    /// The state, to modify. It is stored as the step leaves it, unless the step fails.
    pub fn state_mut(&mut self) -> &mut M::State {
        &mut self.state
    }

    /// The id of the instance.
    pub fn id(&self) -> InstanceId {
        self.task.id
    }

    /// The key of the instance.
    pub fn key(&self) -> Option<&Key> {
        self.task.key.as_ref()
    }

    /// The step that this context is for: the one that runs; in [`on_error`](Machine::on_error) the one that failed; in
    /// [`on_update`](Machine::on_update) the one that runs next or that the instance waits for. `None` if the machine
    /// no longer has a step with that name.
    pub fn step(&self) -> Option<M::Step> {
        M::Step::parse(self.task.step.as_str())
    }

    /// The name of the machine, as stored with the instance.
    pub fn machine(&self) -> &str {
        self.task.lane.machine.as_str()
    }

    /// The version of the machine that the instance was started with.
    pub fn version(&self) -> u32 {
        self.task.lane.version
    }

    /// The number of earlier attempts at this step: 0 the first time.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// The number of those attempts in which the worker died (rule 5.5).
    pub fn deaths(&self) -> u32 {
        self.task.deaths
    }

    /// An idempotency token for calls to external systems. It is the same whenever this step of this instance runs
    /// again, and different for every other step and instance. Send it to systems that can recognise a repeated request
    /// by it.
    pub fn token(&self) -> String {
        format!("abide-{}-{}", self.task.id, self.task.step_seq)
    }

    /// The cause that made the step run.
    pub fn cause(&self) -> Cause {
        self.task.cause
    }

    /// `true` if the wait of the instance timed out.
    pub fn timed_out(&self) -> bool {
        self.task.timed_out
    }

    /// Waits until the instance is cancelled. From then on the outcome of the step is discarded, so the step may stop.
    pub async fn cancelled(&self) {
        self.task.cancelled.cancelled().await;
    }

    /// `true` if the instance was cancelled while this step is running.
    pub fn is_cancelled(&self) -> bool {
        self.task.cancelled.is_cancelled()
    }

    /// The children of the barrier that this step joins, ordered by id, and how each of them ended. A child may not
    /// have ended if the barrier opened early.
    pub fn children(&self) -> &[Child] {
        &self.task.children
    }

    /// Returns the result of a child, or `None` if it is not done: `ctx.child_result::<Receipt>(child)?`.
    ///
    /// A result that does not match its type blocks the instance until a build comes that can read it (rule 12.4). Reading
    /// [`Child::result`] by yourself gives an ordinary error, for which the error handler is called.
    pub fn child_result<T: DeserializeOwned>(&self, child: &Child) -> Result<Option<T>, Error> {
        let result = child.result.as_ref().map(Json::to).transpose();
        result.map_err(|error| Error::Unreadable {
            what: "the result of a child",
            problem: format!("{} {}: {error}", child.machine, child.id),
        })
    }

    /// The children of the barrier that have not ended.
    pub fn missing(&self) -> impl Iterator<Item = &Child> {
        self.task
            .children
            .iter()
            .filter(|child| !child.status.is_terminal())
    }

    /// Waits for a time: `ctx.sleep(days(3)).then(At::Remind)`.
    pub fn sleep(&self, time: Duration) -> Sleep<M> {
        Sleep {
            time,
            machine: PhantomData,
        }
    }

    /// Starts children, and continues when they have ended: `ctx.spawn(children).then(At::Join)`.
    ///
    /// The children exist once this step's outcome is committed, and not before. A child whose key is taken is left
    /// out.
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

    /// Opens a transaction on the store's database, in which you write your own rows and commit them together with the
    /// outcome. For those rows the step happens exactly once. If the claim was lost meanwhile, none of it is committed.
    ///
    /// The type selects the database: `abide::sqlite::StepTransaction` or `abide::postgres::StepTransaction`. Finish
    /// the transaction with [`commit_with`](Self::commit_with); if it is dropped before, it is rolled back.
    pub async fn transaction<T: OwnTransaction>(&self) -> Result<T, Error> {
        begin_own(&*self.store, self.limit).await
    }

    /// Returns the outcome, to be committed in that transaction together with everything that was written in it:
    /// `ctx.commit_with(transaction, done(receipt))`.
    pub fn commit_with(&self, transaction: impl OwnTransaction, outcome: Outcome<M>) -> Outcome<M> {
        Ok(Move {
            within: Some(Box::new(transaction)),
            ..outcome?
        })
    }

    /// Applies a retry policy to an error: retries the step after a delay or, if no attempts are left, stops with the
    /// error. An instance that was [started with a retry policy](crate::client::StartBuilder::retry) follows its own
    /// policy instead.
    pub fn retry_or_stop(&self, policy: &Retry, fault: &Fault) -> Outcome<M> {
        if self.task.has_own_retry() {
            return Ok(Move::of(Kind::Fail(fault.to_string())));
        }
        match policy.delay(self.attempt(), fastrand::f64()) {
            Some(delay) => retry_in(delay),
            None => stop(fault),
        }
    }
}

/// Opens a transaction for a step's own rows, of the requested type.
pub(crate) async fn begin_own<T: OwnTransaction>(
    store: &dyn Store,
    limit: Option<Duration>,
) -> Result<T, Error> {
    let opened: Box<dyn Any> = store.begin(limit).await?;
    opened
        .downcast()
        .map(|opened| *opened)
        .map_err(|_| Error::Mismatch {
            what: "the transaction",
            problem: format!("the store is not the one of {}", std::any::type_name::<T>()),
        })
}

/// A wait for time. Finish it with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct Sleep<M> {
    time: Duration,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Sleep<M> {
    /// Sets the step that runs afterwards.
    pub fn then(self, next: M::Step) -> Outcome<M> {
        Ok(Move::of(Kind::Sleep {
            time: self.time,
            next,
        }))
    }
}

/// Children to start. Finish it with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct Spawn<M> {
    children: Result<Vec<Start>, Error>,
    join: Join,
    timeout: Option<Duration>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Spawn<M> {
    /// Continues when that many children have ended; the others keep running. A number greater than that of the
    /// children is refused.
    pub fn at_least(mut self, count: u32) -> Self {
        self.join = Join {
            at_least: Some(count),
        };
        self
    }

    /// Continues after that time at the latest; [`Context::timed_out`] is then `true`, and [`Context::missing`] returns
    /// the children that have not ended.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the step that runs afterwards.
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
