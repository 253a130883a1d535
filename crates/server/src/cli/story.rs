//! What happened to an instance, an event a line.

use abide::{Entry, Happening, WaitKind};
use abide_kernel::model::Ending;

use super::moments::length;
use super::text::{clean, counted, cut};

/// The most characters of an error or a value on one line.
const MOST: usize = 200;

/// What an event tells, in a few words.
pub fn told(entry: &Entry) -> String {
    clean(&words(&entry.what)).into_owned()
}

fn words(what: &Happening) -> String {
    match what {
        Happening::Started {
            machine,
            version,
            step,
            run_number,
            ..
        } => {
            let run = if *run_number > 1 {
                format!(", run {run_number}")
            } else {
                String::new()
            };
            format!("{machine} version {version} at {step}{run}")
        }
        Happening::StepCompleted {
            step,
            outcome,
            next,
            attempt,
            duration_us,
            ..
        } => {
            format!(
                "{step} answered {outcome}{}{}{}",
                to(next),
                again(*attempt),
                took(Some(*duration_us))
            )
        }
        Happening::StepFailed {
            step,
            error,
            outcome,
            next,
            attempt,
            duration_us,
            ..
        } => format!(
            "{step} failed: {}; then {outcome}{}{}{}",
            cut(error, MOST),
            to(next),
            again(*attempt),
            took(Some(*duration_us))
        ),
        Happening::Retried {
            step,
            attempt,
            due_at,
        } => format!("{step} runs again at {due_at}, attempt {attempt}"),
        Happening::WaitOpened {
            wait_kind,
            names,
            deadline,
            ..
        } => {
            let names: Vec<&str> = names
                .iter()
                .map(|name| name.event_type().unwrap_or(name.as_str()))
                .collect();
            let what = match wait_kind {
                WaitKind::Timer => "time to pass".to_owned(),
                WaitKind::Children => "children".to_owned(),
                kind => format!("{} {}", kind.name(), names.join(", ")),
            };
            let until = deadline.map(|deadline| format!(" until {deadline}"));
            format!("waits for {what}{}", until.unwrap_or_default())
        }
        Happening::SignalReceived {
            name,
            message_sequence,
            source,
            claimed_source,
            ..
        } => {
            let from = sender(source, claimed_source).map(|sender| format!(" from {sender}"));
            format!(
                "{name}, message {message_sequence}{}",
                from.unwrap_or_default()
            )
        }
        Happening::EventMatched {
            event_type,
            event_id,
            message_sequence,
            ..
        } => {
            format!("{event_type} ({event_id}), message {message_sequence}")
        }
        Happening::SignalApplied {
            name,
            message_sequence,
            step,
            ..
        } => {
            format!("{name}, message {message_sequence}, by step {step}")
        }
        Happening::SignalDiscarded {
            name,
            message_sequence,
            ..
        } => {
            format!("{name}, message {message_sequence}: it ended before anybody took it")
        }
        Happening::MessageCursorAdvanced { from, to, .. } => {
            format!("messages {from} to {to} are consumed")
        }
        Happening::UpdateAccepted {
            update_id, name, ..
        } => format!("{name}, update {update_id}"),
        Happening::UpdateCompleted {
            update_id, name, ..
        } => format!("{name}, update {update_id}"),
        Happening::UpdateFailed {
            update_id,
            name,
            error,
            ..
        } => {
            format!("{name}, update {update_id}: {}", cut(error, MOST))
        }
        Happening::TimedOut {
            wait_kind,
            deadline,
            ..
        } => {
            format!(
                "the wait for {} ran into its deadline {deadline}",
                wait_kind.name()
            )
        }
        Happening::ChildrenSpawned {
            count, duplicates, ..
        } => {
            let taken = match duplicates {
                0 => String::new(),
                many => format!(", and {many} not: their keys are taken"),
            };
            format!(
                "{} started{taken}",
                counted(u64::from(*count), "child", "children")
            )
        }
        Happening::ChildEnded { child, status, .. } => format!("child {child} ended as {status}"),
        Happening::ChildrenJoined { missing, .. } => match missing {
            0 => "all children have ended".to_owned(),
            missing => format!("enough children have ended, {missing} have not"),
        },
        Happening::Reclaimed {
            step,
            attempt,
            worker,
        } => {
            format!("{step} was taken back from worker {worker}, attempt {attempt} is next")
        }
        Happening::KeyGivenUp { key, holder } => {
            format!("{key} was given up: instance {holder} holds it")
        }
        Happening::Repaired { problem } => problem.clone(),
        Happening::OperationOpened(opened) => {
            let until = opened.deadline.map(|deadline| format!(" until {deadline}"));
            format!(
                "{}: {}{}",
                opened.operation,
                opened.signature,
                until.unwrap_or_default()
            )
        }
        Happening::OperationCompleted(done) => {
            let number = done
                .operation
                .map(|number| format!("{number}: "))
                .unwrap_or_default();
            let name = done
                .name
                .as_ref()
                .map(|name| format!(" {name:?}"))
                .unwrap_or_default();
            let came_to = match &done.outcome {
                Ending::Value(value) => cut(value.as_str(), MOST),
                Ending::Error(error) => format!("error: {}", cut(error, MOST)),
                Ending::TimedOut => "its time was up".to_owned(),
                Ending::Abandoned => "not waited for any more".to_owned(),
            };
            format!(
                "{number}{}{name} → {came_to}{}",
                done.operation_kind,
                took(done.duration_us)
            )
        }
        Happening::OperationRetried(tried) => format!(
            "{}: step {:?} failed {}: {}; again at {}",
            tried.operation,
            tried.name.as_str(),
            counted(u64::from(tried.attempts), "time", "times"),
            cut(&tried.error, MOST),
            tried.due_at
        ),
        Happening::ReplayBlocked(blocked) => cut(&blocked.to_string(), 2 * MOST),
        Happening::CancelRequested {
            reason,
            source,
            claimed_source,
            ..
        } => {
            let from = sender(source, claimed_source).map(|sender| format!(" (by {sender})"));
            format!("{}{}", cut(reason, MOST), from.unwrap_or_default())
        }
        Happening::Cancelled { reason } => cut(reason, MOST),
        Happening::Continued { run_id, run_number } => {
            format!("run {run_number} is instance {run_id}")
        }
        Happening::Done => String::new(),
        Happening::Failed { error } => cut(error, MOST),
        other => json_of(other),
    }
}

/// The sender of a message: who it was and, after that, who it said that it was.
fn sender(source: &Option<String>, claimed: &Option<String>) -> Option<String> {
    match (source, claimed) {
        (Some(source), Some(claimed)) => Some(format!("{source}, claiming {claimed:?}")),
        (source, _) => source.clone(),
    }
}

/// What there are no words for yet.
fn json_of(what: &Happening) -> String {
    let whole = serde_json::to_value(what).unwrap_or_default();
    let data = whole.get("data").map(ToString::to_string);
    cut(&data.unwrap_or_default(), MOST)
}

fn to(next: &Option<abide::Name>) -> String {
    next.as_ref()
        .map(|next| format!(" to {next}"))
        .unwrap_or_default()
}

fn again(attempt: u32) -> String {
    match attempt {
        0 => String::new(),
        attempt => format!(", attempt {attempt}"),
    }
}

fn took(duration_us: Option<u64>) -> String {
    let took = duration_us.map(std::time::Duration::from_micros);
    took.map(|took| format!(" ({})", length(took)))
        .unwrap_or_default()
}
