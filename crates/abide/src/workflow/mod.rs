//! Workflows: straight-line code whose operations are recorded, so that it continues after any crash. A [`Flow`] names a
//! workflow and its types; its code gets a [`Workflow`], the handle for durable operations. Here are also the operations
//! that this handle returns, and their errors.

mod cache;
mod child;
mod error;
mod flow;
mod handling;
mod inputs;
mod journal;
mod live;
mod operation;
mod poll_runtime;
mod recorded;
mod replay;
mod run_history;
mod runner;
mod saga;
mod state;
mod step;
mod together;
mod transaction;
mod turn;
mod waits;
mod waker;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use abide_core::model::{
    InstanceId, Json, Key, Name, OperationKind, Refusal, Signature, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use child::{ChildRun, ChildrenRun};
pub use error::OperationError;
pub(crate) use flow::Program;
pub use flow::{Flow, WorkflowCode};
use journal::{Journal, WaitsFor};
use operation::Operation;
pub use run_history::RunHistory;
pub(crate) use run_history::check;
pub(crate) use runner::WorkflowRunner;
pub use saga::{NotUndone, Saga};
pub use state::State;
pub use step::{Attempt, StepRun};
pub use together::{Branches, OneOf};
pub use waits::{
    AwaitedSignal, Condition, EventAwaited, SignalWait, Sleeping, Timed, TimedCondition,
};

use crate::BoxError;

/// The handle through which a workflow's code requests durable operations. Each operation is recorded. When the code
/// runs again from the top, it gets the recorded result.
///
/// Between operations the code must be deterministic: no clock, no randomness and no I/O, except through this handle.
/// Clones are handles of the same workflow.
#[derive(Clone)]
pub struct Workflow {
    journal: Arc<Journal>,
    /// The step of a graph that makes the requests.
    graph_step: Option<Name>,
}

impl Workflow {
    /// The id of the run.
    pub fn id(&self) -> InstanceId {
        self.journal.about.id
    }

    /// The key of the instance.
    pub fn key(&self) -> Option<&Key> {
        self.journal.about.key.as_ref()
    }

    /// The current time. It is recorded, and is the same when the code runs again.
    pub fn now(&self) -> Timestamp {
        let make = || Json::of(&self.journal.now()).unwrap_or_default();
        let now = self.journal.on_the_spot(OperationKind::Now, None, make);
        self.recorded("a time", &now).unwrap_or_default()
    }

    /// Returns a random number, which is recorded. If you need several, use it to seed your own generator.
    pub fn random(&self) -> u64 {
        let make = || Json::of(&fastrand::u64(..)).unwrap_or_default();
        let random = self.journal.on_the_spot(OperationKind::Random, None, make);
        self.recorded("a random number", &random)
            .unwrap_or_default()
    }

    /// Returns a new unique id (a version 4 UUID as text), which is recorded.
    pub fn uuid(&self) -> String {
        let make = || Json::of(&new_uuid(fastrand::u128(..))).unwrap_or_default();
        let uuid = self.journal.on_the_spot(OperationKind::Uuid, None, make);
        self.recorded("a unique id", &uuid).unwrap_or_default()
    }

    /// Records a value that is not deterministic and that is cheap to compute again, for example an environment
    /// variable. It is not retried and must not fail; for code that can fail, use a [`step`](Self::step).
    pub async fn side_effect<T>(&self, name: &str, code: impl FnOnce() -> T) -> T
    where
        T: Serialize + DeserializeOwned,
    {
        let value = {
            let name = self.name(Name::new(name));
            let make = || Json::of(&code()).unwrap_or_default();
            self.journal
                .on_the_spot(OperationKind::SideEffect, Some(name), make)
        };
        match self.recorded("a side effect", &value) {
            Some(value) => value,
            // The code cannot continue from here. `recorded` has noted the problem.
            None => std::future::pending().await,
        }
    }

