//! The wait and the health of an instance in one sentence. The rules decide; this file only formats the result.

use abide::Status;
use abide::client::Description;
use abide::model::{
    Cause, Instance, Liveness, Reason, ReasonCode, WaitKind, Waiter, Waiting, Worker,
};
use abide::time::Timestamp;
use abide_kernel::rules::deaths::times;
use abide_kernel::rules::liveness::{Severity, serves, severity};

use super::failure::shell_quoted;
use super::out::Tone;
use super::text::{clean, counted, cut_middle};
use super::times::{length, relative};
use super::waits::event_text;

/// The data that the sentence needs besides the instance.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The live workers.
    pub workers: Vec<Worker>,
    /// The waiters of its waits for events.
    pub waiters: Vec<Waiter>,
    /// The run that its chain goes on with.
    pub newer: Option<abide::InstanceId>,
}

/// The sentence, and the tone to print it in.
pub fn sentence(description: &Description, around: &Around, now: Timestamp) -> (Tone, String) {
    let reason = description.reason.as_ref().map(|reason| reason.code);
    let tone = match severity(description.instance.status, description.liveness, reason) {
        Severity::Healthy => Tone::Good,
        Severity::Attention => Tone::Careful,
        Severity::Bad => Tone::Bad,
    };
    (tone, text(description, around, now))
}

fn text(description: &Description, around: &Around, now: Timestamp) -> String {
    let one = &description.instance;
    let target = name_of(one);
    let why = description
        .reason
        .as_ref()
        .map_or("", |reason| &reason.text);
    match description.liveness {
        Liveness::Closed => closed(one, around, &target, now),
        Liveness::Running => running(description, around),
        Liveness::Ready => ready(description, around, now),
        Liveness::WaitingForWorker => format!(
            "could run{}, but {}. Start one; nothing is lost meanwhile. live workers: abide workers",
            lasting(one.due_at, now),
            clean(why)
        ),
        Liveness::Scheduled => scheduled(description, &target, now),
        Liveness::WaitingForSignal
        | Liveness::WaitingForEvent
        | Liveness::WaitingForCondition
        | Liveness::WaitingForChildren => waits(description, around, now),
        Liveness::ReplayBlocked => format!(
            "blocked: its code does not match its history ({}). Deploy code that fits: it continues when a worker with that \
             code starts, or with: abide repair {target}. Nothing is lost meanwhile",
            clean(why)
        ),
        Liveness::Blocked => format!(
            "blocked at step {}: {}. It continues when a worker of a build that fits starts, or with: abide repair {target}. \
             Nothing is lost meanwhile",
            clean(one.step.as_str()),
            clean(why)
        ),
        Liveness::RepairNeeded => format!(
            "needs repair: {}. Nothing wakes it by itself; run: abide repair {target}",
            clean(why)
        ),
    }
}

/// The key or the id that addresses an instance on the command line.
pub fn name_of(one: &Instance) -> String {
    match &one.key {
        Some(key) => shell_quoted(&clean(key.as_str())),
        None => one.id.to_string(),
    }
}

fn closed(one: &Instance, around: &Around, target: &str, now: Timestamp) -> String {
    let ended = one.finished_at.unwrap_or(one.updated_at);
    let (when, took) = (relative(ended, now), length(ended.since(one.created_at)));
    let error = one.last_error.as_deref().unwrap_or("no reason was given");
    let error = cut_middle(&clean(error), 300);
    match one.status {
        Status::Failed => format!(
            "failed {when} at step {}: {error}. To open a new run of it: abide restart {target}",
            one.step
        ),
        Status::Cancelled => format!("cancelled {when}: {error}"),
        Status::Continued => {
            let next = match around.newer {
                Some(id) => format!(" as instance {id}: abide show {id}"),
                None => String::new(),
            };
            format!("went on {when}, in a newer run{next}")
        }
        _ => format!("done {when}, after {took}; nothing is left to do"),
    }
}

fn running(description: &Description, around: &Around) -> String {
    let one = &description.instance;
    let step = clean(one.step.as_str()).into_owned();
    if let Some(reason) = &description.reason {
        return format!("runs step {step}, but {}", clean(&reason.text));
    }
    let worker = one
        .worker
        .and_then(|id| around.workers.iter().find(|worker| worker.id == id))
        .map_or_else(
            || "its worker".to_owned(),
            |worker| format!("worker {}", worker.name),
        );
    format!("runs step {step} on {worker}; healthy: if that dies, another takes over")
}

fn ready(description: &Description, around: &Around, now: Timestamp) -> String {
    let one = &description.instance;
    let lasting = lasting(one.due_at, now);
    if let Some(reason) = &description.reason {
        return format!("ready to run{lasting}, but {}", clean(&reason.text));
    }
    if one.behind
        && let Some(partition) = &one.partition_key
    {
        return format!(
            "ready to run{lasting}, behind another of partition {}; healthy: it runs when that one lets go",
            clean(partition.as_str())
        );
    }
    let serving = around
        .workers
        .iter()
        .filter(|worker| serves(worker, one))
        .count();
    format!(
        "ready to run{lasting}; healthy: {} queue {} with code for {} version {}, and the next that is free takes it",
        match serving {
            1 => "1 worker serves".to_owned(),
            count => format!("{count} workers serve"),
        },
        clean(one.queue.as_str()),
        clean(one.machine.as_str()),
        one.version
    )
}

