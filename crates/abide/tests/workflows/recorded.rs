//! The histories of these tests in short form, and blocked runs.

use abide::history::{Entry, HistoryEvent};
use abide::model::Liveness;
use abide::{BoxError, InstanceId, Status, Workflow};
use abide_core::model::Ending;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::common::Lab;

/// Code that a table of tests can hold.
pub type Code = fn(Workflow, Value) -> BoxFuture<'static, Result<Value, BoxError>>;

/// The result of a step that succeeds.
pub fn ok<T>(value: T) -> Result<T, BoxError> {
    Ok(value)
}

/// The history events of a run's operations, in order: `+1 step a`, `-1 step a = 5`, `~1 step a 2 times: error`.
pub fn operations(events: &[Entry]) -> Vec<String> {
    let operations = events.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::OperationOpened(opened) => {
            let name = opened
                .signature
                .name
                .as_ref()
                .or(opened.signature.key.as_ref());
            let name = name.map(|name| format!(" {name}")).unwrap_or_default();
            Some(format!(
                "+{} {}{name}",
                opened.operation, opened.signature.operation_kind
            ))
        }
        HistoryEvent::OperationCompleted(completed) => {
            let number = completed
                .operation
                .map(|n| n.to_string())
                .unwrap_or_default();
            let name = completed
                .name
                .as_ref()
                .map(|name| format!(" {name}"))
                .unwrap_or_default();
            let outcome = match &completed.outcome {
                Ending::Value(value) => format!(" = {value}"),
                Ending::Error(error) => format!(" ! {error}"),
                Ending::TimedOut => " timed out".to_owned(),
                Ending::Abandoned => " abandoned".to_owned(),
            };
            Some(format!(
                "-{number} {}{name}{outcome}",
                completed.operation_kind
            ))
        }
        HistoryEvent::OperationRetried(again) => Some(format!(
            "~{} step {} {} times: {}",
            again.operation, again.name, again.attempts, again.error
        )),
        _ => None,
    });
    operations.collect()
}

/// Waits until a run is blocked, checks that it is open and has no due time (rule 12.4), and returns the reason.
pub async fn blocked(lab: &Lab, id: InstanceId) -> String {
    let row = lab
        .until(id, "it to be blocked", |row| {
            row.status.is_terminal() || row.status == Status::Scheduled && row.due_at.is_none()
        })
        .await;
    assert_eq!(row.status, Status::Scheduled, "{}", lab.standing(id).await);
    let view = lab.describe(id).await.unwrap().unwrap();
    let standing = lab.standing(id).await;
    assert_eq!(view.liveness, Liveness::ReplayBlocked, "{standing}");
    let why = view.reason.unwrap().text;
    assert_eq!(view.wait, None, "it waits for nothing but code");
    let last = lab.events(id).await.pop().unwrap();
    let HistoryEvent::ReplayBlocked(problem) = last.what else {
        panic!("{last:?}");
    };
    assert_eq!(row.last_error.as_deref(), Some(why.as_str()));
    // The build that found the problem is at the end.
    let build = format!(" (build {})", row.unfit.last().unwrap());
    assert_eq!(format!("{problem}{build}"), why);
    problem.to_string()
}
