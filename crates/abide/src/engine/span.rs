//! The tracing span of an attempt at a step.

use abide_core::model::Name;
use tracing::{Level, Span};

use super::Task;

/// Creates the span of one attempt at a step. It names the cause of the attempt, and ends with it.
pub(super) fn attempt(task: &Task, worker: &Name) -> Span {
    if !tracing::enabled!(target: "abide::step", Level::INFO) {
        return Span::none();
    }
    tracing::info_span!(
        target: "abide::step",
        "step",
        instance = task.id.0,
        machine = task.lane.machine.as_str(),
        version = task.lane.version,
        step = task.step.as_str(),
        step_sequence = task.step_seq,
        attempt = task.attempt,
        cause = task.cause.name(),
        woken_by = listed(task.awaited.iter().chain(&task.updates).map(|one| one.id)),
        joined = listed(task.children.iter().map(|child| child.id)),
        worker = worker.as_str(),
        outcome = tracing::field::Empty,
        error = tracing::field::Empty,
    )
}

fn listed<T: ToString>(ids: impl Iterator<Item = T>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}
