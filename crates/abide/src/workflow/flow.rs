//! The definition of a workflow: its name, input and result.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use abide_core::model::{Declared, Json, Kind, Name, Refusal};
use abide_core::rules::deaths::MAX_DEATHS;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Workflow;
use crate::BoxError;
use crate::machine::{Agreement, Definition, Fault, FaultKind, Messages, agreed, declared_deaths};

/// The definition of a workflow: its name, input and result. The engine gets the code separately.
///
/// ```
/// use abide::prelude::*;
///
/// const GREET: Flow<String, String> = Flow::new("greet");
///
/// async fn greet(wf: Workflow, name: String) -> Result<String, BoxError> {
///     let greeting = wf.step("look it up", || async { Ok::<_, BoxError>("hello".to_owned()) }).await?;
///     wf.sleep(secs(0)).await?;                           // a row, not a process
///     Ok(format!("{greeting}, {name}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let abide = Abide::open("memory:").await?;
/// let engine = abide.engine().workflow(GREET, greet).start().await?;
/// let greeting = abide.start(GREET, "world".to_owned()).await?;
/// assert_eq!(greeting.result().await?, "hello, world");
/// # engine.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Flow<I, O = ()> {
    name: &'static str,
    version: u32,
    queue: &'static str,
    max_deaths: u32,
    messages: Option<fn() -> Messages>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Flow<I, O> {
    /// Creates a workflow with this name, in version 1. It accepts any signal, and no update.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            version: 1,
            queue: "default",
            max_deaths: MAX_DEATHS,
            messages: None,
            types: PhantomData,
        }
    }

    /// Sets the version. A run finishes on the version it started on. For a change that also applies to running
    /// workflows, see [`Workflow::version`].
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the queue in which it waits.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the number of worker deaths after which a run fails, counted from its last commit. Default: 5 (rule 5.7).
    #[must_use]
    pub const fn max_deaths(mut self, deaths: u32) -> Self {
        self.max_deaths = deaths;
        self
    }

    /// Sets the signals and updates that it accepts.
    #[must_use]
    pub const fn messages(mut self, messages: fn() -> Messages) -> Self {
        self.messages = Some(messages);
        self
    }

    /// The name of the workflow.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<I, O> Clone for Flow<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Flow<I, O> {}

/// The only step of a workflow.
const STEP: &str = "run";

impl<I: Serialize, O: DeserializeOwned + Send> Definition for Flow<I, O> {
    type Input = I;
    type Output = O;

    fn declared(&self) -> Result<Declared, Refusal> {
        Ok(Declared {
            kind: Kind::Workflow,
            machine: Name::new(self.name)?,
            version: self.version,
            first_step: Name::new(STEP)?,
            queue: Name::new(self.queue)?,
            history: true,
            contract: self.agreement()?.map(|agreement| agreement.id),
            retry: None,
            step_timeout_ms: None,
            max_deaths: declared_deaths(self.max_deaths),
        })
    }

    fn agreement(&self) -> Result<Option<Arc<Agreement>>, Refusal> {
        self.messages.map_or(Ok(None), agreed)
    }
}

/// The code of a workflow: an `async fn` that takes a [`Workflow`] and the input, and returns a result.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the code of a workflow that takes `{I}` and comes to `{O}`",
    label = "expected `async fn(Workflow, {I}) -> Result<{O}, BoxError>`",
    note = "the future must be `Send`: hold nothing across an `await` that is not, an `Rc` or a `MutexGuard` say",
    note = "the input and the output are those of the `Flow` that it is registered for"
)]
pub trait WorkflowCode<I, O>: Send + Sync + 'static {
    /// Starts the code.
    fn begin(&self, workflow: Workflow, input: I) -> BoxFuture<'static, Result<O, BoxError>>;
}

impl<I, O, F, R> WorkflowCode<I, O> for F
where
    F: Fn(Workflow, I) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    fn begin(&self, workflow: Workflow, input: I) -> BoxFuture<'static, Result<O, BoxError>> {
        Box::pin(self(workflow, input))
    }
}

/// Code that hides its types.
pub(crate) trait Program: Send + Sync + 'static {
    fn begin(
        &self,
        workflow: Workflow,
        input: &Json,
    ) -> Result<BoxFuture<'static, Result<Json, BoxError>>, Fault>;
}

pub(super) struct Typed<I, O, C> {
    code: C,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O, C> Typed<I, O, C> {
    pub const fn new(code: C) -> Self {
        Self {
            code,
            types: PhantomData,
        }
    }
}

impl<I, O, C> Program for Typed<I, O, C>
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
    C: WorkflowCode<I, O>,
{
    fn begin(
        &self,
        workflow: Workflow,
        input: &Json,
    ) -> Result<BoxFuture<'static, Result<Json, BoxError>>, Fault> {
        let input: I = input.to().map_err(|error| {
            let text = format!(
                "the input does not match {}: {error}",
                std::any::type_name::<I>()
            );
            Fault::new(FaultKind::Unreadable, text)
        })?;
        let code = self.code.begin(workflow, input);
        Ok(Box::pin(async move {
            let output = code.await?;
            Ok(Json::of(&output)
                .map_err(|error| format!("the result cannot be stored: {error}"))?)
        }))
    }
}
