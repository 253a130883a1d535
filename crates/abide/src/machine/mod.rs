//! Machines: steps as an enum, each of which answers what comes next.

mod context;
mod definition;
mod fault;
mod guard;
mod job;
mod outcome;
mod runner;
mod step;

pub use context::{Context, Sleep, Spawn};
pub use definition::Definition;
pub use fault::{Fault, FaultKind};
pub use job::Job;
pub(crate) use job::JobRunner;
pub use outcome::{Move, Outcome, done, next, next_in, retry_in, stop};
pub(crate) use runner::MachineRunner;
pub use step::Step;

use std::future::Future;
use std::time::Duration;

use abide_core::rules::retry::Retry;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A durable state machine.
///
/// An instance of it is a row: a step and a state. The engine runs the step; what it answers is committed before
/// anything that follows from it runs. A crash before the commit runs the whole step again, so a step that calls the
/// outside world should hand on [`Context::token`], which stays the same then.
///
/// See the [crate's page](crate) for an example.
pub trait Machine: Send + Sync + Sized + 'static {
    /// The name that instances are stored under.
    const NAME: &'static str;
    /// The version: an instance finishes on the one it started on, so raise it when instances that wait could not go on
    /// with the new code, and keep the old code registered beside it until they have ended.
    const VERSION: u32 = 1;
    /// The queue that instances wait in unless a start says otherwise.
    const QUEUE: &'static str = "default";
    /// Whether instances keep a history.
    const HISTORY: bool = true;

    /// The steps; the first one is where an instance begins.
    type Step: Step;
    /// What is kept between steps.
    type State: Serialize + DeserializeOwned + Send + Sync;
    /// What it comes to.
    type Output: Serialize + DeserializeOwned + Send;

    /// Runs a step and answers what comes next: [`next`], [`done`], [`stop`], [`retry_in`], [`Context::sleep`],
    /// [`Context::spawn`]. The state is stored as the step leaves it in `ctx`.
    ///
    /// An error or a panic goes to [`on_error`](Self::on_error).
    fn step(
        &self,
        at: Self::Step,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Outcome<Self>> + Send;

    /// Answers for a step that failed, panicked or ran over its time limit; the state is as the step found it. Unless
    /// you write it, the step is tried again as [`retry`](Self::retry) says, and then stopped with the error.
    ///
    /// When this fails too, the instance is stopped with both messages.
    fn on_error(
        &self,
        fault: &Fault,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Outcome<Self>> + Send {
        let answer = ctx.retry_or_stop(&self.retry(), fault);
        async move { answer }
    }

    /// When a failed step is tried again. Unless you write it: never.
    fn retry(&self) -> Retry {
        Retry::never()
    }

    /// How long a step may run; more is an error. Unless you write it: as long as it likes.
    fn time_limit(&self, at: Self::Step) -> Option<Duration> {
        let _ = at;
        None
    }
}
