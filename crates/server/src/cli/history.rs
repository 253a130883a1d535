//! The history of an instance, one event per line.

use abide::history::{Entry, HistoryEvent};
use abide::model::WaitKind;
use abide::time::Timestamp;
use abide_kernel::model::{Ending, Folded};
use abide_kernel::rules::deaths::times;

use super::out::Out;
use super::text::{clean, counted, cut, cut_middle};
use super::times::length;

/// Maximum number of characters of an error or a value on one line.
const MOST: usize = 200;

/// Describes a history event in a few words.
pub fn describe_event(entry: &Entry, out: &Out) -> String {
    clean(&described(&entry.what, out)).into_owned()
}

fn described(what: &HistoryEvent, out: &Out) -> String {
    let until = |deadline: &Option<Timestamp>| {
        let until = deadline.map(|deadline| format!(" until {}", out.exact(deadline)));
        until.unwrap_or_default()
    };
    match what {
        HistoryEvent::Started {
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
        HistoryEvent::StepCompleted {
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
        HistoryEvent::StepFailed {
            step,
            error,
            outcome,
            next,
            attempt,
            duration_us,
            ..
        } => format!(
            "{step} failed: {}; then {outcome}{}{}{}",
            cut_middle(error, MOST),
            to(next),
            again(*attempt),
            took(Some(*duration_us))
        ),
        HistoryEvent::Retried {
            step,
            attempt,
            due_at,
            folded,
        } => format!(
            "{}{step} runs again at {}, attempt {attempt}",
            folded_into(folded.as_ref(), out),
            out.exact(*due_at)
        ),
        HistoryEvent::WaitOpened {
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
            format!("waits for {what}{}", until(deadline))
        }
        HistoryEvent::SignalReceived {
            name,
            message_sequence,
            command_sequence,
            source,
            claimed_source,
            ..
        } => {
            let from = sender(source, claimed_source).map(|sender| format!(" from {sender}"));
            format!(
                "{name}, message {message_sequence}{}{}",
                number(*command_sequence),
                from.unwrap_or_default()
            )
        }
        HistoryEvent::EventMatched {
            event_type,
            event_id,
            message_sequence,
            command_sequence,
            ..
        } => {
            let number = number(*command_sequence);
            format!("{event_type} ({event_id}), message {message_sequence}{number}")
        }
        HistoryEvent::SignalApplied {
            name,
            message_sequence,
            command_sequence,
            step,
            operation,
            graph_step,
            ..
        } => {
            let by = match (graph_step, operation) {
                (Some(step), Some(operation)) => {
                    format!("step {step} of the graph, operation {operation}")
                }
                (None, Some(operation)) => format!("operation {operation}"),
                _ => format!("step {step}"),
            };
            let number = number(*command_sequence);
            format!("{name}, message {message_sequence}{number}, by {by}")
        }
        HistoryEvent::SignalDiscarded {
            name,
            message_sequence,
            ..
        } => {
            format!("{name}, message {message_sequence}: it ended before anybody took it")
        }
        HistoryEvent::MessageCursorAdvanced { from, to, .. } => {
            format!("messages {from} to {to} are consumed")
        }
        HistoryEvent::UpdateAccepted {
            update_id, name, ..
        } => format!("{name}, update {update_id}"),
        HistoryEvent::UpdateCompleted {
            update_id, name, ..
        } => format!("{name}, update {update_id}"),
        HistoryEvent::UpdateFailed {
            update_id,
            name,
            error,
            ..
        } => {
            format!("{name}, update {update_id}: {}", cut_middle(error, MOST))
        }
        HistoryEvent::TimedOut {
            wait_kind,
            deadline,
            ..
        } => {
            format!(
                "the wait for {} ran into its deadline {}",
                wait_kind.name(),
                out.exact(*deadline)
            )
        }
        HistoryEvent::ChildrenSpawned {
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
        HistoryEvent::ChildEnded { child, status, .. } => {
            format!("child {child} ended as {status}")
        }
        HistoryEvent::ChildrenJoined { missing, .. } => match missing {
            0 => "all children have ended".to_owned(),
            missing => format!("enough children have ended, {missing} have not"),
        },
        HistoryEvent::Reclaimed {
            step,
            attempt,
            worker,
            deaths,
            due_at,
            folded,
        } => {
            let died = match deaths {
                0 | 1 => String::new(),
                deaths => format!(", in which a worker died {}", times(*deaths)),
            };
            let due = due_at.map(|due_at| format!(" at {}", out.exact(due_at)));
            format!(
                "{}{step}{died} was taken back from worker {worker}, attempt {attempt} is next{}",
                folded_into(folded.as_ref(), out),
                due.unwrap_or_default()
            )
        }
        HistoryEvent::KeyGivenUp { key, holder } => {
            format!("{key} was given up: instance {holder} holds it")
        }
        HistoryEvent::Repaired { problem } => problem.clone(),
        HistoryEvent::OperationOpened(opened) => {
            format!(
                "{}: {}{}{}",
                opened.operation,
                opened.signature,
                of_step(&opened.graph_step),
                until(&opened.deadline)
            )
        }
        HistoryEvent::OperationCompleted(done) => {
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
                Ending::Error(error) => format!("error: {}", cut_middle(error, MOST)),
                Ending::TimedOut => "its time was up".to_owned(),
                Ending::Abandoned => "not waited for any more".to_owned(),
            };
            format!(
                "{number}{}{name}{} → {came_to}{}",
                done.operation_kind,
                of_step(&done.graph_step),
                took(done.duration_us)
            )
        }
        HistoryEvent::OperationRetried(tried) => format!(
            "{}{}: step {:?}{} failed {}: {}; again at {}",
            folded_into(tried.folded.as_ref(), out),
            tried.operation,
            tried.name.as_str(),
            of_step(&tried.graph_step),
            counted(u64::from(tried.attempts), "time", "times"),
            cut_middle(&tried.error, MOST),
            out.exact(tried.due_at)
        ),
        HistoryEvent::ReplayBlocked(blocked) => cut_middle(&blocked.to_string(), 2 * MOST),
        HistoryEvent::Blocked {
            step,
            reason,
            build,
            ..
        } => {
            let build = build.as_ref().map(|build| format!(" (build {build})"));
            format!(
                "{step}: {}{}",
                cut_middle(reason, 2 * MOST),
                build.unwrap_or_default()
            )
        }
        HistoryEvent::HandedAgain {
            run_id,
            signals,
            children,
        } => {
            let names = signals
                .iter()
                .map(|one| one.name.event_type().unwrap_or(one.name.as_str()));
            let names: Vec<&str> = names.collect();
            let what = match children {
                0 => names.join(", "),
                1 => "1 child".to_owned(),
                count => format!("{count} children"),
            };
            format!("{}, from instance {run_id}", cut(&what, MOST))
        }
        HistoryEvent::CancelRequested {
            reason,
            source,
            claimed_source,
            ..
        } => {
            let from = sender(source, claimed_source).map(|sender| format!(" (by {sender})"));
            format!("{}{}", cut(reason, MOST), from.unwrap_or_default())
        }
        HistoryEvent::Cancelled { reason } => cut(reason, MOST),
        HistoryEvent::Continued { run_id, run_number } => {
            format!("run {run_number} is instance {run_id}")
        }
        HistoryEvent::Done => String::new(),
        HistoryEvent::Failed { error } => cut_middle(error, MOST),
        other => json_of(other),
    }
}

/// The sender of a command: the source as the server or program knows it, followed by what the sender claimed.
fn sender(source: &Option<String>, claimed: &Option<String>) -> Option<String> {
    match (source, claimed) {
        (Some(source), Some(claimed)) => Some(format!("{source}, claiming {claimed:?}")),
        (source, _) => source.clone(),
    }
}

/// The data of an event that has no description yet.
fn json_of(what: &HistoryEvent) -> String {
    let whole = serde_json::to_value(what).unwrap_or_default();
    let data = whole.get("data").map(ToString::to_string);
    cut(&data.unwrap_or_default(), MOST)
}

/// The number of a command in its run.
fn number(sequence: Option<abide::model::Sequence>) -> String {
    let sequence = sequence.map(|sequence| format!(", command {sequence}"));
    sequence.unwrap_or_default()
}

/// The step of a graph that an operation belongs to.
fn of_step(step: &Option<abide::model::Name>) -> String {
    let step = step
        .as_ref()
        .map(|step| format!(", step {step} of the graph"));
    step.unwrap_or_default()
}

fn to(next: &Option<abide::model::Name>) -> String {
    next.as_ref()
        .map(|next| format!(" to {next}"))
        .unwrap_or_default()
}

/// Describes the attempts that were folded into an entry, before the description of the last one.
fn folded_into(folded: Option<&Folded>, out: &Out) -> String {
    let Some(folded) = folded else {
        return String::new();
    };
    let died = match folded.deaths {
        0 => String::new(),
        deaths => format!(", in {deaths} of which a worker died"),
    };
    let error = folded.last_error.as_deref();
    let error = error.map(|error| format!(", the last failed: {}", cut_middle(error, MOST)));
    format!(
        "{} ({} to {}) since {}{died}{}; ",
        counted(u64::from(folded.count), "attempt", "attempts"),
        folded.first,
        folded.last,
        out.exact(folded.since),
        error.unwrap_or_default()
    )
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
