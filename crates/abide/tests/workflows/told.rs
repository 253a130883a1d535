//! What the histories of these tests tell, in short.

use abide::{BoxError, Entry, HistoryEvent, InstanceId, Liveness, Status, Workflow};
use abide_core::model::Ending;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::common::Lab;

/// Code that a table of tests can hold.
pub type Code = fn(Workflow, Value) -> BoxFuture<'static, Result<Value, BoxError>>;

/// What a step comes to when all is well.
pub fn ok<T>(value: T) -> Result<T, BoxError> {
    Ok(value)
}

/// What happened to a run's operations, in order: `+1 step a`, `-1 step a = 5`, `~1 step a 2 times: error`.
pub fn operations(events: &[Entry]) -> Vec<String> {
    let told = events.iter().filter_map(|entry| match &entry.what {
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
    told.collect()
}

/// Waits until a run is blocked, sees that it is open and due at no time (rule 12.4), and says why.
pub async fn blocked(lab: &Lab, id: InstanceId) -> String {
    let row = lab
        .until(id, "it to be blocked", |row| {
            row.status.is_terminal() || row.status == Status::Scheduled && row.due_at.is_none()
        })
        .await;
    assert_eq!(row.status, Status::Scheduled, "{}", lab.standing(id).await);
    let look = lab.describe(id).await.unwrap().unwrap();
    let standing = lab.standing(id).await;
    assert_eq!(look.liveness, Liveness::ReplayBlocked, "{standing}");
    let why = look.reason.unwrap().text;
    assert_eq!(look.wait, None, "it waits for nothing but code");
    let last = lab.events(id).await.pop().unwrap();
    let HistoryEvent::ReplayBlocked(told) = last.what else {
        panic!("{last:?}");
    };
    assert_eq!(row.last_error.as_deref(), Some(why.as_str()));
    // Which build has met it stands at the end.
    let build = format!(" (build {})", row.unfit.last().unwrap());
    assert_eq!(format!("{told}{build}"), why);
    told.to_string()
}
