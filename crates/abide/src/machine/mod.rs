//! Machines: steps as an enum, each of which answers what comes next.

mod context;
mod definition;
mod fault;
mod guard;
mod job;
mod messages;
mod outcome;
mod runner;
mod step;
mod waiting;

pub use context::{Context, Sleep, Spawn};
pub(crate) use definition::agreed;
pub use definition::{Agreement, Definition};
pub use fault::{Fault, FaultKind};
pub(crate) use guard::guarded;
pub use job::Job;
pub(crate) use job::JobRunner;
pub use messages::{Answer, Call, Messages, Reply, reply};
pub use outcome::{
    Move, Outcome, continue_as_new, continue_as_version, done, next, next_in, retry_in, stop,
};
pub(crate) use runner::MachineRunner;
pub use step::Step;
pub use waiting::{SignalName, WaitFor};

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

    /// Runs a step and answers what comes next: [`next`], [`done`], [`stop`], [`retry_in`], [`continue_as_new`],
    /// [`Context::wait_for`], [`Context::sleep`], [`Context::spawn`]. The state is stored as the step leaves it in `ctx`.
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

    /// The signals and updates that it takes. Unless you write it: any signal, and no update.
    fn messages() -> Messages {
        Messages::any()
    }

    /// Answers an update, whatever the instance is doing, between two steps. The state is committed with the answer as
    /// this leaves it in `ctx`; an error changes nothing and is what the sender is told.
    ///
    /// Unless you write it, every update is answered with an error.
    fn on_update(
        &self,
        call: &Call<'_>,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Answer<Self>> + Send {
        let _ = ctx;
        let answer = Err(format!(
            "machine {} declares the update {:?} and has no on_update to answer it",
            Self::NAME,
            call.name()
        )
        .into());
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
