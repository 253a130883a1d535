//! Tasks of a run: a task is a child that is started once, with the policy of its step, and retried as the same
//! instance.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Cancel, ChildStarts, Children, Instance, InstanceId, Json, Kind, Name, Start, Status, StepSpec,
    Target,
};
use abide_core::rules::graph::{policy_of, task_machine};
use abide_kernel::{Op, Store};
use serde::{Deserialize, Serialize};

use super::attempts;
use crate::workflow::Workflow;
use crate::{BoxError, Error};

/// The change by which a task became one child with a policy. A run that began such a task before this change starts a
/// child for each attempt, as its history says.
const POLICIES: &str = "tasks have policies";

/// Runs a task to its end (rule 15.3). The child is retried as its policy says, and waits for workers as long as
/// needed, unless the step limits the total time.
pub(super) async fn task(
    wf: Workflow,
    store: Arc<dyn Store>,
    step: StepSpec,
    input: Json,
) -> Result<Json, BoxError> {
    let policy = policy_of(&step);
    if policy.is_some() && wf.version(POLICIES, 1..=2) == 1 {
        return attempts::task(wf, store, step, input).await;
    }
    let start = Start {
        policy,
        ..start_of(&step, input)?
    };
    let child = wf.child_of(start);
    let Some(ms) = step.schedule_timeout_ms else {
        return Ok(child.await?);
    };
    let mut child = child.timeout(Duration::from_millis(ms));
    if let Some(output) = (&mut child).await? {
        return Ok(output);
    }
    let number = child.number();
    let found = wf.step(format!("cancel {}", step.name), || {
        let (store, id) = (store.clone(), wf.id());
        apart(async move { give_up(&*store, id, number).await })
    });
    let task = step.task.as_deref().unwrap_or_default();
    match found.await? {
        // The run was not processed meanwhile, or not at once. The result of a task that has ended is not discarded.
        Found::Done(output) => Ok(output),
        Found::Failed(error) => Err(format!("task {task:?} failed: {error}").into()),
        Found::Unended(stood) => {
            Err(format!("task {task:?} did not end within {ms} ms: {stood}").into())
        }
    }
}

/// The state of a task when its total time has passed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    Done(Json),
    Failed(String),
    /// It has not ended, and was cancelled. The text says what it was doing.
    Unended(String),
}

/// Returns the start of a step's task, without the policy.
pub(super) fn start_of(step: &StepSpec, input: Json) -> Result<Start, BoxError> {
    let task = step.task.as_deref().unwrap_or_default();
    Ok(Start {
        kind: Some(Kind::Machine),
        version: Some(1),
        step: Some(Name::new("run")?),
        queue: step.queue.as_deref().map(Name::new).transpose()?,
        ..Start::of(Name::new(task_machine(task))?, input)
    })
}

/// Cancels the child that an operation of a run started, unless the child has ended.
async fn give_up(store: &dyn Store, run: InstanceId, operation: u32) -> Result<Found, Error> {
    let started = store.children(run, ChildStarts::barrier(operation)).await?;
    let child = match started.last() {
        Some(child) => store.get(&Target::Id(child.id)).await?,
        None => None,
    };
    let Some(child) = child else {
        return Ok(Found::Unended("it is not there any more".to_owned()));
    };
    Ok(match child.status {
        Status::Done => Found::Done(child.result.unwrap_or_default()),
        Status::Failed => Found::Failed(child.row.last_error.unwrap_or_default()),
        _ => {
            cancel(store, child.id, "its schedule timeout has passed").await?;
            Found::Unended(standing(&child))
        }
    })
}

/// Describes the state of a task that has exceeded its total time.
fn standing(child: &Instance) -> String {
    let attempt = child.attempt.saturating_add(1);
    let stood = match child.status {
        Status::Runnable => format!(
            "it was waiting in queue {:?} for a worker, attempt {attempt}",
            child.queue.as_str()
        ),
        Status::Scheduled => format!("it was waiting to be tried again, attempt {attempt}"),
        Status::Executing => format!("it was executing, attempt {attempt}"),
        // Cancelled by a process that died before it could report that.
        Status::Cancelled => return "it was cancelled".to_owned(),
        status => format!("it was {status}, attempt {attempt}"),
    };
    match &child.last_error {
        Some(error) => format!("{stood}; the last attempt failed: {error}"),
        None => stood,
    }
}

/// Runs work in a task of its own. A step is not polled while its run is committed, and that commit may wait for a row
/// that a transaction of the step has locked.
pub(super) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and the step with it.
            Err(_) => std::future::pending().await,
        },
    }
}

pub(super) async fn cancel(store: &dyn Store, id: InstanceId, reason: &str) -> Result<(), Error> {
    let cancel = Cancel {
        target: Target::Id(id),
        reason: reason.to_owned(),
        children: Children::Cascade,
        force: false,
        source: Some("graph".to_owned()),
        claimed_source: None,
    };
    // An instance that has ended meanwhile need not be cancelled.
    store.run(Arc::from([Op::Cancel(vec![cancel])])).await?;
    Ok(())
}
