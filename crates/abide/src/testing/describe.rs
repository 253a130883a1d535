//! Describes what an instance is waiting for, for the message of a failed assertion.

use abide_core::model::{Instance, Status, Timestamp, Worker};
use abide_core::rules::liveness::serves;

/// Describes in one sentence the status of an instance and what would move it.
pub(super) fn describe(instance: &Instance, workers: &[Worker], now: Timestamp) -> String {
    let key = instance
        .key
        .as_ref()
        .map(|key| format!(" ({key})"))
        .unwrap_or_default();
    let subject = format!(
        "instance {}{key} of {} version {}",
        instance.id, instance.machine, instance.version
    );
    format!(
        "{subject} is {}: {}",
        instance.status,
        standing(instance, workers, now)
    )
}

fn standing(instance: &Instance, workers: &[Worker], now: Timestamp) -> String {
    let step = &instance.step;
    let until = instance
        .due_at
        .map(|due| format!("{due}, in {:?}", due.since(now)));
    let error = instance.last_error.as_deref().unwrap_or("unknown");
    match instance.status {
        Status::Reserved => "it has not been started".into(),
        Status::Scheduled => format!(
            "step {step} is due at {}",
            until.unwrap_or_else(|| "no time".into())
        ),
        Status::Runnable if instance.behind => {
            format!("step {step} waits for its turn in its partition")
        }
        Status::Runnable if !workers.iter().any(|one| serves(one, instance)) => format!(
            "step {step} waits for a worker that has code for it and serves queue {}; there is none",
            instance.queue
        ),
        Status::Runnable => {
            format!("step {step} waits for a worker to be free; has the test settled?")
        }
        Status::Executing => format!("a worker runs step {step}, or has died while it did"),
        Status::AwaitingSignal => {
            let names: Vec<&str> = instance
                .awaited()
                .iter()
                .map(|name| name.as_str())
                .collect();
            let until = until
                .map(|until| format!(", until {until}"))
                .unwrap_or_default();
            format!(
                "step {step} waits for a signal named {}{until}",
                names.join(" or ")
            )
        }
        Status::AwaitingChildren => {
            let until = until
                .map(|until| format!(", until {until}"))
                .unwrap_or_default();
            format!(
                "step {step} waits for its children, {} of which have not ended{until}",
                instance.family.pending
            )
        }
        Status::Done => {
            format!(
                "its result is {}",
                instance
                    .result
                    .as_ref()
                    .map_or("nothing", |result| result.as_str())
            )
        }
        Status::Failed => format!("in step {step}, of: {error}"),
        Status::Cancelled => "nothing will happen to it any more".into(),
        Status::Continued => "a newer run goes on with it".into(),
    }
}
