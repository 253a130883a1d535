//! What an instance waits for and whether that is healthy, in one sentence.

use abide::{
    Cause, Instance, Liveness, Look, Status, Timestamp, WaitKind, Waiter, Waiting, Worker,
};

use super::failure::shell_quoted;
use super::moments::{length, relative};
use super::out::Tone;
use super::text::{clean, counted, cut};
use super::waits::event_said;

/// What is known of the world around an instance.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The workers that are believed to live.
    pub workers: Vec<Worker>,
    /// Who stands for its waits for events.
    pub waiters: Vec<Waiter>,
    /// Its children, when it waits for them.
    pub children: Vec<Look>,
    /// The run that its chain goes on with.
    pub newer: Option<abide::InstanceId>,
}

/// The sentence, and how it is to be seen.
pub fn sentence(look: &Look, around: &Around, now: Timestamp) -> (Tone, String) {
    let one = &look.instance;
    let target = name_of(one);
    match &look.liveness {
        Liveness::Closed => closed(one, around, &target, now),
        Liveness::Running => running(one, around, now),
        Liveness::Ready => ready(one, around, now),
        Liveness::WaitingForWorker => no_worker(one, now),
        Liveness::Scheduled => scheduled(one, look.wait.as_ref(), around, &target, now),
        Liveness::WaitingForSignal
        | Liveness::WaitingForEvent
        | Liveness::WaitingForCondition
        | Liveness::WaitingForChildren => waits(look, around, now),
        Liveness::ReplayBlocked(reason) => {
            let text = format!(
                "blocked: its code does not fit its history ({}). Deploy code that fits: a worker with it lets it go on, and \
                 so does: abide repair {target}. Nothing is lost meanwhile",
                clean(reason)
            );
            (Tone::Bad, text)
        }
        Liveness::RepairNeeded(reason) => {
            let text = format!(
                "needs repair: {}. Nothing wakes it by itself; run: abide repair {target}",
                clean(reason)
            );
            (Tone::Bad, text)
        }
    }
}

/// How an instance is addressed on the command line.
pub fn name_of(one: &Instance) -> String {
    match &one.key {
        Some(key) => shell_quoted(&clean(key.as_str())),
        None => one.id.to_string(),
    }
}

fn closed(one: &Instance, around: &Around, target: &str, now: Timestamp) -> (Tone, String) {
    let ended = one.finished_at.unwrap_or(one.updated_at);
    let (when, took) = (relative(ended, now), length(ended.since(one.created_at)));
    let error = one.last_error.as_deref().unwrap_or("no reason was given");
    let error = cut(&clean(error), 300);
    match one.status {
        Status::Failed => (
            Tone::Bad,
            format!(
                "failed {when} at step {}: {error}. To open a new run of it: abide restart {target}",
                one.step
            ),
        ),
        Status::Cancelled => (Tone::Careful, format!("cancelled {when}: {error}")),
        Status::Continued => {
            let next = match around.newer {
                Some(id) => format!(" as instance {id}: abide show {id}"),
                None => String::new(),
            };
            (Tone::Good, format!("went on {when}, in a newer run{next}"))
        }
        _ => (
            Tone::Good,
            format!("done {when}, after {took}; nothing is left to do"),
        ),
    }
}

fn running(one: &Instance, around: &Around, now: Timestamp) -> (Tone, String) {
    let worker = one
        .worker
        .and_then(|id| around.workers.iter().find(|worker| worker.id == id));
    let step = clean(one.step.as_str()).into_owned();
    match worker {
        Some(worker) if worker.lease_until < now => (
            Tone::Careful,
            format!(
                "runs step {step} on worker {}, which has been silent: its lease ended {}, so another worker takes it over soon",
                worker.name,
                relative(worker.lease_until, now)
            ),
        ),
        Some(worker) => (
            Tone::Good,
            format!(
                "runs step {step} on worker {}; healthy: if that dies, another takes over",
                worker.name
            ),
        ),
        None => (
            Tone::Careful,
            format!(
                "runs step {step} on a worker that is not in the list of those that live; if it is dead, another takes over \
                 when its lease ends, in half a minute as a rule"
            ),
        ),
    }
}

