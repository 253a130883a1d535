//! Queries the state of a workflow, by replaying its history in an engine that has code for it.

use abide_core::model::{Lane, Name};
use abide_core::rules::contract::free;
use abide_kernel::Target;
use serde::de::DeserializeOwned;

use super::Address;
use crate::Error;
use crate::engine::Engine;
use crate::message::{Message, Query, arguments_of};
use crate::workflow::RunHistory;

/// The reason why a query was not answered.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No instance has that id or key.
    #[error("no instance with the id or key {:?}: it was never started, or its retention is over", .0.to_string())]
    NoTarget(Target),
    /// This engine has no code for the workflow.
    #[error("this engine has no code for {machine} version {version}: ask one that has")]
    NoCode {
        /// The machine.
        machine: Name,
        /// Its version.
        version: u32,
    },
    /// The workflow does not answer this query, or answers with an error, or its code does not match its history.
    #[error("{0}")]
    Refused(String),
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}

impl Engine {
    /// Queries the committed state of a workflow: replays its history in this process, and its
    /// [handler](crate::Workflow::on_query) answers. A query changes nothing and waits for nothing. A run that has
    /// ended answers too.
    ///
    /// ```
    /// use abide::prelude::*;
    ///
    /// const IMPORT: Flow<(), u32> = Flow::new("import");
    /// const PROGRESS: Query<(), u32> = Query::new("progress");
    ///
    /// async fn import(wf: Workflow, _: ()) -> Result<u32, BoxError> {
    ///     let done = wf.state(0);
    ///     wf.on_query(PROGRESS, { let done = done.clone(); move |()| Ok(done.get()) });
    ///     for page in 1..=3 {
    ///         wf.step(format!("page {page}"), || async { Ok::<_, BoxError>(()) }).await?;
    ///         done.set(page);
    ///     }
    ///     Ok(done.get())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// # let abide = Abide::open("memory:").await?;
    /// let engine = abide.engine().workflow(IMPORT, import).start().await?;
    /// let run = abide.start(IMPORT, ()).key("import:1").await?;
    /// # run.result().await?;
    /// assert_eq!(engine.query("import:1", PROGRESS, &()).await?, 3);
    /// # engine.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query<A, R>(
        &self,
        target: impl Address,
        query: Query<A, R>,
        value: &A,
    ) -> Result<R, QueryError>
    where
        A: Message,
        R: DeserializeOwned,
    {
        let mismatch = |problem: String| Error::Mismatch {
            what: "the argument or the answer of a query",
            problem,
        };
        let name = Name::new(query.name()).map_err(Error::from)?;
        let arguments = arguments_of(value).map_err(|error| mismatch(error.to_string()))?;
        let store = self.store();
        let target = target.target().map_err(Error::from)?;
        let found = store.get(&target).await.map_err(Error::from)?;
        let instance = found.ok_or(QueryError::NoTarget(target))?;
        let lane = Lane {
            machine: instance.machine.clone(),
            version: instance.version,
        };
        let runner = self.runner(&lane).ok_or(QueryError::NoCode {
            machine: lane.machine,
            version: lane.version,
        })?;
        let history = crate::history::read(&**store, instance.id).await?;
        let run = RunHistory::of(instance, history);
        let answer = runner.query(&run, &name, &free(&arguments));
        let answer = answer.map_err(QueryError::Refused)?;
        answer
            .to()
            .map_err(|error| mismatch(error.to_string()).into())
    }
}
