//! Machines: programs of steps, each of which returns what comes next. A machine is written with
//! [`#[machine]`](macro@machine) or as an implementation of [`Machine`]; a [`Job`] is a single step. Here are also what a
//! step is handed ([`Context`]), what it returns ([`Outcome`]), and the policy by which a failed step is retried
//! ([`Retry`]).

mod attribute;
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

pub use abide_core::rules::retry::Retry;
pub use attribute::machine;
pub(crate) use context::begin_own;
pub use context::{Context, Sleep, Spawn};
pub use definition::{Agreement, Definition, Of, Startable, of};
pub(crate) use definition::{agreed, declared_deaths};
pub use fault::{Fault, FaultKind};
pub(crate) use guard::guarded;
pub use job::Job;
pub(crate) use job::JobRunner;
pub use messages::{Answer, Call, Messages, Reply, reply};
pub use outcome::{
    Move, Outcome, continue_as_new, continue_as_version, done, next, next_in, retry_in, stop,
};
pub(crate) use runner::MachineRunner;
pub use step::{Step, StepName};
pub use waiting::WaitFor;

use std::future::Future;
use std::time::Duration;

use abide_core::rules::deaths::MAX_DEATHS;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A durable state machine.
///
/// An instance of it is a row: a step and a state. The engine runs the step and commits its outcome before anything
/// that depends on it runs. After a crash before the commit, the whole step runs again. A step that calls an external
/// system should therefore send [`Context::token`], which is the same when the step runs again.
///
/// The short way to write a machine is [`#[machine]`](macro@crate::machine) on an `impl` block whose functions are the
/// steps. Written out, it looks like this:
///
/// ```
/// use abide::prelude::*;
///
/// const PAID: Signal<u32> = Signal::new("paid");
///
/// #[derive(Step)]
/// enum At { Order, Ship }
///
/// struct Checkout;
///
/// impl Machine for Checkout {
///     const NAME: &'static str = "checkout";
///     type Step = At;
///     type State = String;
///     type Output = String;
///
///     async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
///         match at {
///             At::Order => ctx.wait_for(PAID).timeout(days(3)).then(At::Ship),
///             At::Ship if ctx.timed_out() => stop("payment never came"),
///             At::Ship => done(format!("{} shipped, {} paid", ctx.state(), ctx.awaited(PAID)?)),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a machine",
    label = "not a machine",
    note = "write `#[abide::machine(steps = At)]` on an `impl` block whose async functions are the steps, or implement `Machine`; \
            workflows are registered with `workflow(…)` and jobs with `job(…)`"
)]
pub trait Machine: Send + Sync + Sized + 'static {
    /// The name that instances are stored under.
    const NAME: &'static str;
    /// The version. An instance keeps the version that it started with until it ends. Raise the version if waiting
    /// instances could not continue with the new code, and keep the old code registered beside it until they have
    /// ended.
    const VERSION: u32 = 1;
    /// The queue that instances wait in, unless a start names another.
    const QUEUE: &'static str = "default";
    /// `true` if instances keep a history.
    const HISTORY: bool = true;
    /// The number of deaths of its worker in one step after which an instance fails; 0 for no limit (rule 5.7). A start
    /// can [set another number](crate::client::StartBuilder::max_deaths). The error handler is not called for a death.
    const MAX_DEATHS: u32 = MAX_DEATHS;

    /// The steps. An instance begins with the first one.
    type Step: Step;
    /// The state that is kept between steps.
    type State: Serialize + DeserializeOwned + Send + Sync;
    /// The result of an instance.
    type Output: Serialize + DeserializeOwned + Send;

    /// Runs a step and returns what comes next: [`next`], [`done`], [`stop`], [`retry_in`], [`continue_as_new`],
    /// [`Context::wait_for`], [`Context::sleep`], [`Context::spawn`]. The state is stored as the step leaves it in
    /// `ctx`.
    ///
    /// An error or a panic is passed to [`on_error`](Self::on_error).
    fn step(
        &self,
        at: Self::Step,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Outcome<Self>> + Send;

    /// Handles a step that failed, panicked or exceeded its time limit, and returns what comes next. The state is as it
    /// was before the step. By default the step is retried according to [`retry`](Self::retry), or to the policy that
    /// the instance was [started with](crate::client::StartBuilder::retry), and then stopped with the error.
    ///
    /// If this function fails too, the instance is stopped with both messages.
    fn on_error(
        &self,
        fault: &Fault,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Outcome<Self>> + Send {
        let answer = ctx.retry_or_stop(&self.retry(), fault);
        async move { answer }
    }

    /// The signals and updates that the machine accepts. By default: any signal, and no update.
    fn messages() -> Messages {
        Messages::any()
    }

    /// Answers an update, between two steps, whatever the instance is doing. The state in `ctx` is committed together
    /// with the answer. An error changes nothing and is sent to the caller.
    ///
    /// By default every update is answered with an error.
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

    /// The policy by which a failed step is retried, unless the instance was started with one of its own. By default a
    /// step is not retried.
    fn retry(&self) -> Retry {
        Retry::never()
    }

    /// The time limit of a step, unless the instance was started with one of its own. Exceeding it is an error. By
    /// default there is no limit.
    fn time_limit(&self, at: Self::Step) -> Option<Duration> {
        let _ = at;
        None
    }
}