fn ready(one: &Instance, around: &Around, now: Timestamp) -> (Tone, String) {
    let since = since(one.due_at, now);
    if one.behind
        && let Some(partition) = &one.partition_key
    {
        let text = format!(
            "ready to run{since}, behind another of partition {}; healthy: it runs when that one lets go",
            clean(partition.as_str())
        );
        return (Tone::Good, text);
    }
    let serving = around
        .workers
        .iter()
        .filter(|worker| serves(worker, one))
        .count();
    let text = format!(
        "ready to run{since}; healthy: {} queue {} with code for {} version {}, and the next that is free takes it",
        match serving {
            1 => "1 worker serves".to_owned(),
            count => format!("{count} workers serve"),
        },
        clean(one.queue.as_str()),
        clean(one.machine.as_str()),
        one.version
    );
    (Tone::Good, text)
}

/// Whether a worker serves an instance's queue and has code for it.
pub fn serves(worker: &Worker, one: &Instance) -> bool {
    let has_code = |lane: &abide_kernel::model::Lane| {
        lane.machine == one.machine && lane.version == one.version
    };
    worker.queues.contains(&one.queue) && worker.lanes.iter().any(has_code)
}

fn no_worker(one: &Instance, now: Timestamp) -> (Tone, String) {
    let text = format!(
        "could run{}, but no worker that lives serves queue {} with code for {} version {}. Start one; nothing is lost meanwhile. \
         Who lives: abide workers",
        since(one.due_at, now),
        clean(one.queue.as_str()),
        clean(one.machine.as_str()),
        one.version
    );
    (Tone::Bad, text)
}

fn scheduled(
    one: &Instance,
    wait: Option<&Waiting>,
    around: &Around,
    target: &str,
    now: Timestamp,
) -> (Tone, String) {
    if one.status == Status::Reserved {
        let machine = shell_quoted(&clean(one.machine.as_str()));
        let text = format!(
            "reserved: it has no run yet. To open it: abide start {machine} --key {target}"
        );
        return (Tone::Careful, text);
    }
    let Some(due) = one.due_at else {
        return (Tone::Good, "is due at no time".to_owned());
    };
    let what = match (one.cause, wait) {
        (_, Some(wait)) if wait.kind == WaitKind::Timer => {
            format!("sleeps{}, and goes on", since(wait.since, now))
        }
        (Cause::Retry, _) => {
            let error = one
                .last_error
                .as_deref()
                .map(|error| format!(" ({})", cut(&clean(error), 200)));
            format!(
                "is tried again after {}{}",
                counted(u64::from(one.attempt), "failed attempt", "failed attempts"),
                error.unwrap_or_default()
            )
        }
        _ => "is due".to_owned(),
    };
    match late(Some(due), around, now) {
        Some(late) => (Tone::Bad, format!("{what} {}: {late}", relative(due, now))),
        None => (
            Tone::Good,
            format!(
                "{what} {}; healthy: nothing is to be done until then",
                relative(due, now)
            ),
        ),
    }
}

fn waits(look: &Look, around: &Around, now: Timestamp) -> (Tone, String) {
    let one = &look.instance;
    let wait = look.wait.as_ref();
    let deadline = wait.and_then(|wait| wait.deadline);
    let until = match deadline {
        Some(deadline) if deadline > now => format!(" (deadline {})", relative(deadline, now)),
        Some(deadline) => format!(" (its deadline passed {})", relative(deadline, now)),
        None => " (no deadline)".to_owned(),
    };
    let (what, wakes) = match &look.liveness {
        Liveness::WaitingForCondition => {
            let names = listed(one.awaits.iter().map(|name| name.as_str()), "and");
            (
                format!("the condition {names}"),
                "an update, or the end of something else that it does, changes that",
            )
        }
        Liveness::WaitingForChildren => (
            format!("{} more of its children", one.children_needed),
            "their ends wake it",
        ),
        _ => wanted(one, around),
    };
    let since = since(wait.and_then(|wait| wait.since), now);
    let (tone, judged) = late(deadline, around, now)
        .map(|late| (Tone::Bad, late))
        .or_else(|| stranded(one, around))
        .unwrap_or_else(|| (Tone::Good, format!("healthy: {wakes}")));
    (tone, format!("waits for {what}{since}{until}; {judged}"))
}

