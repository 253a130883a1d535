//! Workflows: straight-line code, each of whose operations is recorded, so that it goes on after any crash.

mod again;
mod barren;
mod bring;
mod cache;
mod child;
mod error;
mod flow;
mod journal;
mod live;
mod operation;
mod recorded;
mod replay;
mod runner;
mod saga;
mod state;
mod step;
mod together;
mod turn;
mod waits;
mod waker;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use abide_core::model::{InstanceId, Json, Key, Name, OperationKind, Refusal, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use child::{ChildRun, ChildrenRun};
pub use error::OperationError;
pub(crate) use flow::Program;
pub use flow::{Flow, WorkflowCode};
use journal::Journal;
pub use replay::RunHistory;
pub(crate) use replay::check;
pub(crate) use runner::WorkflowRunner;
pub use saga::{NotUndone, Saga};
pub use state::State;
pub use step::{Attempt, StepRun};
pub use together::{Branches, OneOf};
pub use waits::{
    AwaitedSignal, Condition, EventAwaited, SignalWait, Sleeping, Timed, TimedCondition,
};

use crate::BoxError;

/// What a workflow's code asks for durable operations: each is recorded, and answers from the record when the code runs
/// again from the top.
///
/// Between them the code must do the same whenever it runs again: no clock, no randomness, no I/O but through here.
/// Clones are the same workflow.
#[derive(Clone)]
pub struct Workflow {
    journal: Arc<Journal>,
}

impl Workflow {
    /// The run.
    pub fn id(&self) -> InstanceId {
        self.journal.about.id
    }

    /// Its key.
    pub fn key(&self) -> Option<&Key> {
        self.journal.about.key.as_ref()
    }

    /// The time: recorded, and the same when the code runs again.
    pub fn now(&self) -> Timestamp {
        let make = || Json::of(&self.journal.now()).unwrap_or_default();
        let now = self.journal.on_the_spot(OperationKind::Now, None, make);
        self.recorded("a time", &now).unwrap_or_default()
    }

    /// A random number, recorded; to seed a generator of your own with, where you need more than one.
    pub fn random(&self) -> u64 {
        let make = || Json::of(&fastrand::u64(..)).unwrap_or_default();
        let random = self.journal.on_the_spot(OperationKind::Random, None, make);
        self.recorded("a random number", &random)
            .unwrap_or_default()
    }

    /// A new unique id (a UUID of version 4, as text), recorded.
    pub fn uuid(&self) -> String {
        let make = || Json::of(&new_uuid(fastrand::u128(..))).unwrap_or_default();
        let uuid = self.journal.on_the_spot(OperationKind::Uuid, None, make);
        self.recorded("a unique id", &uuid).unwrap_or_default()
    }

    /// A value that the code comes by in a way that is not the same twice, and that costs nothing to come by again: an
    /// environment variable, say. It is not retried, and it must not fail; what can is a [`step`](Self::step).
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
            // The code cannot go on from here, and whoever runs it knows.
            None => std::future::pending().await,
        }
    }

    /// Which way to go at a change of the code: the highest of the versions that it knows, for runs that come here for
    /// the first time; the lowest, for runs that went by before the change was there; and for each run the same ever
    /// after (rule 12.4 for code that changes under running workflows).
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

    /// Closes this run and goes on in a new one, with an empty history and this input: `return
    /// wf.continue_as_new(next);`. Messages that are pending go with it.
    pub fn continue_as_new<O>(&self, input: impl Serialize) -> Result<O, BoxError> {
        continuation(input, None)
    }

    /// [Continues as new](Self::continue_as_new) in another version of the workflow, under its contract: how a chain that
    /// never ends comes to new code, and to new signals.
    pub fn continue_as_version<O>(
        &self,
        version: u32,
        input: impl Serialize,
    ) -> Result<O, BoxError> {
        continuation(input, Some(version))
    }

    /// Whether the history has grown so long (`history_events` of the limits) that the code does well to
    /// [continue as new](Self::continue_as_new) (rule 12.6).
    pub fn continue_as_new_recommended(&self) -> bool {
        self.journal.is_long()
    }

    /// Why the workflow is cancelled, if it is and the code has been told.
    pub fn cancelled(&self) -> Option<String> {
        self.journal.pages().cancelled.clone()
    }

    /// Shows readers a state instead of the input; the code must be able to begin with it.
    pub(crate) fn show(&self, state: Json) {
        self.journal.pages().fresh.state = Some(state);
    }

    /// A name, or a note that it is none.
    fn name(&self, name: Result<Name, Refusal>) -> Name {
        name.unwrap_or_else(|refusal| {
            let problem = format!("uses a name that is none: {refusal}");
            self.journal.pages().misused(problem, "use another");
            Name::stored("?")
        })
    }

    /// What was recorded, read back; a note when this code cannot.
    fn recorded<T: DeserializeOwned>(&self, what: &str, value: &Json) -> Option<T> {
        value
            .to()
            .map_err(|error| {
                let mut pages = self.journal.pages();
                let number = pages.count();
                let recorded = format!("{what} that does not fit {}", std::any::type_name::<T>());
                pages.differs(number, &recorded, &format!("one that does ({error})"));
            })
            .ok()
    }
}

/// That a run goes on in a new one: not an error, but what leaves the code like one.
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

/// A UUID of version 4 made of random bits.
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