fn scheduled(description: &Description, target: &str, now: Timestamp) -> String {
    let one = &description.instance;
    let wait: Option<&Waiting> = description.wait.as_ref();
    if one.status == Status::Reserved {
        let machine = shell_quoted(&clean(one.machine.as_str()));
        return format!(
            "reserved: it has no run yet. To open it: abide start {machine} --key {target}"
        );
    }
    let Some(due) = one.due_at else {
        return "is due at no time".to_owned();
    };
    let what = match (one.cause, wait) {
        (_, Some(wait)) if wait.kind == WaitKind::Timer && wait.resume_source.is_none() => {
            format!("sleeps{}, and goes on", lasting(wait.since, now))
        }
        (Cause::Retry, _) => {
            let error = one
                .last_error
                .as_deref()
                .map(|error| format!(" ({})", cut_middle(&clean(error), 200)));
            format!(
                "is tried again after {}{}",
                counted(u64::from(one.attempt), "failed attempt", "failed attempts"),
                error.unwrap_or_default()
            )
        }
        (Cause::Reclaim, _) if one.deaths > 0 => {
            format!("runs again after its worker died {},", times(one.deaths))
        }
        _ => "is due".to_owned(),
    };
    let when = relative(due, now);
    match &description.reason {
        Some(reason) if reason.code == ReasonCode::Failing => {
            format!("is tried again {when}: {}", clean(&reason.text))
        }
        Some(reason) => format!("{what} {when}: {}", clean(&reason.text)),
        None => format!("{what} {when}; healthy: nothing is to be done until then"),
    }
}

fn waits(description: &Description, around: &Around, now: Timestamp) -> String {
    let one = &description.instance;
    let wait = description.wait.as_ref();
    let deadline = wait.and_then(|wait| wait.deadline);
    let until = match deadline {
        Some(deadline) if deadline > now => format!(" (deadline {})", relative(deadline, now)),
        Some(deadline) => format!(" (its deadline passed {})", relative(deadline, now)),
        None => " (no deadline)".to_owned(),
    };
    let (what, wakes) = match description.liveness {
        Liveness::WaitingForCondition => {
            let names = listed(one.awaited().iter().map(|name| name.as_str()), "and");
            (
                format!("the condition {names}"),
                "an update, or the end of something else that it does, changes that",
            )
        }
        Liveness::WaitingForChildren => (
            format!("{} more of its children", one.family.needed),
            "their ends wake it",
        ),
        _ => wanted(one, around),
    };
    let lasting = lasting(wait.and_then(|wait| wait.since), now);
    match &description.reason {
        Some(reason) => {
            let why = unwell(one, reason);
            format!("waits for {what}{lasting}{until}; {why}")
        }
        None => format!("waits for {what}{lasting}{until}; healthy: {wakes}"),
    }
}

/// The reason why a wait is not healthy, and the command that shows more.
fn unwell(one: &Instance, reason: &Reason) -> String {
    let text = clean(&reason.text);
    let which = match reason.code {
        ReasonCode::ChildrenUnserved => "--liveness waiting_for_worker",
        ReasonCode::ChildrenBlocked => "--status scheduled",
        _ => return text.into_owned(),
    };
    format!(
        "their ends wake it, but {text}. To see which: abide list --parent {} {which}",
        one.id
    )
}

/// The signals and events that an instance waits for, and what wakes it.
fn wanted(one: &Instance, around: &Around) -> (String, &'static str) {
    let signals: Vec<&str> = one
        .awaited()
        .iter()
        .filter(|name| name.event_type().is_none())
        .map(|name| name.as_str())
        .collect();
    let events: Vec<String> = around.waiters.iter().map(event_text).collect();
    let named = |kind: &str, names: &[String]| match names {
        [one] => format!("{kind} {one}"),
        many => format!("one of the {kind}s {}", many.join(", ")),
    };
    let signals: Vec<String> = signals
        .iter()
        .map(|name| clean(name).into_owned())
        .collect();
    match (signals.len(), events.len()) {
        (0, 0) => {
            let names = one
                .awaited()
                .iter()
                .filter_map(|name| name.event_type())
                .map(|name| clean(name).into_owned());
            (
                named("event", &names.collect::<Vec<_>>()),
                "such an event wakes it",
            )
        }
        (_, 0) => (named("signal", &signals), "a signal of that name wakes it"),
        (0, _) => (named("event", &events), "such an event wakes it"),
        _ => (
            format!(
                "{}, or {}",
                named("signal", &signals),
                named("event", &events)
            ),
            "either wakes it",
        ),
    }
}

/// The time since a moment, as text.
fn lasting(moment: Option<Timestamp>, now: Timestamp) -> String {
    moment.map_or(String::new(), |moment| {
        format!(" for {}", length(now.since(moment)))
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a str>, conjunction: &str) -> String {
    let names: Vec<String> = names.map(|name| clean(name).into_owned()).collect();
    match names.as_slice() {
        [] => "of its own".to_owned(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {conjunction} {last}", most.join(", ")),
    }
}