/// That children which it waits for cannot go on by themselves, when that is so.
fn stranded(one: &Instance, around: &Around) -> Option<(Tone, String)> {
    let open = || {
        around
            .children
            .iter()
            .filter(|child| !child.instance.status.is_terminal())
    };
    let of = |wanted: &str| {
        open()
            .filter(|child| child.liveness.name() == wanted)
            .count()
    };
    let (liveness, count, why) = [
        ("repair_needed", "cannot go on without repair"),
        (
            "replay_blocked",
            "cannot go on with the code that is deployed",
        ),
        (
            "waiting_for_worker",
            "could run, and no worker that lives has code for that",
        ),
    ]
    .into_iter()
    .map(|(liveness, why)| (liveness, of(liveness), why))
    .find(|(_, count, _)| *count > 0)?;
    let tone = match count == open().count() {
        true => Tone::Bad,
        false => Tone::Careful,
    };
    let text = format!(
        "their ends wake it, but {count} of them {why}. To see which: abide list --parent {} --liveness {liveness}",
        one.id
    );
    Some((tone, text))
}

/// The signals and events that an instance waits for, and what wakes it.
fn wanted(one: &Instance, around: &Around) -> (String, &'static str) {
    let signals: Vec<&str> = one
        .awaits
        .iter()
        .filter(|name| name.event_type().is_none())
        .map(|name| name.as_str())
        .collect();
    let events: Vec<String> = around.waiters.iter().map(event_said).collect();
    let said = |word: &str, names: &[String]| match names {
        [one] => format!("{word} {one}"),
        many => format!("one of the {word}s {}", many.join(", ")),
    };
    let signals: Vec<String> = signals
        .iter()
        .map(|name| clean(name).into_owned())
        .collect();
    match (signals.len(), events.len()) {
        (0, 0) => {
            let names = one
                .awaits
                .iter()
                .filter_map(|name| name.event_type())
                .map(|name| clean(name).into_owned());
            (
                said("event", &names.collect::<Vec<_>>()),
                "such an event wakes it",
            )
        }
        (_, 0) => (said("signal", &signals), "a signal of that name wakes it"),
        (0, _) => (said("event", &events), "such an event wakes it"),
        _ => (
            format!(
                "{}, or {}",
                said("signal", &signals),
                said("event", &events)
            ),
            "either wakes it",
        ),
    }
}

/// That something should have happened by now and did not, when that is so.
fn late(due: Option<Timestamp>, around: &Around, now: Timestamp) -> Option<String> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
    let due = due.filter(|due| now.since(*due) > PATIENCE)?;
    let cure = match around.workers.is_empty() {
        true => "no worker lives, and workers are who looks at the time: start one",
        false => "workers look at the time, and some live: if this stays so, run abide doctor",
    };
    Some(format!(
        "that was {}, and nobody has let it go on: {cure}",
        relative(due, now)
    ))
}

fn since(moment: Option<Timestamp>, now: Timestamp) -> String {
    moment.map_or(String::new(), |moment| match now.since(moment).as_secs() {
        0 => " since just now".to_owned(),
        _ => format!(" since {}", length(now.since(moment))),
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a str>, word: &str) -> String {
    let names: Vec<String> = names.map(|name| clean(name).into_owned()).collect();
    match names.as_slice() {
        [] => "of its own".to_owned(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}
