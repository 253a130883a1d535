//! Tasks of runs that began before tasks had policies: one child for each attempt, timed from its start.
//!
//! No new task begins this way. Tasks that did must match their history (rule 12.4).

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{ChildStarts, Json, StepSpec};
use abide_kernel::Store;

use super::task::{apart, cancel, start_of};
use crate::workflow::{OperationError, Workflow};
use crate::{BoxError, Error};

/// Runs a task to its end, with one child for each attempt.
pub(super) async fn task(
    wf: Workflow,
    store: Arc<dyn Store>,
    step: StepSpec,
    input: Json,
) -> Result<Json, BoxError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let start = start_of(&step, input.clone())?;
        let error: BoxError = match step.timeout_ms {
            None => match wf.child_of(start).await {
                Ok(output) => return Ok(output),
                Err(error @ OperationError::Cancelled { .. }) => return Err(error.into()),
                Err(error) => error.into(),
            },
            Some(ms) => {
                let mut child = wf.child_of(start).timeout(Duration::from_millis(ms));
                match (&mut child).await {
                    Ok(Some(output)) => return Ok(output),
                    Err(error @ OperationError::Cancelled { .. }) => return Err(error.into()),
                    Err(error) => error.into(),
                    Ok(None) => {
                        let number = child.number();
                        let cancelling = wf.step(format!("cancel {}", step.name), || {
                            let store = store.clone();
                            let id = wf.id();
                            apart(async move {
                                for child in
                                    store.children(id, ChildStarts::barrier(number)).await?
                                {
                                    if !child.status.is_terminal() {
                                        cancel(&*store, child.id, "its time was up").await?;
                                    }
                                }
                                Ok::<_, Error>(())
                            })
                        });
                        cancelling.await?;
                        format!("it took longer than {ms} ms").into()
                    }
                }
            }
        };
        match step
            .retry
            .as_ref()
            .and_then(|retry| retry.delay_ms(attempts))
        {
            Some(delay) => wf.sleep(Duration::from_millis(delay)).await?,
            None => return Err(error),
        }
    }
}