    /// Selects the branch to take at a change of the code (rule 12.4 for code that changes under running workflows).
    /// Runs that reach this point for the first time get the highest known version. Runs that passed it before the
    /// change existed get the lowest one. Each run always gets the same version.
    ///
    /// ```
    /// # use abide::{Workflow, BoxError};
    /// # async fn check() -> Result<(), BoxError> { Ok(()) }
    /// async fn order(wf: Workflow, _: ()) -> Result<(), BoxError> {
    ///     if wf.version("fraud check", 0..=1) >= 1 {
    ///         wf.step("check for fraud", check).await?;       // not in runs that had gone past this
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn version(&self, change: &str, known: RangeInclusive<u32>) -> u32 {
        let change = self.name(Name::new(change));
        self.journal.version(&change, known)
    }

    /// Closes this run and continues in a new one, with an empty history and this input: `return
    /// wf.continue_as_new(next);`. Pending commands move to the new run.
    pub fn continue_as_new<O>(&self, input: impl Serialize) -> Result<O, BoxError> {
        continuation(input, None)
    }

    /// [Continues as new](Self::continue_as_new) in another version of the workflow, under the contract of that
    /// version. This is how a chain that never ends gets new code and new signals.
    pub fn continue_as_version<O>(
        &self,
        version: u32,
        input: impl Serialize,
    ) -> Result<O, BoxError> {
        continuation(input, Some(version))
    }

    /// `true` if the history is so long (`history_events` of the limits) that the code should [continue as
    /// new](Self::continue_as_new) (rule 12.6).
    pub fn continue_as_new_recommended(&self) -> bool {
        self.journal.is_long()
    }

    /// The reason why the workflow was cancelled. Returns `None` if it was not, or if the code was not notified yet.
    pub fn cancelled(&self) -> Option<String> {
        self.journal.pages().cancelled.clone()
    }

    /// Returns a handle of the same workflow for a step of a graph: the history names that step in operations requested
    /// through it (rule 15.4).
    pub(crate) fn of_graph_step(&self, step: &str) -> Self {
        Self {
            journal: self.journal.clone(),
            graph_step: Some(Name::stored(step)),
        }
    }

    /// Creates an operation that is requested through this handle.
    fn operation(&self, signature: Signature, waits_for: WaitsFor) -> Operation {
        let mut operation = Operation::new(self.journal.clone(), signature, waits_for);
        operation.ask(|request| request.graph_step = self.graph_step.clone());
        operation
    }

    /// Shows this state to readers instead of the input. The code must be able to start with it.
    pub(crate) fn show(&self, state: Json) {
        self.journal.pages().fresh.state = Some(state);
    }

    /// Returns a valid name, or notes that the name is invalid.
    fn name(&self, name: Result<Name, Refusal>) -> Name {
        name.unwrap_or_else(|refusal| {
            let problem = format!("uses a name that is none: {refusal}");
            self.journal.pages().misused(problem, "use another");
            Name::stored("?")
        })
    }

    /// Parses a recorded value. If this code cannot read it, notes that and returns `None`.
    fn recorded<T: DeserializeOwned>(&self, what: &str, value: &Json) -> Option<T> {
        value
            .to()
            .map_err(|error| {
                let mut pages = self.journal.pages();
                let number = pages.count();
                let recorded = format!("{what} that does not match {}", std::any::type_name::<T>());
                pages.differs(number, &recorded, &format!("one that does ({error})"));
            })
            .ok()
    }
}

/// Marks that a run continues in a new one. It is not an error, but leaves the code like one.
#[derive(Clone, Debug)]
struct Continuation {
    state: Json,
    version: Option<u32>,
}

fn continuation<O>(input: impl Serialize, version: Option<u32>) -> Result<O, BoxError> {
    let state = Json::of(&input).map_err(|error| format!("the input cannot be stored: {error}"))?;
    Err(Box::new(Continuation { state, version }))
}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the workflow continues as new: return this from its code")
    }
}

impl std::error::Error for Continuation {}

fn is_continuation(error: &BoxError) -> bool {
    error.is::<Continuation>()
}

/// Makes a version 4 UUID from random bits.
fn new_uuid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let (a, b, c, d, e) = (
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    );
    format!("{a}-{b}-{c}-{d}-{e}")
}
