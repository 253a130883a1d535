//! What keeps an instance from being healthy although it needs no repair.

use super::{Around, Code, PATIENCE, Reason, Siblings, World, serves_lane};
use crate::model::{Instance, Kind, Lane, Name, Status, Worker};
use crate::rules::{deaths, similar};

/// Number of failed attempts in a row that still count as healthy.
pub const FAILURES_HEALTHY: u32 = 3;

/// Maximum number of lanes that a reason names.
const LANES_NAMED: usize = 3;

/// Describes what the builds that claimed an instance could not run, and what to do about it.
pub(super) fn blocked(instance: &Instance) -> String {
    let builds: Vec<&str> = instance.unfit.iter().map(Name::as_str).collect();
    let what = match (&instance.last_error, builds.is_empty()) {
        (Some(error), _) => error.clone(),
        (None, false) => format!(
            "step {:?} could not be run by build {}, and no worker of another build is running",
            instance.step.as_str(),
            builds.join(", ")
        ),
        (None, true) => format!("step {:?} could not be run", instance.step.as_str()),
    };
    format!("{what}; deploy a build that fits")
}

pub(super) fn lane_named(queue: &Name, machine: &Name, version: u32) -> String {
    format!("queue {queue} with code for {machine} version {version}")
}

/// Returns a reason if the worker that holds an instance is not live.
pub(super) fn silent(instance: &Instance, workers: Option<&[Worker]>) -> Option<(Code, String)> {
    let holder = instance.worker?;
    let lives = workers?.iter().any(|worker| worker.id == holder);
    (!lives).then(|| {
        let text = format!(
            "worker {holder}, which holds it, is not alive; another takes over when its lease ends"
        );
        (Code::WorkerSilent, text)
    })
}

/// Returns a reason if workers died more than once in the current step of an instance (rule 5.5). A single death may
/// have any cause.
pub(super) fn died(instance: &Instance) -> Option<(Code, String)> {
    (instance.deaths > 1).then(|| {
        let text = format!(
            "the worker died {} in step {}, so that it runs again later each time, and fails when that goes on; find what \
             ends the worker's process there",
            deaths::times(instance.deaths),
            instance.step
        );
        (Code::WorkerDied, text)
    })
}

/// Returns a reason if something should have happened by now and did not.
pub(super) fn overdue(instance: &Instance, world: World<'_>) -> Option<(Code, String)> {
    let (due, now) = (instance.due_at?, world.now?);
    if instance.status == Status::Reserved || now.since(due) <= PATIENCE {
        return None;
    }
    let text = match world.workers {
        Some([]) => "it is overdue: no worker is running, so timers do not fire; start one",
        _ => {
            "it is overdue, and workers are running, which fire timers; if this stays so, read their logs"
        }
    };
    Some((Code::Overdue, text.to_owned()))
}

/// `true` if an instance is failing (rule 13.1): open, not blocked, and a step of it has failed more than three times
/// in a row.
pub fn is_failing(instance: &Instance) -> bool {
    !instance.is_blocked() && failing(instance).is_some()
}

/// Returns a reason if a step has failed more than three times in a row. Only then does the row of a workflow have an
/// error.
pub(super) fn failing(instance: &Instance) -> Option<(Code, String)> {
    let error = instance.last_error.as_deref()?;
    // A death is not a failure of the step (rule 5.3).
    let failures = instance.attempt.saturating_sub(instance.deaths);
    let text = match instance.kind {
        _ if instance.status.is_terminal() => return None,
        Kind::Workflow => error.to_owned(),
        Kind::Machine if failures <= FAILURES_HEALTHY => return None,
        Kind::Machine => format!(
            "its step {} has failed {failures} times in a row: {error}",
            instance.step
        ),
    };
    Some((Code::Failing, text))
}

/// Returns the error that the row of a workflow stores for a step of its code that has failed again and will be
/// retried. `None` while the number of failures still counts as healthy.
pub fn failing_step(name: &Name, attempts: u32, error: &str) -> Option<String> {
    (attempts > FAILURES_HEALTHY)
        .then(|| format!("its step {name} has failed {attempts} times in a row: {error}"))
}

/// Returns a reason if something arrived that may have been meant to end the wait and did not.
pub(super) fn near_miss(instance: &Instance, around: &Around) -> Option<Reason> {
    if instance.status != Status::AwaitingSignal || instance.resume_source().is_some() {
        return None;
    }
    let slip = around
        .pending_names
        .iter()
        .find_map(|(name, id)| Some((name, *id, similar::meant(name, instance.awaited())?)));
    if let Some((name, id, meant)) = slip {
        return Some(Reason {
            code: Code::SimilarSignal,
            text: format!(
                "signal {id} is pending under the name {:?}, and it waits for {:?}; if that was meant, send it under that name",
                name.as_str(),
                meant.as_str()
            ),
            command_id: Some(id),
        });
    }
    let event = around.unmatched_event.as_ref()?;
    Some(Reason {
        code: Code::UnmatchedEvent,
        text: format!(
            "event {:?} of type {:?} came since and did not match; compare it with the conditions of the wait",
            event.event_id.as_str(),
            event.event_type.as_str()
        ),
        command_id: None,
    })
}

/// Returns a reason if too many of the children that an instance waits for cannot continue by themselves. It checks the
/// children, not their own children.
pub(super) fn stranded(instance: &Instance, world: World<'_>) -> Option<(Code, String)> {
    let around = world.around?;
    let open = around.children_open().unwrap_or(instance.family.pending);
    let blocked = around.count(|one| one.status == Status::Scheduled && !one.is_due);
    let unserved: Vec<(&Siblings, &(Name, Lane))> = around
        .children
        .iter()
        .filter_map(|one| Some((one, one.runs_on.as_ref()?)))
        .filter(|(_, (queue, lane))| {
            world.workers.is_some_and(|workers| {
                let mut workers = workers.iter();
                !workers.any(|one| serves_lane(one, queue, &lane.machine, lane.version))
            })
        })
        .collect();
    let idle: u32 = unserved.iter().map(|(one, _)| one.count).sum();
    if open.saturating_sub(blocked).saturating_sub(idle) >= instance.family.needed {
        return None;
    }
    if blocked > 0 {
        let text = format!(
            "{blocked} of the children that it waits for cannot go on with the code that is deployed; deploy code that fits, \
             or repair them"
        );
        return Some((Code::ChildrenBlocked, text));
    }
    let lanes = unserved.iter().take(LANES_NAMED);
    let mut lanes: Vec<String> = lanes
        .map(|(_, (queue, lane))| lane_named(queue, &lane.machine, lane.version))
        .collect();
    if let Some(more) = unserved.len().checked_sub(LANES_NAMED)
        && more > 0
    {
        lanes.push(format!("{more} more"));
    }
    (idle > 0).then(|| {
        let text = format!(
            "{idle} of the children that it waits for could run, and no live worker serves {}; start one",
            lanes.join(", or ")
        );
        (Code::ChildrenUnserved, text)
    })
}
