//! Checks that code matches a recorded history.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::workflow::{Flow, RunHistory, WorkflowCode, check};

/// Replays a run's history against code. The error says what does not match: an operation of another kind, name or key,
/// one too many or too few, or, if the run has ended, another result. Steps are not run, and nothing is waited for.
pub fn replays<I, O>(
    flow: Flow<I, O>,
    code: impl WorkflowCode<I, O>,
    run: &RunHistory,
) -> Result<(), String>
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
{
    check(flow, code, run)
}

/// Asserts that code matches a run's history: that waiting runs can continue with it, and that it does the same twice.
///
/// Keep the histories of a few runs beside the tests (`abide.export(…)`, [`RunHistory::to_file`]). Then you notice a
/// change that would block running workflows before you deploy it.
///
/// ```
/// use abide::prelude::*;
/// use abide::testing::{Kit, assert_replays, replays};
///
/// const REMIND: Flow<u32, u32> = Flow::new("remind");
///
/// async fn remind(wf: Workflow, times: u32) -> Result<u32, BoxError> {
///     for _ in 0..times {
///         wf.sleep(hours(1)).await?;
///         wf.step("send", || async { Ok::<_, BoxError>(()) }).await?;
///     }
///     Ok(times)
/// }
///
/// async fn changed(wf: Workflow, times: u32) -> Result<u32, BoxError> {
///     wf.step("greet", || async { Ok::<_, BoxError>(()) }).await?;    // was not there before
///     remind(wf, times).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let kit = Kit::builder().workflow(REMIND, remind).build().await?;
/// let run = kit.start(REMIND, 2).await?;
/// kit.advance(hours(2)).await;
/// let run = kit.export(run.id()).await?.ok_or("it is there")?;
/// assert_replays(REMIND, remind, &run);
/// let problem = replays(REMIND, changed, &run).unwrap_err();
/// assert!(problem.contains("the history has sleep, and the code asks for step \"greet\""), "{problem}");
/// # Ok(())
/// # }
/// ```
pub fn assert_replays<I, O>(flow: Flow<I, O>, code: impl WorkflowCode<I, O>, run: &RunHistory)
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
{
    let checked = check(flow, code, run);
    #[allow(clippy::panic, reason = "an assertion of the test kit")]
    if let Err(problem) = checked {
        panic!(
            "run {} of {} does not replay: {problem}",
            run.id, run.machine
        );
    }
}
